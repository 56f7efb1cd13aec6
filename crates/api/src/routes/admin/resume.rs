//! `DELETE /admin/pauses/{subject}`.

use axum::extract::State;
use http::StatusCode;

use crate::{
    extract::NoParams,
    openapi::ItemProblems,
    problem::Problem,
    routes::admin::{Changes, pause::PausePath},
    state::ApiState,
};

/// Resume an account or a model
#[utoipa::path(
    delete,
    path = "/admin/pauses/{subject}",
    operation_id = "adminResume",
    tag = "admin",
    params(("subject" = String, Path, description = "`account:<name>` or `model:<name>`.")),
    responses((status = 204, description = "It may be used again."), ItemProblems),
)]
pub(crate) async fn resume(
    State(state): State<ApiState>,
    Changes { actor, .. }: Changes,
    PausePath(subject): PausePath,
    _: NoParams,
) -> Result<StatusCode, Problem> {
    let _turn = state.store().pass().await?;
    state.operator().resume(actor, state.catalogue(), subject).await?;
    Ok(StatusCode::NO_CONTENT)
}
