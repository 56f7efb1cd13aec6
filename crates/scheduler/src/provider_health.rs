//! What the outcomes of submits say about a provider account, and what this process remembers of it.
//!
//! The account's breaker and its pauses lie in Redis, where slots are granted, so that every scheduler keeps to them. Here an
//! outcome is read: the provider is well, is in trouble, or asks us to wait. And here is the local copy: an account that was
//! said to be shut is not asked for again until it may be open, even if Redis has forgotten it meanwhile.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use control::{DispatchPause, Noted, Sign};
use domain::{FailureClass, ProviderAccountId, retry::Backoff, wait::Wait};
use provider_adapter::{NotSent, SubmitOutcome};
use tokio::time::Instant;

use crate::{owned::Owned, worker::Worker};

/// A provider that is well is reported at most this often, unless something was wrong before.
const WELL_EVERY: Duration = Duration::from_secs(1);

/// How long the wishes of providers to be left alone are followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PauseBounds {
    /// At least; a provider that asks for less would be asked again at once.
    pub floor: Duration,
    /// At most; a header that asks for a day must not stop an account for a day.
    pub cap: Duration,
}

impl Default for PauseBounds {
    fn default() -> Self {
        Self { floor: Duration::from_millis(500), cap: Duration::from_secs(300) }
    }
}

impl PauseBounds {
    /// The pause, up to a fifth longer, so that not all schedulers come back at the same instant.
    fn pause(self, asked: Duration, spread: f64) -> Duration {
        asked.clamp(self.floor, self.cap.max(self.floor)).mul_f64(1.0 + 0.2 * spread.clamp(0.0, 1.0))
    }
}

/// What an outcome says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Reading {
    sign: Option<Sign>,
    /// How long the provider asks to be left alone.
    asks_for: Option<Duration>,
}

fn read(outcome: &SubmitOutcome, backoff: &Backoff) -> Reading {
    let (sign, asks_for) = match outcome {
        SubmitOutcome::Accepted { .. } | SubmitOutcome::RejectedFinal { .. } => (Some(Sign::Well), None),
        SubmitOutcome::RejectedRetryable { class, retry_after, .. } => match class {
            // It answers, so it is well; it only wants to be asked later.
            FailureClass::RateLimited | FailureClass::ConcurrencyFull | FailureClass::Overloaded => {
                (Some(Sign::Well), Some(retry_after.unwrap_or(backoff.first)))
            }
            FailureClass::ProviderInternal => (Some(Sign::Trouble), *retry_after),
            _ => (Some(Sign::Well), None),
        },
        SubmitOutcome::NotSent { why: NotSent::HeldBack, .. } => (None, None),
        SubmitOutcome::NotSent { .. } | SubmitOutcome::Unknown { .. } => (Some(Sign::Trouble), None),
    };
    Reading { sign, asks_for }
}

/// The local copy, by account.
#[derive(Debug, Default)]
pub(crate) struct ProviderHealth(Mutex<HashMap<ProviderAccountId, Known>>);

#[derive(Debug, Default)]
struct Known {
    shut_until: Option<Instant>,
    /// Whether something is wrong that an answer would put right.
    uneasy: bool,
    told_at: Option<Instant>,
    /// Until when the account is known to have been given all the jobs that it may be given in a day, and what that
    /// makes its tasks wait for.
    spent: Option<(Instant, Wait)>,
}

impl ProviderHealth {
    fn all(&self) -> MutexGuard<'_, HashMap<ProviderAccountId, Known>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that no slot is granted there for so long.
    pub(crate) fn is_shut(&self, account: &ProviderAccountId, for_so_long: Duration) {
        let mut all = self.all();
        let known = all.entry(account.clone()).or_default();
        known.shut_until = Some(Instant::now() + for_so_long);
        known.uneasy = true;
    }

    /// For how long the account is known to be shut, if it is.
    pub(crate) fn shut_for(&self, account: &ProviderAccountId) -> Option<Duration> {
        let until = self.all().get(account)?.shut_until?;
        Some(until.saturating_duration_since(Instant::now())).filter(|left| !left.is_zero())
    }

    /// Notes that an account was given all the jobs of this day, to be believed for so long.
    pub(crate) fn is_spent(&self, account: &ProviderAccountId, for_so_long: Duration, wait: Wait) {
        let until = Instant::now() + for_so_long;
        self.all().entry(account.clone()).or_default().spent = Some((until, wait));
    }

    /// What tasks of the account wait for, if it was given all the jobs of this day as far as is known.
    pub(crate) fn spent(&self, account: &ProviderAccountId) -> Option<Wait> {
        let (until, wait) = self.all().get(account)?.spent.clone()?;
        (Instant::now() < until).then_some(wait)
    }

    /// Whether the shared breaker has to hear of this sign: of every trouble, and of wellness that is news.
    fn is_news(&self, account: &ProviderAccountId, sign: Sign) -> bool {
        let mut all = self.all();
        let known = all.entry(account.clone()).or_default();
        let now = Instant::now();
        let fresh = known.told_at.is_some_and(|told| now - told < WELL_EVERY);
        let news = sign == Sign::Trouble || known.uneasy || !fresh;
        if news {
            known.told_at = Some(now);
            known.uneasy = sign == Sign::Trouble;
        }
        news
    }

