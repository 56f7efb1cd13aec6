//! Case C37: a group that changes all the time, a handler that takes too long, a member that stands still.

use std::{
    process::Stdio,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use bus::{GroupProtocol, Handler, HandlerError, MembershipOptions, Message};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use outbox::NewEvent;
use tokio::time::{Instant, sleep};

use super::*;
use crate::conformance::{Consumer, TOPIC, drained, envelope, send};

const STALL: Duration = Duration::from_secs(3);

fn quick(protocol: GroupProtocol) -> BusOptions {
    let membership = MembershipOptions {
        protocol,
        session: Duration::from_secs(3),
        stall: STALL,
        drain: Duration::from_secs(2),
    };
    BusOptions { membership, batch_max: 20, handler_limit: Duration::from_secs(20), ..options() }
}

/// Makes one effect per event, whoever comes how often, and notes who came.
struct Effects {
    pool: PgPool,
    who: &'static str,
    /// To be slower than the group allows a member to be silent, once.
    slow: AtomicBool,
}

#[async_trait]
impl Handler for Effects {
    async fn handle(&self, batch: &[Message]) -> Result<(), HandlerError> {
        if self.slow.swap(false, Ordering::SeqCst) {
            sleep(STALL + Duration::from_secs(1)).await;
        }
        let ids: Vec<_> = batch.iter().map(|message| message.envelope().unwrap().event_id).collect();
        sqlx::query("INSERT INTO effects SELECT unnest($1::uuid[]), $2 ON CONFLICT DO NOTHING")
            .bind(&ids)
            .bind(self.who)
            .execute(&self.pool)
            .await
            .map_err(HandlerError::failed)?;
        Ok(())
    }
}

impl Effects {
    fn by(who: &'static str, pool: &PgPool) -> Self {
        Self { pool: pool.clone(), who, slow: AtomicBool::new(false) }
    }
}

pub(super) async fn effects_table(pool: &PgPool) {
    let create = "CREATE TABLE effects (event uuid PRIMARY KEY, who text NOT NULL)";
    sqlx::query(create).execute(pool).await.unwrap();
}

pub(super) async fn effects(pool: &PgPool, who: &str) -> i64 {
    let count = sqlx::query_scalar("SELECT count(*) FROM effects WHERE who LIKE $1");
    count.bind(who).fetch_one(pool).await.unwrap()
}

const URL: &str = "AIVTEST_MEMBER_URL";
const DATABASE: &str = "AIVTEST_MEMBER_DATABASE";
const CLASSIC: &str = "AIVTEST_MEMBER_CLASSIC";

/// A member in a process of its own: only a process can stand still as a whole, or die without a word.
pub(super) struct MemberProcess(tokio::process::Child);

impl MemberProcess {
    pub(super) fn start(backend: &Kafka, protocol: GroupProtocol) -> Self {
        let mut command = tokio::process::Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "kafka::group::a_member_in_a_process_of_its_own", "--ignored", "--nocapture"])
            .env(URL, backend.url())
            .env(DATABASE, &backend.db.url)
            .stdout(Stdio::null())
            .kill_on_drop(true);
        if protocol == GroupProtocol::Classic {
            command.env(CLASSIC, "1");
        }
        Self(command.spawn().unwrap())
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.0.id().unwrap()).unwrap());
        kill(pid, signal).unwrap();
    }

    /// kill -9.
    pub(super) async fn kill(&mut self) {
        self.0.kill().await.unwrap();
    }
}

/// Runs in that process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a part of other tests, which start it in a process of its own"]
async fn a_member_in_a_process_of_its_own() {
    let pool = sqlx::postgres::PgPoolOptions::new()
        .max_connections(2)
        .connect(&std::env::var(DATABASE).unwrap())
        .await
        .unwrap();
    let protocol =
        if std::env::var_os(CLASSIC).is_some() { GroupProtocol::Classic } else { GroupProtocol::Consumer };
    let bus = bus::connect_with(&std::env::var(URL).unwrap(), pool.clone(), quick(protocol)).unwrap();
    let _consumer = Consumer::start(&bus, Effects::by("process", &pool));
    std::future::pending().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_in_turmoil_makes_every_effect_and_commits_nothing_twice() {
    turmoil(GroupProtocol::Consumer).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn so_does_a_classic_one() {
    turmoil(GroupProtocol::Classic).await;
}

async fn turmoil(protocol: GroupProtocol) {
    let backend = Kafka::start().await;
    let pool = backend.pool();
    effects_table(pool).await;
    let bus = backend.connect(quick(protocol));
    let slow = Effects { slow: AtomicBool::new(true), ..Effects::by("slow", pool) };
    let first = Consumer::start(&bus, slow);
    let mut process = MemberProcess::start(&backend, protocol);

    let mut sent = 0;
    let mut committed = BTreeMap::new();
    let mut step = async |count: i64| {
        let events = (0..count).map(|_| NewEvent::about(TOPIC, &envelope())).collect();
        send(&backend, &bus, events).await;
        sent += count;
        let now = backend.committed(TOPIC).await;
        for (partition, offset) in &now {
            let before = committed.insert(*partition, *offset).unwrap_or(0);
            assert!(before <= *offset, "partition {partition} went back from {before} to {offset}");
        }
        sent
    };
    let both = || async { effects(pool, "slow").await > 0 && effects(pool, "process").await > 0 };
    let started = Instant::now();
    while !both().await {
        assert!(started.elapsed() < SOON, "both members get messages");
        step(12).await;
        sleep(Duration::from_millis(200)).await;
    }
    // A third member comes and goes.
    for _ in 0..3 {
        let third = Consumer::start(&bus, Effects::by("third", pool));
        for _ in 0..5 {
            step(30).await;
            sleep(Duration::from_millis(200)).await;
        }
        third.stop().await;
        step(30).await;
        sleep(Duration::from_secs(1)).await;
    }
    // One stands still for twice as long as the group waits.
    process.signal(Signal::SIGSTOP);
    let still = Instant::now();
    while still.elapsed() < STALL * 2 {
        step(30).await;
        sleep(Duration::from_millis(200)).await;
    }
    let sent_until_then = step(30).await;
    let others = || async { effects(pool, "%").await == sent_until_then };
    testkit::wait_until("the others do its work", SOON, others).await;
    let before = effects(pool, "process").await;
    process.signal(Signal::SIGCONT);
    let started = Instant::now();
    while effects(pool, "process").await == before {
        assert!(started.elapsed() < SOON, "the member takes part again");
        step(12).await;
        sleep(Duration::from_millis(200)).await;
    }
    let sent = step(1).await;
    drained(&backend).await;
    assert_eq!(effects(pool, "%").await, sent);
    assert_eq!(first.status.last_error(), None);
    process.kill().await;
    first.stop().await;
}
