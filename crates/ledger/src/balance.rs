//! Reading an account.

use domain::{AccountId, Credits};
use pg::{PgError, PgPool};
use serde::Serialize;

/// Where the credits of an account are. `granted` is the sum of all others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Balance {
    /// The account.
    pub account_id: AccountId,
    /// All that was ever granted.
    pub granted: Credits,
    /// Can be spent.
    pub available: Credits,
    /// Held by open tasks.
    pub held: Credits,
    /// Paid.
    pub captured: Credits,
    /// Expired unspent.
    pub expired: Credits,
    /// Taken back by an operator or a payment reversal.
    pub withdrawn: Credits,
}

/// Reads of the ledger for those who know no SQL.
#[derive(Debug, Clone)]
pub struct Ledger {
    pool: PgPool,
}

impl Ledger {
    /// Reads through the given pool.
    #[must_use]
    pub const fn new(pool: PgPool) -> Self {
        Self { pool }
    }

    pub(crate) const fn pool(&self) -> &PgPool {
        &self.pool
    }

    /// The account's balance; an account that was never opened has nothing.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn balance(&self, account: AccountId) -> Result<Balance, PgError> {
        let row = sqlx::query!(
            "SELECT granted, available, held, captured, expired, withdrawn FROM credit_accounts WHERE id = $1",
            account.as_uuid()
        )
        .fetch_optional(&self.pool)
        .await?;
        let zero = Credits::ZERO;
        let Some(row) = row else {
            return Ok(Balance {
                account_id: account,
                granted: zero,
                available: zero,
                held: zero,
                captured: zero,
                expired: zero,
                withdrawn: zero,
            });
        };
        let amount = |value, column| {
            Credits::new(value).map_err(|_| PgError::BadRow {
                table: "credit_accounts",
                column,
                id: account.to_string(),
            })
        };
        Ok(Balance {
            account_id: account,
            granted: amount(row.granted, "granted")?,
            available: amount(row.available, "available")?,
            held: amount(row.held, "held")?,
            captured: amount(row.captured, "captured")?,
            expired: amount(row.expired, "expired")?,
            withdrawn: amount(row.withdrawn, "withdrawn")?,
        })
    }
}
