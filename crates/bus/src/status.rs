//! How a consumer is doing: the figure behind "alive, healthy and doing nothing".

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// Shared by a consumer, which writes it, and those who watch over it.
#[derive(Debug, Clone, Default)]
pub struct ConsumerStatus {
    last: Arc<Mutex<Last>>,
}

#[derive(Debug, Default)]
struct Last {
    round: Option<Instant>,
    error: Option<String>,
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

    /// What kept it from coming round, if the last time failed.
    #[must_use]
    pub fn last_error(&self) -> Option<String> {
        self.lock().error.clone()
    }

    pub(crate) fn came_round(&self) {
        *self.lock() = Last { round: Some(Instant::now()), error: None };
    }

    pub(crate) fn failed(&self, error: &dyn std::error::Error) {
        self.lock().error = Some(crate::deliver::chain(error));
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Last> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
