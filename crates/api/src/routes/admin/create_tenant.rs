//! `POST /admin/tenants`.

use axum::{extract::State, response::Response};
use domain::TenantId;
use operator::{NewTenant, Payer, Tenant, TenantMade};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{
    extract::{Body, IdempotencyKey, NoParams},
    once::{created, once, render},
    openapi::{ConflictProblems, WriteProblems},
    problem::Problem,
    routes::admin::Changes,
    state::ApiState,
    view::Millis,
};

/// A tenant to be made.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewTenant)]
pub(crate) struct NewTenantBody {
    /// 1 to 200 characters after trimming.
    #[schema(min_length = 1, pattern = "\\S")]
    name: String,
    /// The name of a tier; the default one unless given.
    #[serde(default)]
    tier: Option<String>,
    /// An IANA time zone; UTC unless given.
    #[serde(default)]
    time_zone: Option<String>,
    /// Whose account pays: `user` (unless given) or `tenant`.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    payer: Option<Payer>,
}

/// A tenant.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Tenant)]
pub(crate) struct TenantView {
    /// The tenant.
    #[schema(value_type = String)]
    id: TenantId,
    /// Its name.
    name: String,
    /// The name of its tier.
    tier: String,
    /// Its time zone.
    time_zone: String,
    /// Whose account pays.
    #[schema(value_type = String)]
    payer: Payer,
    /// When it was made.
    #[schema(value_type = String, format = DateTime)]
    created_at: Millis,
}

impl From<&TenantMade> for TenantView {
    fn from(made: &TenantMade) -> Self {
        let TenantMade { id, name, tier, time_zone, payer, created_at } = made.clone();
        Self { id, name, tier, time_zone, payer, created_at: Millis(created_at) }
    }
}

impl From<Tenant> for TenantView {
    fn from(tenant: Tenant) -> Self {
        let Tenant { id, name, tier, time_zone, payer, created_at, .. } = tenant;
        Self { id, name, tier, time_zone, payer, created_at: Millis(created_at) }
    }
}

/// Make a tenant
#[utoipa::path(
    post,
    path = "/admin/tenants",
    operation_id = "adminCreateTenant",
    tag = "admin",
    params(("Idempotency-Key" = Option<String>, Header, min_length = 1, pattern = "^[!-~]+$", description = "Makes the request repeatable for 24 hours.")),
    request_body = NewTenantBody,
    responses((status = 201, description = "The tenant.", body = TenantView), WriteProblems, ConflictProblems),
)]
pub(crate) async fn create_tenant(
    State(state): State<ApiState>,
    Changes { session, actor }: Changes,
    _: NoParams,
    IdempotencyKey(key): IdempotencyKey,
    Body(body): Body<NewTenantBody>,
) -> Result<Response, Problem> {
    let _turn = state.store().pass().await?;
    let once = once(&session, "POST /admin/tenants", key, &body, |made| render(&TenantView::from(made)));
    let NewTenantBody { name, tier, time_zone, payer } = body;
    let done =
        state.operator().create_tenant(actor, once, NewTenant { name, tier, time_zone, payer }).await?;
    Ok(created(done, |made| render(&TenantView::from(made)), |_| None))
}
