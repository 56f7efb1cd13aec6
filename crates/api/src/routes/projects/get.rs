//! `GET /projects/{id}`.

use axum::{extract::State, response::Response};
use domain::ProjectId;

use crate::{
    extract::{Id, NoParams, Reader},
    openapi::ItemProblems,
    problem::Problem,
    routes::projects::ProjectView,
    state::ApiState,
    view::json,
};

/// One project
#[utoipa::path(
    get,
    path = "/projects/{id}",
    operation_id = "getProject",
    tag = "projects",
    params(("id" = String, Path, description = "The project.")),
    responses((status = 200, description = "The project.", body = ProjectView), ItemProblems),
)]
pub(crate) async fn get_project(
    State(state): State<ApiState>,
    Reader(session): Reader,
    Id(id): Id<ProjectId>,
    _: NoParams,
) -> Result<Response, Problem> {
    let _turn = state.store().pass().await?;
    let project = state.tenancy().project(&session, id).await?;
    Ok(json(&ProjectView::from(project)))
}
