//! Round trips of the scripts that every generation passes: the limits at the entry, and the decision whose turn it
//! is, over a short and over a long queue. Against the Redis of `REDIS_URL`, in a corner of its own.
//!
//! `cargo bench -p control`

use std::time::Duration;

use control::{
    Control, ControlConfig, InflowCharge, InflowCheck, InflowKey, InflowLimit, Park, ReadyTask, ReplayKey,
};
use divan::Bencher;
use domain::{
    ModelName, Priority, TaskId, TenantId, UserId,
    limits::{Bucket, LimitScope},
};
use testkit::TestRedis;
use tokio::runtime::Runtime;

fn main() {
    divan::main();
}

const PATIENCE: Duration = Duration::from_secs(10);
/// Tasks that one user has in Redis at most.
const HEADS: u32 = 100;

struct Bench {
    runtime: Runtime,
    control: Control,
    _corner: TestRedis,
}

impl Bench {
    fn new() -> Self {
        let corner = TestRedis::new();
        let runtime = Runtime::new().expect("a runtime");
        let entered = runtime.enter();
        // Patient, because a queue of 100,000 is made in one go and the machine may be busy.
        let config = ControlConfig {
            prefix: corner.prefix.clone(),
            connect_limit: PATIENCE,
            response_limit: PATIENCE,
            ..ControlConfig::single(corner.url.clone())
        };
        let control = Control::new(config).expect("REDIS_URL");
        drop(entered);
        Self { runtime, control, _corner: corner }
    }
}

#[divan::bench]
fn admit(bencher: Bencher<'_, '_>) {
    let bench = Bench::new();
    let (tenant, user) = (TenantId::generate(), UserId::generate());
    let bucket = Bucket::per_second(1_000_000, 1_000_000);
    let limit = InflowLimit::Bucket(bucket);
    let check =
        |key, scope| InflowCheck { scope, key, rule: "submit", limit: limit.clone(), cost: 1, shadow: false };
    let charge = InflowCharge {
        tenant,
        replay: Some(ReplayKey { user, hash: "0".repeat(64) }),
        checks: vec![
            check(InflowKey::User(user), LimitScope::User),
            check(InflowKey::Tenant, LimitScope::Tenant),
        ],
        ip: None,
    };
    bencher.with_inputs(|| charge.clone()).bench_local_values(|charge| {
        bench.runtime.block_on(bench.control.admit(charge)).expect("admitted");
    });
}

/// One task is popped and put back to its place, so the queue stays as long as it is.
#[divan::bench(args = [1_000, 100_000])]
fn pop_and_put_back(bencher: Bencher<'_, '_>, queued: u32) {
    let bench = Bench::new();
    let model: ModelName = "mock-fast".parse().expect("a name");
    bench.runtime.block_on(fill(&bench.control, &model, queued));
    let (worker, mut number) = ("bench".parse().expect("a name"), 0);
    bencher.bench_local(|| {
        number += 1;
        bench.runtime.block_on(async {
            let popped = bench.control.pop_ready(&model, 1, &worker, number).await.expect("popped").tasks;
            let [task] = <[ReadyTask; 1]>::try_from(popped).expect("one task");
            bench.control.put_back(&[(task, Park::Head)]).await.expect("put back");
        });
    });
}

/// Ten users a tenant, each with as many heads as there may be.
async fn fill(control: &Control, model: &ModelName, queued: u32) {
    let mut tenant = TenantId::generate();
    for user in 0..queued / HEADS {
        if user % 10 == 0 {
            tenant = TenantId::generate();
        }
        let user = UserId::generate();
        let heads: Vec<ReadyTask> = (0..HEADS)
            .map(|n| ReadyTask {
                task: TaskId::generate(),
                model: model.clone(),
                tenant,
                user,
                priority: Priority::default(),
                tenant_weight: 1,
                created_ms: n.into(),
                not_before_ms: 0,
                next_attempt_no: 1,
            })
            .collect();
        control.add_ready(&heads).await.expect("added");
    }
    control.mark_ready(model).await.expect("marked");
}
