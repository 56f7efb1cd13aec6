//! Forgetting: every owner has a verb that removes what has served its time, and this calls them.

use std::time::Duration;

use pg::{PgConnection, PgError};
use tokio_util::sync::CancellationToken;

use crate::compose::Stores;

/// How often this is done.
const EVERY: Duration = Duration::from_secs(60);
/// Rows per statement: enough to keep up, few enough to hold no lock for long.
const BATCH: u32 = 1_000;
/// Statements per owner and round.
const BATCHES_MAX: u32 = 100;
/// Longer than any reception of a file takes.
const STALE_FILE: Duration = Duration::from_secs(6 * 3_600);
/// Far longer than a published output waits for its record, also while PostgreSQL is away for a night.
const ORPHAN: Duration = Duration::from_secs(48 * 3_600);

/// Goes on until the shutdown.
pub(crate) async fn run(stores: Stores, shutdown: CancellationToken) {
    loop {
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = tokio::time::sleep(EVERY) => {}
        }
        // One process does it. Without Redis nobody does: nothing here is urgent.
        match stores.control.try_lock("retire", "all", EVERY).await {
            Ok(Some(lock)) => {
                round(&stores, || lock.is_lost()).await;
                lock.release().await;
            }
            Ok(None) => {}
            Err(error) => tracing::debug!(%error, "nothing is retired while Redis is away"),
        }
    }
}

/// One round, which stops between two steps when somebody else may have begun another.
async fn round(stores: &Stores, stop: impl Fn() -> bool) {
    let tenancy = async |conn: &mut PgConnection| tenancy::retire(conn, BATCH).await;
    report("tenancy", retire(stores, &stop, tenancy).await);
    let events = async |conn: &mut PgConnection| task_state::retire_events(conn, BATCH).await;
    report("task-state", retire(stores, &stop, events).await);
    let windows = async |conn: &mut PgConnection| ledger::retire_windows(conn, BATCH).await;
    report("ledger", retire(stores, &stop, windows).await);
    let outbox = async |conn: &mut PgConnection| outbox::retire(conn, BATCH).await;
    report("outbox", retire(stores, &stop, outbox).await);
    if stop() {
        tracing::debug!("a round of retiring stopped, since its lock was lost");
        return;
    }
    match stores.media.sweep(STALE_FILE).await {
        Ok(0) => {}
        Ok(files) => tracing::info!(files, "removed temporary files that nobody finished"),
        Err(error) => tracing::warn!(%error, "temporary files were not swept"),
    }
    match stores.media.remove_orphans(ORPHAN).await {
        Ok(0) => {}
        Ok(files) => tracing::info!(files, "removed outputs that belong to no task"),
        Err(error) => tracing::warn!(%error, "outputs that belong to no task were not looked for"),
    }
}

/// Calls the verb until it finds less than a batch, or is to stop.
async fn retire<F>(stores: &Stores, stop: &impl Fn() -> bool, verb: F) -> Result<u64, PgError>
where
    F: AsyncFn(&mut PgConnection) -> Result<u64, PgError>,
{
    let mut conn = stores.pool.acquire().await?;
    let mut total = 0;
    for _ in 0..BATCHES_MAX {
        if stop() {
            break;
        }
        let removed = verb(&mut conn).await?;
        total += removed;
        if removed < u64::from(BATCH) {
            break;
        }
    }
    Ok(total)
}

fn report(owner: &'static str, retired: Result<u64, PgError>) {
    match retired {
        Ok(0) => {}
        Ok(rows) => tracing::info!(owner, rows, "retired"),
        Err(error) => tracing::warn!(owner, %error, "retiring failed and will be repeated"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compose::testing::TestStores;

    #[tokio::test]
    async fn a_round_removes_what_is_old_in_as_many_batches_as_it_takes_and_nothing_else() {
        let test = TestStores::open().await;
        let insert = "INSERT INTO idempotency_keys
                          (user_id, route, key, fingerprint, subject, response_status, response_body, created_at)
                      SELECT gen_random_uuid(), 'r', 'k' || n, '', 's', 202, '', aiv_now() - make_interval(hours => $1)
                      FROM generate_series(1, $2) AS n";
        for (hours, count) in [(25, 2_500), (23, 3)] {
            sqlx::query(insert).bind(hours).bind(count).execute(&test.db.pool).await.unwrap();
        }
        let windows = "INSERT INTO quota_windows (subject_kind, subject_id, starts_at, used)
                       SELECT 'user', gen_random_uuid(), aiv_now() - make_interval(days => n), 1
                       FROM generate_series(35, 44) AS n";
        sqlx::query(windows).execute(&test.db.pool).await.unwrap();
        let left = async || -> (i64, i64) {
            let count =
                "SELECT (SELECT count(*) FROM idempotency_keys), (SELECT count(*) FROM quota_windows)";
            sqlx::query_as(count).fetch_one(&test.db.pool).await.unwrap()
        };
        round(&test.stores, || true).await;
        assert_eq!(left().await, (2_503, 10), "its lock was lost before it began");
        round(&test.stores, || false).await;
        assert_eq!(left().await, (3, 5));
    }
}
