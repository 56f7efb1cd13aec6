//! Why a queued task has not started, in codes that a client can turn into sentences.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use crate::text_enum::text_enum;

text_enum! {
    /// What a waiting task waits for.
    WaitReason {
        /// The user has as many running tasks as allowed.
        UserConcurrency = "user_concurrency",
        /// The tenant has.
        TenantConcurrency = "tenant_concurrency",
        /// The model is full at the provider account.
        ModelConcurrency = "model_concurrency",
        /// The provider account is full.
        ProviderConcurrency = "provider_concurrency",
        /// Submits go out as fast as the provider allows.
        ProviderRate = "provider_rate",
        /// An operator paused the provider account or the model.
        ProviderPaused = "provider_paused",
        /// The provider fails; its breaker is open.
        BreakerOpen = "breaker_open",
        /// The provider asked us to wait.
        ProviderBackoff = "provider_backoff",
        /// Redis control is away, and without it nothing is submitted.
        ControlUnavailable = "control_unavailable",
        /// The last try was not accepted and the pause before the next is not over.
        NotBefore = "not_before",
    }
}

/// The figures behind a wait reason.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct WaitDetail {
    /// Places in use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub used: Option<u32>,
    /// Places there are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// When it ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<DateTime<Utc>>,
}

/// A range of whole seconds from now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Eta {
    /// At the earliest.
    pub from_seconds: u64,
    /// At the latest.
    pub to_seconds: u64,
}

/// Why a task waits, as a scheduler notes it for readers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wait {
    /// What it waits for.
    pub reason: WaitReason,
    /// The figures behind it.
    #[serde(default)]
    pub detail: WaitDetail,
}
