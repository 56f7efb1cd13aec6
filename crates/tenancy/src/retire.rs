//! Deleting what has served its time.

use pg::{PgConnection, PgError};

/// Deletes at most `batch` idempotency keys older than 24 hours and at most `batch` browser tokens that ended an hour
/// ago, and says how many rows that were. Called again until it says fewer than `batch`.
///
/// # Errors
/// When a statement fails.
pub async fn retire(conn: &mut PgConnection, batch: u32) -> Result<u64, PgError> {
    let keys = sqlx::query!(
        "DELETE FROM idempotency_keys WHERE ctid = ANY (ARRAY(
             SELECT ctid FROM idempotency_keys WHERE created_at < aiv_now() - interval '24 hours'
             ORDER BY created_at LIMIT $1 FOR UPDATE SKIP LOCKED))",
        i64::from(batch)
    )
    .execute(&mut *conn)
    .await?;
    let tokens = sqlx::query!(
        "DELETE FROM browser_tokens WHERE ctid = ANY (ARRAY(
             SELECT ctid FROM browser_tokens WHERE expires_at < aiv_now() - interval '1 hour'
             ORDER BY expires_at LIMIT $1 FOR UPDATE SKIP LOCKED))",
        i64::from(batch)
    )
    .execute(conn)
    .await?;
    Ok(keys.rows_affected() + tokens.rows_affected())
}

#[cfg(test)]
mod tests {
    use chrono::TimeDelta;
    use domain::UserId;
    use testkit::TestDb;

    use super::*;
    use crate::idempotency::{KeyRef, NewKey, reserve};

    #[tokio::test]
    async fn a_key_is_kept_for_a_day_and_not_for_ever() {
        let db = TestDb::new().await;
        let mut conn = db.pool.acquire().await.unwrap();
        let user = UserId::generate();
        let keys = ["a", "b", "c"];
        for key in keys {
            let key = KeyRef { user, route: "POST /generations", key };
            let new = NewKey { key, fingerprint: [0; 32], subject: key.key, status: 202, body: "" };
            reserve(&mut conn, &[new]).await.unwrap();
        }
        let now = pg::now(&mut conn).await.unwrap();
        let mut within = db.pool_at(now + TimeDelta::minutes(24 * 60 - 1)).acquire().await.unwrap();
        assert_eq!(retire(&mut within, 10).await.unwrap(), 0);
        let mut after = db.pool_at(now + TimeDelta::minutes(24 * 60 + 1)).acquire().await.unwrap();
        assert_eq!(retire(&mut after, 2).await.unwrap(), 2);
        assert_eq!(retire(&mut after, 2).await.unwrap(), 1);
    }
}
