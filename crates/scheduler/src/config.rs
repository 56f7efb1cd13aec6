//! What the scheduler can be told, and the contradictions that it refuses.

use std::time::Duration;

use control::BreakerRule;
use domain::retry::Backoff;

use crate::{effort::EffortConfig, provider_health::PauseBounds};

/// Settings of a scheduler. The defaults are the product's.
#[derive(Debug, Clone, PartialEq)]
pub struct SchedulerConfig {
    /// How long a lease lives without a heartbeat.
    pub lease: Duration,
    /// How often the leases of this worker are renewed.
    pub heartbeat: Duration,
    /// How often the reaper, the sweeper and the slot reconciler look.
    pub pass_interval: Duration,
    /// How often QUEUED tasks are compared with the ready queue, and how old those are that should be in it.
    pub ready_after: Duration,
    /// Attempts that this process owns at most at once: the worker's own limit.
    pub worker_attempts_max: usize,
    /// Tasks taken from a model's queue, claimed and leased together.
    pub dispatch_batch_max: usize,
    /// Requests other than submits that are under way at once to one provider account.
    pub account_requests_max: usize,
    /// Outputs that are fetched at once.
    pub outputs_max: usize,
    /// Outputs that may wait for their turn before new submits pause: what is paid for comes first.
    pub outputs_waiting_max: usize,
    /// Tries to fetch one output.
    pub output_tries_max: u32,
    /// How long after its acceptance a job that runs is called RUNNING. One that is through by then skips that state.
    pub running_after: Duration,
    /// How far the scheduler steps back while the process answers late.
    pub effort: EffortConfig,
    /// The pause between tries of a task.
    pub backoff: Backoff,
    /// When the breaker of a provider account opens, and for how long.
    pub breaker: BreakerRule,
    /// For how long a provider account is left alone when it asks for it.
    pub account_pause: PauseBounds,
    /// How long an attempt may outlive its task before it is closed and put before the operator.
    pub outlive_max: Duration,
    /// How long submits under way may take after the shutdown signal.
    pub shutdown_max: Duration,
}

impl Default for SchedulerConfig {
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(10),
            heartbeat: Duration::from_secs(3),
            pass_interval: Duration::from_secs(2),
            ready_after: Duration::from_secs(5),
            worker_attempts_max: 1_024,
            dispatch_batch_max: 128,
            account_requests_max: 64,
            outputs_max: 32,
            outputs_waiting_max: 128,
            output_tries_max: 4,
            running_after: Duration::from_millis(400),
            effort: EffortConfig::default(),
            backoff: Backoff::default(),
            breaker: BreakerRule::default(),
            account_pause: PauseBounds::default(),
            outlive_max: Duration::from_secs(2 * 3_600),
            shutdown_max: Duration::from_secs(30),
        }
    }
}

/// Settings that contradict each other.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SchedulerConfigError {
    /// A lease has to survive two missed heartbeats.
    #[error("the lease ({lease:?}) must be at least three heartbeats ({heartbeat:?}) long")]
    LeaseTooShort {
        /// The lease.
        lease: Duration,
        /// The heartbeat.
        heartbeat: Duration,
    },
    /// A figure that has to be positive is zero.
    #[error("{0} must be greater than zero")]
    Zero(&'static str),
}

impl SchedulerConfig {
    /// Refuses settings with which the scheduler would harm itself.
    ///
    /// The submit's own limit may be longer than the lease: nothing is sent under a lease that has run out, and a
    /// submit under way is taken over only after lease and submit limit together.
    ///
    /// # Errors
    /// Names the contradiction.
    pub fn check(&self) -> Result<(), SchedulerConfigError> {
        let (lease, heartbeat) = (self.lease, self.heartbeat);
        if lease < heartbeat * 3 {
            return Err(SchedulerConfigError::LeaseTooShort { lease, heartbeat });
        }
        for (name, zero) in [
            ("heartbeat", heartbeat.is_zero()),
            ("pass_interval", self.pass_interval.is_zero()),
            ("worker_attempts_max", self.worker_attempts_max == 0),
            ("dispatch_batch_max", self.dispatch_batch_max == 0),
            ("account_requests_max", self.account_requests_max == 0),
            ("outputs_max", self.outputs_max == 0),
            ("output_tries_max", self.output_tries_max == 0),
            ("lag_max", self.effort.lag_max.is_zero()),
            ("starts_per_second_min", self.effort.starts_per_second_min == 0),
            ("look_stretch_max", self.effort.look_stretch_max == 0),
        ] {
            if zero {
                return Err(SchedulerConfigError::Zero(name));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_hold_together() {
        assert_eq!(SchedulerConfig::default().check(), Ok(()));
    }

    #[test]
    fn a_lease_that_two_late_heartbeats_would_lose_is_refused() {
        let config = SchedulerConfig { lease: Duration::from_secs(5), ..SchedulerConfig::default() };
        assert!(matches!(config.check(), Err(SchedulerConfigError::LeaseTooShort { .. })));
        let config = SchedulerConfig { outputs_max: 0, ..SchedulerConfig::default() };
        assert_eq!(config.check(), Err(SchedulerConfigError::Zero("outputs_max")));
    }
}
