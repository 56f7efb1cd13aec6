//! The figures of admission.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// What becomes of submits that a strict window counts, while Redis control and with it the count is away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StrictWithoutRedis {
    /// They are refused with 503: nobody can say how many there were.
    Refuse,
    /// They are accepted within this process's share of the window, and wait like all others.
    Queue,
}

/// Figures of the writer and of the entry limits.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GenerationConfig {
    /// Transactions of submits side by side. The submits of one account go to one writer.
    pub writers: usize,
    /// Submits in one transaction at most.
    pub batch_max: usize,
    /// Submits that may wait for each writer; beyond that the answer is 503.
    pub queue_max: usize,
    /// How long a whole batch waits for a lock before it is split, in milliseconds.
    pub batch_lock_ms: u64,
    /// How long a twin waits for the first request under its idempotency key, in milliseconds.
    pub twin_wait_ms: u64,
    /// The longest wait for a submit's outcome, in milliseconds.
    pub answer_limit_ms: u64,
    /// Requests of one address in the shared window; 0 is no limit. Filled from `api.ip_window`.
    #[serde(skip)]
    pub ip_requests: u32,
    /// That window, in milliseconds.
    #[serde(skip)]
    pub ip_window_ms: u32,
    /// The part of each entry limit that this process lets through while Redis control is away, from 0 to 1.
    pub fallback_share: f64,
    /// What becomes of submits of expensive models then, where the caller has a strict window on them.
    pub strict_without_redis: StrictWithoutRedis,
}

impl Default for GenerationConfig {
    fn default() -> Self {
        Self {
            writers: 1,
            batch_max: 128,
            queue_max: 2_048,
            batch_lock_ms: 500,
            twin_wait_ms: 2_000,
            answer_limit_ms: 10_000,
            ip_requests: 20_000,
            ip_window_ms: 10_000,
            fallback_share: 0.5,
            strict_without_redis: StrictWithoutRedis::Refuse,
        }
    }
}

/// Why the figures cannot work.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("generation.{0}")]
pub struct ConfigError(&'static str);

impl GenerationConfig {
    /// Looks for contradictions.
    ///
    /// # Errors
    /// The first one.
    pub fn check(&self) -> Result<(), ConfigError> {
        let rules = [
            (self.writers >= 1 && self.writers <= 64, "writers must be from 1 to 64"),
            (self.batch_max >= 1 && self.batch_max <= 1_000, "batch_max must be from 1 to 1000"),
            (self.queue_max >= self.batch_max, "queue_max must be at least batch_max"),
            (self.batch_lock_ms >= 1, "batch_lock_ms must be at least 1"),
            (self.twin_wait_ms > self.batch_lock_ms, "twin_wait_ms must be longer than batch_lock_ms"),
            (self.answer_limit_ms > self.twin_wait_ms, "answer_limit_ms must be longer than twin_wait_ms"),
            (self.ip_requests == 0 || self.ip_window_ms > 0, "ip_window_ms must be positive"),
            (self.fallback_share > 0.0 && self.fallback_share <= 1.0, "fallback_share must lie in (0, 1]"),
        ];
        rules.into_iter().find(|(holds, _)| !holds).map_or(Ok(()), |(_, rule)| Err(ConfigError(rule)))
    }

    pub(crate) const fn batch_lock(&self) -> Duration {
        Duration::from_millis(self.batch_lock_ms)
    }

    pub(crate) const fn twin_wait(&self) -> Duration {
        Duration::from_millis(self.twin_wait_ms)
    }

    pub(crate) const fn answer_limit(&self) -> Duration {
        Duration::from_millis(self.answer_limit_ms)
    }
}
