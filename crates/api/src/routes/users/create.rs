//! `POST /users`: a tenant's server registers one of its users.

use axum::{extract::State, response::Response};
use domain::Scope;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{
    extract::{Body, IdempotencyKey, NoParams, Writer, auth::require},
    once::{created, once, render},
    openapi::{ConflictProblems, WriteProblems},
    problem::Problem,
    routes::users::UserView,
    state::ApiState,
};

/// A user to be registered.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewUser)]
pub(crate) struct NewUserBody {
    /// 1 to 200 characters after trimming.
    #[schema(min_length = 1, pattern = "\\S")]
    name: String,
    /// The tenant's own name for the user: 1 to 128 visible ASCII characters, unique in the tenant.
    #[serde(default)]
    #[schema(min_length = 1, max_length = 128, pattern = "^[!-~]+$")]
    external_id: Option<String>,
}

/// Register a user
///
/// For a tenant's own server (scope `tenant:write`), which can then act for the user by the header `AIVideo-User`.
#[utoipa::path(
    post,
    path = "/users",
    operation_id = "createUser",
    tag = "users",
    params(("Idempotency-Key" = Option<String>, Header, min_length = 1, pattern = "^[!-~]+$", description = "Makes the request repeatable for 24 hours.")),
    request_body = NewUserBody,
    responses((status = 201, description = "The user.", body = UserView), WriteProblems, ConflictProblems),
)]
pub(crate) async fn create_user(
    State(state): State<ApiState>,
    Writer(session): Writer,
    _: NoParams,
    IdempotencyKey(key): IdempotencyKey,
    Body(body): Body<NewUserBody>,
) -> Result<Response, Problem> {
    require(&session, &[Scope::TenantWrite])?;
    let _turn = state.store().pass().await?;
    let once = once(&session, "POST /users", key, &body, |made| render(&UserView::from(made)));
    let done = state.operator().register_user(&session, once, body.name, body.external_id).await?;
    Ok(created(done, |made| render(&UserView::from(made)), |_| None))
}
