//! Closed loops on threads of their own: so many workers, each asking again as soon as it is answered.
//!
//! Each thread runs its share of the workers on a runtime of its own and counts for itself, so nothing is shared
//! under load but a counter for the person who watches.

use std::{
    cell::RefCell,
    io::{IsTerminal, Write},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use anyhow::Context;
use bytes::Bytes;
use futures::future::join_all;
use tokio_util::sync::CancellationToken;

use super::{
    failure::{Failure, Failures},
    latency::Latency,
};

/// More would only take cores from what is measured.
const THREADS_MAX: usize = 2;
/// A run that fails this often is broken off: the rest would say nothing new.
const FAILURES_MAX: u64 = 1_000;
/// Before a worker asks again after a failure, so that a closed port is not hammered.
const PAUSE: Duration = Duration::from_millis(20);

/// What workers did.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// Of answered requests, or of accepted submits where tasks are followed.
    pub(super) answers: Latency,
    /// Of tasks from submit to end.
    pub(super) ends: Latency,
    /// Tasks that ended well, with the wall clock's microseconds at which their 202 had been read.
    pub(super) tasks: Vec<(String, i64)>,
    /// Submits that were answered 2xx.
    pub(super) accepted: u64,
    pub(super) failures: Failures,
}

impl Tally {
    fn merge(&mut self, other: Self) {
        self.answers.merge(&other.answers);
        self.ends.merge(&other.ends);
        self.tasks.extend(other.tasks);
        self.accepted += other.accepted;
        self.failures.merge(other.failures);
    }
}

/// What all workers of a run look at.
#[derive(Debug, Clone)]
pub(super) struct Watch {
    done: Arc<AtomicU64>,
    failed: Arc<AtomicU64>,
    stop: CancellationToken,
}

impl Watch {
    pub(super) fn new(stop: CancellationToken) -> Self {
        Self { done: Arc::default(), failed: Arc::default(), stop }
    }

    /// Whether the run goes on.
    pub(super) fn goes_on(&self) -> bool {
        !self.stop.is_cancelled() && self.failed.load(Relaxed) < FAILURES_MAX
    }

    pub(super) fn done(&self) {
        self.done.fetch_add(1, Relaxed);
    }

    /// Waits, unless the run is broken off meanwhile.
    pub(super) async fn pause(&self, pause: Duration) {
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = self.stop.cancelled() => {}
        }
    }

    /// Counts a failure and lets a moment go by.
    pub(super) async fn failed(&self, failure: Failure, tally: &RefCell<Tally>) {
        self.failed.fetch_add(1, Relaxed);
        tally.borrow_mut().failures.note(&failure);
        self.pause(PAUSE).await;
    }

    /// Counts an answer to a request that was sent at `from`.
    pub(super) async fn note(
        &self,
        from: Instant,
        answer: Result<Bytes, Failure>,
        tally: &RefCell<Tally>,
    ) -> Option<Bytes> {
        match answer {
            Ok(body) => {
                self.done();
                tally.borrow_mut().answers.record(from.elapsed());
                Some(body)
            }
            Err(failure) => {
                self.failed(failure, tally).await;
                None
            }
        }
    }
}

/// Runs `workers` of them to their end, and returns what they did and how long it took.
///
/// # Errors
/// When a thread cannot be had, or a worker panics.
pub(super) async fn run<W>(workers: usize, watch: &Watch, worker: W) -> anyhow::Result<(Tally, Duration)>
where
    W: AsyncFn(usize, &RefCell<Tally>) + Send + Sync + 'static,
{
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX).min(workers);
    let worker = Arc::new(worker);
    let ticker = tokio::spawn(tick(watch.clone()));
    let from = Instant::now();
    let mut running = Vec::new();
    for thread in 0..threads {
        let worker = Arc::clone(&worker);
        running.push(tokio::task::spawn_blocking(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            let tally = RefCell::new(Tally::default());
            let mine = (thread..workers).step_by(threads).map(|number| worker(number, &tally));
            runtime.block_on(join_all(mine));
            Ok::<_, std::io::Error>(tally.into_inner())
        }));
    }
    let mut all = Tally::default();
    for thread in running {
        all.merge(
            thread.await.context("a thread of the load ended early")?.context("no runtime for the load")?,
        );
    }
    let elapsed = from.elapsed();
    ticker.abort();
    clear_line();
    Ok((all, elapsed))
}

/// Says every second how far a run is, if a person looks on.
async fn tick(watch: Watch) {
    let from = Instant::now();
    let mut every = tokio::time::interval(Duration::from_secs(1));
    loop {
        every.tick().await;
        let (done, failed) = (watch.done.load(Relaxed), watch.failed.load(Relaxed));
        let mut err = std::io::stderr().lock();
        if err.is_terminal() {
            // Nobody misses a line of progress.
            let _ = write!(err, "\r\x1b[K  {} s: {done} done, {failed} failed", from.elapsed().as_secs());
            let _ = err.flush();
        }
    }
}

fn clear_line() {
    let mut err = std::io::stderr().lock();
    if err.is_terminal() {
        let _ = write!(err, "\r\x1b[K");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn every_worker_runs_once_and_everything_is_counted() {
        let watch = Watch::new(CancellationToken::new());
        let counted = watch.clone();
        let worker = async move |number: usize, tally: &RefCell<Tally>| {
            let answer = if number == 3 { Err(Failure::TimedOut) } else { Ok(Bytes::new()) };
            counted.note(Instant::now(), answer, tally).await;
        };
        let (tally, _) = run(7, &watch, worker).await.unwrap();
        assert_eq!((tally.answers.count(), tally.failures.total()), (6, 1));
        assert!(watch.goes_on());
    }

    #[tokio::test]
    async fn a_run_that_only_fails_is_broken_off() {
        let watch = Watch::new(CancellationToken::new());
        watch.failed.store(FAILURES_MAX - 1, Relaxed);
        let counted = watch.clone();
        let worker = async move |_: usize, tally: &RefCell<Tally>| {
            while counted.goes_on() {
                counted.note(Instant::now(), Err(Failure::TimedOut), tally).await;
            }
        };
        let (tally, _) = run(2, &watch, worker).await.unwrap();
        assert!((1..=2).contains(&tally.failures.total()), "{:?}", tally.failures);
    }

    #[tokio::test]
    async fn a_signal_ends_a_pause() {
        let stop = CancellationToken::new();
        let watch = Watch::new(stop.clone());
        stop.cancel();
        watch.pause(Duration::from_secs(600)).await;
        assert!(!watch.goes_on());
    }
}
