//! How a consumer or a relay is doing: the figure behind "alive, healthy and doing nothing".

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// Shared by a consumer or a relay, which writes it, and those who watch over it.
#[derive(Debug, Clone, Default)]
pub struct ConsumerStatus {
    last: Arc<Mutex<Last>>,
}

#[derive(Debug)]
struct Last {
    since: Instant,
    round: Option<Instant>,
    rounds: u64,
    error: Option<String>,
}

impl Default for Last {
    fn default() -> Self {
        Self { since: Instant::now(), round: None, rounds: 0, error: None }
    }
}

impl ConsumerStatus {
    /// A status that nothing has happened to.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Since when the consumer has not come round: looked and found nothing, or finished a batch. `None` before the
    /// first time.
    #[must_use]
    pub fn idle_for(&self) -> Option<Duration> {
        self.lock().round.map(|round| round.elapsed())
    }

    /// Since when it has not come round, be it since the start: what rises while it is alive and does nothing.
    #[must_use]
    pub fn since_progress(&self) -> Duration {
        let last = self.lock();
        last.round.unwrap_or(last.since).elapsed()
    }

    /// What kept it from coming round, if the last time failed.
    #[must_use]
    pub fn last_error(&self) -> Option<String> {
        self.lock().error.clone()
    }

    /// How often it has come round.
    pub(crate) fn rounds(&self) -> u64 {
        self.lock().rounds
    }

    pub(crate) fn came_round(&self) {
        let mut last = self.lock();
        last.round = Some(Instant::now());
        last.rounds += 1;
        last.error = None;
    }

    pub(crate) fn failed(&self, error: &dyn std::error::Error) {
        self.lock().error = Some(crate::deliver::chain(error));
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Last> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
