//! What an admission needs of the ledger: lock everything, decide in memory, write everything.
//!
//! [`lock_admission`] locks the accounts, their spendable grants, the windows of daily quotas and the open counts in the
//! global order; each task is then decided against the locked figures ([`Funds::try_hold`], [`OpenCounts::try_add`],
//! [`QuotaWindows::check`]); and the owner of the tasks writes what was decided by [`AdmissionColumns`], in the statement that
//! makes them. Each is one round trip whatever the size of the batch, because a busy account admits one batch after the other
//! and waits mostly for the way there and back.

use std::collections::{BTreeMap, HashMap};

use chrono::{DateTime, Utc};
use domain::{AccountId, Credits, GrantId, TenantId, UserId};
use pg::{PgConnection, PgError};
use sqlx::{Arguments as _, error::BoxDynError, postgres::PgArguments};
use uuid::Uuid;

use crate::{
    hold::{Funds, LockedAccount, LockedGrant},
    open::{Count, OpenCounts, Subject, columns},
    quota::{self, DailyQuota, QuotaWindow, QuotaWindows},
};

/// Locked accounts and counts, with what was decided against them so far. Nothing is written yet.
#[derive(Debug, Default)]
pub struct Admission {
    /// The accounts that pay.
    pub funds: Funds,
    /// How many tasks are open.
    pub open: OpenCounts,
    /// How many tasks the day has had, for those who have a daily quota.
    pub quota: QuotaWindows,
}

/// A row of the SQL function `ledger_lock_admission`.
#[derive(Debug)]
pub struct LockedRow {
    /// What is locked: `account`, `grant`, `tenant`, `user`, `tenant_day` or `user_day`.
    pub what: String,
    /// Its id.
    pub id: Uuid,
    /// A grant's account.
    pub owner: Option<Uuid>,
    /// Credits that are available, or tasks that are open or were accepted on the day.
    pub available: i64,
    /// Credits that are held.
    pub held: Option<i64>,
    /// When a grant is burnt.
    pub priority: Option<i32>,
    /// When a grant ends, or a day begins.
    pub at: Option<DateTime<Utc>>,
}

/// The arguments of the SQL function `ledger_lock_admission`, and the way from its rows to what they say.
#[derive(Debug)]
pub struct AdmissionLocks {
    /// The accounts that pay.
    pub accounts: Vec<Uuid>,
    /// The kinds of the subjects that are counted.
    pub kinds: Vec<String>,
    /// The subjects.
    pub subjects: Vec<Uuid>,
    /// The kinds of the subjects of windows.
    pub day_kinds: Vec<String>,
    /// The subjects of windows.
    pub day_subjects: Vec<Uuid>,
    /// The first instants of their days.
    pub days: Vec<DateTime<Utc>>,
    counts: BTreeMap<Subject, Count>,
    windows: BTreeMap<QuotaWindow, Count>,
}

impl AdmissionLocks {
    /// The locks of these accounts with every grant of them that can be spent now, of the counts of the subjects, and of the
    /// windows of the quotas.
    #[must_use]
    pub fn of(accounts: &[AccountId], subjects: &[Subject], quotas: &[DailyQuota]) -> Self {
        let mut accounts: Vec<Uuid> = accounts.iter().map(|a| a.as_uuid()).collect();
        accounts.sort_unstable();
        accounts.dedup();
        let counts: BTreeMap<Subject, Count> =
            subjects.iter().map(|subject| (*subject, Count::default())).collect();
        let windows: BTreeMap<QuotaWindow, Count> =
            quotas.iter().flat_map(DailyQuota::windows).map(|window| (window, Count::default())).collect();
        let (kinds, subjects) = columns(counts.keys());
        let (day_kinds, day_subjects, days) = quota::columns(windows.keys());
        Self { accounts, kinds, subjects, day_kinds, day_subjects, days, counts, windows }
    }

    /// What the rows say.
    ///
    /// # Errors
    /// When a row holds what nobody writes.
    pub fn read(self, rows: impl Iterator<Item = LockedRow>) -> Result<Admission, PgError> {
        let (mut counts, mut windows) = (self.counts, self.windows);
        let mut accounts: HashMap<AccountId, LockedAccount> = HashMap::with_capacity(self.accounts.len());
        let mut grants = Vec::new();
        for row in rows {
            match row.what.as_str() {
                "account" => {
                    accounts.insert(AccountId::from_uuid(row.id), row.account()?);
                }
                "grant" => grants.push(row),
                kind => {
                    let subject = match kind {
                        "tenant" | "tenant_day" => Subject::Tenant(TenantId::from_uuid(row.id)),
                        _ => Subject::User(UserId::from_uuid(row.id)),
                    };
                    let (table, column) =
                        if row.at.is_some() { ("quota_windows", "used") } else { ("open_counts", "open") };
                    let tasks = u32::try_from(row.available).map_err(|_| row.bad(table, column))?;
                    let count = Count { tasks, added: 0 };
                    match row.at {
                        Some(day) => windows.insert(QuotaWindow { subject, day }, count),
                        None => counts.insert(subject, count),
                    };
                }
            }
        }
        // Locked in key order, burnt by priority, then by what expires first.
        grants.sort_by_key(|g| (g.priority, g.at.is_none(), g.at, g.id));
        for grant in grants {
            let account = grant.owner.and_then(|owner| accounts.get_mut(&AccountId::from_uuid(owner)));
            if let Some(account) = account {
                account.grants.push(LockedGrant {
                    id: GrantId::from_uuid(grant.id),
                    available: grant.available,
                    taken: 0,
                });
            }
        }
        Ok(Admission {
            funds: Funds { accounts, movements: Vec::new() },
            open: OpenCounts(counts),
            quota: QuotaWindows(windows),
        })
    }
}

