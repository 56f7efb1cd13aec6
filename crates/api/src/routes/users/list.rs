//! `GET /users`.

use axum::{extract::State, response::Response};
use domain::UserId;
use tenancy::ListError;

use crate::{
    extract::{ParamsOf, Reader, params::PageOf},
    openapi::ReadProblems,
    problem::{Problem, from::store_problem},
    routes::users::UserView,
    state::ApiState,
    view::{Page, json},
};

/// Users of the tenant
///
/// For a tenant's own server (scope `tenant:write`). Oldest first.
#[utoipa::path(
    get,
    path = "/users",
    operation_id = "listUsers",
    tag = "users",
    params(
        ("cursor" = Option<String>, Query, min_length = 1, description = "The `next_cursor` of the page before."),
        ("limit" = Option<u64>, Query, minimum = 1, maximum = 100, description = "Items at most; 20 unless given."),
    ),
    responses((status = 200, description = "A page of users.", body = Page<UserView>), ReadProblems),
)]
pub(crate) async fn list_users(
    State(state): State<ApiState>,
    Reader(session): Reader,
    ParamsOf(page): ParamsOf<PageOf<UserId>>,
) -> Result<Response, Problem> {
    let _turn = state.store().pass().await?;
    match state.tenancy().list_users(&session, page.after, page.limit).await {
        Ok(users) => Ok(json(&Page::of(users, UserView::from))),
        Err(ListError::Forbidden) => Err(Problem::forbidden("This needs the scope tenant:write.")),
        Err(ListError::Pg(error)) => Err(store_problem!(error)),
    }
}
