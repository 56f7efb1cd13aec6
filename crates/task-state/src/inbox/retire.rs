//! Forgetting callbacks that have served their time.

use pg::{PgConnection, PgError};

/// Deletes at most `batch` callbacks older than thirty days, and says how many that were. Called again until it says
/// fewer than `batch`.
///
/// # Errors
/// When the statement fails.
pub async fn retire_events(conn: &mut PgConnection, batch: u32) -> Result<u64, PgError> {
    let events = sqlx::query!(
        "DELETE FROM provider_events WHERE ctid = ANY (ARRAY(
             SELECT ctid FROM provider_events WHERE received_at < aiv_now() - interval '30 days'
             ORDER BY received_at LIMIT $1 FOR UPDATE SKIP LOCKED))",
        i64::from(batch)
    )
    .execute(conn)
    .await?;
    Ok(events.rows_affected())
}
