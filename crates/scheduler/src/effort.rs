//! How hard the scheduler works: less while the process answers late.
//!
//! Accepting tasks and getting on with them share the machine, and accepting goes first: whoever submits waits for an
//! answer, a queued task waits anyway. The effort follows the state of the scheduler's event loop like the window of a
//! congested connection: down by a factor while it is overloaded, else up by a step. Three things
//! follow from the effort, none of them ever to zero: how many tasks are started in a second, how long moves and
//! dispatches are gathered into larger batches, and how far apart the looks at jobs are.
//!
//! Overloaded means one of two things. The lag (of a short sleep, how much later than asked it ended) is above its limit.
//! Or more is accepted in this process than ends, and than it could have under way at once, while submits wait long for
//! their commit: what getting on takes, of CPU and of the accounts' locks, they wait for. Where as much ends as is
//! accepted, whoever submits is served best by getting on.

use std::{
    sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering},
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
/// What an overload leaves of the effort, in percent.
const DECREASE_TO: u32 = 50;
/// What a loop without one adds, in thousandths of the whole.
const INCREASE_BY: u32 = 80;
/// No look waits longer than this for want of effort: long pauses cost nothing.
const STRETCH_MAX: Duration = Duration::from_secs(1);
/// The whole effort.
const WHOLE: u32 = 1_000;
/// So many per cent of the tasks that ended accepted in the same time are a flood.
const FLOOD_PERCENT: usize = 140;
/// With more than this the effort does not rise yet.
const BALANCE_PERCENT: usize = 115;
/// How much of a count comes from the last judgement's, in percent: some dozen tasks come and end by chance.
const KEPT: usize = 80;
/// How much of what was accepted beyond what ended is still believed at the next judgement: other processes end such tasks too.
const KEPT_AHEAD: usize = 99;

/// The bounds of the effort.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EffortConfig {
    /// The lag of the event loop above which the effort falls.
    pub lag_max: Duration,
    /// How long a submit may wait for its commit before a flood of them lowers the effort.
    pub accept_wait_max: Duration,
    /// Tasks of a model started in a second at the least effort; at the whole as many as there is room for. What is under
    /// way costs little, starting and ending do: so the pace is limited, not the number, and no place stays empty
    /// for long where jobs take minutes.
    pub starts_per_second_min: usize,
    /// How long moves and dispatches are gathered at the least effort; at the whole they never wait for company.
    pub gather_max: Duration,
    /// How many times as far apart looks at jobs are at the least effort.
    pub look_stretch_max: u32,
}

impl Default for EffortConfig {
    fn default() -> Self {
        Self {
            lag_max: Duration::from_millis(20),
            accept_wait_max: Duration::from_millis(2),
            starts_per_second_min: 280,
            gather_max: Duration::from_millis(60),
            look_stretch_max: 4,
        }
    }
}

/// The present effort.
#[derive(Debug)]
pub(crate) struct Effort {
    config: EffortConfig,
    /// In thousandths.
    level: AtomicU32,
    /// Tasks accepted in this process since the last judgement, how long their submits waited in all (in microseconds),
    /// and tasks that its attempts ended.
    accepted: AtomicUsize,
    waited_us: AtomicU64,
    finished: AtomicUsize,
}

/// What the loop was like between two judgements; the counts are smoothed.
#[derive(Debug, Clone, Copy)]
struct Load {
    lag: Duration,
    accepted: usize,
    /// How long those accepted waited on average.
    waited: Duration,
    finished: usize,
    /// Whether more is accepted and not ended than the process could have under way at once.
    piles_up: bool,
}

impl Load {
    fn accepts_more_than(&self, percent: usize) -> bool {
        self.piles_up && self.accepted.saturating_mul(100) > self.finished.saturating_mul(percent)
    }
}

impl Effort {
    pub(crate) fn new(config: EffortConfig) -> Self {
        Self {
            config,
            level: AtomicU32::new(WHOLE),
            accepted: AtomicUsize::new(0),
            waited_us: AtomicU64::new(0),
            finished: AtomicUsize::new(0),
        }
    }

    /// So many tasks were accepted in this process, whose submits waited so long on average.
    pub(crate) fn note_accepted(&self, tasks: usize, waited: Duration) {
        let us = u64::try_from(waited.as_micros()).unwrap_or(u64::MAX);
        self.accepted.fetch_add(tasks, Ordering::Relaxed);
        self.waited_us.fetch_add(us.saturating_mul(tasks as u64), Ordering::Relaxed);
    }

    /// An attempt of this process ended its task.
    pub(crate) fn note_finished(&self) {
        self.finished.fetch_add(1, Ordering::Relaxed);
    }

    /// How long those accepted since the last judgement waited on average.
    fn take_waited(&self) -> Duration {
        let us = self.waited_us.swap(0, Ordering::Relaxed);
        let accepted = self.accepted.load(Ordering::Relaxed) as u64;
        us.checked_div(accepted).map_or(Duration::ZERO, Duration::from_micros)
    }

