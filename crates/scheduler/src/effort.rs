//! How hard the scheduler works: less while the process answers late.
//!
//! Accepting a task and getting on with tasks share one event loop, and accepting goes first: whoever submits waits for
//! an answer, a queued task waits anyway. So the lag of the event loop is measured (a short sleep, and how much later than
//! asked it ended), and the effort follows it like the window of a congested connection: down by a factor when the lag
//! is above the limit, up by a step when it is well below. Three things follow from the effort, none of them ever to
//! zero: how many attempts are under way at once, how long moves and dispatches are gathered into larger batches, and
//! how far apart the looks at jobs are.

use std::{
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use domain::metric;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::worker::Worker;

/// Between two samples.
const SAMPLE_EVERY: Duration = Duration::from_millis(20);
/// Samples that are judged together, by their median: one late wake-up is no load.
const SAMPLES: usize = 9;
/// What a lag above the limit leaves of the effort, in percent.
const DECREASE_TO: u32 = 75;
/// What a lag well below the limit adds, in thousandths of the whole.
const INCREASE_BY: u32 = 60;
/// No look waits longer than this for want of effort: long pauses cost nothing.
const STRETCH_MAX: Duration = Duration::from_secs(1);
/// The whole effort.
const WHOLE: u32 = 1_000;

/// The bounds of the effort.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EffortConfig {
    /// The lag of the event loop above which the effort falls.
    pub lag_max: Duration,
    /// Attempts under way at the least effort; at the whole it is the worker's own limit.
    pub attempts_min: usize,
    /// How long moves and dispatches are gathered at the least effort; at the whole they never wait for company.
    pub gather_max: Duration,
    /// How many times as far apart looks at jobs are at the least effort.
    pub look_stretch_max: u32,
}

impl Default for EffortConfig {
    fn default() -> Self {
        Self {
            lag_max: Duration::from_millis(8),
            attempts_min: 128,
            gather_max: Duration::from_millis(25),
            look_stretch_max: 4,
        }
    }
}

/// The present effort.
#[derive(Debug)]
pub(crate) struct Effort {
    config: EffortConfig,
    attempts_max: usize,
    /// In thousandths.
    level: AtomicU32,
}

impl Effort {
    pub(crate) fn new(config: EffortConfig, attempts_max: usize) -> Self {
        Self { config, attempts_max, level: AtomicU32::new(WHOLE) }
    }

    fn level(&self) -> u32 {
        self.level.load(Ordering::Relaxed)
    }

    /// Attempts that may be under way now.
    pub(crate) fn attempts(&self) -> usize {
        let min = self.config.attempts_min.min(self.attempts_max);
        min + (self.attempts_max - min) * self.level() as usize / WHOLE as usize
    }

    /// How long callers are gathered now.
    pub(crate) fn gather(&self) -> Duration {
        self.config.gather_max * (WHOLE - self.level()) / WHOLE
    }

    /// A pause between two looks, as long as it is now.
    pub(crate) fn stretch(&self, pause: Duration) -> Duration {
        let more = pause * (self.config.look_stretch_max.saturating_sub(1)) * (WHOLE - self.level()) / WHOLE;
        pause + more.min(STRETCH_MAX)
    }

    /// Follows a lag. Whether the effort has changed.
    fn follow(&self, lag: Duration) -> bool {
        let before = self.level();
        let after = if lag > self.config.lag_max {
            before * DECREASE_TO / 100
        } else if lag < self.config.lag_max / 2 {
            (before + INCREASE_BY).min(WHOLE)
        } else {
            before
        };
        self.level.store(after, Ordering::Relaxed);
        after != before
    }
}

/// Measures the lag and lets the effort follow it, until the shutdown.
pub(crate) async fn run(worker: &Worker, shutdown: &CancellationToken) {
    let mut samples = Vec::with_capacity(SAMPLES);
    while !shutdown.is_cancelled() {
        let began_at = Instant::now();
        tokio::time::sleep(SAMPLE_EVERY).await;
        let lag = began_at.elapsed().saturating_sub(SAMPLE_EVERY);
        metrics::histogram!(metric::EVENT_LOOP_LAG_MS).record(lag.as_secs_f64() * 1_000.0);
        samples.push(lag);
        if samples.len() < SAMPLES {
            continue;
        }
        samples.sort_unstable();
        let changed = worker.effort.follow(samples[SAMPLES / 2]);
        samples.clear();
        if changed {
            worker.task_state.gather(worker.effort.gather());
            metrics::gauge!(metric::SCHEDULER_EFFORT)
                .set(f64::from(worker.effort.level()) / f64::from(WHOLE));
            worker.ring_all();
        }
    }
    worker.task_state.gather(Duration::ZERO);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn effort_falls_with_lag_never_to_nothing_and_comes_back() {
        let config = EffortConfig::default();
        let effort = Effort::new(config, 1_024);
        assert_eq!((effort.attempts(), effort.gather()), (1_024, Duration::ZERO));
        assert_eq!(effort.stretch(Duration::from_millis(50)), Duration::from_millis(50));
        for _ in 0..100 {
            effort.follow(config.lag_max * 2);
        }
        assert_eq!(effort.attempts(), config.attempts_min);
        assert_eq!(effort.gather(), config.gather_max);
        assert_eq!(effort.stretch(Duration::from_millis(50)), Duration::from_millis(200));
        assert!(!effort.follow(config.lag_max * 3 / 4), "between the bounds it stays");
        for _ in 0..100 {
            effort.follow(Duration::ZERO);
        }
        assert_eq!((effort.attempts(), effort.gather()), (1_024, Duration::ZERO));
    }

    #[test]
    fn a_worker_smaller_than_the_least_effort_keeps_its_own_limit() {
        let effort = Effort::new(EffortConfig::default(), 4);
        effort.follow(Duration::from_secs(1));
        assert_eq!(effort.attempts(), 4);
    }
}
