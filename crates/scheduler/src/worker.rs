//! What all loops and drivers of this process share.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use bus::ConsumerStatus;
use catalogue::Catalogue;
use control::{Control, Sent};
use domain::{ModelName, ProviderAccountId, WorkerId, clock::SharedClock};
use media::Media;
use provider_adapter::{Provider, Providers};
use rand::{RngExt, SeedableRng, rngs::SmallRng};
use task_state::TaskState;
use tenancy::Tenancy;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    bell::Bell,
    callbacks::{CallbackTrust, CallbackUrl},
    config::SchedulerConfig,
    drive::Stage,
    effort::Effort,
    give_back::{Return, Returns},
    loops::Loops,
    outputs::Outputs,
    owed::Owed,
    owned::{Holdings, Owned},
    progress::Shown,
    provider_health::ProviderHealth,
    recent::Recent,
    service::ServiceTimes,
    slot_reconciler::Suspects,
    usual::Usual,
};

/// The shared parts of one scheduler.
pub(crate) struct Worker {
    pub(crate) id: WorkerId,
    pub(crate) config: SchedulerConfig,
    pub(crate) task_state: TaskState,
    pub(crate) control: Control,
    pub(crate) catalogue: Catalogue,
    pub(crate) tenancy: Tenancy,
    pub(crate) providers: Providers,
    pub(crate) media: Media,
    pub(crate) clock: SharedClock,
    pub(crate) loops: Loops,
    /// How the consumer of requests is doing.
    pub(crate) consumer: ConsumerStatus,
    /// The attempts that this worker owns.
    pub(crate) holdings: Holdings,
    /// The worker's own limit.
    pub(crate) places: Arc<Semaphore>,
    /// How hard it works at the moment.
    pub(crate) effort: Effort,
    /// Outputs under way and waiting.
    pub(crate) outputs: Outputs,
    /// How submits to each account went lately.
    pub(crate) health: ProviderHealth,
    /// How far the callbacks of each account can be relied upon.
    pub(crate) callbacks: CallbackTrust,
    /// How long short jobs take.
    pub(crate) usual: Usual,
    /// How long jobs took, to be told to those who reckon waits.
    pub(crate) service: ServiceTimes,
    /// Rung when a callback was stored for this worker.
    pub(crate) called: Arc<Notify>,
    /// Where providers may report to.
    pub(crate) callback_url: CallbackUrl,
    /// Tasks that were queued lately by the nudge, so that their message finds nothing to do.
    pub(crate) recent: Recent,
    /// Tasks that could not be queued.
    pub(crate) owed: Owed,
    /// Rung for a model when there may be something to dispatch.
    bells: HashMap<ModelName, Bell>,
    no_bell: Bell,
    /// Rung when a ready queue has to be filled.
    pub(crate) fill: Notify,
    /// Who met a limit lately.
    pub(crate) suspects: Suspects,
    /// Requests other than submits under way, by account.
    turns: HashMap<ProviderAccountId, Arc<Semaphore>>,
    /// Progress on its way to whoever watches.
    pub(crate) progress: Shown,
    /// What attempts gave back, on its way to Redis.
    returns: Returns,
    /// Drivers of attempts.
    pub(crate) drivers: TaskTracker,
    /// Nothing new is begun; whoever waits hands back.
    pub(crate) stopping: CancellationToken,
    /// The time for submits under way is over.
    pub(crate) stopped: CancellationToken,
    rng: Mutex<SmallRng>,
}

/// What a worker is made of; see [`crate::SchedulerParts`].
pub(crate) struct WorkerParts {
    pub(crate) id: WorkerId,
    pub(crate) config: SchedulerConfig,
    pub(crate) task_state: TaskState,
    pub(crate) control: Control,
    pub(crate) catalogue: Catalogue,
    pub(crate) tenancy: Tenancy,
    pub(crate) providers: Providers,
    pub(crate) media: Media,
    pub(crate) clock: SharedClock,
    pub(crate) seed: u64,
    pub(crate) callback_url: CallbackUrl,
}

