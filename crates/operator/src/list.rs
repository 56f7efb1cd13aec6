//! Looking at tenants, users and keys. Looking leaves no row in the log.

use domain::{TenantId, UserId};
use pg::PgError;
use tenancy::{KeyInfo, Page, Tenant, User};

use crate::{Operator, OperatorError};

impl Operator {
    /// At most `limit` tenants after the given one, oldest first.
    ///
    /// # Errors
    /// When PostgreSQL fails.
    pub async fn tenants(
        &self,
        after: Option<TenantId>,
        limit: u16,
    ) -> Result<Page<Tenant, TenantId>, OperatorError> {
        let mut conn = self.pool.acquire().await.map_err(PgError::from)?;
        Ok(tenancy::list_tenants(&mut conn, after, limit).await?)
    }

    /// At most `limit` users after the given one, of one tenant or of all, oldest first.
    ///
    /// # Errors
    /// When PostgreSQL fails.
    pub async fn users(
        &self,
        tenant: Option<TenantId>,
        after: Option<UserId>,
        limit: u16,
    ) -> Result<Page<User, UserId>, OperatorError> {
        let mut conn = self.pool.acquire().await.map_err(PgError::from)?;
        Ok(tenancy::list_users(&mut conn, tenant, after, limit).await?)
    }

    /// The keys of a user.
    ///
    /// # Errors
    /// When PostgreSQL fails.
    pub async fn keys(&self, user: UserId) -> Result<Vec<KeyInfo>, OperatorError> {
        let mut conn = self.pool.acquire().await.map_err(PgError::from)?;
        Ok(tenancy::list_keys(&mut conn, user).await?)
    }
}
