//! Messages that nobody could handle: kept with their bytes and the reason.

use std::fmt;

use chrono::{DateTime, Utc};
use pg::{PgConnection, PgError};

use crate::Topic;

/// The partition noted for messages of the `postgres` queue, whose offset is their outbox id. It is none of
/// Kafka's, so that letters from before and after a change of the queue cannot be taken for the same.
pub const PARTITION_OF_OUTBOX: i32 = -1;

/// Names a dead letter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeadLetterId(pub i64);

impl fmt::Display for DeadLetterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A message to bury.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewDeadLetter {
    /// The topic.
    pub topic: Topic,
    /// Kafka's partition, or [`PARTITION_OF_OUTBOX`].
    pub partition: i32,
    /// Kafka's offset, or the outbox id.
    pub offset: i64,
    /// The key's bytes as they came, if there was one.
    pub key: Option<Vec<u8>>,
    /// The payload's bytes as they came, whether or not they are text.
    pub payload: Vec<u8>,
    /// What the handler said, for the operator.
    pub reason: String,
}

/// What burying did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Buried {
    /// Letters written. Those from the same place as an older one count once: a consumer that buried a message and
    /// died before it acknowledged meets it again.
    pub new: u64,
}

/// Buries messages in the caller's transaction.
///
/// # Errors
/// [`PgError`]; the transaction is then lost, and the messages must not be acknowledged.
pub async fn bury(conn: &mut PgConnection, letters: &[NewDeadLetter]) -> Result<Buried, PgError> {
    let mut sorted: Vec<&NewDeadLetter> = letters.iter().collect();
    // One order for all, so that two that bury the same messages wait for each other instead of deadlocking.
    sorted.sort_unstable_by_key(|letter| (letter.topic, letter.partition, letter.offset));
    let topics: Vec<&str> = sorted.iter().map(|letter| letter.topic.as_str()).collect();
    let partitions: Vec<i32> = sorted.iter().map(|letter| letter.partition).collect();
    let offsets: Vec<i64> = sorted.iter().map(|letter| letter.offset).collect();
    let keys: Vec<Option<&[u8]>> = sorted.iter().map(|letter| letter.key.as_deref()).collect();
    let payloads: Vec<&[u8]> = sorted.iter().map(|letter| letter.payload.as_slice()).collect();
    // PostgreSQL's texts hold no NUL, and a handler's words may quote any input.
    let reasons: Vec<String> = sorted.iter().map(|letter| letter.reason.replace('\0', "\u{fffd}")).collect();
    let done = sqlx::query!(
        r#"INSERT INTO dead_letters (topic, "partition", "offset", key, payload, reason, created_at)
           SELECT topic, "partition", "offset", key, payload, reason, (SELECT aiv_now())
           FROM unnest($1::text[], $2::integer[], $3::bigint[], $4::bytea[], $5::bytea[], $6::text[])
               AS letter (topic, "partition", "offset", key, payload, reason)
           ON CONFLICT ON CONSTRAINT dead_letters_once DO NOTHING"#,
        topics as _,
        &partitions,
        &offsets,
        keys as _,
        payloads as _,
        &reasons,
    )
    .execute(conn)
    .await?;
    Ok(Buried { new: done.rows_affected() })
}

/// A buried message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadLetter {
    /// Its name.
    pub id: DeadLetterId,
    /// The topic, as it was called then.
    pub topic: String,
    /// Kafka's partition, or [`PARTITION_OF_OUTBOX`].
    pub partition: i32,
    /// Kafka's offset, or the outbox id.
    pub offset: i64,
    /// The key's bytes.
    pub key: Option<Vec<u8>>,
    /// The payload's bytes.
    pub payload: Vec<u8>,
    /// Why it lies here.
    pub reason: String,
    /// Since when.
    pub created_at: DateTime<Utc>,
    /// When it was replayed, if it was.
    pub replayed_at: Option<DateTime<Utc>>,
}

/// Lists dead letters, newest first: up to `limit` older than `before`.
///
/// # Errors
/// [`PgError`].
pub async fn dead_letters(
    conn: &mut PgConnection,
    topic: Option<Topic>,
    before: Option<DeadLetterId>,
    limit: u32,
) -> Result<Vec<DeadLetter>, PgError> {
    let rows = sqlx::query!(
        r#"SELECT id, topic, "partition", "offset", key, payload, reason, created_at, replayed_at
           FROM dead_letters
           WHERE ($1::text IS NULL OR topic = $1) AND ($2::bigint IS NULL OR id < $2)
           ORDER BY id DESC
           LIMIT $3"#,
        topic.map(Topic::as_str),
        before.map(|id| id.0),
        i64::from(limit),
    )
    .fetch_all(conn)
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| DeadLetter {
            id: DeadLetterId(row.id),
            topic: row.topic,
            partition: row.partition,
            offset: row.offset,
            key: row.key,
            payload: row.payload,
            reason: row.reason,
            created_at: row.created_at,
            replayed_at: row.replayed_at,
        })
        .collect())
}
