//! Settling holds: capture or release, whole, once.
//!
//! What a hold took from which grant stands in the ledger, so a settlement needs only the task. It runs in the
//! transaction of the task's last transition, under the lock of the task's row; the unique key of the ledger makes
//! a second settlement of the same kind impossible even if that lock were missing.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use domain::{AccountId, TaskId, TenantId, UserId};
use pg::{PgConnection, PgError};
use uuid::Uuid;

use crate::{
    open::{Subject, columns},
    quota::{self, QuotaWindow},
};

/// Which way a hold ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SettlementKind {
    /// The credits are taken as payment.
    Capture,
    /// The credits are available again.
    Release,
}

impl SettlementKind {
    /// The text in the database.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Capture => "capture",
            Self::Release => "release",
        }
    }
}

/// One hold to be settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settlement {
    /// Whose hold.
    pub task: TaskId,
    /// The account that holds it.
    pub account: AccountId,
    /// Which way.
    pub kind: SettlementKind,
}

/// A task that has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    /// Its tenant.
    pub tenant: TenantId,
    /// Its owner.
    pub user: UserId,
    /// The first instant of the day that gets its unit back: of a task that took one and has failed or was canceled.
    pub gives_back: Option<DateTime<Utc>>,
}

/// Settles the holds, takes the ended tasks out of the counts of their tenants and users, and gives back what they took of a
/// day, in the caller's transaction, which has locked the tasks and seen them live. One round trip, for it holds locks that
/// admissions want.
///
/// # Errors
/// When the statement fails, a hold was settled before, or a count would fall below nothing: a broken invariant, the
/// transaction must be given up.
pub async fn settle(
    conn: &mut PgConnection,
    settlements: &[Settlement],
    ended: &[Ended],
) -> Result<(), PgError> {
    if settlements.is_empty() && ended.is_empty() {
        return Ok(());
    }
    let mut accounts: Vec<Uuid> = settlements.iter().map(|s| s.account.as_uuid()).collect();
    accounts.sort_unstable();
    accounts.dedup();
    let mut by_subject: BTreeMap<Subject, i32> = BTreeMap::new();
    let mut by_window: BTreeMap<QuotaWindow, i32> = BTreeMap::new();
    for task in ended {
        for subject in [Subject::Tenant(task.tenant), Subject::User(task.user)] {
            *by_subject.entry(subject).or_default() += 1;
            if let Some(day) = task.gives_back {
                *by_window.entry(QuotaWindow { subject, day }).or_default() += 1;
            }
        }
    }
    let (subject_kinds, subjects) = columns(by_subject.keys());
    let (day_kinds, day_subjects, days) = quota::columns(by_window.keys());
    let changed = sqlx::query_scalar!(
        r#"SELECT ledger_settle($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) AS "changed!""#,
        &settlements.iter().map(|s| s.task.as_uuid()).collect::<Vec<_>>(),
        &settlements.iter().map(|s| s.kind.as_str().to_owned()).collect::<Vec<_>>(),
        &accounts,
        &subject_kinds,
        &subjects,
        &by_subject.values().copied().collect::<Vec<_>>(),
        &day_kinds,
        &day_subjects,
        &days,
        &by_window.values().copied().collect::<Vec<_>>()
    )
    .fetch_one(conn)
    .await?;
    let count = |place: usize| changed.get(place).map_or(0, |count| count.unsigned_abs());
    let meant = |place: usize| usize::try_from(count(place)).unwrap_or(usize::MAX);
    PgError::expect_rows("settle: grants", meant(0), count(1))?;
    PgError::expect_rows("settle: accounts", meant(2), count(3))?;
    PgError::expect_rows("settle: open counts", by_subject.len(), count(4))
}
