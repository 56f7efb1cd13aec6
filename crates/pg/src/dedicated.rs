//! Connections that a writer keeps, one or a few, for transactions that follow each other without a pause.
//!
//! A writer that commits batch after batch is slow by its round trips, not by its work. The pool asks a connection
//! whether it still lives each time it is handed out and each time it comes back; here it is simply used, and
//! replaced when BEGIN shows that it is gone, which is the one moment at which nothing was sent yet. BEGIN, the lock
//! timeout and the instant of the transaction are one round trip, and where the next transaction is known to follow,
//! it begins in the round trip that commits the one before.

use std::{
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use chrono::{DateTime, Utc};
use futures::{FutureExt as _, future::BoxFuture};
use sqlx::{AssertSqlSafe, PgConnection, PgPool, Postgres, Row as _, pool::PoolConnection};

use crate::{
    error::PgError,
    transact::{commit_error, join},
};

/// A transaction that was begun ahead is used within this time, else begun anew: its instant must not be an old one.
const BEGUN_FOR: Duration = Duration::from_millis(50);

/// The connections of one writer, taken from the pool when first needed. More transactions at once than it keeps
/// connections are lawful; the others borrow from the pool.
#[derive(Debug, Clone)]
pub struct Dedicated {
    pool: PgPool,
    /// At most as many as it keeps.
    kept: Arc<Mutex<Vec<Kept>>>,
    keeps: usize,
}

#[derive(Debug)]
struct Kept {
    /// None once it was taken out.
    conn: Option<PoolConnection<Postgres>>,
    /// The transaction that it is in, if one was begun ahead.
    begun: Option<Begun>,
}

impl Drop for Kept {
    fn drop(&mut self) {
        if self.begun.is_some()
            && let Some(conn) = self.conn.take()
        {
            // The pool must not get a connection that is in a transaction.
            close(conn);
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Begun {
    now: DateTime<Utc>,
    lock_limit: Duration,
    since: Instant,
}

impl Dedicated {
    /// Keeps one connection, and none yet.
    #[must_use]
    pub fn new(pool: PgPool) -> Self {
        Self::keeping(1, pool)
    }

    /// Keeps as many connections as the writer has transactions at once, and none yet.
    #[must_use]
    pub fn keeping(keeps: usize, pool: PgPool) -> Self {
        Self { pool, kept: Arc::default(), keeps }
    }

    /// As [`transact`](crate::transact()): runs `work` in a transaction that a dropped future cannot leave half-way.
    /// `work` also gets the instant of the transaction, and no statement of it waits longer than `lock_limit` for a lock.
    /// `follows` is asked before the commit whether the caller will run another transaction at once.
    ///
    /// # Errors
    /// The error of `work`, or [`PgError`] when the transaction could not begin or commit;
    /// [`PgError::CommitUnknown`] when nobody can say whether it did.
    pub async fn transact<T, E, F>(
        &self,
        lock_limit: Duration,
        follows: impl FnOnce() -> bool + Send + 'static,
        work: F,
    ) -> Result<T, E>
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
                Ok(Ok(value)) => match commit(&mut conn, lock_limit, follows()).await {
                    Ok(begun) => {
                        dedicated.keep(conn, begun);
                        Ok(value)
                    }
                    Err(error) => {
                        close(conn);
                        Err(error.into())
                    }
                },
                Ok(Err(error)) => {
                    match sqlx::raw_sql("ROLLBACK").execute(&mut *conn).await {
                        Ok(_) => dedicated.keep(conn, None),
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

    /// Runs one statement that is a transaction by itself, on the same terms: a dropped future leaves nothing half-way.
    ///
    /// # Errors
    /// [`PgError`] of the statement, of which nothing has happened then; [`PgError::CommitUnknown`] when nobody can say whether
    /// it did.
    pub async fn statement<T, F>(&self, work: F) -> Result<T, PgError>
    where
        F: for<'c> FnOnce(&'c mut PgConnection) -> BoxFuture<'c, Result<T, sqlx::Error>> + Send + 'static,
        T: Send + 'static,
    {
        let dedicated = self.clone();
        join(tokio::spawn(async move {
            // What was begun ahead ends with its connection.
            let kept = dedicated.take(false).filter(|kept| kept.begun.is_none());
            let mut conn = match kept.and_then(|mut kept| kept.conn.take()) {
                Some(conn) => conn,
                None => dedicated.pool.acquire().await?,
            };
            match work(&mut conn).await.map_err(commit_error) {
                Ok(value) => {
                    dedicated.keep(conn, None);
                    Ok(value)
                }
                Err(error) => {
                    if matches!(error, PgError::CommitUnknown(_)) {
                        close(conn);
                    } else {
                        dedicated.keep(conn, None);
                    }
                    Err(error)
                }
            }
        }))
        .await
    }

    /// One that is kept, rather one that is in a transaction or is not.
    fn take(&self, begun: bool) -> Option<Kept> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        match kept.iter().position(|kept| kept.begun.is_some() == begun) {
            Some(place) => Some(kept.swap_remove(place)),
            None => kept.pop(),
        }
    }

    async fn begin(
        &self,
        lock_limit: Duration,
    ) -> Result<(PoolConnection<Postgres>, DateTime<Utc>), PgError> {
        if let Some(mut kept) = self.take(true)
            && let Some(mut conn) = kept.conn.take()
        {
            if let Some(begun) = kept.begun
                && begun.lock_limit == lock_limit
                && begun.since.elapsed() < BEGUN_FOR
            {
                return Ok((conn, begun.now));
            }
            let rolled_back = match kept.begun {
                Some(_) => sqlx::raw_sql("ROLLBACK").execute(&mut *conn).await.is_ok(),
                None => true,
            };
            if rolled_back && let Ok(now) = instant(&mut conn, begin_sql("", lock_limit)).await {
                return Ok((conn, now));
            }
            // It died while it was idle, with its server perhaps. Nothing was begun, so another one may.
            close(conn);
        }
        let mut conn = self.pool.acquire().await?;
        match instant(&mut conn, begin_sql("", lock_limit)).await {
            Ok(now) => Ok((conn, now)),
            Err(error) => {
                close(conn);
                Err(error.into())
            }
        }
    }

    fn keep(&self, conn: PoolConnection<Postgres>, begun: Option<Begun>) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        // When all places are taken, one goes back to the pool, or away if it is in a transaction.
        let too_many = if kept.len() < self.keeps { None } else { kept.pop() };
        kept.push(Kept { conn: Some(conn), begun });
        drop(kept);
        drop(too_many);
    }
}

/// Commits, and begins the next transaction if there is one.
async fn commit(
    conn: &mut PgConnection,
    lock_limit: Duration,
    follows: bool,
) -> Result<Option<Begun>, PgError> {
    if follows {
        let since = Instant::now();
        // Which of the statements failed is not told apart, so it is open whether the first one did.
        let now = instant(conn, begin_sql("COMMIT; ", lock_limit)).await.map_err(PgError::CommitUnknown)?;
        return Ok(Some(Begun { now, lock_limit, since }));
    }
    sqlx::raw_sql("COMMIT").execute(conn).await.map_err(commit_error)?;
    Ok(None)
}

fn begin_sql(before: &str, lock_limit: Duration) -> String {
    format!("{before}BEGIN; SET LOCAL lock_timeout = {}; SELECT aiv_now()", lock_limit.as_millis().max(1))
}

async fn instant(conn: &mut PgConnection, begin: String) -> Result<DateTime<Utc>, sqlx::Error> {
    // The text holds a number of ours and nothing else that varies.
    sqlx::raw_sql(AssertSqlSafe(begin)).fetch_one(conn).await?.try_get(0)
}

/// Ends the session instead of giving it back: whatever it was in the middle of, the server rolls back.
fn close(conn: PoolConnection<Postgres>) {
    drop(conn.detach());
}