/// Locks the accounts with every grant of them that can be spent now, the windows of the quotas and the counts of the
/// subjects, making those windows and counts that do not exist yet.
///
/// # Errors
/// When the statement fails, or a row holds what nobody writes.
pub async fn lock_admission(
    conn: &mut PgConnection,
    accounts: &[AccountId],
    subjects: &[Subject],
    quotas: &[DailyQuota],
) -> Result<Admission, PgError> {
    let locks = AdmissionLocks::of(accounts, subjects, quotas);
    let rows = sqlx::query_as!(
        LockedRow,
        r#"SELECT what AS "what!", id AS "id!", owner AS "owner?", available AS "available!", held AS "held?",
                  priority AS "priority?", at AS "at?"
           FROM ledger_lock_admission($1, $2, $3, $4, $5, $6)"#,
        &locks.accounts,
        &locks.kinds,
        &locks.subjects,
        &locks.day_kinds,
        &locks.day_subjects,
        &locks.days
    )
    .fetch_all(conn)
    .await?;
    locks.read(rows.into_iter())
}

impl LockedRow {
    fn account(&self) -> Result<LockedAccount, PgError> {
        let amount = |value, column| Credits::new(value).map_err(|_| self.bad("credit_accounts", column));
        Ok(LockedAccount {
            available: amount(self.available, "available")?,
            held: amount(self.held.unwrap_or_default(), "held")?,
            grants: Vec::new(),
            taken: 0,
        })
    }

    fn bad(&self, table: &'static str, column: &'static str) -> PgError {
        PgError::BadRow { table, column, id: self.id.to_string() }
    }
}

/// The arguments of the SQL functions `ledger_write_admission` and `ledger_charge_days`, for the owner of the tasks: a task,
/// its hold and its unit of the day come into being together, in one statement of its own.
#[derive(Debug, Default)]
pub struct AdmissionColumns {
    /// Accounts to be changed, and by how much each.
    pub accounts: Vec<Uuid>,
    /// From available to held.
    pub account_sums: Vec<i64>,
    /// Grants to be changed, and by how much each.
    pub grants: Vec<Uuid>,
    /// From available to held.
    pub grant_sums: Vec<i64>,
    /// The ledger's rows: account, grant, task, amount.
    pub moved_accounts: Vec<Uuid>,
    /// The grant that each burns.
    pub moved_grants: Vec<Uuid>,
    /// The task that each is for.
    pub moved_tasks: Vec<Uuid>,
    /// How much.
    pub moved_amounts: Vec<i64>,
    /// Open counts to be raised, and by how much each.
    pub kinds: Vec<String>,
    /// Whose.
    pub subjects: Vec<Uuid>,
    /// By how many tasks.
    pub added: Vec<i32>,
    /// Windows to be charged, and how much each.
    pub day_kinds: Vec<String>,
    /// Whose.
    pub day_subjects: Vec<Uuid>,
    /// The first instants of their days.
    pub days: Vec<DateTime<Utc>>,
    /// By how many tasks.
    pub day_added: Vec<i32>,
}

impl Admission {
    /// What was decided, as arguments.
    #[must_use]
    pub fn columns(&self) -> AdmissionColumns {
        let mut to = AdmissionColumns::default();
        for (id, account) in self.funds.accounts.iter().filter(|(_, account)| account.taken > 0) {
            to.accounts.push(id.as_uuid());
            to.account_sums.push(account.taken);
            for grant in account.grants.iter().filter(|g| g.taken > 0) {
                to.grants.push(grant.id.as_uuid());
                to.grant_sums.push(grant.taken);
            }
        }
        for moved in &self.funds.movements {
            to.moved_accounts.push(moved.account.as_uuid());
            to.moved_grants.push(moved.grant.as_uuid());
            to.moved_tasks.push(moved.task.as_uuid());
            to.moved_amounts.push(moved.amount);
        }
        let opened = self.open.0.iter().filter(|(_, count)| count.added > 0);
        (to.kinds, to.subjects) = columns(opened.clone().map(|(subject, _)| subject));
        to.added = opened.map(|(_, count)| i32::try_from(count.added).unwrap_or(i32::MAX)).collect();
        let charged = self.quota.0.iter().filter(|(_, count)| count.added > 0);
        (to.day_kinds, to.day_subjects, to.days) = quota::columns(charged.clone().map(|(window, _)| window));
        to.day_added = charged.map(|(_, count)| i32::try_from(count.added).unwrap_or(i32::MAX)).collect();
        to
    }
}

impl AdmissionColumns {
    /// Adds the arguments of `ledger_write_admission` and then those of `ledger_charge_days`.
    ///
    /// # Errors
    /// When one cannot be encoded.
    pub fn add_to(&self, to: &mut PgArguments) -> Result<(), BoxDynError> {
        to.add(&self.accounts)?;
        to.add(&self.account_sums)?;
        to.add(&self.grants)?;
        to.add(&self.grant_sums)?;
        to.add(&self.moved_accounts)?;
        to.add(&self.moved_grants)?;
        to.add(&self.moved_tasks)?;
        to.add(&self.moved_amounts)?;
        to.add(&self.kinds)?;
        to.add(&self.subjects)?;
        to.add(&self.added)?;
        to.add(&self.day_kinds)?;
        to.add(&self.day_subjects)?;
        to.add(&self.days)?;
        to.add(&self.day_added)
    }
}
