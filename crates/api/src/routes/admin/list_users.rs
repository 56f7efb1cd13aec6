//! `GET /admin/users`.

use axum::{extract::State, response::Response};
use domain::{TenantId, UserId};

use crate::{
    extract::{Params, ParamsOf, QueryParams, params::PageOf},
    openapi::ReadProblems,
    problem::Problem,
    routes::{admin::Looks, users::UserView},
    state::ApiState,
    view::{Page, json},
};

/// The parameters of `GET /admin/users`.
#[derive(Debug)]
pub(crate) struct Ask {
    tenant: Option<TenantId>,
    page: PageOf<UserId>,
}

impl QueryParams for Ask {
    fn take(params: &mut Params) -> Result<Self, Problem> {
        Ok(Self { tenant: params.take("tenant_id")?, page: PageOf::take(params)? })
    }
}

/// Users
#[utoipa::path(
    get,
    path = "/admin/users",
    operation_id = "adminListUsers",
    tag = "admin",
    params(
        ("tenant_id" = Option<String>, Query, pattern = "^ten_[0-9a-f]{32}$", description = "Of this tenant only."),
        ("cursor" = Option<String>, Query, min_length = 1, description = "The `next_cursor` of the page before."),
        ("limit" = Option<u64>, Query, minimum = 1, maximum = 100, description = "Items at most; 20 unless given."),
    ),
    responses((status = 200, description = "A page of users.", body = Page<UserView>), ReadProblems),
)]
pub(crate) async fn list_users(
    State(state): State<ApiState>,
    _: Looks,
    ParamsOf(ask): ParamsOf<Ask>,
) -> Result<Response, Problem> {
    let _turn = state.store().pass().await?;
    let users = state.operator().users(ask.tenant, ask.page.after, ask.page.limit).await?;
    Ok(json(&Page::of(users, UserView::from)))
}
