//! Putting a scheduler together, running its loops, and ending it in order.

use std::sync::Arc;

use bus::{Bus, ConsumerStatus, Topic};
use catalogue::Catalogue;
use control::Control;
use domain::{WorkerId, clock::SharedClock};
use media::Media;
use provider_adapter::Providers;
use task_state::{NewlyQueued, TaskState};
use tenancy::Tenancy;
use tokio::{
    sync::{Notify, mpsc},
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;

use crate::{
    callbacks::{self, CallbackUrl},
    config::{SchedulerConfig, SchedulerConfigError},
    dispatch::Pump,
    effort,
    give_back::{self, Return, Returns},
    heartbeat,
    intake::{self, Intake, Nudge},
    loops::{self, Loops, Rhythm},
    progress::{self, Figure, Shown},
    ready, reaper, slot_reconciler, sweeper,
    worker::{Worker, WorkerParts},
};

/// What a scheduler is made of.
pub struct SchedulerParts {
    /// Moves and reads tasks.
    pub task_state: TaskState,
    /// Redis.
    pub control: Control,
    /// Models, accounts and what operators intend.
    pub catalogue: Catalogue,
    /// Tiers of users.
    pub tenancy: Tenancy,
    /// The adapters, by account.
    pub providers: Providers,
    /// Where outputs go.
    pub media: Media,
    /// Where requests for generations come from.
    pub bus: Arc<dyn Bus>,
    /// The name of this worker; never used again by another process.
    pub worker_id: WorkerId,
    /// Settings.
    pub config: SchedulerConfig,
    /// Stamps notes for readers; decides nothing.
    pub clock: SharedClock,
    /// Seeds the spread of pauses.
    pub seed: u64,
    /// Where providers that call back may report to.
    pub callback_url: CallbackUrl,
}

/// A scheduler that is ready to run.
pub struct Scheduler {
    worker: Arc<Worker>,
    bus: Arc<dyn Bus>,
    nudged: mpsc::Receiver<NewlyQueued>,
    returned: mpsc::Receiver<Return>,
    shown: mpsc::Receiver<Figure>,
}

impl std::fmt::Debug for Scheduler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scheduler").field("worker", &self.worker.id).finish_non_exhaustive()
    }
}

impl Scheduler {
    /// Puts a scheduler together; nothing runs yet.
    ///
    /// # Errors
    /// When the settings contradict each other.
    pub fn new(parts: SchedulerParts) -> Result<(Self, Nudge), SchedulerConfigError> {
        parts.config.check()?;
        let (returns, returned) = Returns::new();
        let (progress, shown) = Shown::new();
        let bus = parts.bus;
        let worker = WorkerParts {
            id: parts.worker_id,
            config: parts.config,
            task_state: parts.task_state,
            control: parts.control,
            catalogue: parts.catalogue,
            tenancy: parts.tenancy,
            providers: parts.providers,
            media: parts.media,
            clock: parts.clock,
            seed: parts.seed,
            callback_url: parts.callback_url,
        };
        let worker = Arc::new(Worker::new(worker, returns, progress));
        let (nudge, nudged) = Nudge::new(worker.clone());
        Ok((Self { worker, bus, nudged, returned, shown }, nudge))
    }

    /// The loops of this scheduler, for `/readyz` and metrics.
    #[must_use]
    pub fn loops(&self) -> Loops {
        self.worker.loops.clone()
    }

    /// The consumer of `generation.requested`, for `/readyz` and metrics.
    #[must_use]
    pub fn consumer(&self) -> ConsumerStatus {
        self.worker.consumer.clone()
    }

    /// Runs until the shutdown, then ends in order: nothing new is claimed, whoever waits hands back, submits under way
    /// get their time, and the leases go, so that others take over at once.
    pub async fn run(self, shutdown: CancellationToken) {
        let Self { worker, bus, nudged, returned, shown } = self;
        tracing::info!(worker = %worker.id, "the scheduler starts");
        let mut loops = JoinSet::new();
        spawn_loops(&mut loops, &worker, &bus, nudged);
        let showing = worker.clone();
        loops.spawn(async move { progress::run(&showing, shown).await });
        // What is given back at the end is sent by this one, so it goes on until the drivers have ended.
        let over = CancellationToken::new();
        let returns = tokio::spawn({
            let (worker, over) = (worker.clone(), over.clone());
            async move { give_back::run(&worker, returned, &over).await }
        });

        shutdown.cancelled().await;
        tracing::info!(worker = %worker.id, attempts = worker.holdings.len(), "the scheduler stops");
        worker.stopping.cancel();
        let heartbeats = worker.clone();
        while let Some(ended) = loops.join_next().await {
            note_panic(ended);
        }
        worker.drivers.close();
        // Leases are kept alive while submits are under way.
        let draining = tokio::time::timeout(worker.config.shutdown_max, worker.drivers.wait());
        let beating = async {
            loop {
                tokio::time::sleep(heartbeats.config.heartbeat).await;
                if let Err(error) = heartbeat::pass(&heartbeats).await {
                    tracing::warn!(%error, "a heartbeat failed during shutdown");
                }
            }
        };
        let drained = tokio::select! {
            drained = draining => drained.is_ok(),
            never = beating => never,
        };
        if !drained {
            tracing::warn!(
                attempts = worker.holdings.len(),
                "submits are still under way and are left behind"
            );
            worker.stopped.cancel();
        }
        over.cancel();
        if let Err(error) = returns.await {
            tracing::error!(%error, "giving back ended by a panic");
        }
        tracing::info!(worker = %worker.id, "the scheduler has stopped");
    }
}

