//! The states of a task with the data that is valid in each.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::status::TaskStatus;
use crate::{error_code::ErrorCode, ids::AssetId};

/// One claimed try: the number that names it outside, and the token that fences its owner's writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    /// Counts our references at the provider, from 1.
    pub no: i32,
    /// Handed out by PostgreSQL at claim and take-over, always rising. Writes that carry an older one are refused.
    pub fencing_token: i64,
}

/// How a provider knows the job. Opaque: only the adapter that wrote it reads it.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct JobHandle(String);

impl JobHandle {
    /// Wraps an adapter's text.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The adapter's text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for JobHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JobHandle({})", self.0)
    }
}

/// Where a task stands, with what that state knows. A queued task has no attempt; a running one has a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TaskState {
    /// Waits for its turn.
    Queued,
    /// Claimed; the provider is about to be called or is being called.
    Scheduling {
        /// The claimed try.
        attempt: Attempt,
    },
    /// The submit's answer is unknown.
    Reconciling {
        /// The try whose submit is in doubt.
        attempt: Attempt,
    },
    /// Accepted by the provider.
    ProviderSubmitted {
        /// The try.
        attempt: Attempt,
        /// Its job.
        job: JobHandle,
    },
    /// The provider generates.
    Running {
        /// The try.
        attempt: Attempt,
        /// Its job.
        job: JobHandle,
    },
    /// The provider is through and the file is on its way.
    PostProcessing {
        /// The try.
        attempt: Attempt,
        /// Its job.
        job: JobHandle,
    },
    /// Ready.
    Succeeded {
        /// The stored video.
        output: AssetId,
    },
    /// Ended without a video.
    Failed {
        /// Why.
        code: ErrorCode,
    },
    /// Ended by its owner.
    Canceled,
}

impl TaskState {
    /// The state's name.
    #[must_use]
    pub const fn status(&self) -> TaskStatus {
        match self {
            Self::Queued => TaskStatus::Queued,
            Self::Scheduling { .. } => TaskStatus::Scheduling,
            Self::Reconciling { .. } => TaskStatus::Reconciling,
            Self::ProviderSubmitted { .. } => TaskStatus::ProviderSubmitted,
            Self::Running { .. } => TaskStatus::Running,
            Self::PostProcessing { .. } => TaskStatus::PostProcessing,
            Self::Succeeded { .. } => TaskStatus::Succeeded,
            Self::Failed { .. } => TaskStatus::Failed,
            Self::Canceled => TaskStatus::Canceled,
        }
    }

    /// The try that is under way.
    #[must_use]
    pub const fn attempt(&self) -> Option<Attempt> {
        match self {
            Self::Scheduling { attempt }
            | Self::Reconciling { attempt }
            | Self::ProviderSubmitted { attempt, .. }
            | Self::Running { attempt, .. }
            | Self::PostProcessing { attempt, .. } => Some(*attempt),
            Self::Queued | Self::Succeeded { .. } | Self::Failed { .. } | Self::Canceled => None,
        }
    }

    /// The provider's job of the try that is under way.
    #[must_use]
    pub const fn job(&self) -> Option<&JobHandle> {
        match self {
            Self::ProviderSubmitted { job, .. }
            | Self::Running { job, .. }
            | Self::PostProcessing { job, .. } => Some(job),
            Self::Queued
            | Self::Scheduling { .. }
            | Self::Reconciling { .. }
            | Self::Succeeded { .. }
            | Self::Failed { .. }
            | Self::Canceled => None,
        }
    }
}
