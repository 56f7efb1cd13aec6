//! Whether the money adds up, for whoever watches: the ledger's own audit, again and again.
//!
//! `aivideo audit` checks everything and takes as long as it takes. This is the part that must never be wrong, within
//! the limit that every statement has; a ledger that has outgrown the limit shows no figure here.

use std::time::{Duration, Instant};

use domain::metric;
use futures::FutureExt;
use tokio_util::sync::CancellationToken;

use crate::compose::Stores;

/// How often the ledger is looked through at most.
const EVERY: Duration = Duration::from_secs(60);
/// A look that took long is followed by so many times its own duration of rest.
const REST: u32 = 20;
/// The pause while another process looks, or nobody can.
const ELSEWHERE: Duration = Duration::from_secs(15);

/// Looks until the shutdown.
pub(crate) async fn run(stores: Stores, shutdown: CancellationToken) {
    loop {
        // One process does it. While Redis is away nobody does.
        let lock = stores.control.try_lock("audit", "ledger", ELSEWHERE).await.ok().flatten();
        let pause = if lock.is_some() {
            let from = Instant::now();
            let drift = drift(&stores).await;
            metrics::gauge!(metric::LEDGER_DRIFT).set(drift);
            EVERY.max(from.elapsed() * REST)
        } else {
            // What this process saw some time ago must not outlive a repair that another one has seen.
            metrics::gauge!(metric::LEDGER_DRIFT).set(f64::NAN);
            ELSEWHERE
        };
        // The lock is held over the pause, so that the figure stays in one place; whoever lost it looks again soon.
        let lost = async {
            match &lock {
                Some(lock) => lock.lost().await,
                None => std::future::pending().await,
            }
        };
        let over = tokio::select! {
            () = shutdown.cancelled() => true,
            () = tokio::time::sleep(pause) => false,
            () = lost => false,
        };
        if let Some(lock) = lock {
            lock.release().await;
        }
        if over {
            return;
        }
    }
}

/// How many rows do not add up; NaN when that could not be found out.
async fn drift(stores: &Stores) -> f64 {
    let audited = pg::read_snapshot(&stores.pool, |conn| ledger::audit(conn).boxed()).await;
    match audited {
        Ok(violations) => {
            for violation in &violations {
                tracing::error!(%violation, "the ledger does not add up");
            }
            #[expect(clippy::cast_precision_loss, reason = "nobody counts further than 2^52")]
            let count = violations.len() as f64;
            count
        }
        Err(error) => {
            tracing::warn!(%error, "the ledger could not be looked through");
            f64::NAN
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compose::testing::TestStores;

    #[tokio::test]
    async fn credits_from_nowhere_are_drift_and_no_answer_is_no_figure() {
        let test = TestStores::open().await;
        assert_eq!(drift(&test.stores).await, 0.0);
        // An account that says it has what no grant gave it.
        let made_up = "INSERT INTO credit_accounts (id, owner_kind, owner_id, granted, available)
                       VALUES (gen_random_uuid(), 'user', gen_random_uuid(), 5, 5)";
        sqlx::query(made_up).execute(&test.db.pool).await.unwrap();
        assert_eq!(drift(&test.stores).await, 1.0);
        test.stores.pool.close().await;
        assert!(drift(&test.stores).await.is_nan());
    }
}
