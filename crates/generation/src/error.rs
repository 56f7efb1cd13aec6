//! Why a submit is refused, with the figures that the answer names.

use std::time::Duration;

use chrono::{DateTime, Utc};
use domain::{Credits, limits::LimitScope};

use crate::limits::LimitState;

/// Each variant is one problem of the API. What is not the caller's fault says when to come again.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    /// The credential may not submit, or the caller only looks into this project. 403.
    #[error("this credential may not submit here")]
    Forbidden,
    /// The caller has no such project. 422, with the member `project_id`.
    #[error("there is no such project")]
    UnknownProject,
    /// The account has less than the price. 402.
    #[error("the video costs {needed} credits; {available} are available and {held} are held")]
    InsufficientCredits {
        /// What could be spent.
        available: Credits,
        /// What running tasks hold.
        held: Credits,
        /// The price.
        needed: Credits,
    },
    /// Another request was sent under this idempotency key. 422.
    #[error("another request was sent under this idempotency key")]
    IdempotencyMismatch,
    /// The first request under this key has not ended. 409.
    #[error("the first request under this idempotency key has not ended yet")]
    IdempotencyInProgress {
        /// When to come again.
        retry_after: Duration,
    },
    /// A rate was exceeded. 429.
    #[error("more requests than {} allows", by.policy)]
    RateLimited {
        /// The limit that refused.
        by: LimitState,
        /// When a request alone would succeed.
        retry_after: Duration,
        /// Every limit that was asked.
        limits: Vec<LimitState>,
    },
    /// The request asks for more than the limit could ever let through. 422.
    #[error("one request asks for more than {} ever allows", by.policy)]
    CostAboveCapacity {
        /// The limit.
        by: LimitState,
    },
    /// The model is counted in a strict window, and the count is away. Nothing was done. 503.
    #[error("submits of this model cannot be counted now")]
    Uncounted {
        /// When to come again.
        retry_after: Duration,
    },
    /// As many tasks are open as may be. 429.
    #[error("the {scope} has {open} of {limit} open tasks")]
    QueueFull {
        /// Whose limit.
        scope: LimitScope,
        /// Open tasks, running and waiting.
        open: u32,
        /// The most allowed.
        limit: u32,
        /// When one of them will usually have ended.
        retry_after: Duration,
    },
    /// As many tasks were accepted today as may be. 429.
    #[error("as many tasks as {} allows were accepted today", by.policy)]
    QuotaExceeded {
        /// The quota. Its reset is when a request would succeed.
        by: LimitState,
        /// The first instant of the next day.
        resets_at: DateTime<Utc>,
        /// Every limit that was asked.
        limits: Vec<LimitState>,
    },
    /// As many tasks run as may, and the request is not to wait. 429.
    #[error("the {scope} has {open} open tasks, and {limit} may run at once")]
    Concurrency {
        /// Whose limit.
        scope: LimitScope,
        /// Open tasks: those that run, and those that will as soon as they can.
        open: u32,
        /// The most that may run.
        limit: u32,
        /// When one of them will usually have ended.
        retry_after: Duration,
    },
    /// More submits wait to be written than may. Nothing was done. 503.
    #[error("too many submits are waiting")]
    Overloaded {
        /// When to come again.
        retry_after: Duration,
    },
    /// PostgreSQL is away, or did not answer in time. With an idempotency key the request can safely be sent again. 503.
    #[error("submits cannot be stored now")]
    Unavailable {
        /// When to come again.
        retry_after: Duration,
    },
    /// Our fault; logged where it happened. 500.
    #[error("the submit failed")]
    Internal,
}

impl SubmitError {
    /// The wait that a caller is told when nothing better is known.
    pub(crate) const SOON: Duration = Duration::from_secs(1);

    pub(crate) const UNAVAILABLE: Self = Self::Unavailable { retry_after: Self::SOON };

    /// When to come again, for answers that say so.
    #[must_use]
    pub const fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::IdempotencyInProgress { retry_after }
            | Self::RateLimited { retry_after, .. }
            | Self::Uncounted { retry_after }
            | Self::QueueFull { retry_after, .. }
            | Self::Concurrency { retry_after, .. }
            | Self::Overloaded { retry_after }
            | Self::Unavailable { retry_after } => Some(*retry_after),
            Self::QuotaExceeded { by, .. } => Some(by.reset),
            Self::Forbidden
            | Self::UnknownProject
            | Self::InsufficientCredits { .. }
            | Self::IdempotencyMismatch
            | Self::CostAboveCapacity { .. }
            | Self::Internal => None,
        }
    }

    /// Whether it is certain that the request made nothing, and that no twin of it did.
    pub(crate) const fn made_nothing(&self) -> bool {
        match self {
            Self::Forbidden
            | Self::UnknownProject
            | Self::InsufficientCredits { .. }
            | Self::IdempotencyMismatch
            | Self::QueueFull { .. }
            | Self::QuotaExceeded { .. }
            | Self::Concurrency { .. }
            | Self::RateLimited { .. }
            | Self::CostAboveCapacity { .. }
            | Self::Uncounted { .. } => true,
            // A twin may have been accepted, or may yet be.
            Self::IdempotencyInProgress { .. }
            | Self::Overloaded { .. }
            | Self::Unavailable { .. }
            | Self::Internal => false,
        }
    }
}
