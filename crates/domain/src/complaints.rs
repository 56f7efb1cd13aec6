//! How often the same trouble is told.
//!
//! While a store is away every caller and every loop meets the same error, over and over. A line for each fills the log,
//! hides what else happens and costs more than the work itself; so such a line is told now and then, together with
//! how many were kept back.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// Between two lines about the same trouble.
const EVERY: Duration = Duration::from_secs(10);

/// What was told of one kind of trouble. One for each line that an outage would repeat.
#[derive(Debug, Default)]
pub struct Complaints(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    last: Option<Instant>,
    silent: u32,
}

impl Complaints {
    /// Nothing was told yet.
    #[must_use]
    pub const fn new() -> Self {
        Self(Mutex::new(State { last: None, silent: 0 }))
    }

    /// Whether it is to be told again at `now`, and then how many times it was kept back since the last time.
    pub fn complain(&self, now: Instant) -> Option<u32> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.last.is_some_and(|last| now.saturating_duration_since(last) < EVERY) {
            state.silent = state.silent.saturating_add(1);
            return None;
        }
        state.last = Some(now);
        Some(std::mem::take(&mut state.silent))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trouble_is_told_at_once_and_then_now_and_then_with_the_count_of_what_was_kept_back() {
        let complaints = Complaints::new();
        let start = Instant::now();
        let told: Vec<_> =
            (0..25).filter_map(|second| complaints.complain(start + Duration::from_secs(second))).collect();
        assert_eq!(told, [0, 9, 9]);
    }
}
