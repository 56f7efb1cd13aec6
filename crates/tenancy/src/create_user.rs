//! Making a user.

use chrono::{DateTime, Utc};
use domain::{
    AccountId, TenantId, UserId,
    text::{self, TextFault},
};
use pg::{PgConnection, PgError};

use crate::create_tenant::NAME_CHARS_MAX;

const EXTERNAL_ID_CHARS_MAX: usize = 128;

/// A user to be made.
#[derive(Debug, Clone)]
pub struct NewUser {
    /// The id, made beforehand.
    pub id: UserId,
    /// The tenant.
    pub tenant: TenantId,
    /// The name.
    pub name: String,
    /// The tenant's own name for the user: 1 to 128 visible ASCII characters, unique in the tenant.
    pub external_id: Option<String>,
}

/// A user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    /// The id.
    pub id: UserId,
    /// The tenant.
    pub tenant: TenantId,
    /// The name.
    pub name: String,
    /// The tenant's own name for the user.
    pub external_id: Option<String>,
    /// The user's own credit account.
    pub account: AccountId,
    /// When the user was made.
    pub created_at: DateTime<Utc>,
}

/// Why a user is not made.
#[derive(Debug, thiserror::Error)]
pub enum CreateUserError {
    /// The name is refused.
    #[error("the name {0}")]
    Name(#[source] TextFault),
    /// The external id is refused.
    #[error("must have 1 to 128 visible ASCII characters and not look like an id of ours")]
    ExternalId,
    /// Another user of the tenant has this external id.
    #[error("another user has this external id")]
    ExternalIdTaken,
    /// There is no such tenant.
    #[error("there is no such tenant")]
    UnknownTenant,
    /// PostgreSQL failed.
    #[error(transparent)]
    Pg(PgError),
}

impl From<PgError> for CreateUserError {
    fn from(error: PgError) -> Self {
        match error.constraint() {
            Some("users_external_id_unique") => Self::ExternalIdTaken,
            Some("users_tenant_exists") => Self::UnknownTenant,
            _ => Self::Pg(error),
        }
    }
}

/// Makes a user. The credit account gets an id here; the caller opens it at the ledger in the same transaction.
///
/// # Errors
/// [`CreateUserError`]; after any of them the transaction must be given up.
pub async fn create_user(conn: &mut PgConnection, new: &NewUser) -> Result<User, CreateUserError> {
    text::check(&new.name, NAME_CHARS_MAX).map_err(CreateUserError::Name)?;
    if new.external_id.as_deref().is_some_and(|text| !is_external_id(text)) {
        return Err(CreateUserError::ExternalId);
    }
    let account = AccountId::generate();
    let created_at = sqlx::query_scalar!(
        "INSERT INTO users (id, tenant_id, name, external_id, account_id) VALUES ($1, $2, $3, $4, $5)
         RETURNING created_at",
        new.id.as_uuid(),
        new.tenant.as_uuid(),
        new.name,
        new.external_id,
        account.as_uuid(),
    )
    .fetch_one(conn)
    .await
    .map_err(PgError::from)?;
    Ok(User {
        id: new.id,
        tenant: new.tenant,
        name: new.name.clone(),
        external_id: new.external_id.clone(),
        account,
        created_at,
    })
}

/// Whether a text can be a tenant's own name for a user: it must fit into a header, and must not be mistaken for an
/// id of ours.
pub(crate) fn is_external_id(text: &str) -> bool {
    (1..=EXTERNAL_ID_CHARS_MAX).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_graphic())
        && text.parse::<UserId>().is_err()
}

#[cfg(test)]
mod tests {
    use testkit::TestDb;

    use super::*;
    use crate::{find_user, tests_support::Seed};

    fn new(tenant: TenantId, external_id: &str) -> NewUser {
        NewUser {
            id: UserId::generate(),
            tenant,
            name: "Ada".to_owned(),
            external_id: Some(external_id.to_owned()),
        }
    }

    #[tokio::test]
    async fn an_external_id_is_unique_in_its_tenant_only() {
        let db = TestDb::new().await;
        let (one, other) = (Seed::new(&db.pool).await, Seed::new(&db.pool).await);
        let mut conn = db.pool.acquire().await.unwrap();
        let ada = create_user(&mut conn, &new(one.tenant, "ada")).await.unwrap();
        assert_eq!(find_user(&mut conn, ada.id).await.unwrap(), Some(ada));
        let again = create_user(&mut conn, &new(one.tenant, "ada")).await.unwrap_err();
        assert!(matches!(again, CreateUserError::ExternalIdTaken));
        create_user(&mut conn, &new(other.tenant, "ada")).await.unwrap();
        let nowhere = create_user(&mut conn, &new(TenantId::generate(), "ada")).await.unwrap_err();
        assert!(matches!(nowhere, CreateUserError::UnknownTenant));
    }

    #[test]
    fn an_external_id_fits_into_a_header_and_is_no_id_of_ours() {
        for good in ["a", "user-42", "auth0|5f7c", &"x".repeat(128)] {
            assert!(is_external_id(good), "{good}");
        }
        for bad in ["", "a b", "é", "a\n", &"x".repeat(129), &UserId::generate().to_string()] {
            assert!(!is_external_id(bad), "{bad}");
        }
    }
}
