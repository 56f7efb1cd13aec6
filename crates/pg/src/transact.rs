//! Transactions that nobody can abort half-way.
//!
//! A future that is dropped while BEGIN is in flight returns its connection to the pool inside an open transaction
//! (transact-rs/sqlx #4393), and every later borrower runs inside it. Timeouts, `select!` and clients that hang up
//! all drop futures. So a transaction runs in a task of its own, which the caller only waits for: when the caller
//! is gone, the transaction still ends as if it were not.

use futures::future::BoxFuture;
use sqlx::{PgConnection, PgPool};
use tokio::task::JoinHandle;

use crate::error::PgError;

/// Runs `work` in a transaction: committed when it returns `Ok`, rolled back when it returns `Err` or panics.
///
/// # Errors
/// The error of `work`, or [`PgError`] when the transaction could not begin or commit;
/// [`PgError::CommitUnknown`] when nobody can say whether it did.
pub async fn transact<T, E, F>(pool: &PgPool, work: F) -> Result<T, E>
where
    F: for<'c> FnOnce(&'c mut PgConnection) -> BoxFuture<'c, Result<T, E>> + Send + 'static,
    T: Send + 'static,
    E: From<PgError> + Send + 'static,
{
    run(pool, None, work).await
}

/// Runs `work` on one repeatable-read snapshot that can write nothing and blocks nobody: for audits.
///
/// # Errors
/// As [`transact`].
pub async fn read_snapshot<T, E, F>(pool: &PgPool, work: F) -> Result<T, E>
where
    F: for<'c> FnOnce(&'c mut PgConnection) -> BoxFuture<'c, Result<T, E>> + Send + 'static,
    T: Send + 'static,
    E: From<PgError> + Send + 'static,
{
    // An audit reads whole tables, and plans for the sizes that they have now.
    const BEGIN: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET LOCAL plan_cache_mode = auto; \
        SET LOCAL enable_seqscan = on; SET LOCAL enable_hashjoin = on; SET LOCAL enable_mergejoin = on; \
        SET LOCAL enable_material = on";
    run(pool, Some(BEGIN), work).await
}

async fn run<T, E, F>(pool: &PgPool, begin: Option<&'static str>, work: F) -> Result<T, E>
where
    F: for<'c> FnOnce(&'c mut PgConnection) -> BoxFuture<'c, Result<T, E>> + Send + 'static,
    T: Send + 'static,
    E: From<PgError> + Send + 'static,
{
    let pool = pool.clone();
    join(tokio::spawn(async move {
        #[expect(
            clippy::disallowed_methods,
            reason = "this is the one place that may begin: in a task of its own"
        )]
        let begun = match begin {
            None => pool.begin().await,
            Some(statement) => pool.begin_with(statement).await,
        };
        let mut transaction = begun.map_err(PgError::from)?;
        match work(&mut transaction).await {
            Ok(value) => match transaction.commit().await {
                Ok(()) => Ok(value),
                Err(error) => Err(commit_error(error).into()),
            },
            Err(error) => {
                // The connection is given up by the pool when this fails; the server rolls back by itself.
                if let Err(rollback) = transaction.rollback().await {
                    tracing::debug!(error = %rollback, "rollback failed");
                }
                Err(error)
            }
        }
    }))
    .await
}

/// Waits for a transaction's task.
pub(crate) async fn join<T, E: From<PgError>>(task: JoinHandle<Result<T, E>>) -> Result<T, E> {
    match task.await {
        Ok(outcome) => outcome,
        Err(failed) if failed.is_panic() => std::panic::resume_unwind(failed.into_panic()),
        // The runtime shuts down: whether the commit happened is unknown.
        Err(_) => Err(PgError::CommitUnknown(sqlx::Error::WorkerCrashed).into()),
    }
}

/// A refusal in answer to COMMIT means that it did not happen; a lost or dying server leaves it open.
pub(crate) fn commit_error(error: sqlx::Error) -> PgError {
    match PgError::from(error) {
        PgError::Unavailable(cause) | PgError::StatementTimeout(cause) => PgError::CommitUnknown(cause),
        refused => refused,
    }
}
