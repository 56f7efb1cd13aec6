//! `GET /projects`.

use axum::{extract::State, response::Response};
use domain::ProjectId;

use crate::{
    extract::{ParamsOf, Reader, auth::require_read, params::PageOf},
    openapi::ReadProblems,
    problem::{Problem, from::store_problem},
    routes::projects::ProjectView,
    state::ApiState,
    view::{Page, json},
};

/// Projects
///
/// Those of which the caller is a member; all of the tenant with a scope of the tenant. Oldest first.
#[utoipa::path(
    get,
    path = "/projects",
    operation_id = "listProjects",
    tag = "projects",
    params(
        ("cursor" = Option<String>, Query, min_length = 1, description = "The `next_cursor` of the page before."),
        ("limit" = Option<u64>, Query, minimum = 1, maximum = 100, description = "Items at most; 20 unless given."),
    ),
    responses((status = 200, description = "A page of projects.", body = Page<ProjectView>), ReadProblems),
)]
pub(crate) async fn list_projects(
    State(state): State<ApiState>,
    Reader(session): Reader,
    ParamsOf(page): ParamsOf<PageOf<ProjectId>>,
) -> Result<Response, Problem> {
    require_read(&session)?;
    let _turn = state.store().pass().await?;
    let projects = state.tenancy().list_projects(&session, page.after, page.limit).await;
    Ok(json(&Page::of(projects.map_err(|error| store_problem!(error))?, ProjectView::from)))
}
