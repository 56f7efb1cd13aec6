//! The breaker in front of each instance: when Redis is away, callers learn it at once instead of waiting each.

use std::{
    sync::Mutex,
    time::{Duration, Instant},
};

/// Whether commands are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BreakerState {
    /// They are.
    Closed,
    /// None is, until the pause is over.
    Open,
    /// One is under way to see whether the server is back.
    Probing,
}

/// Opens after so many failures in a row; after a pause one caller at a time may try.
#[derive(Debug)]
pub(crate) struct Breaker {
    failures_max: u32,
    pause: Duration,
    state: Mutex<State>,
}

#[derive(Debug)]
enum State {
    Closed { failures: u32 },
    Open { since: Instant },
    Probing { since: Instant },
}

/// What a caller that was let through must report back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The server answered, be it with an error.
    Answered,
    /// It did not.
    Silent,
}

impl Breaker {
    pub(crate) fn new(failures_max: u32, pause: Duration) -> Self {
        Self { failures_max, pause, state: Mutex::new(State::Closed { failures: 0 }) }
    }

    /// Whether a command may be sent at `now`. A caller that is let through reports the outcome.
    pub(crate) fn admit(&self, now: Instant) -> bool {
        let mut state = self.lock();
        match *state {
            State::Closed { .. } => true,
            // A probe whose caller vanished must not keep the breaker shut for ever, hence the same pause again.
            State::Open { since } | State::Probing { since } if now.duration_since(since) >= self.pause => {
                *state = State::Probing { since: now };
                true
            }
            State::Open { .. } | State::Probing { .. } => false,
        }
    }

    /// Takes note of an outcome.
    pub(crate) fn report(&self, verdict: Verdict, now: Instant) {
        let mut state = self.lock();
        *state = match (verdict, &*state) {
            (Verdict::Answered, _) => State::Closed { failures: 0 },
            (Verdict::Silent, State::Closed { failures }) if failures + 1 < self.failures_max => {
                State::Closed { failures: failures + 1 }
            }
            (Verdict::Silent, State::Open { since }) => State::Open { since: *since },
            (Verdict::Silent, _) => State::Open { since: now },
        };
    }

    pub(crate) fn state(&self) -> BreakerState {
        match *self.lock() {
            State::Closed { .. } => BreakerState::Closed,
            State::Open { .. } => BreakerState::Open,
            State::Probing { .. } => BreakerState::Probing,
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAUSE: Duration = Duration::from_millis(100);

    #[test]
    fn it_opens_after_failures_in_a_row_only() {
        let (breaker, now) = (Breaker::new(3, PAUSE), Instant::now());
        for verdict in [Verdict::Silent, Verdict::Silent, Verdict::Answered, Verdict::Silent, Verdict::Silent]
        {
            assert!(breaker.admit(now));
            breaker.report(verdict, now);
        }
        assert_eq!(breaker.state(), BreakerState::Closed);
        breaker.report(Verdict::Silent, now);
        assert_eq!(breaker.state(), BreakerState::Open);
        assert!(!breaker.admit(now));
    }

    #[test]
    fn one_probe_at_a_time_decides_whether_it_closes() {
        let (breaker, start) = (Breaker::new(1, PAUSE), Instant::now());
        breaker.report(Verdict::Silent, start);
        let later = start + PAUSE;
        assert!(breaker.admit(later));
        assert!(!breaker.admit(later), "a second probe at the same time");
        breaker.report(Verdict::Silent, later);
        assert!(!breaker.admit(later + PAUSE / 2));
        assert!(breaker.admit(later + PAUSE));
        breaker.report(Verdict::Answered, later + PAUSE);
        assert_eq!(breaker.state(), BreakerState::Closed);
        assert!(breaker.admit(later + PAUSE));
    }

    #[test]
    fn a_probe_whose_caller_vanished_is_replaced() {
        let (breaker, start) = (Breaker::new(1, PAUSE), Instant::now());
        breaker.report(Verdict::Silent, start);
        assert!(breaker.admit(start + PAUSE));
        assert!(breaker.admit(start + PAUSE * 2), "the first probe never reported");
    }
}
