//! Kept counts of open tasks, per user and per tenant.
//!
//! The queued limit is checked against these counts and never by counting rows. They are locked after the accounts
//! and grants, moved in the transaction that creates or ends a task, and proved by the audit.

use std::collections::BTreeMap;

use domain::{TenantId, UserId, limits::LimitScope};
use uuid::Uuid;

/// Whose open tasks are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Subject {
    /// A tenant's.
    Tenant(TenantId),
    /// A user's.
    User(UserId),
}

impl Subject {
    pub(crate) fn columns(self) -> (&'static str, Uuid) {
        match self {
            Self::Tenant(tenant) => ("tenant", tenant.as_uuid()),
            Self::User(user) => ("user", user.as_uuid()),
        }
    }
}

/// The subject has as many open tasks as it may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the {scope} has {open} of {limit} open tasks")]
pub struct Full {
    /// Whose limit: user or tenant.
    pub scope: LimitScope,
    /// Open tasks now.
    pub open: u32,
    /// The most allowed.
    pub limit: u32,
}

/// A kept number of tasks, and how many of them were added to it and are not written yet.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Count {
    pub(crate) tasks: u32,
    pub(crate) added: u32,
}

/// Locked counts, and what was added to them so far.
#[derive(Debug, Default)]
pub struct OpenCounts(pub(crate) BTreeMap<Subject, Count>);

pub(crate) fn columns<'a>(subjects: impl Iterator<Item = &'a Subject>) -> (Vec<String>, Vec<Uuid>) {
    subjects.map(|s| s.columns()).map(|(kind, id)| (kind.to_owned(), id)).unzip()
}

impl OpenCounts {
    /// Decides whether one more open task fits under both limits, and counts it if so.
    ///
    /// # Errors
    /// [`Full`] with the limit that binds, the tenant's first; nothing is counted then.
    pub fn try_add(&mut self, tenant: (TenantId, u32), user: (UserId, u32)) -> Result<(), Full> {
        self.check(tenant, user)?;
        for subject in [Subject::Tenant(tenant.0), Subject::User(user.0)] {
            let count = self.0.entry(subject).or_default();
            count.tasks += 1;
            count.added += 1;
        }
        Ok(())
    }

    /// Whether one more open task would fit.
    ///
    /// # Errors
    /// [`Full`] with the limit that binds.
    pub fn check(&self, tenant: (TenantId, u32), user: (UserId, u32)) -> Result<(), Full> {
        for (subject, scope, limit) in [
            (Subject::Tenant(tenant.0), LimitScope::Tenant, tenant.1),
            (Subject::User(user.0), LimitScope::User, user.1),
        ] {
            let open = self.open(subject);
            if open >= limit {
                return Err(Full { scope, open, limit });
            }
        }
        Ok(())
    }

    /// How many are open, with those counted since.
    #[must_use]
    pub fn open(&self, subject: Subject) -> u32 {
        self.0.get(&subject).map_or(0, |count| count.tasks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_more_fits_until_the_first_limit_binds() {
        let (tenant, user) = (TenantId::generate(), UserId::generate());
        let mut counts = OpenCounts::default();
        for _ in 0..6 {
            counts.try_add((tenant, 60), (user, 6)).unwrap();
        }
        let full = counts.try_add((tenant, 60), (user, 6)).unwrap_err();
        assert_eq!(full, Full { scope: LimitScope::User, open: 6, limit: 6 });
        assert_eq!(counts.open(Subject::Tenant(tenant)), 6, "a refused task is counted nowhere");
        let other = UserId::generate();
        assert_eq!(counts.try_add((tenant, 6), (other, 6)).unwrap_err().scope, LimitScope::Tenant);
    }
}
