//! Figures that nobody sets while working: they are looked up for whoever watches.

use std::{sync::Arc, time::Duration};

use domain::metric;
use tokio_util::sync::CancellationToken;

use crate::{
    compose::Stores,
    health::{Health, Progress},
};

const EVERY: Duration = Duration::from_secs(2);

/// Looks them up until the shutdown.
pub(crate) async fn run(
    stores: Stores,
    health: Arc<Health>,
    progress: Option<Progress>,
    shutdown: CancellationToken,
) {
    loop {
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = tokio::time::sleep(EVERY) => {}
        }
        // A breaker in front of an instance that nobody asks would never close again.
        stores.control.probe().await;
        accounts(&stores).await;
        // An answer names PostgreSQL as away by what was last heard of it.
        let database = health.database().await;
        breakers(&stores, database.is_err());
        if health.watches_outbox() {
            outbox_age(&stores).await;
        }
        if let Some(progress) = &progress {
            progress.loops.export_metrics();
            queue_depths(&stores).await;
        }
    }
}

/// Which stores are taken for away.
fn breakers(stores: &Stores, database_away: bool) {
    let away: Vec<_> = stores.control.health().degraded().collect();
    let stores = ["cache", "control", "realtime"].map(|name| (name, away.contains(&name)));
    for (name, away) in stores.into_iter().chain([("postgresql", database_away)]) {
        metrics::gauge!(metric::BREAKER_OPEN, "store" => name).set(if away { 1.0 } else { 0.0 });
    }
}

/// Which provider accounts fail. While nobody can say, what was last heard stands.
async fn accounts(stores: &Stores) {
    let known: Vec<_> = stores.catalogue.accounts().map(|account| account.id.clone()).collect();
    if let Err(error) = stores.control.account_breakers(&known).await {
        tracing::debug!(error = error.label(), "how the provider accounts do could not be looked up");
    }
    let shut = stores.control.shut_accounts();
    for account in known {
        let open = if shut.contains(&account) { 1.0 } else { 0.0 };
        metrics::gauge!(metric::PROVIDER_BREAKER_OPEN, "account" => account.to_string()).set(open);
    }
}

async fn outbox_age(stores: &Stores) {
    let Ok(mut conn) = stores.pool.acquire().await else { return };
    if let Ok(age) = outbox::oldest_age(&mut conn).await {
        let millis = age.unwrap_or_default().as_secs_f64() * 1_000.0;
        metrics::gauge!(metric::OUTBOX_AGE_MS).set(millis);
    }
}

async fn queue_depths(stores: &Stores) {
    let models: Vec<_> = stores.catalogue.models().iter().map(|model| model.name.clone()).collect();
    let Ok(depths) = stores.control.queue_depths(&models).await else { return };
    for (model, depth) in models.iter().zip(depths) {
        #[expect(clippy::cast_precision_loss, reason = "a depth beyond 2^52 is no queue")]
        metrics::gauge!(metric::QUEUE_DEPTH, "model" => model.to_string()).set(depth as f64);
    }
}
