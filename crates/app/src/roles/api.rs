//! The role `api`: HTTP, streams and the submit writer.

use std::sync::Arc;

use ::api::{ApiParts, ApiState, HealthSource, IpWindow};
use bus::Topic;
use domain::WorkerId;
use generation::{AcceptedHook, CancelingHook, Generation, GenerationConfig, GenerationParts};
use scheduler::Nudge;
use tokio_util::sync::CancellationToken;

use crate::{callbacks::Callbacks, compose::Stores, config::Config};

/// What only this process's own life decides.
pub(crate) struct Around {
    pub(crate) health: Arc<dyn HealthSource>,
    pub(crate) metrics: Arc<dyn Fn() -> String + Send + Sync>,
    pub(crate) shutdown: CancellationToken,
    /// The key behind the console's token, in demo.
    pub(crate) demo_key: Option<String>,
    /// The scheduler of this process, told at once of what was accepted here.
    pub(crate) nudge: Option<Nudge>,
}

/// The routes' state, and the writer behind it.
pub(crate) fn build(
    config: &Config,
    stores: &Stores,
    around: Around,
) -> anyhow::Result<(ApiState, Generation)> {
    let Around { health, metrics, shutdown, demo_key, nudge } = around;
    let (neighbour, control) = (nudge.clone(), stores.control.clone());
    // Whoever owns the attempt finds the callback by itself; ringing makes it quick.
    let called = Arc::new(move |owner: WorkerId| {
        if !neighbour.as_ref().is_some_and(|nudge| nudge.called_back(&owner)) {
            let control = control.clone();
            tokio::spawn(async move {
                if let Err(error) = control.ring(&owner).await {
                    tracing::debug!(%error, "a worker elsewhere was not rung");
                }
            });
        }
    });
    let (accepted, canceling): (AcceptedHook, CancelingHook) = match nudge {
        Some(nudge) => {
            let canceling = nudge.clone();
            (
                Arc::new(move |tasks, waited| nudge.queued(tasks, waited)),
                Arc::new(move |task| canceling.cancel_requested(task)),
            )
        }
        // Schedulers elsewhere are told that there is something in the queue; cancels they find by themselves.
        None => {
            let queue = Arc::clone(&stores.bus);
            (Arc::new(move |_, _| queue.nudge(Topic::GenerationRequested)), Arc::new(|_| {}))
        }
    };
    // One window, counted by whoever serves the route.
    let IpWindow { limit, window_ms } = config.api.ip_window.unwrap_or(IpWindow { limit: 0, window_ms: 1 });
    let figures =
        GenerationConfig { ip_requests: limit, ip_window_ms: window_ms, ..config.generation.clone() };
    let generation = Generation::new(GenerationParts {
        pool: stores.pool.clone(),
        control: stores.control.clone(),
        tenancy: stores.tenancy.clone(),
        catalogue: stores.catalogue.clone(),
        task_state: stores.task_state.clone(),
        config: figures,
        accepted,
        canceling,
    })?;
    let state = ApiState::new(ApiParts {
        tenancy: stores.tenancy.clone(),
        catalogue: stores.catalogue.clone(),
        generation: generation.clone(),
        task_state: stores.task_state.clone(),
        media: stores.media.clone(),
        ledger: stores.ledger.clone(),
        control: stores.control.clone(),
        operator: stores.operator.clone(),
        health,
        metrics,
        clock: stores.clock.clone(),
        shutdown,
        demo_key,
        callbacks: Arc::new(Callbacks::new(config, &stores.clock)?),
        called,
        config: config.api.clone(),
    });
    Ok((state, generation))
}
