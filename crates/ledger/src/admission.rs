//! What an admission needs of the ledger: lock everything, decide in memory, write everything.
//!
//! [`lock_admission`] locks the accounts, their spendable grants and the open counts in the global order;
//! each task is then decided against the locked figures ([`Funds::try_hold`], [`OpenCounts::try_add`]); and
//! [`write_admission`] writes what was decided. Each of the two is one round trip whatever the size of the batch,
//! because a busy account admits one batch after the other and waits mostly for the way there and back.

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

struct Row {
    what: String,
    id: Uuid,
    owner: Option<Uuid>,
    available: i64,
    held: Option<i64>,
    priority: Option<i32>,
    expires_at: Option<DateTime<Utc>>,
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
    let mut ids: Vec<Uuid> = accounts.iter().map(|a| a.as_uuid()).collect();
    ids.sort_unstable();
    ids.dedup();
    let mut counts: BTreeMap<Subject, Count> =
        subjects.iter().map(|subject| (*subject, Count::default())).collect();
    let (kinds, subject_ids) = columns(counts.keys());
    let rows = sqlx::query_as!(
        Row,
        r#"SELECT what AS "what!", id AS "id!", owner AS "owner?", available AS "available!", held AS "held?",
                  priority AS "priority?", expires_at AS "expires_at?"
           FROM ledger_lock_admission($1, $2, $3)"#,
        &ids,
        &kinds,
        &subject_ids
    )
    .fetch_all(conn)
    .await?;

    let mut accounts: HashMap<AccountId, LockedAccount> = HashMap::with_capacity(ids.len());
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

impl Row {
    fn account(&self) -> Result<LockedAccount, PgError> {
        let amount =
            |value, column| Credits::new(value).map_err(|_| self.bad("credit_accounts", column));
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

/// Writes everything that was decided: accounts, grants, ledger and open counts, in one statement over rows that are
/// locked.
///
/// # Errors
/// When the statement fails, or a hold for one of the tasks exists already. The transaction must then be given up.
pub async fn write_admission(conn: &mut PgConnection, admission: Admission) -> Result<(), PgError> {
    let Admission { funds, open } = admission;
    let added: Vec<_> = open.0.iter().filter(|(_, count)| count.added > 0).collect();
    if funds.movements.is_empty() && added.is_empty() {
        return Ok(());
    }
    let (mut accounts, mut account_sums) = (Vec::new(), Vec::new());
    let (mut grants, mut grant_sums) = (Vec::new(), Vec::new());
    for (id, account) in funds.accounts.iter().filter(|(_, account)| account.taken > 0) {
        accounts.push(id.as_uuid());
        account_sums.push(account.taken);
        for grant in account.grants.iter().filter(|g| g.taken > 0) {
            grants.push(grant.id.as_uuid());
            grant_sums.push(grant.taken);
        }
    }
    let (kinds, subjects) = columns(added.iter().map(|(subject, _)| *subject));
    let sums: Vec<i32> = added.iter().map(|(_, c)| i32::try_from(c.added).unwrap_or(i32::MAX)).collect();
    let moved = &funds.movements;
    let written = sqlx::query!(
        r#"WITH account AS (
               UPDATE credit_accounts a SET available = a.available - d.amount, held = a.held + d.amount
               FROM unnest($1::uuid[], $2::bigint[]) AS d(id, amount) WHERE a.id = d.id RETURNING 1),
           spent AS (
               UPDATE credit_grants g SET available = g.available - d.amount, held = g.held + d.amount
               FROM unnest($3::uuid[], $4::bigint[]) AS d(id, amount) WHERE g.id = d.id RETURNING 1),
           movement AS (
               INSERT INTO credit_ledger (account_id, grant_id, kind, cause_id, from_bucket, to_bucket, amount, at)
               SELECT account_id, grant_id, 'hold', task_id, 'available', 'held', amount, (SELECT aiv_now())
               FROM unnest($5::uuid[], $6::uuid[], $7::uuid[], $8::bigint[])
                    AS m(account_id, grant_id, task_id, amount)),
           opened AS (
               UPDATE open_counts c SET open = c.open + d.added
               FROM unnest($9::text[], $10::uuid[], $11::int[]) AS d(kind, id, added)
               WHERE c.subject_kind = d.kind AND c.subject_id = d.id RETURNING 1)
           SELECT (SELECT count(*) FROM account) AS "accounts!", (SELECT count(*) FROM spent) AS "grants!",
                  (SELECT count(*) FROM opened) AS "opened!""#,
        &accounts,
        &account_sums,
        &grants,
        &grant_sums,
        &moved.iter().map(|m| m.account.as_uuid()).collect::<Vec<_>>(),
        &moved.iter().map(|m| m.grant.as_uuid()).collect::<Vec<_>>(),
        &moved.iter().map(|m| m.task.as_uuid()).collect::<Vec<_>>(),
        &moved.iter().map(|m| m.amount).collect::<Vec<_>>(),
        &kinds,
        &subjects,
        &sums
    )
    .fetch_one(conn)
    .await?;
    PgError::expect_rows("hold: accounts", accounts.len(), written.accounts.unsigned_abs())?;
    PgError::expect_rows("hold: grants", grants.len(), written.grants.unsigned_abs())?;
    PgError::expect_rows("open counts: add", added.len(), written.opened.unsigned_abs())
}