    /// Notes that the shared breaker has not heard of a sign, so that the next one is news.
    fn untold(&self, account: &ProviderAccountId) {
        let mut all = self.all();
        let known = all.entry(account.clone()).or_default();
        known.uneasy = true;
        known.told_at = None;
    }

    /// Takes in what the shared breaker made of a sign.
    fn learn(&self, account: &ProviderAccountId, noted: Noted) {
        let mut all = self.all();
        let known = all.entry(account.clone()).or_default();
        known.shut_until = noted.open_for.map(|left| Instant::now() + left);
        known.uneasy |= noted.open_for.is_some();
    }
}

impl Worker {
    /// Takes in how a submit went: a provider in trouble is left alone for a while, by every scheduler.
    pub(crate) async fn note_submit(&self, owned: &Owned, outcome: &SubmitOutcome) {
        let account = &owned.lease.account;
        let Reading { sign, asks_for } = read(outcome, &self.config.backoff);
        if let Some(sign) = sign.filter(|sign| self.health.is_news(account, *sign)) {
            self.tell_breaker(owned, sign).await;
        }
        if let Some(asked) = asks_for {
            let pause = self.config.account_pause.pause(asked, self.spread());
            tracing::info!(%account, ?asked, ?pause, "a provider asks us to wait");
            let pause = DispatchPause { account: account.clone(), model: None, pause };
            if let Err(error) = self.control.set_not_before(&[pause]).await {
                tracing::info!(%account, %error, "the pause of a provider account was not stored");
            }
        }
    }

    async fn tell_breaker(&self, owned: &Owned, sign: Sign) {
        let account = &owned.lease.account;
        let rule = &self.config.breaker;
        match self.control.note_sign(account, owned.name(), sign, rule, self.spread()).await {
            Ok(noted) => {
                self.health.learn(account, noted);
                match noted.open_for {
                    Some(open_for) if noted.changed => {
                        tracing::warn!(%account, ?open_for, "the breaker of a provider account opens");
                    }
                    None if noted.changed => {
                        tracing::info!(%account, "the breaker of a provider account closes");
                        self.ring_account(account);
                    }
                    _ => {}
                }
            }
            // Without Redis nothing is submitted, so there is nothing to protect the provider from.
            Err(error) => {
                self.health.untold(account);
                tracing::debug!(%account, %error, "a breaker was not told how a submit went");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account() -> ProviderAccountId {
        "mock".parse().unwrap()
    }

    #[test]
    fn an_outcome_says_whether_the_provider_is_there_and_whether_it_wants_to_be_left_alone() {
        let refused = |class, seconds: Option<u64>| SubmitOutcome::RejectedRetryable {
            class,
            retry_after: seconds.map(Duration::from_secs),
            message: String::new(),
        };
        let invalid =
            SubmitOutcome::RejectedFinal { class: FailureClass::InvalidInput, message: String::new() };
        for (outcome, sign, asks_for) in [
            (SubmitOutcome::Unknown { message: String::new() }, Some(Sign::Trouble), None),
            (invalid, Some(Sign::Well), None),
            (refused(FailureClass::RateLimited, Some(7)), Some(Sign::Well), Some(7)),
            (refused(FailureClass::ConcurrencyFull, None), Some(Sign::Well), Some(1)),
            (refused(FailureClass::ProviderInternal, None), Some(Sign::Trouble), None),
        ] {
            let reading = Reading { sign, asks_for: asks_for.map(Duration::from_secs) };
            assert_eq!(read(&outcome, &Backoff::default()), reading, "{outcome:?}");
        }
    }

    #[test]
    fn a_pause_is_as_long_as_asked_or_a_little_longer_within_its_bounds() {
        let bounds = PauseBounds::default();
        let ms = |asked_ms, spread| bounds.pause(Duration::from_millis(asked_ms), spread).as_millis();
        assert_eq!((ms(7_000, 0.0), ms(7_000, 1.0)), (7_000, 8_400));
        assert_eq!((ms(0, 0.0), ms(86_400_000, 0.0)), (500, 300_000));
    }

    #[tokio::test(start_paused = true)]
    async fn the_local_copy_keeps_its_distance_until_the_pause_is_over() {
        let health = ProviderHealth::default();
        assert_eq!(health.shut_for(&account()), None);
        health.is_shut(&account(), Duration::from_secs(4));
        tokio::time::advance(Duration::from_secs(3)).await;
        assert_eq!(health.shut_for(&account()), Some(Duration::from_secs(1)));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(health.shut_for(&account()), None);
    }

    #[tokio::test(start_paused = true)]
    async fn every_trouble_is_told_and_wellness_once_a_second_or_when_it_is_news() {
        let health = ProviderHealth::default();
        let told = |sign| health.is_news(&account(), sign);
        assert_eq!((told(Sign::Well), told(Sign::Well)), (true, false));
        assert_eq!((told(Sign::Trouble), told(Sign::Trouble)), (true, true));
        assert_eq!((told(Sign::Well), told(Sign::Well)), (true, false));
        tokio::time::advance(WELL_EVERY).await;
        assert!(told(Sign::Well));
    }
}
