//! How submits to a provider account went lately, and the pause that follows from it.
//!
//! A provider that cannot be reached, or whose answers get lost, would otherwise be tried by every waiting task in
//! turn. Failures in a row put a growing pause before the account's next submit; the pause itself is kept in Redis
//! beside the account's rates, so that every scheduler keeps it.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use domain::{FailureClass, ProviderAccountId, metric, retry::Backoff};
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

/// Strikes in a row that are taken for chance.
const CHANCE: u32 = 4;

/// However many submits are under way when a connection breaks or a provider starts again, it is one event: failures
/// this close together count once. What it may cost is bounded by the slots that unknown submits keep.
const MOMENT: Duration = Duration::from_secs(1);

impl ProviderHealth {
    /// Takes the outcome of a submit in and says how long the account should be left alone.
    pub(crate) fn note(
        &self,
        account: &ProviderAccountId,
        outcome: &SubmitOutcome,
        backoff: &Backoff,
        spread: f64,
    ) -> Option<Duration> {
        let mut accounts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let row = accounts.entry(account.clone()).or_default();
        let pause = row.note(outcome, backoff, spread);
        let open = if row.strikes > CHANCE { 1.0 } else { 0.0 };
        metrics::gauge!(metric::PROVIDER_BREAKER_OPEN, "account" => account.to_string()).set(open);
        pause
    }
}

impl InARow {
    fn note(&mut self, outcome: &SubmitOutcome, backoff: &Backoff, spread: f64) -> Option<Duration> {
        match outcome {
            SubmitOutcome::Accepted { .. } | SubmitOutcome::RejectedFinal { .. } => {
                *self = Self::default();
                None
            }
            // It answers, so it is well; it only wants to be asked later.
            SubmitOutcome::RejectedRetryable { class, retry_after, .. } => {
                *self = Self::default();
                let asks_for_pause = matches!(
                    class,
                    FailureClass::RateLimited | FailureClass::ConcurrencyFull | FailureClass::Overloaded
                );
                asks_for_pause.then(|| retry_after.unwrap_or(backoff.first))
            }
            SubmitOutcome::NotSent { why: NotSent::HeldBack, .. } => None,
            SubmitOutcome::NotSent { .. } | SubmitOutcome::Unknown { .. } => {
                let now = Instant::now();
                let same_moment = self.last_strike.is_some_and(|last| now - last < MOMENT);
                // What was sent before a pause and fails during it says nothing new either.
                if same_moment || self.paused_until.is_some_and(|until| now < until) {
                    return None;
                }
                self.strikes = self.strikes.saturating_add(1);
                self.last_strike = Some(now);
                if self.strikes <= CHANCE {
                    return None;
                }
                let pause = backoff.pause(self.strikes - CHANCE, spread, None);
                self.paused_until = Some(now + pause);
                Some(pause)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(health: &ProviderHealth, outcome: &SubmitOutcome) -> Option<u64> {
        let pause = health.note(&"mock".parse().unwrap(), outcome, &Backoff::default(), 0.5);
        pause.map(|pause| pause.as_secs())
    }

    #[tokio::test(start_paused = true)]
    async fn failures_in_a_row_make_a_growing_pause_and_one_answer_ends_it() {
        let health = ProviderHealth::default();
        let lost = SubmitOutcome::Unknown { message: String::new() };
        let mut pauses = Vec::new();
        for _ in 0..7 {
            let pause = note(&health, &lost);
            tokio::time::advance(Duration::from_secs(pause.unwrap_or(1))).await;
            pauses.push(pause);
        }
        assert_eq!(pauses, [None, None, None, None, Some(1), Some(4), Some(16)]);
        let refused =
            SubmitOutcome::RejectedFinal { class: FailureClass::InvalidInput, message: String::new() };
        assert_eq!((note(&health, &refused), note(&health, &lost)), (None, None));
    }

    #[tokio::test(start_paused = true)]
    async fn submits_that_fail_together_are_one_step() {
        let health = ProviderHealth::default();
        let lost = SubmitOutcome::Unknown { message: String::new() };
        let mut pauses = Vec::new();
        for _ in 0..7 {
            let together: Vec<_> = (0..200).filter_map(|_| note(&health, &lost)).collect();
            tokio::time::advance(Duration::from_secs(together.first().copied().unwrap_or(1))).await;
            pauses.push(together);
        }
        assert_eq!(pauses, [vec![], vec![], vec![], vec![], vec![1], vec![4], vec![16]]);
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
        assert_eq!(note(&health, &refused(FailureClass::RateLimited, asked)), Some(7));
        assert_eq!(note(&health, &refused(FailureClass::RateLimited, None)), Some(1));
        assert_eq!(note(&health, &refused(FailureClass::ProviderInternal, None)), None);
    }
}
