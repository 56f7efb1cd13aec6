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

/// The arguments of the SQL function `outbox_append`, for an owner that appends in a statement of its own: rows and
/// messages that come into being together then cost one round trip. It returns how many messages it appended.
#[derive(Debug)]
pub struct Columns<'a> {
    /// The topics' names.
    pub topics: Vec<&'a str>,
    /// The keys.
    pub keys: Vec<Uuid>,
    /// The payloads.
    pub payloads: Vec<&'a str>,
    /// The shards of the keys.
    pub shards: Vec<i16>,
}

impl<'a> Columns<'a> {
    /// Splits messages into columns.
    #[must_use]
    pub fn of(events: &'a [NewEvent]) -> Self {
        Self {
            topics: events.iter().map(|event| event.topic.as_str()).collect(),
            keys: events.iter().map(|event| event.key).collect(),
            payloads: events.iter().map(|event| event.payload.as_str()).collect(),
            shards: events.iter().map(|event| shard_of(event.key)).collect(),
        }
    }
}

/// Appends messages in the caller's transaction. One statement, however many there are.
///
/// # Errors
/// [`PgError`]; the transaction is then lost.
pub async fn append(conn: &mut PgConnection, events: &[NewEvent]) -> Result<(), PgError> {
    if events.is_empty() {
        return Ok(());
    }
    let Columns { topics, keys, payloads, shards } = Columns::of(events);
    let appended = sqlx::query_scalar!(
        r#"SELECT outbox_append($1::text[], $2, $3::text[], $4) AS "appended!""#,
        topics as _,
        &keys,
        payloads as _,
        &shards,
    )
    .fetch_one(conn)
    .await?;
    PgError::expect_rows("append to the outbox", events.len(), appended.unsigned_abs())
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
