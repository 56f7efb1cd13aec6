//! Settling holds: capture or release, whole, once.
//!
//! What a hold took from which grant stands in the ledger, so a settlement needs only the task. It runs in the
//! transaction of the task's last transition, under the lock of the task's row; the unique key of the ledger makes
//! a second settlement of the same kind impossible even if that lock were missing.

use std::collections::{BTreeMap, HashMap};

use domain::{AccountId, TaskId};
use pg::{PgConnection, PgError};
use uuid::Uuid;

/// Which way a hold ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SettlementKind {
    /// The credits are taken as payment.
    Capture,
    /// The credits are available again.
    Release,
}

impl SettlementKind {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Capture => "capture",
            Self::Release => "release",
        }
    }

    const fn bucket(self) -> &'static str {
        match self {
            Self::Capture => "captured",
            Self::Release => "available",
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

/// Sums per account or grant: to captured, to available.
#[derive(Default, Clone, Copy)]
struct Sums {
    captured: i64,
    released: i64,
}

/// Settles the holds in the caller's transaction, which has locked the tasks and seen them live.
///
/// # Errors
/// When a statement fails, or a hold was settled before: a broken invariant, the transaction must be given up.
pub async fn settle(conn: &mut PgConnection, settlements: &[Settlement]) -> Result<(), PgError> {
    if settlements.is_empty() {
        return Ok(());
    }
    let kinds: HashMap<Uuid, SettlementKind> =
        settlements.iter().map(|s| (s.task.as_uuid(), s.kind)).collect();
    let tasks: Vec<Uuid> = settlements.iter().map(|s| s.task.as_uuid()).collect();
    let mut accounts: Vec<Uuid> = settlements.iter().map(|s| s.account.as_uuid()).collect();
    accounts.sort_unstable();
    accounts.dedup();
    sqlx::query!(
        "SELECT id FROM credit_accounts WHERE id = ANY($1) ORDER BY id FOR NO KEY UPDATE",
        &accounts
    )
    .fetch_all(&mut *conn)
    .await?;
    let holds = sqlx::query!(
        "SELECT cause_id, account_id, grant_id, amount FROM credit_ledger WHERE cause_id = ANY($1) AND kind = 'hold'",
        &tasks
    )
    .fetch_all(&mut *conn)
    .await?;

    let mut by_account: BTreeMap<Uuid, Sums> = BTreeMap::new();
    let mut by_grant: BTreeMap<Uuid, Sums> = BTreeMap::new();
    for hold in &holds {
        for sums in
            [by_account.entry(hold.account_id).or_default(), by_grant.entry(hold.grant_id).or_default()]
        {
            match kinds.get(&hold.cause_id) {
                Some(SettlementKind::Capture) => sums.captured += hold.amount,
                Some(SettlementKind::Release) => sums.released += hold.amount,
                None => {}
            }
        }
    }
    let grants: Vec<Uuid> = by_grant.keys().copied().collect();
    sqlx::query!("SELECT id FROM credit_grants WHERE id = ANY($1) ORDER BY id FOR NO KEY UPDATE", &grants)
        .fetch_all(&mut *conn)
        .await?;
    let updated = sqlx::query!(
        "UPDATE credit_grants g SET held = g.held - d.captured - d.released, captured = g.captured + d.captured,
                available = g.available + d.released
         FROM unnest($1::uuid[], $2::bigint[], $3::bigint[]) AS d(id, captured, released) WHERE g.id = d.id",
        &grants,
        &by_grant.values().map(|s| s.captured).collect::<Vec<_>>(),
        &by_grant.values().map(|s| s.released).collect::<Vec<_>>()
    )
    .execute(&mut *conn)
    .await?;
    PgError::expect_rows("settle: grants", grants.len(), updated.rows_affected())?;
    let updated = sqlx::query!(
        "UPDATE credit_accounts a SET held = a.held - d.captured - d.released, captured = a.captured + d.captured,
                available = a.available + d.released
         FROM unnest($1::uuid[], $2::bigint[], $3::bigint[]) AS d(id, captured, released) WHERE a.id = d.id",
        &by_account.keys().copied().collect::<Vec<_>>(),
        &by_account.values().map(|s| s.captured).collect::<Vec<_>>(),
        &by_account.values().map(|s| s.released).collect::<Vec<_>>()
    )
    .execute(&mut *conn)
    .await?;
    PgError::expect_rows("settle: accounts", by_account.len(), updated.rows_affected())?;
    let kind_of = |task: &Uuid| kinds.get(task).copied().unwrap_or(SettlementKind::Release);
    sqlx::query!(
        "INSERT INTO credit_ledger (account_id, grant_id, kind, cause_id, from_bucket, to_bucket, amount)
         SELECT account_id, grant_id, kind, task_id, 'held', bucket, amount
         FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::uuid[], $5::text[], $6::bigint[])
              AS m(account_id, grant_id, kind, task_id, bucket, amount)",
        &holds.iter().map(|h| h.account_id).collect::<Vec<_>>(),
        &holds.iter().map(|h| h.grant_id).collect::<Vec<_>>(),
        &holds.iter().map(|h| kind_of(&h.cause_id).as_str().to_owned()).collect::<Vec<_>>(),
        &holds.iter().map(|h| h.cause_id).collect::<Vec<_>>(),
        &holds.iter().map(|h| kind_of(&h.cause_id).bucket().to_owned()).collect::<Vec<_>>(),
        &holds.iter().map(|h| h.amount).collect::<Vec<_>>()
    )
    .execute(conn)
    .await?;
    Ok(())
}
