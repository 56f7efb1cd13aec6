//! Opening a credit account.

use domain::{AccountId, TenantId, UserId};
use pg::{PgConnection, PgError};
use uuid::Uuid;

/// Who an account belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccountOwner {
    /// One user.
    User(UserId),
    /// A whole tenant.
    Tenant(TenantId),
}

impl AccountOwner {
    fn columns(self) -> (&'static str, Uuid) {
        match self {
            Self::User(user) => ("user", user.as_uuid()),
            Self::Tenant(tenant) => ("tenant", tenant.as_uuid()),
        }
    }
}

/// Opens an empty account. Opening it again changes nothing.
///
/// # Errors
/// When the statement fails, or the owner already has another account.
pub async fn open_account(
    conn: &mut PgConnection,
    account: AccountId,
    owner: AccountOwner,
) -> Result<(), PgError> {
    let (kind, id) = owner.columns();
    sqlx::query!(
        "INSERT INTO credit_accounts (id, owner_kind, owner_id) VALUES ($1, $2, $3) ON CONFLICT (id) DO NOTHING",
        account.as_uuid(),
        kind,
        id
    )
    .execute(conn)
    .await?;
    Ok(())
}
