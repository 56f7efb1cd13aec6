//! The scheduler: leases, heartbeats, how much it does at once.

use std::time::Duration;

use control::BreakerRule;
use domain::retry::Backoff;
use scheduler::{EffortConfig, PauseBounds, SchedulerConfig};
use serde::{Deserialize, Serialize};

use super::fault::Faults;

/// Section `scheduler`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct SchedulerSection {
    /// How long a lease lives without a heartbeat.
    pub(crate) lease_seconds: u64,
    /// How often leases are renewed.
    pub(crate) heartbeat_seconds: u64,
    /// How often the reaper, the sweeper and the slot reconciler look, in milliseconds.
    pub(crate) pass_ms: u64,
    /// How old a QUEUED task is before the reconciler looks for it in the ready queue, in milliseconds.
    pub(crate) ready_after_ms: u64,
    /// Attempts that one process owns at most at once.
    pub(crate) worker_attempts_max: usize,
    /// Tasks taken from a model's queue, claimed and leased together.
    pub(crate) dispatch_batch_max: usize,
    /// Requests other than submits that are under way at once to one provider account.
    pub(crate) account_requests_max: usize,
    /// Outputs that are fetched at once.
    pub(crate) outputs_max: usize,
    /// Outputs that may wait for their turn before new submits pause.
    pub(crate) outputs_waiting_max: usize,
    /// Tries to fetch one output.
    pub(crate) output_tries_max: u32,
    /// How long after its acceptance a job that runs is called RUNNING, in milliseconds.
    pub(crate) running_after_ms: u64,
    /// Connections to PostgreSQL, beside those of the process's other roles.
    pub(crate) max_connections: u32,
    /// How much less right to the CPU the scheduler's threads have than those that answer requests, 0 to 19.
    pub(crate) nice: u8,
    /// The lag of the event loop above which the scheduler does less, in milliseconds.
    pub(crate) lag_ms_max: u64,
    /// How long a submit may wait for its commit before a flood of them has the same effect, in milliseconds.
    pub(crate) accept_wait_ms_max: u64,
    /// Tasks started in a second when it does least.
    pub(crate) starts_per_second_min: usize,
    /// How long moves and dispatches are gathered then, in milliseconds.
    pub(crate) gather_ms_max: u64,
    /// How many times as far apart looks at jobs are then.
    pub(crate) look_stretch_max: u32,
    /// Troubles in a row with a provider account that are taken for chance; the next opens its breaker.
    pub(crate) breaker_chance: u32,
    /// How long a provider account that asks for a pause is left alone at least, in milliseconds.
    pub(crate) pause_ms_min: u64,
    /// And at most, in seconds.
    pub(crate) pause_seconds_max: u64,
    /// The pause after a task's first try, in milliseconds; each further one is four times as long.
    pub(crate) backoff_ms: u64,
    /// The longest such pause, in seconds.
    pub(crate) backoff_seconds_max: u64,
    /// How long an attempt may outlive its task before it is closed and put before the operator.
    pub(crate) outlive_seconds: u64,
    /// How long submits under way may take after the shutdown signal.
    pub(crate) shutdown_seconds: u64,
    /// How many tries a task may have.
    pub(crate) max_attempts: u32,
    /// The time that RECONCILING is given.
    pub(crate) reconciling_seconds: u64,
    /// The time that POST_PROCESSING is given.
    pub(crate) post_processing_seconds: u64,
}

