//! The breaker in front of each instance: when Redis is away, callers learn it at once instead of waiting each.
//!
//! A server that answers and takes no writes (no memory left, a replica, still loading) is as good as away: nobody is admitted
//! by what it cannot count. Reads may still succeed there, so what closes the breaker again is a probe that writes.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
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

/// Opens after so many failures in a row, or at one refusal; after a pause one caller at a time may try.
#[derive(Debug)]
pub(crate) struct Breaker {
    failures_max: u32,
    pause: Duration,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    state: State,
    /// When it last opened.
    opened: Option<Instant>,
}

#[derive(Debug, Clone, Copy)]
enum State {
    Closed { failures: u32 },
    Open { since: Instant, why: Why },
    Probing { since: Instant, why: Why },
}

/// Why it is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Why {
    Silent,
    Refusing,
}

/// As what a caller was let through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pass {
    /// As anybody.
    Usual,
    /// To see whether the server is back.
    Probe,
}

/// What a caller that was let through must report back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The server answered, be it with an error.
    Answered,
    /// It answered that it takes no writes.
    Refusing,
    /// It did not answer.
    Silent,
}

impl Breaker {
    pub(crate) fn new(failures_max: u32, pause: Duration) -> Self {
        let inner = Inner { state: State::Closed { failures: 0 }, opened: None };
        Self { failures_max, pause, inner: Mutex::new(inner) }
    }

    /// Whether, and as what, a command may be sent at `now`. A caller that is let through reports the outcome.
    pub(crate) fn admit(&self, now: Instant) -> Option<Pass> {
        let mut inner = self.lock();
        match inner.state {
            State::Closed { .. } => Some(Pass::Usual),
            // A probe whose caller vanished must not keep the breaker shut for ever, hence the same pause again.
            State::Open { since, why } | State::Probing { since, why }
                if now.duration_since(since) >= self.pause =>
            {
                inner.state = State::Probing { since: now, why };
                Some(Pass::Probe)
            }
            State::Open { .. } | State::Probing { .. } => None,
        }
    }

    /// Takes note of an outcome.
    pub(crate) fn report(&self, pass: Pass, verdict: Verdict, now: Instant) {
        let mut inner = self.lock();
        let before = inner.state;
        inner.state = match (verdict, before, pass) {
            (Verdict::Answered, State::Closed { .. }, _) | (Verdict::Answered, _, Pass::Probe) => {
                State::Closed { failures: 0 }
            }
            // A late answer shows that somebody is there, but not that he takes writes again.
            (Verdict::Answered, State::Open { why, .. } | State::Probing { why, .. }, Pass::Usual) => {
                match why {
                    Why::Silent => State::Closed { failures: 0 },
                    Why::Refusing => before,
                }
            }
            (Verdict::Silent, State::Closed { failures }, _) if failures + 1 < self.failures_max => {
                State::Closed { failures: failures + 1 }
            }
            // Of those who were under way when it opened.
            (Verdict::Silent | Verdict::Refusing, State::Open { .. }, Pass::Usual) => before,
            (Verdict::Silent, ..) => State::Open { since: now, why: Why::Silent },
            (Verdict::Refusing, ..) => State::Open { since: now, why: Why::Refusing },
        };
        if matches!(inner.state, State::Open { since, .. } if since == now) {
            inner.opened = Some(now);
        }
    }

    /// When it last opened. Connections that are older have led to a server that was away.
    pub(crate) fn opened(&self) -> Option<Instant> {
        self.lock().opened
    }

    pub(crate) fn state(&self) -> BreakerState {
        match self.lock().state {
            State::Closed { .. } => BreakerState::Closed,
            State::Open { .. } => BreakerState::Open,
            State::Probing { .. } => BreakerState::Probing,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAUSE: Duration = Duration::from_millis(100);
    const USUAL: Option<Pass> = Some(Pass::Usual);
    const PROBE: Option<Pass> = Some(Pass::Probe);

    #[test]
    fn it_opens_after_failures_in_a_row_only() {
        let (breaker, now) = (Breaker::new(3, PAUSE), Instant::now());
        for verdict in [Verdict::Silent, Verdict::Silent, Verdict::Answered, Verdict::Silent, Verdict::Silent]
        {
            assert_eq!(breaker.admit(now), USUAL);
            breaker.report(Pass::Usual, verdict, now);
        }
        assert_eq!((breaker.state(), breaker.opened()), (BreakerState::Closed, None));
        breaker.report(Pass::Usual, Verdict::Silent, now);
        assert_eq!((breaker.state(), breaker.opened()), (BreakerState::Open, Some(now)));
        assert_eq!(breaker.admit(now), None);
    }

    #[test]
    fn one_probe_at_a_time_decides_whether_it_closes() {
        let (breaker, start) = (Breaker::new(1, PAUSE), Instant::now());
        breaker.report(Pass::Usual, Verdict::Silent, start);
        let later = start + PAUSE;
        assert_eq!(breaker.admit(later), PROBE);
        assert_eq!(breaker.admit(later), None, "a second probe at the same time");
        breaker.report(Pass::Probe, Verdict::Silent, later);
        assert_eq!(breaker.opened(), Some(later));
        assert_eq!(breaker.admit(later + PAUSE / 2), None);
        assert_eq!(breaker.admit(later + PAUSE), PROBE);
        breaker.report(Pass::Probe, Verdict::Answered, later + PAUSE);
        assert_eq!(breaker.state(), BreakerState::Closed);
        assert_eq!(breaker.admit(later + PAUSE), USUAL);
    }

    #[test]
    fn a_probe_whose_caller_vanished_is_replaced() {
        let (breaker, start) = (Breaker::new(1, PAUSE), Instant::now());
        breaker.report(Pass::Usual, Verdict::Silent, start);
        assert_eq!(breaker.admit(start + PAUSE), PROBE);
        assert_eq!(breaker.admit(start + PAUSE * 2), PROBE, "the first probe never reported");
    }

    #[test]
    fn one_refusal_opens_it_and_only_a_probe_that_wrote_closes_it() {
        let (breaker, start) = (Breaker::new(3, PAUSE), Instant::now());
        breaker.report(Pass::Usual, Verdict::Refusing, start);
        assert_eq!(breaker.state(), BreakerState::Open);
        // Reads that were under way: answered, and no reason to hope.
        breaker.report(Pass::Usual, Verdict::Answered, start);
        assert_eq!(breaker.state(), BreakerState::Open);
        let later = start + PAUSE;
        assert_eq!(breaker.admit(later), PROBE);
        breaker.report(Pass::Usual, Verdict::Answered, later);
        assert_eq!(breaker.state(), BreakerState::Probing);
        breaker.report(Pass::Probe, Verdict::Refusing, later);
        assert_eq!((breaker.state(), breaker.opened()), (BreakerState::Open, Some(later)));
        assert_eq!(breaker.admit(later + PAUSE), PROBE);
        breaker.report(Pass::Probe, Verdict::Answered, later + PAUSE);
        assert_eq!(breaker.state(), BreakerState::Closed);
    }

    #[test]
    fn a_late_answer_ends_a_silence() {
        let (breaker, start) = (Breaker::new(1, PAUSE), Instant::now());
        breaker.report(Pass::Usual, Verdict::Silent, start);
        breaker.report(Pass::Usual, Verdict::Silent, start + PAUSE / 2);
        assert_eq!(breaker.opened(), Some(start), "those under way do not prolong it");
        breaker.report(Pass::Usual, Verdict::Answered, start + PAUSE / 2);
        assert_eq!(breaker.state(), BreakerState::Closed);
    }
}
