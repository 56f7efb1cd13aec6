//! What an admission needs of the ledger: lock everything, decide in memory, write everything.
//!
//! [`lock_admission`] locks the accounts, their spendable grants and the open counts in the global order;
//! each task is then decided against the locked figures ([`Funds::try_hold`], [`OpenCounts::try_add`]); and the
//! owner of the tasks writes what was decided by [`AdmissionColumns`], in the statement that makes them. Each is one round trip whatever the size of the batch, because a busy account admits
//! one batch after the other and waits mostly for the way there and back.

use std::collections::{BTreeMap, HashMap};

use chrono::{DateTime, Utc};
use domain::{AccountId, Credits, GrantId, TenantId, UserId};
use pg::{PgConnection, PgError};
use uuid::Uuid;

use crate::{
    hold::{Funds, LockedAccount, LockedGrant},
    open::{Count, OpenCounts, Subject, columns},
};

/// Locked accounts and counts, with what was decided against them so far. Nothing is written yet.
#[derive(Debug, Default)]
pub struct Admission {
    /// The accounts that pay.
    pub funds: Funds,
    /// How many tasks are open.
    pub open: OpenCounts,
}

/// A row of the SQL function `ledger_lock_admission`.
#[derive(Debug)]
pub struct LockedRow {
    /// What is locked: `account`, `grant`, `tenant` or `user`.
    pub what: String,
    /// Its id.
    pub id: Uuid,
    /// A grant's account.
    pub owner: Option<Uuid>,
    /// Credits that are available, or tasks that are open.
    pub available: i64,
    /// Credits that are held.
    pub held: Option<i64>,
    /// When a grant is burnt.
    pub priority: Option<i32>,
    /// When a grant ends.
    pub expires_at: Option<DateTime<Utc>>,
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
    counts: BTreeMap<Subject, Count>,
}

impl AdmissionLocks {
    /// The locks of these accounts with every grant of them that can be spent now, and of the counts of the subjects.
    #[must_use]
    pub fn of(accounts: &[AccountId], subjects: &[Subject]) -> Self {
        let mut accounts: Vec<Uuid> = accounts.iter().map(|a| a.as_uuid()).collect();
        accounts.sort_unstable();
        accounts.dedup();
        let counts: BTreeMap<Subject, Count> =
            subjects.iter().map(|subject| (*subject, Count::default())).collect();
        let (kinds, subjects) = columns(counts.keys());
        Self { accounts, kinds, subjects, counts }
    }

    /// What the rows say.
    ///
    /// # Errors
    /// When a row holds what nobody writes.
    pub fn read(self, rows: impl Iterator<Item = LockedRow>) -> Result<Admission, PgError> {
        let mut counts = self.counts;
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
                        "tenant" => Subject::Tenant(TenantId::from_uuid(row.id)),
                        _ => Subject::User(UserId::from_uuid(row.id)),
                    };
                    let open = u32::try_from(row.available).map_err(|_| row.bad("open_counts", "open"))?;
                    counts.insert(subject, Count { open, added: 0 });
                }
            }
        }
        // Locked in key order, burnt by priority, then by what expires first.
        grants.sort_by_key(|g| (g.priority, g.expires_at.is_none(), g.expires_at, g.id));
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
        Ok(Admission { funds: Funds { accounts, movements: Vec::new() }, open: OpenCounts(counts) })
    }
}

/// Locks the accounts with every grant of them that can be spent now, and the counts of the subjects, making those
/// counts that do not exist yet.
///
/// # Errors
/// When the statement fails, or a row holds what nobody writes.
pub async fn lock_admission(
    conn: &mut PgConnection,
    accounts: &[AccountId],
    subjects: &[Subject],
) -> Result<Admission, PgError> {
    let locks = AdmissionLocks::of(accounts, subjects);
    let rows = sqlx::query_as!(
        LockedRow,
        r#"SELECT what AS "what!", id AS "id!", owner AS "owner?", available AS "available!", held AS "held?",
                  priority AS "priority?", expires_at AS "expires_at?"
           FROM ledger_lock_admission($1, $2, $3)"#,
        &locks.accounts,
        &locks.kinds,
        &locks.subjects
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

/// The arguments of the SQL function `ledger_write_admission`, for the owner of the tasks: a task and its hold come
/// into being together, in one statement of its own.
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
        to
    }
}

impl AdmissionColumns {
    /// Whether the function changed what it was to change.
    ///
    /// # Errors
    /// [`PgError::UnexpectedRows`]; the transaction must then be given up.
    pub fn check(&self, changed: &[i64]) -> Result<(), PgError> {
        let count = |place: usize| changed.get(place).map_or(0, |count| count.unsigned_abs());
        PgError::expect_rows("hold: accounts", self.accounts.len(), count(0))?;
        PgError::expect_rows("hold: grants", self.grants.len(), count(1))?;
        PgError::expect_rows("open counts: add", self.kinds.len(), count(2))
    }
}
