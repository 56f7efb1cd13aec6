//! The backend with a broker: a relay feeds Kafka from the outbox, consumers read it as a group.
//!
//! Whoever appends to the outbox never talks to the broker. `relay` sends what was committed and removes it after
//! the broker's acknowledgement; `consumer` joins the group of a topic and hands batches to the handler, while
//! `member`, on a thread of its own, keeps the membership alive however long a handler takes.

mod client;
mod committer;
mod consumer;
mod context;
mod member;
mod progress;
mod relay;
mod seat;
mod topics;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use outbox::Topic;
use pg::PgPool;
use rdkafka::error::KafkaError;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::{Bus, BusError, BusOptions, ConsumerStatus, Handler, KafkaAddress, hints::Hints};

/// The first pause after a fault. It doubles while the fault lasts.
const RECOVERY_MIN: Duration = Duration::from_millis(500);

/// The longest pause after a fault: a broker that is back is not to wait longer for us.
const RECOVERY_MAX: Duration = Duration::from_secs(1);

/// Why a client is given up and built anew.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KafkaFault {
    #[error("Kafka")]
    Kafka(#[from] KafkaError),
    #[error("topic {topic} could not be made: {code}")]
    Topic { topic: String, code: rdkafka::types::RDKafkaErrorCode },
    #[error("the outbox cannot be read")]
    Outbox(#[from] pg::PgError),
    #[error("{failed} of {sent} message(s) were not acknowledged")]
    NotAcknowledged {
        sent: usize,
        failed: usize,
        #[source]
        error: KafkaError,
    },
    #[error("the consumer is out of its group: {0}")]
    OutOfGroup(String),
    #[error("no broker is known any more")]
    Forgotten,
    #[error("the broker knows no groups of Kafka 4: queue.group_protocol = \"classic\" does without them")]
    GroupProtocol,
    #[error("a thread of the consumer could not be started, or ended")]
    Thread,
}

pub(crate) struct KafkaBus {
    address: KafkaAddress,
    pool: PgPool,
    options: BusOptions,
    hints: Hints,
}

impl KafkaBus {
    pub(crate) fn new(address: KafkaAddress, pool: PgPool, options: BusOptions) -> Self {
        Self { hints: Hints::new(&pool), address, pool, options }
    }

    /// The name of a topic at the broker.
    fn topic_name(&self, topic: Topic) -> String {
        self.address.named(topic.as_str())
    }

    /// The name of the one group that consumes a topic.
    fn group_name(&self, topic: Topic) -> String {
        self.address.named(&format!("aivideo.{topic}"))
    }
}

#[async_trait]
impl Bus for KafkaBus {
    async fn run(
        &self,
        topic: Topic,
        handler: Arc<dyn Handler>,
        status: ConsumerStatus,
        shutdown: CancellationToken,
    ) -> Result<(), BusError> {
        let attempt = || consumer::consume(self, topic, &*handler, &status, &shutdown);
        until_shutdown(&status, &shutdown, &format!("the consumer of {topic}"), attempt).await;
        Ok(())
    }

    async fn relay(&self, status: ConsumerStatus, shutdown: CancellationToken) -> Result<(), BusError> {
        let attempt = || relay::relay(self, &status, &shutdown);
        until_shutdown(&status, &shutdown, "the relay", attempt).await;
        Ok(())
    }

    fn nudge(&self, topic: Topic) {
        self.hints.nudge(topic);
    }
}

/// Repeats `attempt` until it ends by the shutdown. Each failure is told, shown in the status, and followed by a pause
/// that grows while failures follow each other closely.
async fn until_shutdown<F, Fut>(
    status: &ConsumerStatus,
    shutdown: &CancellationToken,
    who: &str,
    mut attempt: F,
) where
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<(), KafkaFault>>,
{
    let mut recovery = RECOVERY_MIN;
    while !shutdown.is_cancelled() {
        let rounds = status.rounds();
        let Err(fault) = attempt().await else { return };
        status.failed(&fault);
        tracing::warn!(error = %crate::deliver::chain(&fault), "{who} starts anew");
        if status.rounds() != rounds {
            recovery = RECOVERY_MIN;
        }
        let _ = shutdown.run_until_cancelled(sleep(recovery)).await;
        recovery = RECOVERY_MAX.min(recovery * 2);
    }
}
