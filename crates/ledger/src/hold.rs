//! Holding credits for many tasks at once.
//!
//! Three steps, so that a whole batch of submits costs as few statements as one: [`lock`] the accounts and their
//! spendable grants, decide each task in memory against the locked figures ([`Funds::try_hold`]), then
//! [`write_holds`] what was decided. One UPDATE over joined rows would touch an account once however many tasks
//! name it; here the sums are made in Rust, where they are checked.

use std::collections::HashMap;

use domain::{AccountId, Credits, GrantId, TaskId};
use pg::{PgConnection, PgError};
use uuid::Uuid;

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
struct LockedAccount {
    available: Credits,
    held: Credits,
    /// Spendable grants in the order in which they burn.
    grants: Vec<LockedGrant>,
    taken: i64,
}

#[derive(Debug)]
struct LockedGrant {
    id: GrantId,
    available: i64,
    taken: i64,
}

#[derive(Debug)]
struct Movement {
    account: AccountId,
    grant: GrantId,
    task: TaskId,
    amount: i64,
}

/// Locked accounts, and the holds decided against them so far.
#[derive(Debug, Default)]
pub struct Funds {
    accounts: HashMap<AccountId, LockedAccount>,
    movements: Vec<Movement>,
}

/// Locks the accounts and every grant of them that can be spent now, each in key order.
///
/// # Errors
/// When a statement fails.
pub async fn lock(conn: &mut PgConnection, accounts: &[AccountId]) -> Result<Funds, PgError> {
    let mut ids: Vec<Uuid> = accounts.iter().map(|a| a.as_uuid()).collect();
    ids.sort_unstable();
    ids.dedup();
    let rows = sqlx::query!(
        "SELECT id, available, held FROM credit_accounts WHERE id = ANY($1) ORDER BY id FOR NO KEY UPDATE",
        &ids
    )
    .fetch_all(&mut *conn)
    .await?;
    let mut funds = Funds::default();
    for row in rows {
        let amount = |value, column| {
            Credits::new(value).map_err(|_| PgError::BadRow {
                table: "credit_accounts",
                column,
                id: row.id.to_string(),
            })
        };
        let account = LockedAccount {
            available: amount(row.available, "available")?,
            held: amount(row.held, "held")?,
            grants: Vec::new(),
            taken: 0,
        };
        funds.accounts.insert(AccountId::from_uuid(row.id), account);
    }
    let mut grants = sqlx::query!(
        "SELECT id, account_id, priority, expires_at, available FROM credit_grants
         WHERE account_id = ANY($1) AND available > 0 AND (expires_at IS NULL OR expires_at > aiv_now())
         ORDER BY id FOR NO KEY UPDATE",
        &ids
    )
    .fetch_all(conn)
    .await?;
    // Locked in key order, burnt by priority, then by what expires first.
    grants.sort_by_key(|g| (g.priority, g.expires_at.is_none(), g.expires_at, g.id));
    for grant in grants {
        if let Some(account) = funds.accounts.get_mut(&AccountId::from_uuid(grant.account_id)) {
            account.grants.push(LockedGrant {
                id: GrantId::from_uuid(grant.id),
                available: grant.available,
                taken: 0,
            });
        }
    }
    Ok(funds)
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

/// Writes every hold that was decided: accounts, grants and ledger, in one statement over rows that are locked.
///
/// # Errors
/// When the statement fails, or a hold for one of the tasks exists already. The transaction must then be given up.
pub async fn write_holds(conn: &mut PgConnection, funds: Funds) -> Result<(), PgError> {
    if funds.movements.is_empty() {
        return Ok(());
    }
    let (mut accounts, mut account_sums) = (Vec::new(), Vec::new());
    let (mut grants, mut grant_sums) = (Vec::new(), Vec::new());
    for (id, account) in &funds.accounts {
        if account.taken > 0 {
            accounts.push(id.as_uuid());
            account_sums.push(account.taken);
        }
        for grant in account.grants.iter().filter(|g| g.taken > 0) {
            grants.push(grant.id.as_uuid());
            grant_sums.push(grant.taken);
        }
    }
    let moved = &funds.movements;
    let written = sqlx::query!(
        r#"WITH account AS (
               UPDATE credit_accounts a SET available = a.available - d.amount, held = a.held + d.amount
               FROM unnest($1::uuid[], $2::bigint[]) AS d(id, amount) WHERE a.id = d.id RETURNING 1),
           spent AS (
               UPDATE credit_grants g SET available = g.available - d.amount, held = g.held + d.amount
               FROM unnest($3::uuid[], $4::bigint[]) AS d(id, amount) WHERE g.id = d.id RETURNING 1),
           movement AS (
               INSERT INTO credit_ledger (account_id, grant_id, kind, cause_id, from_bucket, to_bucket, amount)
               SELECT account_id, grant_id, 'hold', task_id, 'available', 'held', amount
               FROM unnest($5::uuid[], $6::uuid[], $7::uuid[], $8::bigint[])
                    AS m(account_id, grant_id, task_id, amount))
           SELECT (SELECT count(*) FROM account) AS "accounts!", (SELECT count(*) FROM spent) AS "grants!""#,
        &accounts,
        &account_sums,
        &grants,
        &grant_sums,
        &moved.iter().map(|m| m.account.as_uuid()).collect::<Vec<_>>(),
        &moved.iter().map(|m| m.grant.as_uuid()).collect::<Vec<_>>(),
        &moved.iter().map(|m| m.task.as_uuid()).collect::<Vec<_>>(),
        &moved.iter().map(|m| m.amount).collect::<Vec<_>>()
    )
    .fetch_one(conn)
    .await?;
    PgError::expect_rows("hold: accounts", accounts.len(), written.accounts.unsigned_abs())?;
    PgError::expect_rows("hold: grants", grants.len(), written.grants.unsigned_abs())
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
