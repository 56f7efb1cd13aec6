//! Daily quotas: how many tasks of a user, and of a tenant, were accepted on a local day.
//!
//! A task of an owner with a quota is counted in its user's and its tenant's window of the day, and remembers the day. The
//! windows are locked after accounts and grants and before the open counts, and charged in the transaction that creates the
//! task. A task that fails or is canceled gives its unit back to the very windows that were charged, in the transaction of its
//! end. Who has no quota has no windows, and nothing is locked or written for them.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use domain::{LocalDay, TenantId, TimeZone, UserId, limits::LimitScope};
use pg::{PgConnection, PgError};
use uuid::Uuid;

use crate::{
    balance::Ledger,
    open::{Count, Subject},
};

/// What one task takes of the quotas of its owners. None is unlimited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DailyQuota {
    /// The day, in the tenant's time zone.
    pub day: LocalDay,
    /// The tenant and the most that it may have on one day.
    pub tenant: (TenantId, Option<u32>),
    /// The user and the most that they may have on one day.
    pub user: (UserId, Option<u32>),
}

/// A subject on a day, named by its first instant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QuotaWindow {
    /// Whose.
    pub subject: Subject,
    /// Of which day.
    pub day: DateTime<Utc>,
}

/// How a limit stands on a day.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QuotaStanding {
    /// Whose limit: user or tenant.
    pub scope: LimitScope,
    /// Tasks of this day. A limit that was lowered meanwhile may be exceeded.
    pub used: u32,
    /// The most allowed.
    pub limit: u32,
}

/// Locked windows, and what was added to them so far.
#[derive(Debug, Default)]
pub struct QuotaWindows(pub(crate) BTreeMap<QuotaWindow, Count>);

impl DailyQuota {
    /// The windows in which a task is counted: the tenant's and the user's.
    #[must_use]
    pub const fn windows(&self) -> [QuotaWindow; 2] {
        let day = self.day.starts_at;
        [
            QuotaWindow { subject: Subject::Tenant(self.tenant.0), day },
            QuotaWindow { subject: Subject::User(self.user.0), day },
        ]
    }

    /// The limits that there are, the user's first.
    fn limits(&self) -> impl Iterator<Item = (LimitScope, QuotaWindow, u32)> + use<> {
        let [tenant, user] = self.windows();
        let (of_user, of_tenant) = (self.user.1, self.tenant.1);
        of_user
            .map(|limit| (LimitScope::User, user, limit))
            .into_iter()
            .chain(of_tenant.map(|limit| (LimitScope::Tenant, tenant, limit)))
    }
}

impl QuotaWindows {
    /// Whether one more task fits.
    ///
    /// # Errors
    /// The limit that binds, the user's first.
    pub fn check(&self, quota: &DailyQuota) -> Result<(), QuotaStanding> {
        self.standings(quota).find(|standing| standing.used >= standing.limit).map_or(Ok(()), Err)
    }

    /// Counts one more task, which the caller has [checked](Self::check) to fit.
    pub fn add(&mut self, quota: &DailyQuota) {
        for window in quota.windows() {
            let count = self.0.entry(window).or_default();
            count.tasks += 1;
            count.added += 1;
        }
    }

    /// How the limits that there are stand, with what was counted since.
    pub fn standings(&self, quota: &DailyQuota) -> impl Iterator<Item = QuotaStanding> + use<'_> {
        quota.limits().map(|(scope, window, limit)| {
            let used = self.0.get(&window).map_or(0, |count| count.tasks);
            QuotaStanding { scope, used, limit }
        })
    }
}

/// The columns of windows: kinds, subjects, days.
pub(crate) fn columns<'a>(
    windows: impl Iterator<Item = &'a QuotaWindow>,
) -> (Vec<String>, Vec<Uuid>, Vec<DateTime<Utc>>) {
    let mut to = (Vec::new(), Vec::new(), Vec::new());
    for window in windows {
        let (kind, id) = window.subject.columns();
        to.0.push(kind.to_owned());
        to.1.push(id);
        to.2.push(window.day);
    }
    to
}