fn note_panic(ended: Result<(), tokio::task::JoinError>) {
    if let Err(error) = ended {
        tracing::error!(%error, "a loop ended by a panic");
    }
}

fn spawn_loops(
    set: &mut JoinSet<()>,
    worker: &Arc<Worker>,
    bus: &Arc<dyn Bus>,
    nudged: mpsc::Receiver<NewlyQueued>,
) {
    for model in worker.catalogue.models() {
        let (worker, pump) = (worker.clone(), Arc::new(Pump::new(model.clone(), worker)));
        let model = model.name.clone();
        set.spawn(async move {
            let rhythm = Rhythm {
                name: format!("dispatch:{model}").into(),
                every: std::time::Duration::from_secs(1),
                nudge: &worker.bell(&model).rung,
            };
            let pass = || {
                let (worker, pump) = (worker.clone(), pump.clone());
                async move { pump.pass(&worker).await }
            };
            loops::run(&worker.loops, rhythm, &worker.stopping, pass).await;
        });
    }
    let every = worker.config.pass_interval;
    spawn_reconciler(set, worker, "heartbeat", worker.config.heartbeat, |worker| async move {
        heartbeat::pass(&worker).await
    });
    let missing = Arc::new(reaper::Missing::default());
    spawn_reconciler(set, worker, "reaper", every, move |worker| {
        let missing = missing.clone();
        async move { reaper::pass(&worker, &missing).await }
    });
    spawn_reconciler(set, worker, "sweeper", every, |worker| async move { sweeper::pass(&worker).await });
    let before = Arc::new(slot_reconciler::MissingBefore::default());
    spawn_reconciler(set, worker, "slots", every, move |worker| {
        let before = before.clone();
        async move { slot_reconciler::pass(&worker, &before).await }
    });
    let measuring = worker.clone();
    set.spawn(async move { effort::run(&measuring, &measuring.stopping).await });
    let filling = worker.clone();
    set.spawn(async move {
        let walk = ready::Walk::default();
        let rhythm = Rhythm { name: "ready".into(), every, nudge: &filling.fill };
        loops::run(&filling.loops, rhythm, &filling.stopping, || ready::pass(&filling, &walk)).await;
    });
    let telling = worker.clone();
    set.spawn(async move {
        let rhythm = Rhythm { name: "callbacks".into(), every, nudge: &telling.called };
        loops::run(&telling.loops, rhythm, &telling.stopping, || callbacks::pass(&telling)).await;
    });
    let hearing = worker.clone();
    set.spawn(async move {
        tokio::select! {
            () = hearing.stopping.cancelled() => {}
            () = hearing.control.hear_rings(&hearing.id, hearing.called.clone()) => {}
        }
    });
    let queueing = worker.clone();
    set.spawn(async move { intake::run(&queueing, nudged).await });
    let (consuming, bus) = (worker.clone(), bus.clone());
    set.spawn(async move {
        let handler = Arc::new(Intake(consuming.clone()));
        let (status, stopping) = (consuming.consumer.clone(), consuming.stopping.clone());
        if let Err(error) = bus.run(Topic::GenerationRequested, handler, status, stopping).await {
            tracing::error!(%error, "the consumer of requests ended");
        }
    });
}

fn spawn_reconciler<F, Fut>(
    set: &mut JoinSet<()>,
    worker: &Arc<Worker>,
    name: &'static str,
    every: std::time::Duration,
    mut pass: F,
) where
    F: FnMut(Arc<Worker>) -> Fut + Send + 'static,
    Fut: Future<Output = Result<loops::Next, loops::PassError>> + Send + 'static,
{
    let worker = worker.clone();
    set.spawn(async move {
        let nudge = Notify::new();
        let rhythm = Rhythm { name: name.into(), every, nudge: &nudge };
        loops::run(&worker.loops, rhythm, &worker.stopping, || pass(worker.clone())).await;
    });
}
