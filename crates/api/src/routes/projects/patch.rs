//! `PATCH /projects/{id}`.

use axum::{extract::State, response::Response};
use domain::ProjectId;

use crate::{
    extract::{Body, Id, NoParams, Writer},
    openapi::{ItemProblems, WriteProblems},
    problem::Problem,
    routes::projects::{ProjectView, create::ProjectName},
    state::ApiState,
    view::json,
};

/// Rename a project
///
/// For its owners.
#[utoipa::path(
    patch,
    path = "/projects/{id}",
    operation_id = "renameProject",
    tag = "projects",
    params(("id" = String, Path, description = "The project.")),
    request_body = ProjectName,
    responses((status = 200, description = "The project.", body = ProjectView), ItemProblems, WriteProblems),
)]
pub(crate) async fn rename_project(
    State(state): State<ApiState>,
    Writer(session): Writer,
    Id(id): Id<ProjectId>,
    _: NoParams,
    Body(ProjectName { name }): Body<ProjectName>,
) -> Result<Response, Problem> {
    let _turn = state.store().pass().await?;
    let project = state.tenancy().rename_project(&session, id, &name).await?;
    Ok(json(&ProjectView::from(project)))
}
