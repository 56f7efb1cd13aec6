//! Two bounds that are promised, each measured in one run against the Redis of `REDIS_URL`, in a corner of its own.
//!
//! - Deciding whose turn it is (a pop, its end, and the task that comes for it) with 100,000 queued tasks of 10,000 tenants takes
//!   at most twice as long as with 1,000 of 100. Both queues are there at the same time and take turns, so whatever
//!   else the machine does meets both alike.
//! - All limits at the entry cost at most 1.5 round trips to Redis, counted as the server counts what it reads.
//!
//! `cargo bench -p control --bench decision`; it fails where a bound is broken.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use control::{
    Admission, Control, ControlConfig, InflowCharge, InflowCheck, InflowKey, InflowLimit, IpCharge,
    ReadyTask, ReplayKey,
};
use domain::{
    ModelName, Priority, TaskId, TenantId, UserId, WorkerId,
    limits::{Bucket, LimitScope},
};
use testkit::TestRedis;

const PATIENCE: Duration = Duration::from_secs(10);
/// Each tenant has one user with so many tasks.
const TASKS_PER_TENANT: usize = 10;
const ROUNDS: usize = 100;
const DECISIONS_PER_ROUND: usize = 50;
const ADMITS: u32 = 2_000;

const RATIO_MAX: f64 = 2.0;
const TRIPS_MAX: f64 = 1.5;

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let corner = TestRedis::new();
    let config = ControlConfig {
        prefix: corner.prefix.clone(),
        connect_limit: PATIENCE,
        response_limit: PATIENCE,
        ..ControlConfig::single(corner.url.clone())
    };
    let control = Control::new(config).expect("REDIS_URL");
    let ratio = decisions(&control).await;
    let trips = limits(&control, &corner.url).await;
    assert!(ratio <= RATIO_MAX, "a decision over the long queue takes {ratio:.2} times as long");
    assert!(trips <= TRIPS_MAX, "the limits cost {trips:.2} round trips");
}

/// A queue of so many tasks.
struct Queue {
    model: ModelName,
    worker: WorkerId,
    pops: u64,
    took: Vec<Duration>,
}

impl Queue {
    async fn new(control: &Control, name: &str, tasks: usize) -> Self {
        let model: ModelName = name.parse().expect("a name");
        let began = Instant::now();
        let mut batch = VecDeque::new();
        for _ in 0..tasks / TASKS_PER_TENANT {
            let (tenant, user) = (TenantId::generate(), UserId::generate());
            batch.extend((0..TASKS_PER_TENANT).map(|_| task(&model, tenant, user)));
            if batch.len() >= 1_000 {
                control.add_ready(batch.make_contiguous()).await.expect("added");
                batch.clear();
            }
        }
        control.add_ready(batch.make_contiguous()).await.expect("added");
        control.mark_ready(&model).await.expect("marked");
        println!("{tasks:>7} queued tasks were added in {:?}", began.elapsed());
        Self { model, worker: "bench".parse().expect("a name"), pops: 0, took: Vec::new() }
    }

    /// One decision: who is next, and that it has started. Then another task of the same user comes, so the queue stays as
    /// long as it is.
    async fn decide(&mut self, control: &Control) -> Duration {
        self.pops += 1;
        let began = Instant::now();
        let popped =
            control.pop_ready(&self.model, 1, &self.worker, self.pops).await.expect("an answer").tasks;
        assert_eq!(popped.len(), 1, "the queue is never empty");
        control.done_ready(&popped).await.expect("an answer");
        let took = began.elapsed();
        let next = task(&self.model, popped[0].tenant, popped[0].user);
        control.add_ready(&[next]).await.expect("added");
        took
    }

    fn median(&mut self) -> Duration {
        self.took.sort_unstable();
        self.took[self.took.len() / 2]
    }
}

fn task(model: &ModelName, tenant: TenantId, user: UserId) -> ReadyTask {
    ReadyTask {
        task: TaskId::generate(),
        model: model.clone(),
        tenant,
        user,
        priority: Priority::default(),
        tenant_weight: 1,
        created_ms: 1_790_000_000_000,
        not_before_ms: 0,
        next_attempt_no: 1,
    }
}

/// How many times as long a decision over the long queue takes as one over the short.
async fn decisions(control: &Control) -> f64 {
    let mut queues = [Queue::new(control, "short", 1_000).await, Queue::new(control, "long", 100_000).await];
    for round in 0..=ROUNDS {
        for queue in &mut queues {
            for _ in 0..DECISIONS_PER_ROUND {
                let took = queue.decide(control).await;
                // The first round only warms up.
                if round > 0 {
                    queue.took.push(took);
                }
            }
        }
    }
    let [short, long] = queues.each_mut().map(Queue::median);
    let ratio = long.as_secs_f64() / short.as_secs_f64();
    println!(
        "a decision takes {short:?} with 1,000 queued and {long:?} with 100,000 (medians): ratio {ratio:.2}"
    );
    ratio
}

/// How many round trips all limits of one request cost.
async fn limits(control: &Control, url: &str) -> f64 {
    let (tenant, user) = (TenantId::generate(), UserId::generate());
    let check = |key, scope| InflowCheck {
        scope,
        key,
        rule: "submit",
        limit: InflowLimit::Bucket(Bucket::per_second(1_000_000, 1_000_000)),
        cost: 1,
        shadow: false,
    };
    let charge = InflowCharge {
        tenant,
        replay: Some(ReplayKey { user, hash: "0".repeat(64) }),
        checks: vec![
            check(InflowKey::User(user), LimitScope::User),
            check(InflowKey::Tenant, LimitScope::Tenant),
            check(InflowKey::Endpoint("generations"), LimitScope::Endpoint),
            check(InflowKey::Model("mock-fast".parse().expect("a name")), LimitScope::Model),
        ],
        ip: Some(IpCharge { ip: [192, 0, 2, 1].into(), limit: u32::MAX, window_ms: 10_000 }),
    };
    let admit = async || {
        let answer = control.admit(charge.clone()).await.expect("an answer");
        assert!(matches!(answer, Admission::Granted(_)), "{answer:?}");
    };
    // The connection and the scripts are there afterwards.
    admit().await;
    let client = redis::Client::open(url).expect("REDIS_URL");
    let mut connection = client.get_multiplexed_async_connection().await.expect("a connection");
    let mut reads = async || -> u64 {
        let info: String = redis::cmd("INFO").arg("stats").query_async(&mut connection).await.expect("INFO");
        let found = info.lines().find_map(|line| line.strip_prefix("total_reads_processed:"));
        found.expect("a count").trim().parse().expect("a number")
    };
    let (before, began) = (reads().await, Instant::now());
    for _ in 0..ADMITS {
        admit().await;
    }
    let took = began.elapsed() / ADMITS;
    // Asking is a read as well.
    let read = reads().await - before - 1;
    let began = Instant::now();
    for _ in 0..ADMITS {
        control.now_ms().await.expect("an answer");
    }
    let plain = began.elapsed() / ADMITS;
    #[expect(clippy::cast_precision_loss, reason = "some thousands")]
    let trips = read as f64 / f64::from(ADMITS);
    println!(
        "five limits of one request cost {trips:.2} round trips and {took:?}; asking for the time costs {plain:?}"
    );
    trips
}
