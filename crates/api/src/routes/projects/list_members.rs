//! `GET /projects/{id}/members`.

use axum::{extract::State, response::Response};
use domain::{ProjectId, UserId};

use crate::{
    extract::{Id, ParamsOf, Reader, params::PageOf},
    openapi::ItemProblems,
    problem::Problem,
    routes::projects::MemberView,
    state::ApiState,
    view::{Page, json},
};

/// Members of a project
#[utoipa::path(
    get,
    path = "/projects/{id}/members",
    operation_id = "listMembers",
    tag = "projects",
    params(
        ("id" = String, Path, description = "The project."),
        ("cursor" = Option<String>, Query, min_length = 1, description = "The `next_cursor` of the page before."),
        ("limit" = Option<u64>, Query, minimum = 1, maximum = 100, description = "Items at most; 20 unless given."),
    ),
    responses((status = 200, description = "A page of members.", body = Page<MemberView>), ItemProblems),
)]
pub(crate) async fn list_members(
    State(state): State<ApiState>,
    Reader(session): Reader,
    Id(id): Id<ProjectId>,
    ParamsOf(page): ParamsOf<PageOf<UserId>>,
) -> Result<Response, Problem> {
    let _turn = state.store().pass().await?;
    let members = state.tenancy().list_members(&session, id, page.after, page.limit).await?;
    Ok(json(&Page::of(members, MemberView::from)))
}
