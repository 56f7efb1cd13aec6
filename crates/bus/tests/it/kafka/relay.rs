//! Relays: several of them, dead ones, and brokers that go away.

use std::{collections::HashSet, time::Duration};

use bus::Envelope;
use domain::TaskId;
use outbox::NewEvent;
use tokio::time::{Instant, sleep_until};

use super::{broker::Private, membership::SESSION, *};
use crate::conformance::{Consumer, TOPIC, Tell, Told, drained, envelope, letters, send, with_payload};

/// After which a broker is fenced: its session with the controller, nine seconds, and a heartbeat.
const FENCED: Duration = Duration::from_secs(12);

/// How many shards each relay holds, the greediest first.
async fn shards(backend: &Kafka) -> Vec<i64> {
    sqlx::query_scalar(
        "SELECT count(*) FROM pg_locks
         WHERE locktype = 'advisory' AND classid = 1634301554 AND objid < 12 AND granted
           AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
         GROUP BY pid ORDER BY 1 DESC",
    )
    .fetch_all(backend.pool())
    .await
    .unwrap()
}

async fn shared_out(backend: &Kafka, among: &[i64]) {
    testkit::wait_until("the shards are shared out", SOON, || async { shards(backend).await == among }).await;
}

async fn send_many(backend: &Kafka, bus: &Arc<dyn Bus>, count: usize) -> Vec<Envelope> {
    let sent: Vec<_> = (0..count).map(|_| envelope()).collect();
    send(backend, bus, sent.iter().map(|envelope| NewEvent::about(TOPIC, envelope)).collect()).await;
    sent
}

async fn arrive(told: &mut Told, sent: impl IntoIterator<Item = Envelope>) {
    let mut left: HashSet<_> = sent.into_iter().map(|envelope| envelope.event_id).collect();
    while !left.is_empty() {
        left.remove(&told.next(1).await[0].envelope().unwrap().event_id);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn relays_share_the_shards_and_take_over_those_of_a_dead_one() {
    let backend = Kafka::on(&broker::shared().await).await;
    let processes: Vec<_> = (0..2).map(|_| backend.connect(options())).collect();
    let (first, _) = Relay::start(&processes[0]);
    shared_out(&backend, &[12]).await;
    let (second, _) = Relay::start(&processes[1]);
    shared_out(&backend, &[6, 6]).await;

    let (handler, mut told) = Tell::new();
    let consumer = Consumer::start(&processes[0], handler);
    let mut sent = send_many(&backend, &processes[0], 3_000).await;
    first.kill().await;
    sent.extend(send_many(&backend, &processes[0], 500).await);
    arrive(&mut told, sent).await;
    shared_out(&backend, &[12]).await;
    drained(&backend).await;
    consumer.stop().await;
    second.stop().await;
    assert_eq!(shards(&backend).await, [0_i64; 0], "an orderly end leaves nothing behind");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_relay_that_loses_its_session_begins_anew() {
    let backend = Kafka::start().await;
    let bus = backend.connect(options());
    let (handler, mut told) = Tell::new();
    let consumer = Consumer::start(&bus, handler);
    for _ in 0..2 {
        shared_out(&backend, &[12]).await;
        let killed: i64 = sqlx::query_scalar(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_locks WHERE classid = 1634301554 AND objid = 100
               AND database = (SELECT oid FROM pg_database WHERE datname = current_database())",
        )
        .fetch_one(backend.pool())
        .await
        .unwrap();
        assert_eq!(killed, 1);
        let sent = send_many(&backend, &bus, 10).await;
        arrive(&mut told, sent).await;
    }
    drained(&backend).await;
    consumer.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_no_broker_takes_is_buried_and_holds_up_nobody() {
    let backend = Kafka::start().await;
    let bus = backend.connect(options());
    let (handler, mut told) = Tell::new();
    let consumer = Consumer::start(&bus, handler);
    let task = TaskId::generate();
    let huge = NewEvent { topic: TOPIC, key: task.as_uuid(), payload: "x".repeat(2_000_000) };
    let behind = Envelope::new(task, 2, None);
    send(&backend, &bus, vec![huge, NewEvent::about(TOPIC, &behind)]).await;
    arrive(&mut told, [behind]).await;
    drained(&backend).await;
    let buried = letters(&backend).await;
    assert_eq!(buried.iter().map(|letter| letter.payload.len()).collect::<Vec<_>>(), [2_000_000]);
    consumer.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_that_stops_or_freezes_and_returns_loses_nothing() {
    let broker = Private::start().await;
    let backend = Kafka::on(&broker.address).await;
    let bus = backend.connect(options());
    let (relay, status) = Relay::start(&bus);
    let (handler, mut told) = Tell::new();
    let consumer = Consumer::start(&bus, handler);
    let sent = send_many(&backend, &bus, 50).await;
    arrive(&mut told, sent).await;

    broker.stop().await;
    let sent = send_many(&backend, &bus, 50).await;
    testkit::wait_until("the relay says so", SOON, || async { status.last_error().is_some() }).await;
    testkit::wait_until("so does the consumer", SOON, || async { consumer.status.last_error().is_some() })
        .await;
    broker.start_again().await;
    let back = Instant::now();
    arrive(&mut told, sent).await;
    println!("the broker that stopped was back, and its messages after {:?}", back.elapsed());
    assert!(back.elapsed() < SESSION, "members that the broker knew wait for nobody: {:?}", back.elapsed());

    broker.freeze();
    let frozen = Instant::now();
    let sent = send_many(&backend, &bus, 50).await;
    testkit::wait_until("the relay says so", SOON, || async { status.last_error().is_some() }).await;
    // Its own controller misses it as well and fences it, so that for a moment it names no brokers to its clients.
    sleep_until(frozen + FENCED).await;
    broker.thaw();
    let back = Instant::now();
    arrive(&mut told, sent).await;
    println!("the broker that froze was back, and its messages after {:?}", back.elapsed());

    let waits = || async { backend.lag(TOPIC).await == 0 && status.last_error().is_none() };
    testkit::wait_until("all is well again", SOON, waits).await;
    assert!(status.since_progress() < Duration::from_secs(5));
    send(&backend, &bus, vec![with_payload("{}")]).await;
    told.next(1).await;
    consumer.stop().await;
    relay.stop().await;
}
