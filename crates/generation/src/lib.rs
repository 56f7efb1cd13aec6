//! Admission: from a request body to a task that is queued and paid for, or to a refusal that says why.
//!
//! [`GenerationRequest::parse`] is pure. [`Generation::submit`] asks the limits in one Redis round trip and then
//! hands the request to a writer, which commits many of them together. [`Generation::quote`] runs the same
//! decision and writes nothing. [`Generation::cancel`] records the wish to stop. This crate owns no table: it
//! composes the verbs of those who do, in their lock order.

mod answer;
mod batch;
mod cancel;
mod config;
mod error;
mod foresight;
mod limits;
mod local_limits;
#[cfg(test)]
mod quota_test;
mod quote;
mod request;
#[cfg(test)]
mod strict_test;
mod submit;
#[cfg(test)]
mod tests_support;
mod writer;

use std::{sync::Arc, time::Duration};

pub use cancel::{CancelError, CancelOutcome};
use catalogue::Catalogue;
pub use config::{ConfigError, GenerationConfig, StrictWithoutRedis};
use control::Control;
use domain::TaskId;
pub use error::SubmitError;
pub use limits::LimitState;
use local_limits::LocalLimits;
use pg::PgPool;
pub use quote::{BindingLimit, Decision, Quote};
pub use request::{FieldCode, FieldError, GenerationRequest, OnLimit, ParseError};
pub use submit::{Submission, Submitted};
use task_state::{NewlyQueued, TaskState};
use tenancy::Tenancy;
use writer::Writers;

/// Called with the tasks of each commit, so that a scheduler in this process looks at once, and with how long they waited for
/// it on average, so that it does less while submits wait long. The queue is the guarantee and reaches the others. Must
/// return quickly.
pub type AcceptedHook = Arc<dyn Fn(&[NewlyQueued], Duration) + Send + Sync>;

/// Called with a task whose cancel was recorded and has to be carried to the provider, for a scheduler in this
/// process. The others find the wish in PostgreSQL. Must return quickly.
pub type CancelingHook = Arc<dyn Fn(TaskId) + Send + Sync>;

/// What admission is made of.
pub struct GenerationParts {
    /// PostgreSQL.
    pub pool: PgPool,
    /// Redis.
    pub control: Control,
    /// Who asks.
    pub tenancy: Tenancy,
    /// What there is.
    pub catalogue: Catalogue,
    /// Where the tasks go.
    pub task_state: TaskState,
    /// Figures.
    pub config: GenerationConfig,
    /// Told of accepted tasks.
    pub accepted: AcceptedHook,
    /// Told of cancels under way.
    pub canceling: CancelingHook,
}

/// The handle through which requests are admitted. Cheap to clone.
#[derive(Clone)]
pub struct Generation {
    shared: Arc<Shared>,
    writers: Writers,
}

struct Shared {
    pool: PgPool,
    control: Control,
    tenancy: Tenancy,
    catalogue: Catalogue,
    task_state: TaskState,
    config: GenerationConfig,
    accepted: AcceptedHook,
    canceling: CancelingHook,
    local_limits: LocalLimits,
}

impl Generation {
    /// Starts the writers on the current runtime.
    ///
    /// # Errors
    /// When the configuration contradicts itself.
    pub fn new(parts: GenerationParts) -> Result<Self, ConfigError> {
        let GenerationParts { pool, control, tenancy, catalogue, task_state, config, accepted, canceling } =
            parts;
        config.check()?;
        let local_limits = LocalLimits::new(config.fallback_share);
        let shared = Arc::new(Shared {
            pool,
            control,
            tenancy,
            catalogue,
            task_state,
            config,
            accepted,
            canceling,
            local_limits,
        });
        let writers = Writers::start(&shared);
        Ok(Self { shared, writers })
    }

    /// For shutdown: takes nothing more, and returns when everything taken was answered.
    pub async fn drain(&self) {
        self.writers.drain().await;
    }
}

impl std::fmt::Debug for Generation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Generation").field("config", &self.shared.config).finish_non_exhaustive()
    }
}
