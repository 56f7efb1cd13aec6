//! What every backend promises, as tests. A backend plugs in by implementing [`Backend`] and calling
//! `conformance::suite!(ItsType)` in a module of its own.

mod delivery;
mod failure;
mod handlers;
mod sharing;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use bus::{Bus, BusOptions, ConsumerStatus, Envelope, Handler, Topic};
pub(crate) use delivery::*;
use domain::{TaskId, retry::Backoff};
pub(crate) use failure::*;
pub(crate) use handlers::*;
use outbox::{DeadLetter, NewEvent};
use pg::PgPool;
pub(crate) use sharing::*;
use tokio::{task::JoinHandle, time::timeout};
use tokio_util::sync::CancellationToken;

pub(crate) const TOPIC: Topic = Topic::GenerationRequested;

/// Longer than anything here should take, even on a busy machine.
pub(crate) const SOON: Duration = Duration::from_secs(30);

/// An empty queue with whatever carries it, for one test.
#[async_trait]
pub(crate) trait Backend: Send + Sync + Sized {
    /// Starts it.
    async fn start() -> Self;
    /// The database with the outbox and the dead letters.
    fn pool(&self) -> &PgPool;
    /// The queue as one process sees it. Called again for each further process.
    fn connect(&self, options: BusOptions) -> Arc<dyn Bus>;
    /// How many messages of the topic have not been acknowledged, wherever they are.
    async fn lag(&self, topic: Topic) -> u64;
}

/// Short enough for tests.
pub(crate) fn options() -> BusOptions {
    BusOptions {
        handler_limit: Duration::from_secs(5),
        backoff: Backoff { first: Duration::from_millis(10), factor: 2, max: Duration::from_millis(50) },
        visible_for: Duration::from_secs(10),
        poll: Duration::from_millis(50),
        ..BusOptions::default()
    }
}

/// A consumer in a task of its own.
pub(crate) struct Consumer {
    pub(crate) status: ConsumerStatus,
    shutdown: CancellationToken,
    task: JoinHandle<()>,
}

impl Consumer {
    pub(crate) fn start(bus: &Arc<dyn Bus>, handler: impl Handler) -> Self {
        let (bus, status, shutdown) = (Arc::clone(bus), ConsumerStatus::new(), CancellationToken::new());
        let task = tokio::spawn({
            let (status, shutdown) = (status.clone(), shutdown.clone());
            async move { bus.run(TOPIC, Arc::new(handler), status, shutdown).await.unwrap() }
        });
        Self { status, shutdown, task }
    }

    /// Asks it to end, without waiting.
    pub(crate) fn ask_to_stop(&self) {
        self.shutdown.cancel();
    }

    /// Ends it in good order.
    pub(crate) async fn stop(self) {
        self.shutdown.cancel();
        timeout(SOON, self.task).await.expect("the consumer drains").unwrap();
    }

    /// Kills it wherever it is.
    pub(crate) async fn kill(self) {
        self.task.abort();
        let _ = self.task.await;
    }
}

pub(crate) fn envelope() -> Envelope {
    Envelope::new(TaskId::generate(), 1, None)
}

pub(crate) fn with_payload(payload: &str) -> NewEvent {
    NewEvent { topic: TOPIC, key: TaskId::generate().as_uuid(), payload: payload.to_owned() }
}

/// Commits messages as their writers do, and nudges.
pub(crate) async fn send(backend: &impl Backend, bus: &Arc<dyn Bus>, events: Vec<NewEvent>) {
    pg::transact(backend.pool(), move |conn| Box::pin(async move { outbox::append(conn, &events).await }))
        .await
        .unwrap();
    bus.nudge(TOPIC);
}

/// Every message is acknowledged. Where several members joined a moment ago that takes as long as their group needs to share
/// its partitions out, since what a member had under way then is handed in once more by its successor.
pub(crate) async fn drained(backend: &impl Backend) {
    let settled = 3 * SOON;
    testkit::wait_until("every message is acknowledged", settled, || async { backend.lag(TOPIC).await == 0 })
        .await;
}

/// The dead letters, oldest first.
pub(crate) async fn letters(backend: &impl Backend) -> Vec<DeadLetter> {
    let mut conn = backend.pool().acquire().await.unwrap();
    let mut letters = outbox::dead_letters(&mut conn, Some(TOPIC), None, 1_000).await.unwrap();
    letters.reverse();
    letters
}

/// Makes one test of each promise.
macro_rules! suite {
    ($backend:ty) => {
        $crate::conformance::suite!($backend:
            a_message_arrives_with_its_topic_key_and_payload,
            messages_of_one_key_usually_arrive_in_order,
            a_message_is_acknowledged_after_its_handler_and_not_before,
            what_was_committed_while_nobody_listened_arrives,
            a_message_of_a_killed_consumer_comes_again,
            a_shutdown_finishes_the_batch_in_hand,
            a_shutdown_amid_retries_gives_the_batch_back,
            a_failure_that_passes_loses_nothing,
            a_message_that_always_fails_is_buried_after_three_retries,
            bad_records_are_buried_and_replayed_once,
            a_hanging_handler_does_not_stop_the_queue,
            consumers_share_the_messages,
        );
    };
    ($backend:ty: $($promise:ident,)*) => {$(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $promise() {
            let backend = <$backend as $crate::conformance::Backend>::start().await;
            $crate::conformance::$promise(backend).await;
        }
    )*};
}
pub(crate) use suite;
