//! `DELETE /admin/keys/{id}`.

use axum::extract::State;
use domain::KeyId;
use http::StatusCode;

use crate::{
    extract::{Id, NoParams},
    openapi::ItemProblems,
    problem::Problem,
    routes::admin::Changes,
    state::ApiState,
};

/// Revoke a key
///
/// It is refused everywhere within five seconds, and so is every token that it minted.
#[utoipa::path(
    delete,
    path = "/admin/keys/{id}",
    operation_id = "adminRevokeKey",
    tag = "admin",
    params(("id" = String, Path, description = "The public part of the key.")),
    responses((status = 204, description = "It is revoked."), ItemProblems),
)]
pub(crate) async fn revoke_key(
    State(state): State<ApiState>,
    Changes { actor, .. }: Changes,
    Id(id): Id<KeyId>,
    _: NoParams,
) -> Result<StatusCode, Problem> {
    let _turn = state.store().pass().await?;
    state.operator().revoke_key(actor, id).await?;
    Ok(StatusCode::NO_CONTENT)
}
