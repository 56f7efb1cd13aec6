//! The `postgres` backend: the suite, and what only it has.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use bus::{Bus, BusOptions, Topic};
use pg::PgPool;
use sqlx::postgres::PgPoolOptions;
use testkit::TestDb;
use tokio::time::Instant;

use crate::conformance::{self, Backend, Consumer, SOON, TOPIC, Tell, drained, options, send, with_payload};

struct Postgres(TestDb);

#[async_trait]
impl Backend for Postgres {
    async fn start() -> Self {
        Self(TestDb::new().await)
    }

    fn pool(&self) -> &PgPool {
        &self.0.pool
    }

    fn connect(&self, options: BusOptions) -> Arc<dyn Bus> {
        bus::connect_with("postgres", self.0.pool.clone(), options).unwrap()
    }

    async fn lag(&self, topic: Topic) -> u64 {
        outbox::depth(&mut self.0.pool.acquire().await.unwrap(), topic).await.unwrap()
    }
}

conformance::suite!(Postgres);

/// So long that whatever arrives did not wait for it.
const NEVER: Duration = Duration::from_secs(3_600);

async fn connections(backend: &Postgres, like: &str) -> i64 {
    sqlx::query_scalar(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE $1",
    )
    .bind(like)
    .fetch_one(backend.pool())
    .await
    .unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_nudge_within_the_process_needs_no_poll() {
    let backend = Postgres::start().await;
    let bus = backend.connect(BusOptions { poll: NEVER, ..options() });
    let (handler, mut told) = Tell::new();
    let consumer = Consumer::start(&bus, handler);
    for _ in 0..50 {
        send(&backend, &bus, vec![with_payload("{}")]).await;
        told.next(1).await;
    }
    drained(&backend).await;
    consumer.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_nudge_reaches_other_processes_that_listen() {
    let backend = Postgres::start().await;
    let (writer, reader) =
        (backend.connect(options()), backend.connect(BusOptions { poll: NEVER, ..options() }));
    let (handler, mut told) = Tell::new();
    let consumer = Consumer::start(&reader, handler);
    testkit::wait_until("the reader listens", SOON, || async { connections(&backend, "LISTEN%").await == 1 })
        .await;
    for _ in 0..20 {
        send(&backend, &writer, vec![with_payload("{}")]).await;
        told.next(1).await;
    }
    consumer.stop().await;
    drop((writer, reader));
    let gone = || async {
        connections(&backend, "LISTEN%").await + connections(&backend, "%pg_notify($1%").await == 0
    };
    testkit::wait_until("the connections end with their handles", SOON, gone).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_any_nudge_the_poll_finds_it() {
    let backend = Postgres::start().await;
    let (handler, mut told) = Tell::new();
    let consumer = Consumer::start(&backend.connect(BusOptions::default()), handler);
    testkit::wait_until("the consumer has looked", SOON, || async { consumer.status.idle_for().is_some() })
        .await;
    let events = [with_payload("{}")];
    pg::transact(backend.pool(), move |conn| Box::pin(async move { outbox::append(conn, &events).await }))
        .await
        .unwrap();
    let committed = Instant::now();
    told.next(1).await;
    assert!(committed.elapsed() < Duration::from_secs(2), "{:?}", committed.elapsed());
    consumer.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_consumer_survives_the_loss_of_its_connections() {
    let backend = Postgres::start().await;
    // A claim whose answer was lost comes back soon.
    let bus = backend.connect(BusOptions { visible_for: Duration::from_millis(500), ..options() });
    let (handler, mut told) = Tell::new();
    let consumer = Consumer::start(&bus, handler);
    for round in 0..3 {
        send(&backend, &bus, vec![with_payload("{}")]).await;
        told.next(1).await;
        let killed: i64 = sqlx::query_scalar(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
             WHERE datname = current_database() AND pid <> pg_backend_pid()",
        )
        .fetch_one(backend.pool())
        .await
        .unwrap();
        assert!(killed > 0, "round {round}");
    }
    drained(&backend).await;
    consumer.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_status_tells_a_queue_that_cannot_be_read() {
    let nowhere = PgPoolOptions::new()
        .acquire_timeout(Duration::from_millis(100))
        .connect_lazy("postgres://postgres@127.0.0.1:1/nowhere")
        .unwrap();
    let bus = bus::connect("postgres", nowhere).unwrap();
    let consumer = Consumer::start(&bus, Tell::new().0);
    testkit::wait_until("the fault shows", SOON, || async { consumer.status.last_error().is_some() }).await;
    assert_eq!(consumer.status.idle_for(), None);
    consumer.stop().await;
}

#[tokio::test]
async fn no_consumer_is_needed_to_nudge() {
    let backend = Postgres::start().await;
    let bus = backend.connect(options());
    Topic::ALL.iter().for_each(|topic| bus.nudge(*topic));
    assert_eq!(backend.lag(TOPIC).await, 0);
}