impl Ledger {
    /// Today, and how the limits of a tenant and a user stand. None, and nothing is asked, where there is no limit.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn quota(
        &self,
        zone: TimeZone,
        tenant: (TenantId, Option<u32>),
        user: (UserId, Option<u32>),
    ) -> Result<Option<(LocalDay, Vec<QuotaStanding>)>, PgError> {
        if tenant.1.is_none() && user.1.is_none() {
            return Ok(None);
        }
        // Which day it is follows from the store's clock, so the last window of each is read with it.
        let row = sqlx::query!(
            r#"SELECT now.at AS "now!", t.starts_at AS "tenant_day?", t.used AS "tenant_used?",
                      u.starts_at AS "user_day?", u.used AS "user_used?"
               FROM (SELECT aiv_now()) AS now (at)
               LEFT JOIN LATERAL (
                   SELECT w.starts_at, w.used FROM quota_windows w
                   WHERE w.subject_kind = 'tenant' AND w.subject_id = $1 AND w.starts_at <= now.at
                   ORDER BY w.starts_at DESC LIMIT 1) AS t ON TRUE
               LEFT JOIN LATERAL (
                   SELECT w.starts_at, w.used FROM quota_windows w
                   WHERE w.subject_kind = 'user' AND w.subject_id = $2 AND w.starts_at <= now.at
                   ORDER BY w.starts_at DESC LIMIT 1) AS u ON TRUE"#,
            tenant.0.as_uuid(),
            user.0.as_uuid()
        )
        .fetch_one(self.pool())
        .await?;
        let mut windows = QuotaWindows::default();
        for (subject, day, used) in [
            (Subject::Tenant(tenant.0), row.tenant_day, row.tenant_used),
            (Subject::User(user.0), row.user_day, row.user_used),
        ] {
            if let (Some(day), Some(used)) = (day, used) {
                let count = Count { tasks: used.unsigned_abs(), added: 0 };
                windows.0.insert(QuotaWindow { subject, day }, count);
            }
        }
        let quota = DailyQuota { day: zone.day_of(row.now), tenant, user };
        Ok(Some((quota.day, windows.standings(&quota).collect())))
    }
}

/// Deletes at most `batch` windows of days that are over for so long that no task of theirs can be open, and says how many
/// that were.
///
/// # Errors
/// When the statement fails.
pub async fn retire_windows(conn: &mut PgConnection, batch: u32) -> Result<u64, PgError> {
    let removed = sqlx::query!(
        "DELETE FROM quota_windows WHERE ctid = ANY (ARRAY(
             SELECT ctid FROM quota_windows WHERE starts_at < aiv_now() - interval '40 days'
             ORDER BY starts_at LIMIT $1 FOR UPDATE SKIP LOCKED))",
        i64::from(batch)
    )
    .execute(conn)
    .await?;
    Ok(removed.rows_affected())
}

#[cfg(test)]
mod tests {
    use domain::TimeZone;

    use super::*;

    fn quota(tenant: Option<u32>, user: Option<u32>) -> DailyQuota {
        let day = TimeZone::UTC.day_of("2026-06-15T12:00:00Z".parse().unwrap());
        DailyQuota { day, tenant: (TenantId::generate(), tenant), user: (UserId::generate(), user) }
    }

    fn admitted(windows: &mut QuotaWindows, quota: &DailyQuota, asks: u32) -> u32 {
        let mut admitted = 0;
        for _ in 0..asks {
            if windows.check(quota).is_ok() {
                windows.add(quota);
                admitted += 1;
            }
        }
        admitted
    }

    #[test]
    fn one_more_fits_until_the_first_limit_binds() {
        let mut windows = QuotaWindows::default();
        let ada = quota(Some(15), Some(10));
        assert_eq!(admitted(&mut windows, &ada, 20), 10);
        let full = QuotaStanding { scope: LimitScope::User, used: 10, limit: 10 };
        assert_eq!(windows.check(&ada), Err(full));
        let bob = DailyQuota { user: (UserId::generate(), Some(10)), ..ada };
        assert_eq!(admitted(&mut windows, &bob, 20), 5);
        let full = QuotaStanding { scope: LimitScope::Tenant, used: 15, limit: 15 };
        assert_eq!(windows.check(&bob), Err(full));
    }

    #[test]
    fn another_day_is_another_window() {
        let mut windows = QuotaWindows::default();
        let today = quota(Some(15), Some(10));
        assert_eq!(admitted(&mut windows, &today, 20), 10);
        let tomorrow = DailyQuota { day: TimeZone::UTC.day_of(today.day.ends_at), ..today };
        assert_eq!(admitted(&mut windows, &tomorrow, 20), 10);
    }

    #[test]
    fn who_is_unlimited_is_counted_with_those_who_are_not() {
        let mut windows = QuotaWindows::default();
        let ada = quota(Some(3), None);
        assert_eq!(admitted(&mut windows, &ada, 5), 3);
        let standing = QuotaStanding { scope: LimitScope::Tenant, used: 3, limit: 3 };
        assert_eq!(windows.standings(&ada).collect::<Vec<_>>(), [standing]);
        let raised = DailyQuota { user: (ada.user.0, Some(5)), tenant: (ada.tenant.0, None), ..ada };
        assert_eq!(admitted(&mut windows, &raised, 5), 2);
    }
}
