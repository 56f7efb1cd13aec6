//! The relay: from the outbox to the broker.
//!
//! It holds shards, sends their messages in the order of their ids, each to the partition of its shard, and removes
//! them after the broker's acknowledgement. Nothing else is remembered. Whatever breaks, be it the session with
//! PostgreSQL or the producer, both are given up and made anew: messages that were sent and not yet removed are sent
//! once more.

use std::{pin::pin, time::Duration};

use futures::future::{join_all, select_all};
use outbox::{NewDeadLetter, Outgoing, PARTITION_OF_OUTBOX, SHARDS, ShardSession, Topic};
use pg::PgError;
use rdkafka::{
    error::KafkaError,
    producer::{FutureProducer, FutureRecord, Producer, PurgeConfig},
    types::RDKafkaErrorCode,
};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::{KafkaBus, KafkaFault, client, topics};
use crate::{ConsumerStatus, letters};

/// Messages under way at most.
const IN_FLIGHT_MAX: u32 = 2_000;
/// How often the shards are shared out anew.
const BALANCE_EVERY: Duration = Duration::from_secs(1);
/// The longest wait for a statement.
const STATEMENT_LIMIT: Duration = Duration::from_secs(10);

/// Carries messages until the shutdown, or until something breaks.
pub(super) async fn relay(
    bus: &KafkaBus,
    status: &ConsumerStatus,
    shutdown: &CancellationToken,
) -> Result<(), KafkaFault> {
    let Some(made) = shutdown.run_until_cancelled(topics::ensure(bus, status)).await else { return Ok(()) };
    made?;
    let producer = Sender::new(bus, status)?;
    bus.hints.listen();
    let mut session = within(ShardSession::open(&bus.pool.connect_options())).await?;
    let result = carry(bus, &producer, &mut session, status, shutdown).await;
    if result.is_ok() {
        let _ = timeout(STATEMENT_LIMIT, session.close()).await;
    }
    result
}

async fn carry(
    bus: &KafkaBus,
    producer: &Sender,
    session: &mut ShardSession,
    status: &ConsumerStatus,
    shutdown: &CancellationToken,
) -> Result<(), KafkaFault> {
    let mut balance_at = Instant::now();
    // While one relay holds everything, nudges of its own process need not go round to others.
    let mut alone = Vec::new();
    while !shutdown.is_cancelled() {
        let started = Instant::now();
        if started >= balance_at {
            let before = session.held().len();
            within(session.balance()).await?;
            if session.held().len() != before {
                tracing::info!(shards = session.held().len(), "the relay's shards have changed");
                alone.clear();
                if session.held().len() == usize::from(SHARDS.unsigned_abs()) {
                    alone.extend(Topic::ALL.iter().map(|topic| bus.hints.consume(*topic)));
                }
            }
            balance_at = started + BALANCE_EVERY;
        }
        // Armed before the look: a message committed right after it still rings.
        let mut bells: Vec<_> = Topic::ALL.iter().map(|topic| Box::pin(bus.hints.bell(*topic))).collect();
        bells.iter_mut().for_each(|bell| {
            bell.as_mut().enable();
        });
        let batch = within(session.next(IN_FLIGHT_MAX)).await?;
        if batch.is_empty() {
            status.came_round();
            let rest = async {
                let _ = timeout(bus.options.poll, select_all(bells)).await;
                sleep_until(started + bus.options.gather).await;
            };
            let _ = shutdown.run_until_cancelled(pin!(rest)).await;
            continue;
        }
        let Sent { acknowledged, refused, failed } = producer.send(bus, &batch).await;
        within(session.sent(&acknowledged)).await?;
        bury(bus, session, &refused).await?;
        if let Some(error) = failed {
            let failed = batch.len() - acknowledged.len() - refused.len();
            return Err(KafkaFault::NotAcknowledged { sent: batch.len(), failed, error });
        }
        status.came_round();
    }
    Ok(())
}

/// What became of a batch.
#[derive(Default)]
struct Sent {
    acknowledged: Vec<i64>,
    /// Messages that no broker will ever take, and why.
    refused: Vec<(Outgoing, String)>,
    /// The error of some of the others.
    failed: Option<KafkaError>,
}

