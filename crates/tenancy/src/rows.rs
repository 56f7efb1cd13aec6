//! Reading rows of this owner back into the types of the domain.

use std::{collections::HashMap, fmt::Display, sync::Arc};

use domain::{AccountId, ProjectId, Scopes, TenantId, TimeZone, UserId, limits::Tier, principal::Role};
use pg::PgError;

use crate::{Payer, Tenancy, find_tenant, session::Profile};

/// The scopes of a key or token.
pub(crate) fn parse_scopes(
    table: &'static str,
    id: &impl Display,
    texts: &[String],
) -> Result<Scopes, PgError> {
    let parsed: Result<Scopes, _> = texts.iter().map(|text| text.parse()).collect();
    parsed.map_err(|_| PgError::BadRow { table, column: "scopes", id: id.to_string() })
}

/// The texts of scopes, for a row.
pub(crate) fn scope_texts(scopes: Scopes) -> Vec<String> {
    scopes.iter().map(|scope| scope.as_str().to_owned()).collect()
}

/// A member's role.
pub(crate) fn parse_role(project: ProjectId, text: &str) -> Result<Role, PgError> {
    text.parse().map_err(|_| PgError::BadRow {
        table: "project_members",
        column: "role",
        id: project.to_string(),
    })
}

/// A tenant's time zone. One that this program does not know keeps nobody out: a later release may have written it.
fn parse_time_zone(text: &str) -> TimeZone {
    text.parse().unwrap_or_else(|_| {
        tracing::warn!(time_zone = text, "a tenant's time zone is not known; UTC applies");
        TimeZone::UTC
    })
}

impl Tenancy {
    /// The limits of a user, and the weight of their tenant, as of at most five seconds ago; none for an unknown user.
    ///
    /// # Errors
    /// When nothing that fresh is known and PostgreSQL cannot be asked.
    pub async fn tier_of(&self, user: UserId) -> Result<Option<Arc<Tier>>, Arc<PgError>> {
        let Some(profile) = self.profile(user).await? else { return Ok(None) };
        let book = self.rules.get().await?;
        let tier = self.tiers.of_tenant(&profile.tier);
        Ok(Some(book.of(&self.tiers, tier, profile.tenant, None).0))
    }

    /// The limits of a tenant; none for an unknown one.
    ///
    /// # Errors
    /// When PostgreSQL cannot be asked.
    pub async fn tier_of_tenant(&self, tenant: TenantId) -> Result<Option<Arc<Tier>>, Arc<PgError>> {
        let found = async {
            let mut conn = self.pool.acquire().await?;
            find_tenant(&mut conn, tenant).await
        };
        let Some(found) = found.await.map_err(Arc::new)? else { return Ok(None) };
        let book = self.rules.get().await?;
        let tier = self.tiers.of_tenant(&found.tier);
        Ok(Some(book.of(&self.tiers, tier, tenant, None).0))
    }

    /// The user with tenant and memberships, as of at most five seconds ago.
    pub(crate) async fn profile(&self, user: UserId) -> Result<Option<Arc<Profile>>, Arc<PgError>> {
        if let Some(profile) = self.caches.profiles.get(&user).await {
            return Ok(Some(profile.value));
        }
        // An absent user is not remembered: the error of `try_get_with` carries it past the cache.
        let load = || async {
            match self.load_profile(user).await {
                Ok(Some(profile)) => Ok(Arc::new(profile)),
                Ok(None) => Err(None),
                Err(error) => Err(Some(Arc::new(error))),
            }
        };
        match self.caches.profiles.get_or_read(&user, load).await {
            Ok(profile) => Ok(Some(profile.value)),
            Err(error) => match &*error {
                None => Ok(None),
                Some(error) => Err(Arc::clone(error)),
            },
        }
    }

    async fn load_profile(&self, user: UserId) -> Result<Option<Profile>, PgError> {
        let Some(row) = sqlx::query!(
            r#"SELECT u.name AS user_name, u.external_id, u.account_id AS user_account,
                      t.id AS tenant_id, t.name AS tenant_name, t.tier, t.time_zone, t.payer,
                      t.account_id AS tenant_account,
                      ARRAY(SELECT m.project_id FROM project_members m WHERE m.user_id = u.id
                            ORDER BY m.project_id) AS "projects!",
                      ARRAY(SELECT m.role FROM project_members m WHERE m.user_id = u.id
                            ORDER BY m.project_id) AS "roles!"
               FROM users u JOIN tenants t ON t.id = u.tenant_id WHERE u.id = $1"#,
            user.as_uuid()
        )
        .fetch_optional(&self.pool)
        .await?
        else {
            return Ok(None);
        };
        let payer = Payer::of_row(row.tenant_id, &row.payer)?;
        let account = match payer {
            Payer::User => row.user_account,
            Payer::Tenant => row.tenant_account,
        };
        let memberships: HashMap<_, _> = row
            .projects
            .into_iter()
            .map(ProjectId::from_uuid)
            .zip(&row.roles)
            .map(|(project, role)| Ok((project, parse_role(project, role)?)))
            .collect::<Result<_, PgError>>()?;
        Ok(Some(Profile {
            user,
            user_name: row.user_name,
            external_id: row.external_id,
            tenant: TenantId::from_uuid(row.tenant_id),
            tenant_name: row.tenant_name,
            tier: row.tier,
            time_zone: parse_time_zone(&row.time_zone),
            payer,
            account: AccountId::from_uuid(account),
            memberships: Arc::new(memberships),
        }))
    }
}
