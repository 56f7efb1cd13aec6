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

use domain::{FailureClass, ProviderAccountId, retry::Backoff};
use provider_adapter::{NotSent, SubmitOutcome};

/// Failures in a row by account.
#[derive(Debug, Default)]
pub(crate) struct ProviderHealth(Mutex<HashMap<ProviderAccountId, u32>>);

/// Failures in a row that are taken for chance.
const CHANCE: u32 = 4;

impl ProviderHealth {
    /// Takes the outcome of a submit in and says how long the account should be left alone.
    pub(crate) fn note(
        &self,
        account: &ProviderAccountId,
        outcome: &SubmitOutcome,
        backoff: &Backoff,
        spread: f64,
    ) -> Option<Duration> {
        let mut failures = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let failures = failures.entry(account.clone()).or_default();
        match outcome {
            SubmitOutcome::Accepted { .. } | SubmitOutcome::RejectedFinal { .. } => {
                *failures = 0;
                None
            }
            // It answers, so it is well; it only wants to be asked later.
            SubmitOutcome::RejectedRetryable { class, retry_after, .. } => {
                *failures = 0;
                let asks_for_pause = matches!(
                    class,
                    FailureClass::RateLimited | FailureClass::ConcurrencyFull | FailureClass::Overloaded
                );
                asks_for_pause.then(|| retry_after.unwrap_or(backoff.first))
            }
            SubmitOutcome::NotSent { why: NotSent::HeldBack, .. } => None,
            SubmitOutcome::NotSent { .. } | SubmitOutcome::Unknown { .. } => {
                *failures = failures.saturating_add(1);
                (*failures > CHANCE).then(|| backoff.pause(*failures - CHANCE, spread, None))
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

    #[test]
    fn failures_in_a_row_make_a_growing_pause_and_one_answer_ends_it() {
        let health = ProviderHealth::default();
        let lost = SubmitOutcome::Unknown { message: String::new() };
        let pauses: Vec<_> = (0..7).map(|_| note(&health, &lost)).collect();
        assert_eq!(pauses, [None, None, None, None, Some(1), Some(4), Some(16)]);
        let refused =
            SubmitOutcome::RejectedFinal { class: FailureClass::InvalidInput, message: String::new() };
        assert_eq!((note(&health, &refused), note(&health, &lost)), (None, None));
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
