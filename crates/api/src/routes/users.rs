//! A tenant's own users, for its own server.

pub(crate) mod create;
pub(crate) mod list;

use chrono::{DateTime, Utc};
use domain::{TenantId, UserId};
use operator::UserMade;
use serde::Serialize;
use tenancy::User;
use utoipa::ToSchema;

use crate::view::Millis;

/// A user.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = User)]
pub(crate) struct UserView {
    /// The user.
    #[schema(value_type = String)]
    id: UserId,
    /// The tenant.
    #[schema(value_type = String)]
    tenant_id: TenantId,
    /// The name.
    name: String,
    /// The tenant's own name for the user.
    external_id: Option<String>,
    /// When the user was made.
    #[schema(value_type = String, format = DateTime)]
    created_at: Millis,
}

impl UserView {
    fn new(
        id: UserId,
        tenant_id: TenantId,
        name: String,
        external_id: Option<String>,
        at: DateTime<Utc>,
    ) -> Self {
        Self { id, tenant_id, name, external_id, created_at: Millis(at) }
    }
}

impl From<User> for UserView {
    fn from(user: User) -> Self {
        Self::new(user.id, user.tenant, user.name, user.external_id, user.created_at)
    }
}

impl From<&UserMade> for UserView {
    fn from(made: &UserMade) -> Self {
        Self::new(made.id, made.tenant, made.name.clone(), made.external_id.clone(), made.created_at)
    }
}
