//! Making a tenant.

use std::str::FromStr;

use chrono::{DateTime, Utc};
use domain::{
    AccountId, TenantId, TimeZone,
    text::{self, TextFault},
};
use pg::{PgConnection, PgError};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::Tiers;

/// Longest name of a tenant, user or project.
pub(crate) const NAME_CHARS_MAX: usize = 200;

/// Whose credit account pays for a user's tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Payer {
    /// The user's.
    User,
    /// The tenant's.
    Tenant,
}

impl Payer {
    /// The text of the API and the database.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Tenant => "tenant",
        }
    }

    pub(crate) fn of_row(tenant: Uuid, text: &str) -> Result<Self, PgError> {
        let bad = || PgError::BadRow { table: "tenants", column: "payer", id: tenant.to_string() };
        text.parse().map_err(|()| bad())
    }
}

impl FromStr for Payer {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        match text {
            "user" => Ok(Self::User),
            "tenant" => Ok(Self::Tenant),
            _ => Err(()),
        }
    }
}

/// A tenant to be made.
#[derive(Debug, Clone)]
pub struct NewTenant {
    /// Its id, made beforehand.
    pub id: TenantId,
    /// Its name.
    pub name: String,
    /// The name of its tier; the default tier when none is given.
    pub tier: Option<String>,
    /// An IANA time zone; UTC when none is given.
    pub time_zone: Option<String>,
    /// Who pays.
    pub payer: Payer,
}

/// A tenant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tenant {
    /// Its id.
    pub id: TenantId,
    /// Its name.
    pub name: String,
    /// The name of its tier.
    pub tier: String,
    /// Its time zone.
    pub time_zone: String,
    /// Who pays for its users' tasks.
    pub payer: Payer,
    /// Its own credit account.
    pub account: AccountId,
    /// When it was made.
    pub created_at: DateTime<Utc>,
}

/// Why a tenant is not made.
#[derive(Debug, thiserror::Error)]
pub enum CreateTenantError {
    /// The name is refused.
    #[error("the name {0}")]
    Name(#[source] TextFault),
    /// There is no such tier.
    #[error("there is no such tier")]
    UnknownTier,
    /// There is no such time zone.
    #[error("there is no such time zone")]
    UnknownTimeZone,
    /// PostgreSQL failed.
    #[error(transparent)]
    Pg(#[from] PgError),
}

/// Makes a tenant. Its credit account gets an id here; the caller opens it at the ledger in the same transaction.
///
/// # Errors
/// [`CreateTenantError`].
pub async fn create_tenant(
    conn: &mut PgConnection,
    tiers: &Tiers,
    new: &NewTenant,
) -> Result<Tenant, CreateTenantError> {
    text::check(&new.name, NAME_CHARS_MAX).map_err(CreateTenantError::Name)?;
    let tier = match &new.tier {
        Some(name) => tiers.get(name).ok_or(CreateTenantError::UnknownTier)?,
        None => tiers.default_tier(),
    };
    let time_zone = new.time_zone.as_deref().map_or(Ok(TimeZone::UTC), str::parse);
    let time_zone = time_zone.map_err(|_| CreateTenantError::UnknownTimeZone)?;
    let account = AccountId::generate();
    let created_at = sqlx::query_scalar!(
        "INSERT INTO tenants (id, name, tier, time_zone, payer, account_id) VALUES ($1, $2, $3, $4, $5, $6)
         RETURNING created_at",
        new.id.as_uuid(),
        new.name,
        tier.name,
        time_zone.name(),
        new.payer.as_str(),
        account.as_uuid(),
    )
    .fetch_one(conn)
    .await
    .map_err(PgError::from)?;
    Ok(Tenant {
        id: new.id,
        name: new.name.clone(),
        tier: tier.name.clone(),
        time_zone: time_zone.name().to_owned(),
        payer: new.payer,
        account,
        created_at,
    })
}

#[cfg(test)]
mod tests {
    use testkit::TestDb;

    use super::*;
    use crate::TenancyConfig;

    #[tokio::test]
    async fn a_tenant_gets_the_default_tier_and_utc_unless_it_says_otherwise() {
        let db = TestDb::new().await;
        let mut conn = db.pool.acquire().await.unwrap();
        let tiers = Tiers::new(TenancyConfig::default()).unwrap();
        let plain = NewTenant {
            id: TenantId::generate(),
            name: "Acme".to_owned(),
            tier: None,
            time_zone: None,
            payer: Payer::User,
        };
        let made = create_tenant(&mut conn, &tiers, &plain).await.unwrap();
        assert_eq!((made.tier.as_str(), made.time_zone.as_str()), ("free", "UTC"));

        let tokyo = NewTenant {
            id: TenantId::generate(),
            tier: Some("pro".to_owned()),
            time_zone: Some("Asia/Tokyo".to_owned()),
            ..plain.clone()
        };
        let made = create_tenant(&mut conn, &tiers, &tokyo).await.unwrap();
        assert_eq!(crate::find_tenant(&mut conn, tokyo.id).await.unwrap(), Some(made));

        let gold = NewTenant { id: TenantId::generate(), tier: Some("gold".to_owned()), ..plain.clone() };
        let refused = create_tenant(&mut conn, &tiers, &gold).await.unwrap_err();
        assert!(matches!(refused, CreateTenantError::UnknownTier));
        let nowhere =
            NewTenant { id: TenantId::generate(), time_zone: Some("Mars/Base".to_owned()), ..plain.clone() };
        let refused = create_tenant(&mut conn, &tiers, &nowhere).await.unwrap_err();
        assert!(matches!(refused, CreateTenantError::UnknownTimeZone));
        let nameless = NewTenant { id: TenantId::generate(), name: "\u{200B}".to_owned(), ..plain };
        let refused = create_tenant(&mut conn, &tiers, &nameless).await.unwrap_err();
        assert!(matches!(refused, CreateTenantError::Name(TextFault::Blank)));
    }
}