impl Default for SchedulerSection {
    fn default() -> Self {
        let config = SchedulerConfig::default();
        let tasks = task_state::TaskStateConfig::default();
        let millis = |limit: Duration| u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
        Self {
            lease_seconds: config.lease.as_secs(),
            heartbeat_seconds: config.heartbeat.as_secs(),
            pass_ms: millis(config.pass_interval),
            ready_after_ms: millis(config.ready_after),
            worker_attempts_max: config.worker_attempts_max,
            dispatch_batch_max: config.dispatch_batch_max,
            account_requests_max: config.account_requests_max,
            outputs_max: config.outputs_max,
            outputs_waiting_max: config.outputs_waiting_max,
            output_tries_max: config.output_tries_max,
            running_after_ms: millis(config.running_after),
            max_connections: 14,
            nice: 5,
            lag_ms_max: millis(config.effort.lag_max),
            accept_wait_ms_max: millis(config.effort.accept_wait_max),
            starts_per_second_min: config.effort.starts_per_second_min,
            gather_ms_max: millis(config.effort.gather_max),
            look_stretch_max: config.effort.look_stretch_max,
            breaker_chance: config.breaker.chance,
            pause_ms_min: millis(config.account_pause.floor),
            pause_seconds_max: config.account_pause.cap.as_secs(),
            backoff_ms: millis(config.backoff.first),
            backoff_seconds_max: config.backoff.max.as_secs(),
            outlive_seconds: config.outlive_max.as_secs(),
            shutdown_seconds: config.shutdown_max.as_secs(),
            max_attempts: tasks.max_tries,
            reconciling_seconds: tasks.reconciling.as_secs(),
            post_processing_seconds: tasks.post_processing.as_secs(),
        }
    }
}

impl SchedulerSection {
    pub(super) fn check(&self, faults: &mut Faults) {
        faults.require(
            self.lease_seconds >= 2 * self.heartbeat_seconds,
            "scheduler.lease_seconds",
            "must be at least two heartbeats (scheduler.heartbeat_seconds), or one late renewal would lose the task",
        );
        for (key, seconds) in [
            ("max_attempts", u64::from(self.max_attempts)),
            ("reconciling_seconds", self.reconciling_seconds),
            ("post_processing_seconds", self.post_processing_seconds),
            ("pause_seconds_max", self.pause_seconds_max),
            ("backoff_ms", self.backoff_ms),
        ] {
            faults.require(seconds > 0, format!("scheduler.{key}"), "must be at least 1");
        }
        faults.require(self.max_connections >= 8, "scheduler.max_connections", "must be at least 8");
        faults.require(self.nice < 20, "scheduler.nice", "must be 0 to 19");
        faults.check("scheduler", self.to_scheduler().check());
    }

    pub(super) fn lease(&self) -> Duration {
        Duration::from_secs(self.lease_seconds)
    }

    pub(crate) fn to_scheduler(&self) -> SchedulerConfig {
        SchedulerConfig {
            lease: self.lease(),
            heartbeat: Duration::from_secs(self.heartbeat_seconds),
            pass_interval: Duration::from_millis(self.pass_ms),
            ready_after: Duration::from_millis(self.ready_after_ms),
            worker_attempts_max: self.worker_attempts_max,
            dispatch_batch_max: self.dispatch_batch_max,
            account_requests_max: self.account_requests_max,
            outputs_max: self.outputs_max,
            outputs_waiting_max: self.outputs_waiting_max,
            output_tries_max: self.output_tries_max,
            running_after: Duration::from_millis(self.running_after_ms),
            effort: EffortConfig {
                lag_max: Duration::from_millis(self.lag_ms_max),
                accept_wait_max: Duration::from_millis(self.accept_wait_ms_max),
                starts_per_second_min: self.starts_per_second_min,
                gather_max: Duration::from_millis(self.gather_ms_max),
                look_stretch_max: self.look_stretch_max,
            },
            backoff: Backoff {
                first: Duration::from_millis(self.backoff_ms),
                max: Duration::from_secs(self.backoff_seconds_max),
                ..Backoff::default()
            },
            breaker: BreakerRule { chance: self.breaker_chance, ..BreakerRule::default() },
            account_pause: PauseBounds {
                floor: Duration::from_millis(self.pause_ms_min),
                cap: Duration::from_secs(self.pause_seconds_max),
            },
            outlive_max: Duration::from_secs(self.outlive_seconds),
            shutdown_max: Duration::from_secs(self.shutdown_seconds),
        }
    }

    /// The part of these figures that task-state applies.
    pub(crate) fn to_task_state(&self) -> task_state::TaskStateConfig {
        task_state::TaskStateConfig {
            max_tries: self.max_attempts,
            reconciling: Duration::from_secs(self.reconciling_seconds),
            post_processing: Duration::from_secs(self.post_processing_seconds),
            ..task_state::TaskStateConfig::default()
        }
    }
}
