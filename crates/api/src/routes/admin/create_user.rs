//! `POST /admin/users`.

use axum::{extract::State, response::Response};
use domain::TenantId;
use operator::NewUser;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{
    extract::{Body, IdempotencyKey, NoParams},
    once::{created, once, render},
    openapi::{ConflictProblems, WriteProblems},
    problem::Problem,
    routes::{admin::Changes, users::UserView},
    state::ApiState,
};

/// A user to be made.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = AdminNewUser)]
pub(crate) struct AdminNewUserBody {
    /// The tenant.
    #[schema(value_type = String)]
    tenant_id: TenantId,
    /// 1 to 200 characters after trimming.
    #[schema(min_length = 1, pattern = "\\S")]
    name: String,
    /// The tenant's own name for the user, unique in the tenant.
    #[serde(default)]
    #[schema(min_length = 1, max_length = 128, pattern = "^[!-~]+$")]
    external_id: Option<String>,
}

/// Make a user
#[utoipa::path(
    post,
    path = "/admin/users",
    operation_id = "adminCreateUser",
    tag = "admin",
    params(("Idempotency-Key" = Option<String>, Header, min_length = 1, pattern = "^[!-~]+$", description = "Makes the request repeatable for 24 hours.")),
    request_body = AdminNewUserBody,
    responses((status = 201, description = "The user.", body = UserView), WriteProblems, ConflictProblems),
)]
pub(crate) async fn create_user(
    State(state): State<ApiState>,
    Changes { session, actor }: Changes,
    _: NoParams,
    IdempotencyKey(key): IdempotencyKey,
    Body(body): Body<AdminNewUserBody>,
) -> Result<Response, Problem> {
    let _turn = state.store().pass().await?;
    let once = once(&session, "POST /admin/users", key, &body, |made| render(&UserView::from(made)));
    let new = NewUser { tenant: body.tenant_id, name: body.name, external_id: body.external_id };
    let done = state.operator().create_user(actor, once, new).await?;
    Ok(created(done, |made| render(&UserView::from(made)), |_| None))
}
