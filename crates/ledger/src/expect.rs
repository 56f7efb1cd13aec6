//! Admissions that are decided before anything is locked, against what was seen last.
//!
//! A writer that has just committed knows from which grant its accounts burn. It decides its next batch against that
//! ([`Seen::suppose`]), and one statement writes, locks and compares (`ledger_expect_admission`): a round trip where locking
//! first takes three. It takes only what a decision under locks would take: the grant that burns first must still be that one
//! and have enough. Else nothing of the statement happens, and the batch is decided again under locks. So batches that are
//! under way at once, in one process or in several, are in nobody's way as long as the grant lasts.

use std::collections::HashMap;

use domain::{AccountId, Credits};
use pg::PgError;

use crate::{
    Admission, Subject,
    hold::{Funds, LockedAccount, LockedGrant},
};

/// Accounts at most that are remembered.
const SEEN_MAX: usize = 1_024;
/// The state that `ledger_expect_admission` raises.
const OTHERWISE: &str = "AV001";

/// The grants from which accounts burn first, with what they will have left when everything under way is committed.
#[derive(Debug, Default)]
pub struct Seen(HashMap<AccountId, LockedGrant>);

impl Seen {
    /// Remembers what is left after an admission.
    pub fn remember(&mut self, admission: &Admission) {
        if self.0.len() + admission.funds.accounts.len() > SEEN_MAX {
            self.0.clear();
        }
        for (id, account) in admission.funds.accounts.iter().take(SEEN_MAX) {
            match account.grants.iter().find(|grant| grant.available > 0) {
                Some(next) => self.0.insert(*id, LockedGrant { taken: 0, ..next.clone() }),
                None => self.0.remove(id),
            };
        }
    }

    /// Forgets these accounts: something about them was otherwise.
    pub fn forget(&mut self, accounts: impl IntoIterator<Item = AccountId>) {
        for account in accounts {
            self.0.remove(&account);
        }
    }

    /// An admission over these accounts as if they were locked, had no other grants, and nobody had a task open; none when one
    /// of them was not seen.
    #[must_use]
    pub fn suppose(&self, accounts: impl IntoIterator<Item = AccountId>) -> Option<Admission> {
        let mut supposed = HashMap::new();
        for id in accounts {
            let next = self.0.get(&id)?;
            supposed.entry(id).or_insert_with(|| LockedAccount {
                available: Credits::new(next.available).unwrap_or(Credits::ZERO),
                held: Credits::ZERO,
                grants: vec![next.clone()],
                taken: 0,
            });
        }
        let funds = Funds { accounts: supposed, movements: Vec::new() };
        Some(Admission { funds, ..Admission::default() })
    }
}

impl Admission {
    /// How many tasks may be open of each subject that this admission adds to, for it to fit under these limits. In the order
    /// of [`AdmissionColumns::subjects`](crate::AdmissionColumns::subjects).
    #[must_use]
    pub fn most_open(&self, limits: &HashMap<Subject, u32>) -> Vec<i32> {
        let added = self.open.0.iter().filter(|(_, count)| count.added > 0);
        let most = |(subject, count): (&Subject, &crate::open::Count)| {
            let limit = limits.get(subject).copied().unwrap_or_default();
            i32::try_from(i64::from(limit) - i64::from(count.added)).unwrap_or(i32::MAX)
        };
        added.map(most).collect()
    }
}

/// Whether the error says that something is otherwise than was expected; then nothing was written.
#[must_use]
pub fn is_otherwise(error: &PgError) -> bool {
    error.raised(OTHERWISE)
}
