//! The role `relay`: from the outbox to the broker, where there is one.

use std::{sync::Arc, time::Duration};

use bus::{Bus, ConsumerStatus};
use domain::metric;
use tokio_util::sync::CancellationToken;

/// The name among the loops.
pub(crate) const NAME: &str = "relay";

const FIGURES_EVERY: Duration = Duration::from_secs(2);

/// Relays until the shutdown.
pub(crate) async fn run(bus: Arc<dyn Bus>, status: ConsumerStatus, shutdown: CancellationToken) {
    let figures = async {
        loop {
            tokio::time::sleep(FIGURES_EVERY).await;
            let seconds = status.since_progress().as_secs_f64();
            metrics::gauge!(metric::LOOP_SINCE_PROGRESS_SECONDS, "loop" => NAME).set(seconds);
        }
    };
    tokio::select! {
        () = figures => {}
        result = bus.relay(status.clone(), shutdown) => {
            if let Err(error) = result {
                tracing::error!(%error, "the relay ended");
            }
        }
    }
}
