//! `DELETE /projects/{id}/members/{user_id}`.

use axum::extract::State;
use http::StatusCode;

use crate::{
    extract::{NoParams, Writer},
    openapi::ItemProblems,
    problem::Problem,
    routes::projects::MemberPath,
    state::ApiState,
};

/// Remove a member
///
/// For owners of the project; everybody may leave. The last owner can't.
#[utoipa::path(
    delete,
    path = "/projects/{id}/members/{user_id}",
    operation_id = "deleteMember",
    tag = "projects",
    params(
        ("id" = String, Path, description = "The project."),
        ("user_id" = String, Path, description = "The member."),
    ),
    responses((status = 204, description = "No member any more."), ItemProblems),
)]
pub(crate) async fn delete_member(
    State(state): State<ApiState>,
    Writer(session): Writer,
    MemberPath { project, user }: MemberPath,
    _: NoParams,
) -> Result<StatusCode, Problem> {
    let _turn = state.store().pass().await?;
    state.tenancy().remove_member(&session, project, user).await?;
    Ok(StatusCode::NO_CONTENT)
}