struct Sender(Option<FutureProducer<client::Voice>>);

impl Sender {
    fn new(bus: &KafkaBus, status: &ConsumerStatus) -> Result<Self, KafkaError> {
        let producer = client::config(&bus.address)
            .set("enable.idempotence", "true")
            .set("acks", "all")
            .set("linger.ms", "1")
            .set("queue.buffering.max.messages", (IN_FLIGHT_MAX * 2).to_string())
            .set("request.timeout.ms", "5000")
            // Shorter than the silence after which PostgreSQL would end the relay's session.
            .set("message.timeout.ms", "8000")
            .set("statistics.interval.ms", "0")
            .create_with_context(client::Voice::new(status.clone()))?;
        Ok(Self(Some(producer)))
    }

    async fn send(&self, bus: &KafkaBus, batch: &[Outgoing]) -> Sent {
        let mut sent = Sent::default();
        let Some(producer) = &self.0 else { return sent };
        let names: Vec<String> = Topic::ALL.iter().map(|topic| bus.topic_name(*topic)).collect();
        let mut under_way = Vec::with_capacity(batch.len());
        for message in batch {
            let record = FutureRecord::to(&names[message.topic as usize])
                .partition(i32::from(message.shard))
                .key(message.key.as_bytes().as_slice())
                .payload(&message.payload);
            match producer.send_result(record) {
                Ok(delivery) => under_way.push(async move {
                    let error = match delivery.await {
                        Ok(Ok(_)) => None,
                        Ok(Err((error, _))) => Some(error),
                        Err(_) => Some(KafkaError::Canceled),
                    };
                    (message, error)
                }),
                Err((error, _)) if is_refusal(&error) => {
                    sent.refused.push((message.clone(), error.to_string()))
                }
                // Those behind it stay in the outbox, in their order.
                Err((error, _)) => {
                    sent.failed = Some(error);
                    break;
                }
            }
        }
        for (message, error) in join_all(under_way).await {
            match error {
                None => sent.acknowledged.push(message.id),
                Some(error) if is_refusal(&error) => sent.refused.push((message.clone(), error.to_string())),
                Some(error) => sent.failed = Some(error),
            }
        }
        sent
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        let Some(producer) = self.0.take() else { return };
        // What was not acknowledged is still in the outbox; nobody need wait for it.
        producer.purge(PurgeConfig::default().queue().inflight());
        // Its thread is joined, which may take a moment.
        std::thread::spawn(move || drop(producer));
    }
}

/// Whether sending the same bytes again would fail again.
fn is_refusal(error: &KafkaError) -> bool {
    let code = error.rdkafka_error_code();
    matches!(
        code,
        Some(
            RDKafkaErrorCode::MessageSizeTooLarge
                | RDKafkaErrorCode::InvalidMessageSize
                | RDKafkaErrorCode::InvalidRecord
        )
    )
}

/// Buries what no broker takes, so that it does not stand in front of the others for ever.
async fn bury(
    bus: &KafkaBus,
    session: &mut ShardSession,
    refused: &[(Outgoing, String)],
) -> Result<(), KafkaFault> {
    if refused.is_empty() {
        return Ok(());
    }
    let letter = |(message, reason): &(Outgoing, String)| NewDeadLetter {
        topic: message.topic,
        partition: PARTITION_OF_OUTBOX,
        offset: message.id,
        key: Some(message.key.as_bytes().to_vec()),
        payload: message.payload.clone().into_bytes(),
        reason: format!("the broker takes no such message: {reason}"),
    };
    let buried: Vec<_> = refused.iter().map(letter).collect();
    letters::tell(&buried);
    within(letters::write(&bus.pool, buried)).await?;
    let ids: Vec<i64> = refused.iter().map(|(message, _)| message.id).collect();
    Ok(within(session.sent(&ids)).await?)
}

async fn within<T>(statement: impl Future<Output = Result<T, PgError>>) -> Result<T, PgError> {
    timeout(STATEMENT_LIMIT, statement)
        .await
        .unwrap_or_else(|_| Err(PgError::Unavailable(sqlx::Error::PoolTimedOut)))
}
