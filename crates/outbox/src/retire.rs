//! Forgetting dead letters that nobody wanted for a month. (Messages are removed as they are acknowledged.)

use pg::{PgConnection, PgError};

/// Removes up to `batch` dead letters older than 30 days. Returns how many; fewer than `batch` means none is left.
///
/// # Errors
/// [`PgError`].
pub async fn retire(conn: &mut PgConnection, batch: u32) -> Result<u64, PgError> {
    let done = sqlx::query!(
        "DELETE FROM dead_letters AS letter
         USING (
             SELECT id FROM dead_letters
             WHERE created_at < aiv_now() - interval '30 days'
             ORDER BY created_at
             LIMIT $1
             FOR UPDATE SKIP LOCKED
         ) AS old
         WHERE letter.id = old.id",
        i64::from(batch),
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected())
}
