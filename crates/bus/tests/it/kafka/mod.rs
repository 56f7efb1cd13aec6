//! The `kafka` backend against a real broker: the suite, and what only it has.

mod broker;
mod group;
mod records;
mod relay;

use std::{collections::BTreeMap, sync::Arc};

use async_trait::async_trait;
use bus::{Bus, BusOptions, ConsumerStatus, Topic};
use pg::PgPool;
use rdkafka::{
    ClientConfig, Offset, TopicPartitionList,
    consumer::{BaseConsumer, Consumer as _},
    producer::FutureProducer,
};
use testkit::TestDb;
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::conformance::{self, Backend, SOON, options};

/// Topics of its own on a broker that all tests share, and a relay that feeds them.
pub(crate) struct Kafka {
    db: TestDb,
    namespace: String,
    broker: String,
    watcher: Arc<BaseConsumer>,
    _relay: Option<DropGuard>,
}

#[async_trait]
impl Backend for Kafka {
    async fn start() -> Self {
        let mut backend = Self::on(&broker::shared().await).await;
        let (relay, _) = Relay::start(&backend.connect(options()));
        backend._relay = Some(relay.shutdown.drop_guard());
        backend
    }

    fn pool(&self) -> &PgPool {
        &self.db.pool
    }

    fn connect(&self, options: BusOptions) -> Arc<dyn Bus> {
        bus::connect_with(&self.url(), self.db.pool.clone(), options).unwrap()
    }

    async fn lag(&self, topic: Topic) -> u64 {
        // First the outbox: what leaves it in between is at the broker by then.
        let waiting = outbox::depth(&mut self.db.pool.acquire().await.unwrap(), topic).await.unwrap();
        let (watcher, name) = (Arc::clone(&self.watcher), self.topic(topic));
        let ends = tokio::task::spawn_blocking(move || {
            (0..12)
                .map(|partition| (partition, watcher.fetch_watermarks(&name, partition, SOON).unwrap().1))
                .collect()
        });
        let ends: BTreeMap<i32, i64> = ends.await.unwrap();
        let committed = self.committed(topic).await;
        let unread = ends.iter().map(|(partition, end)| end - committed.get(partition).copied().unwrap_or(0));
        waiting + u64::try_from(unread.sum::<i64>()).unwrap()
    }
}

impl Kafka {
    /// On a broker, without a relay.
    async fn on(broker: &str) -> Self {
        let db = TestDb::new().await;
        let namespace = format!("t{}", uuid::Uuid::now_v7().simple());
        let watcher: BaseConsumer = client(broker)
            .set("group.id", format!("{namespace}.aivideo.{}", conformance::TOPIC))
            .create()
            .unwrap();
        let bus = bus::connect(&format!("kafka://{broker}/{namespace}"), db.pool.clone()).unwrap();
        // Whoever starts first makes the topics; the watcher wants to see them.
        let (relay, status) = Relay::start(&bus);
        testkit::wait_until("the topics are there", SOON, || async { status.idle_for().is_some() }).await;
        relay.stop().await;
        Self { db, namespace, broker: broker.to_owned(), watcher: Arc::new(watcher), _relay: None }
    }

    fn url(&self) -> String {
        format!("kafka://{}/{}", self.broker, self.namespace)
    }

    fn topic(&self, topic: Topic) -> String {
        format!("{}.{topic}", self.namespace)
    }

    /// What the group has committed, by partition.
    async fn committed(&self, topic: Topic) -> BTreeMap<i32, i64> {
        let (watcher, name) = (Arc::clone(&self.watcher), self.topic(topic));
        let committed = tokio::task::spawn_blocking(move || {
            let mut list = TopicPartitionList::new();
            list.add_partition_range(&name, 0, 11);
            watcher.committed_offsets(list, SOON).unwrap()
        });
        let committed = committed.await.unwrap();
        let offset = |offset| if let Offset::Offset(offset) = offset { offset } else { 0 };
        committed.elements().iter().map(|element| (element.partition(), offset(element.offset()))).collect()
    }

    /// Somebody who writes to a topic past the outbox.
    fn producer(&self) -> FutureProducer {
        client(&self.broker).create().unwrap()
    }
}

fn client(broker: &str) -> ClientConfig {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", broker).set_log_level(rdkafka::config::RDKafkaLogLevel::Error);
    config
}

/// A relay in a task of its own.
struct Relay {
    shutdown: CancellationToken,
    task: JoinHandle<()>,
}

impl Relay {
    fn start(bus: &Arc<dyn Bus>) -> (Self, ConsumerStatus) {
        let (bus, status, shutdown) = (Arc::clone(bus), ConsumerStatus::new(), CancellationToken::new());
        let task = tokio::spawn({
            let (status, shutdown) = (status.clone(), shutdown.clone());
            async move { bus.relay(status, shutdown).await.unwrap() }
        });
        (Self { shutdown, task }, status)
    }

    async fn stop(self) {
        self.shutdown.cancel();
        tokio::time::timeout(SOON, self.task).await.expect("the relay ends").unwrap();
    }

    /// Kills it wherever it is.
    async fn kill(self) {
        self.task.abort();
        let _ = self.task.await;
    }
}

conformance::suite!(Kafka);
