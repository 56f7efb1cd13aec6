//! The table of loops: each is a reconciler with a timer and a nudge, and its last run is visible.
//!
//! A loop takes no input: a pass looks at the stores and does what is missing, so that running it twice, late or
//! on two machines does no harm. A nudge only makes the next pass come sooner. Whoever asks "is this process
//! alive?" reads this table: alive means that every loop came round lately, not that the process exists. Whoever asks
//! "does it work?" reads it too: a pass that failed is no progress, a pass that found nothing to do is.

use std::{
    borrow::Cow,
    collections::BTreeMap,
    future::Future,
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use domain::{complaints::Complaints, metric};
use futures::FutureExt;
use serde::Serialize;
use tokio::{sync::Notify, time::Instant};
use tokio_util::sync::CancellationToken;

/// What went wrong in a pass, for logs and `/readyz`. The loop goes on with its next pass.
pub type PassError = Box<dyn std::error::Error + Send + Sync>;

/// What a loop is called.
pub type LoopName = Cow<'static, str>;

/// The loops of this process. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Loops(Arc<Mutex<BTreeMap<LoopName, Entry>>>);

#[derive(Debug)]
struct Entry {
    /// When the loop last came round, whether the pass went well or not.
    last_run: Instant,
    /// When a pass last went well.
    last_success: Instant,
    last_error: Option<String>,
    passes: u64,
}

/// One loop, as `/readyz` shows it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LoopReport {
    /// Its name.
    pub name: LoopName,
    /// Passes so far.
    pub passes: u64,
    /// Seconds since it last came round.
    pub idle_seconds: f64,
    /// Seconds since a pass last went well.
    pub since_success_seconds: f64,
    /// What the last pass failed with; none when it went well.
    pub last_error: Option<String>,
}

impl Loops {
    fn entries(&self) -> MutexGuard<'_, BTreeMap<LoopName, Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enters a loop, so that one that never comes round is seen to stand still.
    pub(crate) fn register(&self, name: LoopName) {
        let now = Instant::now();
        self.entries().entry(name).or_insert(Entry {
            last_run: now,
            last_success: now,
            last_error: None,
            passes: 0,
        });
    }

    /// Notes the end of a pass.
    pub(crate) fn ran(&self, name: &str, result: Result<(), &PassError>) {
        let now = Instant::now();
        let mut entries = self.entries();
        let Some(entry) = entries.get_mut(name) else { return };
        entry.last_run = now;
        entry.passes += 1;
        match result {
            Ok(()) => {
                entry.last_success = now;
                entry.last_error = None;
            }
            Err(error) => entry.last_error = Some(error.to_string()),
        }
    }

    /// Every loop, by name.
    #[must_use]
    pub fn report(&self) -> Vec<LoopReport> {
        let now = Instant::now();
        self.entries()
            .iter()
            .map(|(name, entry)| LoopReport {
                name: name.clone(),
                passes: entry.passes,
                idle_seconds: (now - entry.last_run).as_secs_f64(),
                since_success_seconds: (now - entry.last_success).as_secs_f64(),
                last_error: entry.last_error.clone(),
            })
            .collect()
    }

    /// The loops that have not come round for longer than `limit`.
    #[must_use]
    pub fn stalled(&self, limit: Duration) -> Vec<LoopName> {
        self.older_than(limit, |entry| entry.last_run)
    }

    /// The loops of which no pass has gone well for longer than `limit`: they stand still, or come round in vain.
    #[must_use]
    pub fn without_progress(&self, limit: Duration) -> Vec<LoopName> {
        self.older_than(limit, |entry| entry.last_success)
    }

    fn older_than(&self, limit: Duration, instant: impl Fn(&Entry) -> Instant) -> Vec<LoopName> {
        let now = Instant::now();
        self.entries()
            .iter()
            .filter(|(_, entry)| now.saturating_duration_since(instant(entry)) > limit)
            .map(|(name, _)| name.clone())
            .collect()
    }

    /// Sets the gauges of every loop.
    pub fn export_metrics(&self) {
        for report in self.report() {
            let name = report.name.into_owned();
            metrics::gauge!(metric::LOOP_IDLE_SECONDS, "loop" => name.clone()).set(report.idle_seconds);
            metrics::gauge!(metric::LOOP_SINCE_PROGRESS_SECONDS, "loop" => name)
                .set(report.since_success_seconds);
        }
    }
}

/// When a pass that went well wants to be followed by the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// By the loop's own timer, or a nudge.
    Timer,
    /// Already after this time, if that comes before the timer.
    In(Duration),
}

