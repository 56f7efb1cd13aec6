//! What every route can reach: the owners' handles, the settings, and the few things that this crate remembers.

use std::{fmt, sync::Arc, time::Duration};

use catalogue::Catalogue;
use control::Control;
use domain::{WorkerId, callback::CallbackVerifier, clock::SharedClock};
use generation::Generation;
use ledger::Ledger;
use media::Media;
use operator::Operator;
use task_state::TaskState;
use tenancy::Tenancy;
use tokio_util::sync::CancellationToken;

use crate::{
    config::ApiConfig,
    durations::Durations,
    gate::Gate,
    health::HealthSource,
    limits::{failed_auth::FailedAuths, ip::Proxies, reads::ReadLimits},
    live::Live,
    view::answer::EndedAnswers,
};

/// The parts that app puts together.
pub struct ApiParts {
    /// Who asks.
    pub tenancy: Tenancy,
    /// Models and prices.
    pub catalogue: Catalogue,
    /// Admission, quotes, cancel.
    pub generation: Generation,
    /// Tasks.
    pub task_state: TaskState,
    /// Stored files.
    pub media: Media,
    /// Balances.
    pub ledger: Ledger,
    /// Redis, for positions, progress and wait reasons.
    pub control: Control,
    /// Admin verbs.
    pub operator: Operator,
    /// Health of this process.
    pub health: Arc<dyn HealthSource>,
    /// Renders the metrics of this process as Prometheus reads them.
    pub metrics: Arc<dyn Fn() -> String + Send + Sync>,
    /// Stamps links and answers.
    pub clock: SharedClock,
    /// Cancelled when the process stops: streams end with a hint to come back.
    pub shutdown: CancellationToken,
    /// The key behind the console's token. Only in demo, and only when the listener is on loopback.
    pub demo_key: Option<String>,
    /// Reads what providers report.
    pub callbacks: Arc<dyn CallbackVerifier>,
    /// Tells the owner of an attempt that its provider has called. Losing such a call costs a moment.
    pub called: Arc<dyn Fn(WorkerId) + Send + Sync>,
    /// Settings.
    pub config: ApiConfig,
}

/// What every route can reach. Cheap to clone.
#[derive(Clone)]
pub struct ApiState(Arc<Shared>);

struct Shared {
    parts: ApiParts,
    proxies: Proxies,
    reads: ReadLimits,
    shadow_reads: ReadLimits,
    failed_auths: FailedAuths,
    in_flight: Gate,
    store: Gate,
    streams: Gate,
    live: Live,
    ended: EndedAnswers,
    durations: Durations,
}

impl ApiState {
    /// Puts the state together.
    #[must_use]
    pub fn new(parts: ApiParts) -> Self {
        let config = &parts.config;
        let proxies = Proxies { hops: config.trusted_hops, trusted: config.trusted_proxies.clone() };
        let store_wait = Duration::from_millis(config.store_wait_ms_max);
        Self(Arc::new(Shared {
            proxies,
            reads: ReadLimits::new(),
            shadow_reads: ReadLimits::new(),
            failed_auths: FailedAuths::new(config.failed_auth),
            in_flight: Gate::new("requests", config.in_flight_max, Duration::ZERO),
            store: Gate::new("store", config.store_in_flight_max, store_wait),
            streams: Gate::new("streams", config.streams_max, Duration::ZERO),
            live: Live::new(parts.control.clone(), parts.catalogue.clone(), parts.tenancy.clone()),
            ended: EndedAnswers::new(),
            durations: Durations::default(),
            parts,
        }))
    }

    pub(crate) fn tenancy(&self) -> &Tenancy {
        &self.0.parts.tenancy
    }

    pub(crate) fn catalogue(&self) -> &Catalogue {
        &self.0.parts.catalogue
    }

    pub(crate) fn generation(&self) -> &Generation {
        &self.0.parts.generation
    }

    pub(crate) fn task_state(&self) -> &TaskState {
        &self.0.parts.task_state
    }

    pub(crate) fn media(&self) -> &Media {
        &self.0.parts.media
    }

    pub(crate) fn ledger(&self) -> &Ledger {
        &self.0.parts.ledger
    }

    pub(crate) fn control(&self) -> &Control {
        &self.0.parts.control
    }

    pub(crate) fn operator(&self) -> &Operator {
        &self.0.parts.operator
    }

    pub(crate) fn health(&self) -> &dyn HealthSource {
        &*self.0.parts.health
    }

    pub(crate) fn metrics(&self) -> String {
        (self.0.parts.metrics)()
    }

    pub(crate) fn clock(&self) -> &SharedClock {
        &self.0.parts.clock
    }

    pub(crate) fn shutdown(&self) -> &CancellationToken {
        &self.0.parts.shutdown
    }

    pub(crate) fn demo_key(&self) -> Option<&str> {
        self.0.parts.demo_key.as_deref()
    }

    pub(crate) fn callbacks(&self) -> &dyn CallbackVerifier {
        &*self.0.parts.callbacks
    }

    pub(crate) fn called(&self, owner: WorkerId) {
        (self.0.parts.called)(owner);
    }

    pub(crate) fn config(&self) -> &ApiConfig {
        &self.0.parts.config
    }

    pub(crate) fn proxies(&self) -> &Proxies {
        &self.0.proxies
    }

    pub(crate) fn reads(&self) -> &ReadLimits {
        &self.0.reads
    }

    /// The read buckets that only count, of keys that have one.
    pub(crate) fn shadow_reads(&self) -> &ReadLimits {
        &self.0.shadow_reads
    }

    pub(crate) fn failed_auths(&self) -> &FailedAuths {
        &self.0.failed_auths
    }

    /// Requests that are being answered.
    pub(crate) fn in_flight(&self) -> &Gate {
        &self.0.in_flight
    }

    /// Requests that are busy in PostgreSQL.
    pub(crate) fn store(&self) -> &Gate {
        &self.0.store
    }

    /// Open event streams.
    pub(crate) fn streams(&self) -> &Gate {
        &self.0.streams
    }

    /// What is computed while reading.
    pub(crate) fn live(&self) -> &Live {
        &self.0.live
    }

    /// Answers about ended tasks.
    pub(crate) fn ended(&self) -> &EndedAnswers {
        &self.0.ended
    }

    /// How long answers take.
    pub(crate) fn durations(&self) -> &Durations {
        &self.0.durations
    }
}

impl fmt::Debug for ApiState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiState").field("config", self.config()).finish_non_exhaustive()
    }
}
