//! Granting credits.

use chrono::{DateTime, Utc};
use domain::{AccountId, Credits, GrantId};
use pg::{PgConnection, PgError};

/// A grant to be made.
#[derive(Debug, Clone)]
pub struct NewGrant {
    /// Its id.
    pub id: GrantId,
    /// The account that gets it. Must be open.
    pub account: AccountId,
    /// For display, such as `purchase` or `demo`.
    pub category: String,
    /// Holds burn the lowest number first.
    pub priority: i32,
    /// When what is left of it expires.
    pub expires_at: Option<DateTime<Utc>>,
    /// The unique reason: the same source never grants twice.
    pub source: String,
    /// How much; more than nothing.
    pub amount: Credits,
}

/// What became of a grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GrantOutcome {
    /// The credits are available now.
    Granted,
    /// The source had granted before; nothing changed.
    Repeated {
        /// The grant that exists.
        existing: GrantId,
    },
}

/// Why a grant was refused.
#[derive(Debug, thiserror::Error)]
pub enum GrantError {
    /// The account does not exist.
    #[error("there is no such credit account")]
    NoAccount,
    /// Nothing cannot be granted, and an account holds at most 2^53 - 1 credits.
    #[error("the amount is out of range")]
    Amount,
    /// The store failed.
    #[error(transparent)]
    Pg(#[from] PgError),
}

/// Makes a grant in the caller's transaction.
///
/// # Errors
/// See [`GrantError`].
pub async fn grant(conn: &mut PgConnection, new: &NewGrant) -> Result<GrantOutcome, GrantError> {
    if new.amount.is_zero() {
        return Err(GrantError::Amount);
    }
    // The account first: that is the lock order, and two grants of one source meet here.
    let granted = sqlx::query_scalar!(
        "SELECT granted FROM credit_accounts WHERE id = $1 FOR NO KEY UPDATE",
        new.account.as_uuid()
    )
    .fetch_optional(&mut *conn)
    .await
    .map_err(PgError::from)?
    .ok_or(GrantError::NoAccount)?;
    let inserted = sqlx::query_scalar!(
        "INSERT INTO credit_grants (id, account_id, category, priority, expires_at, source, granted, available)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $7)
         ON CONFLICT (source) DO NOTHING RETURNING id",
        new.id.as_uuid(),
        new.account.as_uuid(),
        new.category,
        new.priority,
        new.expires_at,
        new.source,
        new.amount.get()
    )
    .fetch_optional(&mut *conn)
    .await
    .map_err(PgError::from)?;
    if inserted.is_none() {
        let existing = sqlx::query_scalar!("SELECT id FROM credit_grants WHERE source = $1", new.source)
            .fetch_one(conn)
            .await
            .map_err(PgError::from)?;
        return Ok(GrantOutcome::Repeated { existing: GrantId::from_uuid(existing) });
    }
    Credits::new(granted).ok().and_then(|g| g.checked_add(new.amount)).ok_or(GrantError::Amount)?;
    let updated = sqlx::query!(
        "UPDATE credit_accounts SET granted = granted + $2, available = available + $2 WHERE id = $1",
        new.account.as_uuid(),
        new.amount.get()
    )
    .execute(&mut *conn)
    .await
    .map_err(PgError::from)?;
    PgError::expect_rows("grant: account", 1, updated.rows_affected())?;
    sqlx::query!(
        "INSERT INTO credit_ledger (account_id, grant_id, kind, cause_id, from_bucket, to_bucket, amount)
         VALUES ($1, $2, 'grant', $2, 'source', 'available', $3)",
        new.account.as_uuid(),
        new.id.as_uuid(),
        new.amount.get()
    )
    .execute(conn)
    .await
    .map_err(PgError::from)?;
    Ok(GrantOutcome::Granted)
}