/// How a loop comes round.
pub(crate) struct Rhythm<'a> {
    /// The name in the table.
    pub(crate) name: LoopName,
    /// At the latest this long after the last pass.
    pub(crate) every: Duration,
    /// Sooner when somebody knows that there is something to do.
    pub(crate) nudge: &'a Notify,
}

/// The pause after passes that failed one after the other: short at first, since one late answer is no outage, and never so
/// long that people would notice how late a loop finds the outage over. Lines about it are rare by themselves.
const fn failure_pause(failures: u32) -> Duration {
    match failures {
        1 => Duration::from_millis(100),
        2 => Duration::from_millis(400),
        _ => Duration::from_millis(1_600),
    }
}

/// Runs `pass` by timer and nudge until the shutdown. A failed pass is noted, logged unless that was done a moment ago,
/// and tried again after a pause that grows.
pub(crate) async fn run<F, Fut>(loops: &Loops, rhythm: Rhythm<'_>, shutdown: &CancellationToken, mut pass: F)
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<Next, PassError>>,
{
    let Rhythm { name, every, nudge } = rhythm;
    loops.register(name.clone());
    let mut failures: u32 = 0;
    let complaints = Complaints::new();
    loop {
        // A pass is cut off by the shutdown: it is idempotent, and whoever comes next repeats it.
        let result = tokio::select! {
            () = shutdown.cancelled() => return,
            result = AssertUnwindSafe(pass()).catch_unwind() => {
                result.unwrap_or_else(|_| Err("the pass panicked".into()))
            }
        };
        loops.ran(&name, result.as_ref().map(|_| ()));
        let pause = match result {
            Ok(next) => {
                failures = 0;
                match next {
                    Next::Timer => every,
                    Next::In(pause) => pause.min(every),
                }
            }
            Err(error) => {
                failures = failures.saturating_add(1);
                if let Some(silent) = complaints.complain(Instant::now().into_std()) {
                    tracing::warn!(r#loop = %name, failures, silent, %error, "a pass failed and will be repeated");
                }
                failure_pause(failures)
            }
        };
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = tokio::time::sleep(pause) => {}
            // Nudges do not shorten the pause after a failure.
            () = nudge.notified(), if failures == 0 => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_nudge_comes_before_the_timer_and_a_failure_is_shown_until_it_is_over() {
        let (loops, nudge, shutdown) = (Loops::default(), Notify::new(), CancellationToken::new());
        let passes = AtomicU32::new(0);
        let rhythm = Rhythm { name: "test".into(), every: Duration::from_secs(60), nudge: &nudge };
        let run = run(&loops, rhythm, &shutdown, || async {
            match passes.fetch_add(1, Ordering::SeqCst) {
                1 => Err("broken".into()),
                2 => panic!("as if by a fault of ours"),
                _ => Ok(Next::Timer),
            }
        });
        let observe = async {
            seen(&loops, 1).await;
            let before = Instant::now();
            nudge.notify_one();
            seen(&loops, 2).await;
            assert!(before.elapsed() < Duration::from_secs(1));
            assert_eq!(loops.report()[0].last_error.as_deref(), Some("broken"));
            seen(&loops, 3).await;
            assert_eq!(loops.report()[0].last_error.as_deref(), Some("the pass panicked"));
            seen(&loops, 4).await;
            assert_eq!(loops.report()[0].last_error, None);
            shutdown.cancel();
        };
        tokio::join!(run, observe);
    }

    async fn seen(loops: &Loops, passes: u64) {
        while loops.report().first().is_none_or(|report| report.passes < passes) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_loop_that_stands_still_is_named() {
        let loops = Loops::default();
        loops.register("stuck".into());
        loops.register("well".into());
        tokio::time::advance(Duration::from_secs(31)).await;
        loops.ran("well", Ok(()));
        assert_eq!(loops.stalled(Duration::from_secs(30)), ["stuck"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_pass_that_fails_comes_round_without_progress_and_one_that_finds_nothing_to_do_is_progress() {
        let loops = Loops::default();
        loops.register("in vain".into());
        loops.register("idle".into());
        tokio::time::advance(Duration::from_secs(31)).await;
        loops.ran("in vain", Err(&"Redis is away".into()));
        loops.ran("idle", Ok(()));
        assert_eq!(loops.stalled(Duration::from_secs(30)), [] as [&str; 0]);
        assert_eq!(loops.without_progress(Duration::from_secs(30)), ["in vain"]);
        loops.ran("in vain", Ok(()));
        assert_eq!(loops.without_progress(Duration::from_secs(30)), [] as [&str; 0]);
    }
}