impl Worker {
    pub(crate) fn new(parts: WorkerParts, returns: Returns, progress: Shown) -> Self {
        let turn = || Arc::new(Semaphore::new(parts.config.account_requests_max));
        Self {
            turns: parts.catalogue.accounts().map(|account| (account.id.clone(), turn())).collect(),
            bells: parts
                .catalogue
                .models()
                .iter()
                .map(|model| (model.name.clone(), Bell::default()))
                .collect(),
            places: Arc::new(Semaphore::new(parts.config.worker_attempts_max)),
            effort: Effort::new(parts.config.effort),
            outputs: Outputs::new(parts.config.outputs_max),
            health: ProviderHealth::default(),
            callbacks: CallbackTrust::default(),
            usual: Usual::default(),
            service: ServiceTimes::default(),
            called: Arc::default(),
            callback_url: parts.callback_url,
            recent: Recent::default(),
            owed: Owed::default(),
            loops: Loops::default(),
            consumer: ConsumerStatus::default(),
            holdings: Holdings::default(),
            fill: Notify::new(),
            no_bell: Bell::default(),
            suspects: Suspects::default(),
            returns,
            progress,
            drivers: TaskTracker::new(),
            stopping: CancellationToken::new(),
            stopped: CancellationToken::new(),
            rng: Mutex::new(SmallRng::seed_from_u64(parts.seed)),
            id: parts.id,
            config: parts.config,
            task_state: parts.task_state,
            control: parts.control,
            catalogue: parts.catalogue,
            tenancy: parts.tenancy,
            providers: parts.providers,
            media: parts.media,
            clock: parts.clock,
        }
    }

    /// A random number in [0, 1) that spreads pauses.
    pub(crate) fn spread(&self) -> f64 {
        self.rng.lock().unwrap_or_else(PoisonError::into_inner).random()
    }

    /// The adapter of the account that made the attempt's job; no other may ask about it.
    pub(crate) fn provider(&self, owned: &Owned) -> Option<Arc<dyn Provider>> {
        self.providers.get(&owned.lease.account)
    }

    /// A turn to call a provider account for something other than a submit. Those who wait are served in order.
    pub(crate) async fn turn(&self, account: &ProviderAccountId) -> Option<OwnedSemaphorePermit> {
        // The semaphores are never closed, so none means that the account is not configured, and is not called.
        self.turns.get(account)?.clone().acquire_owned().await.ok()
    }

    /// The bell of a model's dispatch. One that is not in the catalogue has none that anybody hears.
    pub(crate) fn bell(&self, model: &ModelName) -> &Bell {
        self.bells.get(model).unwrap_or(&self.no_bell)
    }

    /// Says that there is something new to dispatch for a model.
    pub(crate) fn ring(&self, model: &ModelName) {
        self.bell(model).ring();
    }

    /// Says that there may be room at an account.
    pub(crate) fn ring_account(&self, account: &ProviderAccountId) {
        for model in self.catalogue.models() {
            if model.routes.iter().any(|route| route.account == *account) {
                self.bell(&model.name).ring_for_room();
            }
        }
    }

    /// Says that there may be room for everybody: in this worker, or for a user whose limit spans models.
    pub(crate) fn ring_all(&self) {
        self.bells.values().for_each(Bell::ring_for_room);
    }

    /// How long a generation of the attempt's model usually takes.
    pub(crate) fn usual_duration(&self, owned: &Owned) -> Duration {
        self.catalogue.model(&owned.model).map_or(Duration::from_secs(10), |model| model.usual_duration())
    }

    /// Nobody can ask about the job, because its account was taken out of the configuration. The deadline ends the
    /// task; the attempt stays open until the account is back.
    pub(crate) async fn without_adapter(&self, owned: &Owned) -> Stage {
        tracing::error!(
            attempt = %owned.name(), account = %owned.lease.account,
            "a job lies at a provider account that is not configured any more"
        );
        tokio::select! {
            () = owned.lost.cancelled() => Stage::Lost,
            () = self.stopping.cancelled() => Stage::HandBack,
        }
    }

    /// The end of this worker's part in an attempt: its place, its lease, its entry.
    pub(crate) fn let_go(&self, owned: &Owned, stage: &Stage) {
        self.holdings.remove(owned);
        if !matches!(stage, Stage::Lost) {
            self.returns.hand_in(Return::Lease(owned.lease.clone()));
        }
    }

    /// The provider is through with the attempt: its slots are free for the next.
    pub(crate) fn through(&self, owned: &Owned, sent: Sent) {
        if owned.take_slots() {
            self.returns.hand_in(Return::Slots(owned.slot(), sent));
        }
    }
}
