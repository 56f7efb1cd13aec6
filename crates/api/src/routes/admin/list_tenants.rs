//! `GET /admin/tenants`.

use axum::{extract::State, response::Response};
use domain::TenantId;

use crate::{
    extract::{ParamsOf, params::PageOf},
    openapi::ReadProblems,
    problem::Problem,
    routes::admin::{Looks, create_tenant::TenantView},
    state::ApiState,
    view::{Page, json},
};

/// Tenants
#[utoipa::path(
    get,
    path = "/admin/tenants",
    operation_id = "adminListTenants",
    tag = "admin",
    params(
        ("cursor" = Option<String>, Query, min_length = 1, description = "The `next_cursor` of the page before."),
        ("limit" = Option<u64>, Query, minimum = 1, maximum = 100, description = "Items at most; 20 unless given."),
    ),
    responses((status = 200, description = "A page of tenants.", body = Page<TenantView>), ReadProblems),
)]
pub(crate) async fn list_tenants(
    State(state): State<ApiState>,
    _: Looks,
    ParamsOf(page): ParamsOf<PageOf<TenantId>>,
) -> Result<Response, Problem> {
    let _turn = state.store().pass().await?;
    let tenants = state.operator().tenants(page.after, page.limit).await?;
    Ok(json(&Page::of(tenants, TenantView::from)))
}
