//! The `kafka` backend against a real broker: the suite, and what only it has.

mod broker;
mod group;
mod membership;
mod records;
mod relay;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use async_trait::async_trait;
use bus::{Bus, BusOptions, ConsumerStatus, Topic};
use pg::PgPool;
use rdkafka::{
    ClientConfig, Offset, TopicPartitionList,
    admin::{AdminClient, AdminOptions},
    client::DefaultClientContext,
    consumer::{BaseConsumer, Consumer as _},
    error::KafkaResult,
    producer::FutureProducer,
    topic_partition_list::TopicPartitionListElem,
};
use testkit::TestDb;
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::conformance::{self, Backend, SOON, options};

const ANSWER_LIMIT: Duration = Duration::from_secs(5);

/// Topics of its own on a broker that all tests share, and a relay that feeds them.
pub(crate) struct Kafka {
    db: TestDb,
    namespace: String,
    broker: String,
    watcher: Arc<BaseConsumer>,
    relay: Option<DropGuard>,
}

#[async_trait]
impl Backend for Kafka {
    async fn start() -> Self {
        let mut backend = Self::on(&broker::shared().await).await;
        let (relay, status) = Relay::start(&backend.connect(options()));
        // Whoever starts first makes the topics.
        testkit::wait_until("the topics are there", SOON, || async { status.idle_for().is_some() }).await;
        backend.relay = Some(relay.shutdown.drop_guard());
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
        let ends = self.offsets(topic, |watcher, name| {
            let mut list = TopicPartitionList::new();
            (0..12).for_each(|partition| list.add_partition_offset(name, partition, Offset::End).unwrap());
            watcher.offsets_for_times(list, ANSWER_LIMIT)
        });
        let ends = ends.await;
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
        Self { db, namespace, broker: broker.to_owned(), watcher: Arc::new(watcher), relay: None }
    }

    fn url(&self) -> String {
        format!("kafka://{}/{}", self.broker, self.namespace)
    }

    fn topic(&self, topic: Topic) -> String {
        format!("{}.{topic}", self.namespace)
    }

    /// What the group has committed, by partition.
    async fn committed(&self, topic: Topic) -> BTreeMap<i32, i64> {
        let committed = self.offsets(topic, |watcher, name| {
            let mut list = TopicPartitionList::new();
            list.add_partition_range(name, 0, 11);
            watcher.committed_offsets(list, ANSWER_LIMIT)
        });
        committed.await
    }

    /// Asks the broker until it answers: a topic that was just made has no leader yet.
    async fn offsets(
        &self,
        topic: Topic,
        ask: impl Fn(&BaseConsumer, &str) -> KafkaResult<TopicPartitionList> + Send + Sync + 'static,
    ) -> BTreeMap<i32, i64> {
        let ask = Arc::new(ask);
        testkit::wait_for("the broker's answer", SOON, || async {
            let (watcher, name, ask) = (Arc::clone(&self.watcher), self.topic(topic), Arc::clone(&ask));
            let answer = tokio::task::spawn_blocking(move || ask(&watcher, &name)).await.unwrap().ok()?;
            let elements = answer.elements();
            let offset = |found: &TopicPartitionListElem<'_>| {
                found.error().ok()?;
                let offset = if let Offset::Offset(offset) = found.offset() { offset } else { 0 };
                Some((found.partition(), offset))
            };
            elements.iter().map(offset).collect()
        })
        .await
    }

    /// Somebody who writes to a topic past the outbox.
    fn producer(&self) -> FutureProducer {
        client(&self.broker).create().unwrap()
    }
}

impl Drop for Kafka {
    /// A broker that many runs share is not to fill up.
    fn drop(&mut self) {
        self.relay.take();
        let (broker, topics) = (self.broker.clone(), Topic::ALL.iter().map(|topic| self.topic(*topic)));
        let topics: Vec<String> = topics.collect();
        let delete = async move {
            let admin: AdminClient<DefaultClientContext> = client(&broker).create().unwrap();
            let topics: Vec<&str> = topics.iter().map(String::as_str).collect();
            let options = AdminOptions::new().request_timeout(Some(ANSWER_LIMIT));
            let _ = admin.delete_topics(&topics, &options).await;
        };
        let _ = std::thread::spawn(|| futures::executor::block_on(delete)).join();
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
