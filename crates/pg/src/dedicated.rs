//! A connection that one writer keeps, for transactions that follow each other without a pause.
//!
//! A writer that commits batch after batch is slow by its round trips, not by its work. The pool asks a connection
//! whether it still lives each time it is handed out and each time it comes back; here it is simply used, and
//! replaced when BEGIN shows that it is gone, which is the one moment at which nothing was sent yet. BEGIN, the lock
//! timeout and the instant of the transaction are one round trip.

use std::{
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use chrono::{DateTime, Utc};
use futures::{FutureExt as _, future::BoxFuture};
use sqlx::{AssertSqlSafe, PgConnection, PgPool, Postgres, Row as _, pool::PoolConnection};

use crate::{
    error::PgError,
    transact::{commit_error, join},
};

/// The connection of one writer, taken from the pool when first needed. Two transactions at once are lawful; the
/// second one then borrows from the pool.
#[derive(Debug, Clone)]
pub struct Dedicated {
    pool: PgPool,
    kept: Arc<Mutex<Option<PoolConnection<Postgres>>>>,
}

impl Dedicated {
    /// Keeps nothing yet.
    #[must_use]
    pub fn new(pool: PgPool) -> Self {
        Self { pool, kept: Arc::default() }
    }

    /// As [`transact`](crate::transact()): runs `work` in a transaction that a dropped future cannot leave half-way.
    /// `work` also gets the instant of the transaction. No statement of it waits longer than `lock_limit` for a
    /// lock, and all are planned once per connection, so they must be such that the plan depends on no value.
    ///
    /// # Errors
    /// The error of `work`, or [`PgError`] when the transaction could not begin or commit;
    /// [`PgError::CommitUnknown`] when nobody can say whether it did.
    pub async fn transact<T, E, F>(&self, lock_limit: Duration, work: F) -> Result<T, E>
    where
        F: for<'c> FnOnce(&'c mut PgConnection, DateTime<Utc>) -> BoxFuture<'c, Result<T, E>>
            + Send
            + 'static,
        T: Send + 'static,
        E: From<PgError> + Send + 'static,
    {
        let dedicated = self.clone();
        join(tokio::spawn(async move {
            let (mut conn, now) = dedicated.begin(lock_limit).await?;
            match AssertUnwindSafe(work(&mut conn, now)).catch_unwind().await {
                Ok(Ok(value)) => match sqlx::raw_sql("COMMIT").execute(&mut *conn).await {
                    Ok(_) => {
                        dedicated.keep(conn);
                        Ok(value)
                    }
                    Err(error) => {
                        close(conn);
                        Err(commit_error(error).into())
                    }
                },
                Ok(Err(error)) => {
                    match sqlx::raw_sql("ROLLBACK").execute(&mut *conn).await {
                        Ok(_) => dedicated.keep(conn),
                        Err(rollback) => {
                            tracing::debug!(error = %rollback, "rollback failed");
                            close(conn);
                        }
                    }
                    Err(error)
                }
                Err(panic) => {
                    close(conn);
                    std::panic::resume_unwind(panic)
                }
            }
        }))
        .await
    }

    async fn begin(
        &self,
        lock_limit: Duration,
    ) -> Result<(PoolConnection<Postgres>, DateTime<Utc>), PgError> {
        let begin = format!(
            "BEGIN; SET LOCAL lock_timeout = {}; SET LOCAL plan_cache_mode = force_generic_plan; SELECT aiv_now()",
            lock_limit.as_millis().max(1)
        );
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(mut conn) = kept {
            match read_instant(&mut conn, begin.clone()).await {
                Ok(now) => return Ok((conn, now)),
                // It died while it was idle, with its server perhaps. Nothing was begun, so another one may.
                Err(PgError::Unavailable(_)) => close(conn),
                Err(error) => {
                    close(conn);
                    return Err(error);
                }
            }
        }
        let mut conn = self.pool.acquire().await?;
        match read_instant(&mut conn, begin).await {
            Ok(now) => Ok((conn, now)),
            Err(error) => {
                close(conn);
                Err(error)
            }
        }
    }

    fn keep(&self, conn: PoolConnection<Postgres>) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        // Another one is here already: this one goes back to the pool.
        drop(kept.replace(conn));
    }
}

async fn read_instant(conn: &mut PgConnection, begin: String) -> Result<DateTime<Utc>, PgError> {
    // The text holds a number of ours and nothing else that varies.
    Ok(sqlx::raw_sql(AssertSqlSafe(begin)).fetch_one(conn).await?.try_get(0)?)
}

/// Ends the session instead of giving it back: whatever it was in the middle of, the server rolls back.
fn close(conn: PoolConnection<Postgres>) {
    drop(conn.detach());
}
