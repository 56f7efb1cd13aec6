//! Holding credits for many tasks at once.
//!
//! Each task is decided in memory against figures that are locked (see [`crate::admission`]). One UPDATE over joined
//! rows would touch an account once however many tasks name it; here the sums are made in Rust, where they are
//! checked.

use std::collections::HashMap;

use domain::{AccountId, Credits, GrantId, TaskId};

/// The account has less than the price.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the account has {available} credits available and {held} held")]
pub struct Insufficient {
    /// What could be spent.
    pub available: Credits,
    /// What running tasks hold.
    pub held: Credits,
}

#[derive(Debug)]
pub(crate) struct LockedAccount {
    pub(crate) available: Credits,
    pub(crate) held: Credits,
    /// Spendable grants in the order in which they burn.
    pub(crate) grants: Vec<LockedGrant>,
    pub(crate) taken: i64,
}

#[derive(Debug, Clone)]
pub(crate) struct LockedGrant {
    pub(crate) id: GrantId,
    pub(crate) available: i64,
    pub(crate) taken: i64,
}

#[derive(Debug)]
pub(crate) struct Movement {
    pub(crate) account: AccountId,
    pub(crate) grant: GrantId,
    pub(crate) task: TaskId,
    pub(crate) amount: i64,
}

/// Locked accounts, and the holds decided against them so far.
#[derive(Debug, Default)]
pub struct Funds {
    pub(crate) accounts: HashMap<AccountId, LockedAccount>,
    pub(crate) movements: Vec<Movement>,
}

impl Funds {
    /// Decides one hold against what is left after those decided before it. Nothing is written yet.
    ///
    /// # Errors
    /// [`Insufficient`] when the account has less; it stays as it was then.
    pub fn try_hold(
        &mut self,
        account: AccountId,
        task: TaskId,
        amount: Credits,
    ) -> Result<(), Insufficient> {
        let Some(locked) = self.accounts.get_mut(&account) else {
            return Err(Insufficient { available: Credits::ZERO, held: Credits::ZERO });
        };
        // Grants that expired but were not swept yet count as available on the account, so their sum decides.
        let spendable: i64 = locked.grants.iter().map(|g| g.available).sum();
        if spendable < amount.get() {
            let available = Credits::new(spendable).unwrap_or(Credits::ZERO);
            return Err(Insufficient { available, held: locked.held });
        }
        let mut missing = amount.get();
        for grant in &mut locked.grants {
            let part = missing.min(grant.available);
            if part > 0 {
                grant.available -= part;
                grant.taken += part;
                missing -= part;
                self.movements.push(Movement { account, grant: grant.id, task, amount: part });
            }
        }
        locked.taken += amount.get();
        locked.available = locked.available.checked_sub(amount).unwrap_or(Credits::ZERO);
        locked.held = locked.held.checked_add(amount).unwrap_or(Credits::MAX);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn credits(amount: i64) -> Credits {
        Credits::new(amount).unwrap()
    }

    fn funds(grants: &[i64]) -> (Funds, AccountId) {
        let account = AccountId::generate();
        let grants = grants
            .iter()
            .map(|g| LockedGrant { id: GrantId::generate(), available: *g, taken: 0 })
            .collect::<Vec<_>>();
        let available = credits(grants.iter().map(|g| g.available).sum());
        let locked = LockedAccount { available, held: Credits::ZERO, grants, taken: 0 };
        (Funds { accounts: HashMap::from([(account, locked)]), movements: Vec::new() }, account)
    }

    #[test]
    fn fifty_holds_of_ten_from_thirty_credits_admit_three() {
        let (mut funds, account) = funds(&[30]);
        let admitted =
            (0..50).filter(|_| funds.try_hold(account, TaskId::generate(), credits(10)).is_ok()).count();
        assert_eq!(admitted, 3);
        assert_eq!(
            funds.try_hold(account, TaskId::generate(), credits(10)),
            Err(Insufficient { available: Credits::ZERO, held: credits(30) })
        );
    }

    #[test]
    fn a_hold_burns_grants_in_order_and_remembers_the_parts() {
        let (mut funds, account) = funds(&[4, 5, 100]);
        funds.try_hold(account, TaskId::generate(), credits(10)).unwrap();
        assert_eq!(funds.movements.iter().map(|m| m.amount).collect::<Vec<_>>(), [4, 5, 1]);
    }

    #[test]
    fn a_refused_hold_takes_nothing() {
        let (mut funds, account) = funds(&[4, 5]);
        funds.try_hold(account, TaskId::generate(), credits(10)).unwrap_err();
        assert!(funds.movements.is_empty());
        funds.try_hold(account, TaskId::generate(), credits(9)).unwrap();
    }

    #[test]
    fn an_unknown_account_has_nothing() {
        let (mut funds, _) = funds(&[4]);
        assert!(funds.try_hold(AccountId::generate(), TaskId::generate(), credits(1)).is_err());
    }
}
