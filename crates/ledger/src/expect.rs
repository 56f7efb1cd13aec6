//! Admissions that are decided before anything is locked, against what was seen last.
//!
//! A writer that has just committed knows what its accounts have left. It decides its next batch against that
//! ([`Seen::suppose`]), and one statement locks, compares and writes ([`Expected`]): a round trip where locking first takes
//! three. The comparison is exact, so whatever is written is what a decision under locks would have been; when anybody else
//! has changed a grant meanwhile, nothing of the statement happens and the batch is decided again under locks. Captures change
//! no grant's available credits, so jobs that succeed are in nobody's way.

use std::collections::HashMap;

use domain::{AccountId, Credits};
use pg::PgError;
use sqlx::{Arguments as _, error::BoxDynError, postgres::PgArguments};

use crate::{
    Admission, Subject,
    hold::{Funds, LockedAccount, LockedGrant},
    open::columns,
};

/// Accounts at most that are remembered.
const SEEN_MAX: usize = 1_024;
/// The state that `ledger_expect_admission` raises.
const OTHERWISE: &str = "AV001";

/// What accounts had left when they were last written: their spendable grants, in the order in which they burn.
#[derive(Debug, Default)]
pub struct Seen(HashMap<AccountId, Vec<LockedGrant>>);

/// What must be as it was supposed for an admission to be written, as arguments of the SQL function
/// `ledger_expect_admission`.
#[derive(Debug, Default)]
pub struct Expected {
    accounts: Vec<uuid::Uuid>,
    grants: Vec<uuid::Uuid>,
    availables: Vec<i64>,
    kinds: Vec<String>,
    subjects: Vec<uuid::Uuid>,
    most: Vec<i32>,
}

impl Seen {
    /// Remembers what is left after an admission that was committed.
    pub fn remember(&mut self, admission: Admission) {
        if self.0.len() + admission.funds.accounts.len() > SEEN_MAX {
            self.0.clear();
        }
        let left = admission.funds.accounts.into_iter().map(|(id, account)| {
            let grants = account.grants.into_iter().filter(|grant| grant.available > 0);
            (id, grants.map(|grant| LockedGrant { taken: 0, ..grant }).collect())
        });
        self.0.extend(left.take(SEEN_MAX));
    }

    /// An admission over these accounts as if they were locked and nobody had a task open; none when one of them was not seen.
    #[must_use]
    pub fn suppose(&self, accounts: &[AccountId]) -> Option<Admission> {
        let mut supposed = HashMap::new();
        for id in accounts {
            let grants = self.0.get(id)?;
            supposed.entry(*id).or_insert_with(|| LockedAccount {
                available: Credits::new(grants.iter().map(|grant| grant.available).sum())
                    .unwrap_or(Credits::ZERO),
                held: Credits::ZERO,
                grants: grants.clone(),
                taken: 0,
            });
        }
        let funds = Funds { accounts: supposed, movements: Vec::new() };
        Some(Admission { funds, ..Admission::default() })
    }
}

impl Expected {
    /// What an admission that was supposed relies on. `limits` says how many open tasks each subject may have.
    #[must_use]
    pub fn of(admission: &Admission, limits: &HashMap<Subject, u32>) -> Self {
        let mut to = Self::default();
        for (id, account) in &admission.funds.accounts {
            to.accounts.push(id.as_uuid());
            for grant in &account.grants {
                to.grants.push(grant.id.as_uuid());
                to.availables.push(grant.available + grant.taken);
            }
        }
        let opened = &admission.open.0;
        (to.kinds, to.subjects) = columns(opened.keys());
        // Where there is no room at all the least count there is, none, is still one too many.
        let most =
            |added: u32, limit: u32| i32::try_from(i64::from(limit) - i64::from(added)).unwrap_or(i32::MAX);
        to.most = opened
            .iter()
            .map(|(subject, count)| most(count.added, limits.get(subject).copied().unwrap_or_default()))
            .collect();
        to
    }

    /// Adds the arguments, but for the premise.
    ///
    /// # Errors
    /// When one cannot be encoded.
    pub fn add_to(&self, to: &mut PgArguments) -> Result<(), BoxDynError> {
        to.add(&self.accounts)?;
        to.add(&self.grants)?;
        to.add(&self.availables)?;
        to.add(&self.kinds)?;
        to.add(&self.subjects)?;
        to.add(&self.most)
    }

    /// Whether the error says that something is otherwise than was expected; then nothing was written.
    #[must_use]
    pub fn missed(error: &PgError) -> bool {
        error.raised(OTHERWISE)
    }
}
