//! Which provider accounts fail, as all processes know it.
//!
//! The scheduler that sees an account fail notes it beside the account's pauses; from then on one submit a second goes
//! there, whoever sends it, until one is answered. Every process looks at the notes now and then and keeps what it saw,
//! so that asking costs nothing.

use std::{
    collections::BTreeSet,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use domain::ProviderAccountId;

use crate::{Control, ControlError, instance::command, script::Script, ttl::millis};

/// An account that nobody has tried for so long is not called failing any more.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(60);
/// The field of the account's hash.
const FAILING: &str = "failing";

/// The accounts that failed when we last looked.
#[derive(Debug, Default)]
pub(crate) struct Failing(Mutex<BTreeSet<ProviderAccountId>>);

impl Failing {
    fn lock(&self) -> MutexGuard<'_, BTreeSet<ProviderAccountId>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Control {
    /// Submits to an account fail: none goes there for so long, and then one a second until one is answered.
    ///
    /// # Errors
    /// When control cannot be reached; then nothing is submitted anyway.
    pub async fn note_failing(
        &self,
        account: &ProviderAccountId,
        pause: Duration,
    ) -> Result<(), ControlError> {
        self.0.failing.lock().insert(account.clone());
        let call = Script::AccountFailing
            .on(&[self.keys().health(account)])
            .arg(millis(pause))
            .arg(millis(FORGOTTEN_AFTER));
        self.0.control.call::<i64>(call).await.map(drop)
    }

    /// An account answers. Asks Redis only where it was known to fail.
    ///
    /// # Errors
    /// When control cannot be reached; the account counts as failing until the next answer.
    pub async fn note_answering(&self, account: &ProviderAccountId) -> Result<(), ControlError> {
        if !self.0.failing.lock().remove(account) {
            return Ok(());
        }
        let forget = command("HDEL").arg(self.keys().health(account)).arg(FAILING);
        let forgotten = self.0.control.call::<u64>(forget).await.map(drop);
        if forgotten.is_err() {
            self.0.failing.lock().insert(account.clone());
        }
        forgotten
    }

    /// Looks which of these accounts fail, for [`failing_accounts`](Self::failing_accounts).
    ///
    /// # Errors
    /// When control cannot be reached; what was known stays.
    pub async fn look_for_failing(&self, accounts: &[ProviderAccountId]) -> Result<(), ControlError> {
        let look = |account| command("HEXISTS").arg(self.keys().health(account)).arg(FAILING);
        let fail: Vec<bool> = self.0.control.calls_as(accounts.iter().map(look).collect()).await?;
        let failing = accounts.iter().zip(fail).filter(|(_, fails)| *fails);
        *self.0.failing.lock() = failing.map(|(account, _)| account.clone()).collect();
        Ok(())
    }

    /// The accounts that failed when somebody last looked; asks nobody.
    #[must_use]
    pub fn failing_accounts(&self) -> Vec<ProviderAccountId> {
        self.0.failing.lock().iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use domain::{TenantId, UserId};

    use super::*;
    use crate::{
        SlotOutcome, SlotTag,
        testing::{Corner, account, claim},
    };

    const PAUSE: Duration = Duration::from_secs(5);

    #[tokio::test]
    async fn every_process_learns_that_an_account_fails_and_that_it_answers_again() {
        let corner = Corner::new();
        let (here, there) = (&corner.control, corner.other());
        let accounts = [account(), "second".parse().unwrap()];
        let seen = async |control: &Control| {
            control.look_for_failing(&accounts).await.unwrap();
            control.failing_accounts()
        };
        here.note_failing(&account(), PAUSE).await.unwrap();
        assert_eq!(here.failing_accounts(), [account()], "known at once where it was noted");
        assert_eq!(there.failing_accounts(), []);
        assert_eq!(seen(&there).await, [account()]);
        // The answer may come to another process than the failures did.
        there.note_answering(&account()).await.unwrap();
        assert_eq!(there.failing_accounts(), []);
        assert_eq!(seen(here).await, []);
    }

    #[tokio::test]
    async fn a_failing_account_gets_one_submit_after_its_pause_and_all_when_it_answers() {
        let corner = Corner::new();
        let control = &corner.control;
        let (tenant, user) = (TenantId::generate(), UserId::generate());
        for tag in [SlotTag::Account(account()), SlotTag::Tenant(tenant)] {
            corner.make_ready(&tag).await;
        }
        let acquire = async || {
            let outcomes = control.acquire_slots(&[claim(tenant, user), claim(tenant, user)]).await;
            outcomes.into_iter().map(Result::unwrap).collect::<Vec<_>>()
        };
        let waits = |outcome: &SlotOutcome, at_most: Duration| match outcome {
            SlotOutcome::NotBefore { retry_after_ms } => *retry_after_ms <= millis(at_most),
            _ => false,
        };
        control.note_failing(&account(), PAUSE).await.unwrap();
        assert!(acquire().await.iter().all(|outcome| waits(outcome, PAUSE)));

        // Its pause is over.
        let key = corner.keys().health(&account());
        corner.raw::<u64>(&["HSET", &key, "failing", "1"]).await;
        let outcomes = acquire().await;
        assert_eq!(outcomes[0], SlotOutcome::Acquired);
        assert!(waits(&outcomes[1], Duration::from_secs(1)), "{outcomes:?}");
        assert!(acquire().await.iter().all(|outcome| waits(outcome, Duration::from_secs(1))));

        control.note_answering(&account()).await.unwrap();
        assert_eq!(acquire().await, [SlotOutcome::Acquired, SlotOutcome::Acquired]);
    }
}
