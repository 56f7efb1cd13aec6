//! How submits to a provider account went lately, and what follows from it.
//!
//! A provider that cannot be reached, or whose answers get lost, would otherwise be tried by every waiting task in
//! turn. After failures in a row its account is left alone for a moment and then probed; that it fails is noted in Redis
//! beside the account's rates, so that every scheduler keeps to it and every process can say so.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use domain::{FailureClass, ProviderAccountId, retry::Backoff};
use provider_adapter::{NotSent, SubmitOutcome};
use tokio::time::Instant;

/// Failures in a row by account.
#[derive(Debug, Default)]
pub(crate) struct ProviderHealth(Mutex<HashMap<ProviderAccountId, InARow>>);

#[derive(Debug, Default)]
struct InARow {
    /// Failures, those of one moment counted once.
    strikes: u32,
    last_strike: Option<Instant>,
    paused_until: Option<Instant>,
}

/// What an outcome says about an account.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Advice {
    /// Nothing that was not known.
    Nothing,
    /// It answers.
    Answers,
    /// It answers, and wants to be left alone for so long.
    AnswersLater(Duration),
    /// It fails, and should be left alone for so long and then be probed.
    Fails(Duration),
}

/// Strikes in a row that are taken for chance.
const CHANCE: u32 = 4;

/// However many submits are under way when a connection breaks or a provider starts again, it is one event: failures
/// this close together count once. What it may cost is bounded by the slots that unknown submits keep.
const MOMENT: Duration = Duration::from_secs(1);

/// A failing account is probed at least this often, so that it is found well within seconds. A probe is one submit.
const PROBE_PAUSE_MAX: Duration = Duration::from_secs(2);

impl ProviderHealth {
    /// Takes the outcome of a submit in.
    pub(crate) fn note(
        &self,
        account: &ProviderAccountId,
        outcome: &SubmitOutcome,
        backoff: &Backoff,
        spread: f64,
    ) -> Advice {
        let mut accounts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        accounts.entry(account.clone()).or_default().note(outcome, backoff, spread)
    }
}

impl InARow {
    fn note(&mut self, outcome: &SubmitOutcome, backoff: &Backoff, spread: f64) -> Advice {
        match outcome {
            SubmitOutcome::Accepted { .. } | SubmitOutcome::RejectedFinal { .. } => {
                *self = Self::default();
                Advice::Answers
            }
            // It answers, so it is well; it only wants to be asked later.
            SubmitOutcome::RejectedRetryable { class, retry_after, .. } => {
                *self = Self::default();
                match class {
                    FailureClass::RateLimited | FailureClass::ConcurrencyFull | FailureClass::Overloaded => {
                        Advice::AnswersLater(retry_after.unwrap_or(backoff.first))
                    }
                    _ => Advice::Answers,
                }
            }
            SubmitOutcome::NotSent { why: NotSent::HeldBack, .. } => Advice::Nothing,
            SubmitOutcome::NotSent { .. } | SubmitOutcome::Unknown { .. } => {
                let now = Instant::now();
                let same_moment = self.last_strike.is_some_and(|last| now - last < MOMENT);
                // What was sent before a pause and fails during it says nothing new either.
                if same_moment || self.paused_until.is_some_and(|until| now < until) {
                    return Advice::Nothing;
                }
                self.strikes = self.strikes.saturating_add(1);
                self.last_strike = Some(now);
                if self.strikes <= CHANCE {
                    return Advice::Nothing;
                }
                let pause = backoff.pause(self.strikes - CHANCE, spread, None).min(PROBE_PAUSE_MAX);
                self.paused_until = Some(now + pause);
                Advice::Fails(pause)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(health: &ProviderHealth, outcome: &SubmitOutcome) -> Advice {
        health.note(&"mock".parse().unwrap(), outcome, &Backoff::default(), 0.5)
    }

    fn fails_for(advice: Advice) -> Option<u64> {
        match advice {
            Advice::Fails(pause) => Some(pause.as_secs()),
            _ => None,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn failures_in_a_row_make_a_growing_pause_and_one_answer_ends_it() {
        let health = ProviderHealth::default();
        let lost = SubmitOutcome::Unknown { message: String::new() };
        let mut pauses = Vec::new();
        for _ in 0..7 {
            let pause = fails_for(note(&health, &lost));
            tokio::time::advance(Duration::from_secs(pause.unwrap_or(1))).await;
            pauses.push(pause);
        }
        assert_eq!(pauses, [None, None, None, None, Some(1), Some(2), Some(2)]);
        let refused =
            SubmitOutcome::RejectedFinal { class: FailureClass::InvalidInput, message: String::new() };
        assert_eq!((note(&health, &refused), note(&health, &lost)), (Advice::Answers, Advice::Nothing));
    }

    #[tokio::test(start_paused = true)]
    async fn submits_that_fail_together_are_one_step() {
        let health = ProviderHealth::default();
        let lost = SubmitOutcome::Unknown { message: String::new() };
        let mut pauses = Vec::new();
        for _ in 0..7 {
            let together: Vec<_> = (0..200).filter_map(|_| fails_for(note(&health, &lost))).collect();
            tokio::time::advance(Duration::from_secs(together.first().copied().unwrap_or(1))).await;
            pauses.push(together);
        }
        assert_eq!(pauses, [vec![], vec![], vec![], vec![], vec![1], vec![2], vec![2]]);
    }

    #[test]
    fn a_rate_limit_pauses_the_account_as_long_as_the_provider_asks() {
        let health = ProviderHealth::default();
        let refused = |class, retry_after| SubmitOutcome::RejectedRetryable {
            class,
            retry_after,
            message: String::new(),
        };
        let asked = Some(Duration::from_secs(7));
        let later = |seconds| Advice::AnswersLater(Duration::from_secs(seconds));
        assert_eq!(note(&health, &refused(FailureClass::RateLimited, asked)), later(7));
        assert_eq!(note(&health, &refused(FailureClass::RateLimited, None)), later(1));
        assert_eq!(note(&health, &refused(FailureClass::ProviderInternal, None)), Advice::Answers);
    }
}
