//! Making a tenant with its credit account.

use chrono::{DateTime, Utc};
use domain::TenantId;
use ledger::AccountOwner;
use serde_json::json;
use tenancy::{CreateTenantError, Payer};

use crate::{
    Actor, Done, Operator, OperatorError,
    log::{self, Entry},
    once::{self, Once},
};

/// A tenant to be made.
#[derive(Debug, Clone)]
pub struct NewTenant {
    /// Its name.
    pub name: String,
    /// The name of its tier; the default tier when none is given.
    pub tier: Option<String>,
    /// An IANA time zone; UTC when none is given.
    pub time_zone: Option<String>,
    /// Who pays for its users' tasks; the users when nothing is said.
    pub payer: Option<Payer>,
}

/// A tenant that was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TenantMade {
    /// Its id.
    pub id: TenantId,
    /// Its name.
    pub name: String,
    /// The name of its tier.
    pub tier: String,
    /// Its time zone.
    pub time_zone: String,
    /// Who pays.
    pub payer: Payer,
    /// When.
    pub created_at: DateTime<Utc>,
}

impl Operator {
    /// Makes a tenant.
    ///
    /// # Errors
    /// [`OperatorError`].
    pub async fn create_tenant(
        &self,
        actor: Actor,
        once: Option<Once<TenantMade>>,
        new: NewTenant,
    ) -> Result<Done<TenantMade>, OperatorError> {
        let tiers = self.tenancy.tiers().clone();
        once::transact(&self.pool, move |conn| {
            Box::pin(async move {
                let made = TenantMade {
                    id: TenantId::generate(),
                    name: new.name,
                    tier: new.tier.unwrap_or_else(|| tiers.default_tier().name.clone()),
                    time_zone: new.time_zone.unwrap_or_else(|| "UTC".to_owned()),
                    payer: new.payer.unwrap_or(Payer::User),
                    created_at: pg::now(conn).await?,
                };
                let subject = made.id.to_string();
                once::reserve(conn, once.as_ref(), &subject, &made).await?;
                let ask = tenancy::NewTenant {
                    id: made.id,
                    name: made.name.clone(),
                    tier: Some(made.tier.clone()),
                    time_zone: Some(made.time_zone.clone()),
                    payer: made.payer,
                };
                let tenant = tenancy::create_tenant(conn, &tiers, &ask).await.map_err(refused)?;
                ledger::open_account(conn, tenant.account, AccountOwner::Tenant(made.id)).await?;
                let after = json!({
                    "name": made.name, "tier": made.tier, "time_zone": made.time_zone, "payer": made.payer,
                });
                let entry =
                    Entry { verb: "tenant.create", subject: &subject, before: None, after: Some(after) };
                log::write(conn, &actor, entry).await?;
                Ok(made)
            })
        })
        .await
    }
}

fn refused(error: CreateTenantError) -> OperatorError {
    match error {
        CreateTenantError::Name(fault) => OperatorError::field("name", "invalid", fault),
        CreateTenantError::UnknownTier => OperatorError::field("tier", "unknown_value", error),
        CreateTenantError::UnknownTimeZone => OperatorError::field("time_zone", "unknown_value", error),
        CreateTenantError::Pg(error) => error.into(),
    }
}

#[cfg(test)]
mod tests {
    use testkit::TestDb;

    use super::*;
    use crate::tests::{new_tenant, operator, rows};

    #[tokio::test]
    async fn a_tenant_comes_with_its_account_and_its_row_in_the_log() {
        let db = TestDb::new().await;
        let Done::Fresh(made) =
            operator(&db).create_tenant(Actor::CommandLine, None, new_tenant("Acme")).await.unwrap()
        else {
            panic!("nothing to replay");
        };
        assert_eq!((made.tier.as_str(), made.time_zone.as_str(), made.payer), ("free", "UTC", Payer::User));
        assert_eq!(
            rows(&db, "SELECT owner_id::text FROM credit_accounts").await,
            [made.id.as_uuid().to_string()]
        );
        assert_eq!(
            rows(
                &db,
                "SELECT verb || ' ' || subject FROM operator_log WHERE key_id IS NULL AND after ? 'tier'"
            )
            .await,
            [format!("tenant.create {}", made.id)]
        );
    }

    #[tokio::test]
    async fn the_same_key_makes_one_tenant_and_another_request_is_a_mismatch() {
        let db = TestDb::new().await;
        let operator = operator(&db);
        let once = |fingerprint: u8| Once {
            user: domain::UserId::from_uuid(uuid::Uuid::nil()),
            route: "POST /admin/tenants",
            key: "k1".to_owned(),
            fingerprint: [fingerprint; 32],
            status: 201,
            render: |made: &TenantMade| made.id.to_string(),
        };
        let ask = async |fingerprint| {
            operator.create_tenant(Actor::CommandLine, Some(once(fingerprint)), new_tenant("Acme")).await
        };
        let (one, two) = tokio::join!(ask(1), ask(1));
        let mut ids: Vec<String> = [one.unwrap(), two.unwrap()]
            .into_iter()
            .map(|done| match done {
                Done::Fresh(made) => made.id.to_string(),
                Done::Replayed { status, body } => {
                    assert_eq!(status, 201);
                    body
                }
            })
            .collect();
        ids.dedup();
        assert_eq!(ids.len(), 1, "twins get one answer");
        assert!(matches!(ask(2).await, Err(OperatorError::Mismatch)));
        assert_eq!(rows(&db, "SELECT id::text FROM tenants").await.len(), 1);
        assert_eq!(rows(&db, "SELECT verb FROM operator_log").await.len(), 1);
    }

    #[tokio::test]
    async fn a_refused_request_leaves_nothing_and_gives_its_key_back() {
        let db = TestDb::new().await;
        let operator = operator(&db);
        for (new, field) in [
            (NewTenant { tier: Some("gold".to_owned()), ..new_tenant("Acme") }, "tier"),
            (NewTenant { time_zone: Some("Mars/Base".to_owned()), ..new_tenant("Acme") }, "time_zone"),
            (new_tenant(" "), "name"),
        ] {
            let once = Once {
                user: domain::UserId::from_uuid(uuid::Uuid::nil()),
                route: "POST /admin/tenants",
                key: "k1".to_owned(),
                fingerprint: [0; 32],
                status: 201,
                render: |_: &TenantMade| String::new(),
            };
            match operator.create_tenant(Actor::CommandLine, Some(once), new).await {
                Err(OperatorError::Field { field: named, .. }) => assert_eq!(named, field),
                other => panic!("{other:?}"),
            }
        }
        for table in ["tenants", "credit_accounts", "operator_log", "idempotency_keys"] {
            assert!(rows(&db, &format!("SELECT 'row' FROM {table}")).await.is_empty(), "{table}");
        }
    }
}
