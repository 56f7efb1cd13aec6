//! Replaying a dead letter: its message is appended again, exactly once.

use chrono::{DateTime, Utc};
use pg::{PgConnection, PgError};
use uuid::Uuid;

use crate::{DeadLetterId, NewEvent, Topic, append};

/// What the replay of a dead letter did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReplayOutcome {
    /// The message is in the outbox again once the transaction commits.
    Replayed,
    /// It had been replayed before; nothing was done.
    Already {
        /// When.
        at: DateTime<Utc>,
    },
    /// There is no such letter.
    Missing,
    /// It is no message that the outbox could carry.
    Unfit {
        /// Why not.
        why: &'static str,
    },
}

/// Appends the message of a dead letter again, in the caller's transaction, and marks the letter.
///
/// Two replays at once wait for each other on the letter's row, and the second finds the mark.
///
/// # Errors
/// [`PgError`]; the transaction is then lost.
pub async fn replay(conn: &mut PgConnection, id: DeadLetterId) -> Result<ReplayOutcome, PgError> {
    let letter = sqlx::query!(
        "SELECT topic, key, payload, replayed_at FROM dead_letters WHERE id = $1 FOR NO KEY UPDATE",
        id.0
    )
    .fetch_optional(&mut *conn)
    .await?;
    let Some(letter) = letter else { return Ok(ReplayOutcome::Missing) };
    if let Some(at) = letter.replayed_at {
        return Ok(ReplayOutcome::Already { at });
    }
    let Ok(topic) = letter.topic.parse::<Topic>() else {
        return Ok(ReplayOutcome::Unfit { why: "the topic is gone" });
    };
    let Some(key) = letter.key.as_deref().and_then(read_key) else {
        return Ok(ReplayOutcome::Unfit { why: "the key is not an id" });
    };
    let Some(payload) = String::from_utf8(letter.payload).ok().filter(|text| !text.contains('\0')) else {
        return Ok(ReplayOutcome::Unfit { why: "the payload is not text" });
    };
    let marked = sqlx::query!(
        "UPDATE dead_letters SET replayed_at = aiv_now() WHERE id = $1 AND replayed_at IS NULL",
        id.0
    )
    .execute(&mut *conn)
    .await?;
    PgError::expect_rows("mark the dead letter", 1, marked.rows_affected())?;
    append(conn, &[NewEvent { topic, key, payload }]).await?;
    Ok(ReplayOutcome::Replayed)
}

/// Keys are buried as they came: 16 bytes from the outbox, text from a broker.
fn read_key(bytes: &[u8]) -> Option<Uuid> {
    Uuid::from_slice(bytes).or_else(|_| Uuid::try_parse_ascii(bytes)).ok()
}
