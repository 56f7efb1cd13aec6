//! The table as a queue: claim, keep, give back, acknowledge.
//!
//! A claim is a promise with a time limit, not a lock: the claimed row is invisible until `visible_at`, and when
//! its consumer dies it comes back by itself. Claims and acknowledgements commit without waiting for the disk. A
//! crash may forget them, and then messages come once more, which every handler must bear anyway. That is why these
//! verbs take the pool and not a connection: inside a caller's transaction they would make its facts forgettable too.
//!
//! Rows are named by `= ANY (ARRAY(…))`, which PostgreSQL always answers from the primary key; as a join it may guess
//! wrong about the size of a table that fills and empties all day.

use std::time::Duration;

use chrono::{DateTime, Utc};
use pg::{PgConnection, PgError, PgPool};
use uuid::Uuid;

use crate::Topic;

/// A message in the hands of a consumer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claimed {
    /// Its place in the outbox.
    pub id: i64,
    /// The key.
    pub key: Uuid,
    /// The payload.
    pub payload: String,
    /// How often it has been claimed, this time included.
    pub deliveries: i32,
    /// When it was appended.
    pub created_at: DateTime<Utc>,
}

/// Longer ago than any message.
const EVER: Duration = Duration::from_secs(10 * 365 * 24 * 3_600);

/// Claims up to `max` due messages of a topic for `visible_for`, oldest first. What others hold is passed over.
///
/// # Errors
/// [`PgError`]; nothing is claimed then, or it comes back by itself.
pub async fn claim(
    pool: &PgPool,
    topic: Topic,
    max: u32,
    visible_for: Duration,
) -> Result<Vec<Claimed>, PgError> {
    claim_recent(pool, topic, max, visible_for, EVER).await
}

/// As [`claim`], of those alone that have become due within the given time. For frequent looks: the index begins with all
/// messages that are gone and not yet vacuumed away, and on a busy day reading past them takes longer than all the rest.
///
/// # Errors
/// As [`claim`].
pub async fn claim_recent(
    pool: &PgPool,
    topic: Topic,
    max: u32,
    visible_for: Duration,
    due_within: Duration,
) -> Result<Vec<Claimed>, PgError> {
    let mut claimed = sqlx::query_as!(
        Claimed,
        "UPDATE outbox_events
         SET visible_at = aiv_now() + make_interval(secs => $3), deliveries = deliveries + 1
         WHERE id = ANY (ARRAY(
             SELECT id FROM outbox_events
             WHERE topic = $1 AND visible_at <= aiv_now() AND visible_at >= aiv_now() - make_interval(secs => $4)
             ORDER BY visible_at, id
             LIMIT $2
             FOR NO KEY UPDATE SKIP LOCKED
         )) AND (SELECT set_config('synchronous_commit', 'off', true)) IS NOT NULL
         RETURNING id, key, payload, deliveries, created_at",
        topic.as_str(),
        i64::from(max),
        visible_for.as_secs_f64(),
        due_within.as_secs_f64(),
    )
    .fetch_all(pool)
    .await?;
    // RETURNING promises no order, and the order of one key is worth keeping.
    claimed.sort_unstable_by_key(|event| event.id);
    Ok(claimed)
}

/// Puts off the return of claimed messages, for a consumer that needs longer.
///
/// # Errors
/// [`PgError`]; the messages then come back at their old time.
pub async fn extend(pool: &PgPool, ids: &[i64], visible_for: Duration) -> Result<(), PgError> {
    set_visible(pool, ids, visible_for).await
}

/// Gives claimed messages back: they are due after `delay`.
///
/// # Errors
/// [`PgError`]; the messages then come back when their claim runs out.
pub async fn release(pool: &PgPool, ids: &[i64], delay: Duration) -> Result<(), PgError> {
    set_visible(pool, ids, delay).await
}

async fn set_visible(pool: &PgPool, ids: &[i64], from_now: Duration) -> Result<(), PgError> {
    sqlx::query!(
        "UPDATE outbox_events SET visible_at = aiv_now() + make_interval(secs => $2)
         WHERE id = ANY (ARRAY(SELECT id FROM outbox_events WHERE id = ANY ($1) ORDER BY id FOR NO KEY UPDATE))
           AND (SELECT set_config('synchronous_commit', 'off', true)) IS NOT NULL",
        ids,
        from_now.as_secs_f64(),
    )
    .execute(pool)
    .await?;
    Ok(())
}

/// Acknowledges messages: they are gone. Unknown ids are passed over, since another consumer may have been quicker.
///
/// # Errors
/// [`PgError`]; the messages then come once more.
pub async fn ack(pool: &PgPool, ids: &[i64]) -> Result<(), PgError> {
    if ids.is_empty() {
        return Ok(());
    }
    sqlx::query!(
        "DELETE FROM outbox_events
         WHERE id = ANY (ARRAY(SELECT id FROM outbox_events WHERE id = ANY ($1) ORDER BY id FOR UPDATE))
           AND (SELECT set_config('synchronous_commit', 'off', true)) IS NOT NULL",
        ids,
    )
    .execute(pool)
    .await?;
    Ok(())
}

/// Removes messages in the caller's transaction: acknowledged if and when it commits, and as durable as the rest.
///
/// # Errors
/// [`PgError`]; the transaction is then lost.
pub async fn remove(conn: &mut PgConnection, ids: &[i64]) -> Result<(), PgError> {
    sqlx::query!(
        "DELETE FROM outbox_events
         WHERE id = ANY (ARRAY(SELECT id FROM outbox_events WHERE id = ANY ($1) ORDER BY id FOR UPDATE))",
        ids,
    )
    .execute(conn)
    .await?;
    Ok(())
}
