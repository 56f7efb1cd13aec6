//! The clock as an argument.
//!
//! Instants that decide who owns what come from PostgreSQL or Redis. Rust's own clock only stamps logs, caches
//! and links, and even there it is handed in, so that a test can stand at midnight on a clock-change day.

use std::sync::{
    Arc,
    atomic::{AtomicI64, Ordering},
};

use chrono::{DateTime, TimeZone, Utc};

/// Where "now" comes from.
pub trait Clock: Send + Sync + 'static {
    /// The present instant.
    fn now(&self) -> DateTime<Utc>;
}

/// A shared clock.
pub type SharedClock = Arc<dyn Clock>;

/// The machine's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "the one place that reads the machine's clock")]
    fn now(&self) -> DateTime<Utc> {
        Utc::now()
    }
}

/// A clock that stands still until a test moves it.
#[derive(Debug)]
pub struct ManualClock(AtomicI64);

impl ManualClock {
    /// Starts at the given instant (kept in milliseconds).
    #[must_use]
    pub fn at(instant: DateTime<Utc>) -> Self {
        Self(AtomicI64::new(instant.timestamp_millis()))
    }

    /// Moves the clock forward, or back when negative.
    pub fn advance(&self, by: chrono::TimeDelta) {
        self.0.fetch_add(by.num_milliseconds(), Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> DateTime<Utc> {
        Utc.timestamp_millis_opt(self.0.load(Ordering::SeqCst)).single().unwrap_or_default()
    }
}