    fn level(&self) -> u32 {
        self.level.load(Ordering::Relaxed)
    }

    /// How many tasks one dispatch may start now, of at most so many; it comes after each [`gather`](Self::gather).
    pub(crate) fn starts(&self, batch_max: usize) -> usize {
        let gather_ms = usize::try_from(self.config.gather_max.as_millis()).unwrap_or(usize::MAX);
        let per_gather = self.config.starts_per_second_min.saturating_mul(gather_ms) / 1_000;
        let least = per_gather.clamp(1, batch_max.max(1));
        least + (batch_max.max(1) - least) * self.level() as usize / WHOLE as usize
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

    /// Follows the load. Whether the effort has changed.
    fn follow(&self, load: Load) -> bool {
        let (before, lag_max) = (self.level(), self.config.lag_max);
        let waits = load.waited > self.config.accept_wait_max;
        let after = if load.lag > lag_max || (waits && load.accepts_more_than(FLOOD_PERCENT)) {
            before * DECREASE_TO / 100
        } else if waits && load.accepts_more_than(BALANCE_PERCENT) {
            before
        } else {
            (before + INCREASE_BY).min(WHOLE)
        };
        self.level.store(after, Ordering::Relaxed);
        after != before
    }
}

/// Measures the load and lets the effort follow it, until the shutdown.
pub(crate) async fn run(worker: &Worker, shutdown: &CancellationToken) {
    let mut samples = Vec::with_capacity(SAMPLES);
    let (mut accepted, mut finished, mut ahead) = (0, 0, 0_usize);
    let smoothed = |before: usize, new: usize| (before * KEPT + new * (100 - KEPT)) / 100;
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
        let waited = worker.effort.take_waited();
        let new = worker.effort.accepted.swap(0, Ordering::Relaxed);
        let ended = worker.effort.finished.swap(0, Ordering::Relaxed);
        (accepted, finished) = (smoothed(accepted, new), smoothed(finished, ended));
        ahead = (ahead * KEPT_AHEAD / 100 + new).saturating_sub(ended);
        let piles_up = ahead > worker.config.worker_attempts_max;
        let load = Load { lag: samples[SAMPLES / 2], accepted, waited, finished, piles_up };
        samples.clear();
        let changed = worker.effort.follow(load);
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

    const IDLE: Load =
        Load { lag: Duration::ZERO, accepted: 0, waited: Duration::ZERO, finished: 0, piles_up: false };

    fn lagging(lag: Duration) -> Load {
        Load { lag, ..IDLE }
    }

    #[test]
    fn a_flood_whose_submits_wait_lowers_the_effort_and_a_balance_does_not() {
        let config = EffortConfig::default();
        let effort = Effort::new(config);
        let waited = config.accept_wait_max * 2;
        let flood = Load { accepted: 700, waited, finished: 60, piles_up: true, ..IDLE };
        assert!(!effort.follow(Load { waited: config.accept_wait_max / 2, ..flood }), "nobody waits for it");
        assert!(!effort.follow(Load { finished: 700, ..flood }), "as much ends as comes");
        assert!(!effort.follow(Load { piles_up: false, ..flood }), "all of it can be under way");
        for _ in 0..100 {
            effort.follow(flood);
        }
        assert_eq!(effort.starts(128), 16, "280 a second in dispatches 60 ms apart");
        assert!(!effort.follow(Load { finished: 600, ..flood }), "not yet over");
        assert!(effort.follow(Load { accepted: 0, ..flood }), "afterwards what has piled up is worked off");
    }

    #[test]
    fn the_wait_is_the_mean_over_the_tasks() {
        let effort = Effort::new(EffortConfig::default());
        effort.note_accepted(3, Duration::from_millis(2));
        effort.note_accepted(1, Duration::from_millis(10));
        assert_eq!(effort.take_waited(), Duration::from_millis(4));
        assert_eq!(effort.take_waited(), Duration::ZERO);
    }

    #[test]
    fn effort_falls_with_lag_never_to_nothing_and_comes_back() {
        let config = EffortConfig::default();
        let effort = Effort::new(config);
        assert_eq!((effort.starts(128), effort.gather()), (128, Duration::ZERO));
        assert_eq!(effort.stretch(Duration::from_millis(50)), Duration::from_millis(50));
        for _ in 0..100 {
            effort.follow(lagging(config.lag_max * 2));
        }
        assert_eq!(effort.starts(128), 16);
        assert_eq!(effort.starts(4), 4, "never more than a batch");
        assert_eq!(effort.gather(), config.gather_max);
        assert_eq!(effort.stretch(Duration::from_millis(50)), Duration::from_millis(200));
        for _ in 0..100 {
            effort.follow(IDLE);
        }
        assert_eq!((effort.starts(128), effort.gather()), (128, Duration::ZERO));
    }
}
