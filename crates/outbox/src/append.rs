//! Appending: part of the transaction that makes the fact.

use pg::{PgConnection, PgError};
use uuid::Uuid;

use crate::{Envelope, Topic};

/// How many shards (and Kafka partitions) a topic has.
pub const SHARDS: i16 = 12;

/// A message to append.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewEvent {
    /// The topic.
    pub topic: Topic,
    /// Messages of one key usually arrive in order; the task's id.
    pub key: Uuid,
    /// The text of an [`Envelope`].
    pub payload: String,
}

impl NewEvent {
    /// A message about a task, keyed by it.
    #[must_use]
    pub fn about(topic: Topic, envelope: &Envelope) -> Self {
        Self { topic, key: envelope.task_id.as_uuid(), payload: envelope.to_json() }
    }
}

/// The shard of a key, 0 to 11. The same everywhere and for ever: it decides which relay sends the message, and to
/// which partition.
#[must_use]
#[expect(clippy::cast_possible_truncation, reason = "a remainder of 12")]
pub const fn shard_of(key: Uuid) -> i16 {
    // The low half of our ids is random, so the plain remainder spreads evenly.
    (key.as_u128() % SHARDS.unsigned_abs() as u128) as i16
}

/// Appends messages in the caller's transaction. One statement, however many there are.
///
/// # Errors
/// [`PgError`]; the transaction is then lost.
pub async fn append(conn: &mut PgConnection, events: &[NewEvent]) -> Result<(), PgError> {
    if events.is_empty() {
        return Ok(());
    }
    let topics: Vec<&str> = events.iter().map(|event| event.topic.as_str()).collect();
    let keys: Vec<Uuid> = events.iter().map(|event| event.key).collect();
    let payloads: Vec<&str> = events.iter().map(|event| event.payload.as_str()).collect();
    let shards: Vec<i16> = events.iter().map(|event| shard_of(event.key)).collect();
    let done = sqlx::query!(
        "INSERT INTO outbox_events (topic, key, payload, shard, created_at, visible_at)
         SELECT topic, key, payload, shard, (SELECT aiv_now()), (SELECT aiv_now())
         FROM unnest($1::text[], $2::uuid[], $3::text[], $4::smallint[]) AS event (topic, key, payload, shard)",
        topics as _,
        &keys,
        payloads as _,
        &shards,
    )
    .execute(conn)
    .await?;
    PgError::expect_rows("append to the outbox", events.len(), done.rows_affected())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_are_stable_and_even() {
        assert_eq!(shard_of(Uuid::from_u128(0)), 0);
        assert_eq!(shard_of(Uuid::from_u128(25)), 1);
        assert_eq!(shard_of(Uuid::from_u128(u128::MAX)), 3);
        let mut counts = [0_u32; 12];
        for _ in 0..12_000 {
            counts[usize::try_from(shard_of(Uuid::now_v7())).unwrap()] += 1;
        }
        assert!(counts.iter().all(|count| (700..1_300).contains(count)), "{counts:?}");
    }
}
