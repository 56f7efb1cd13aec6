//! `DELETE /admin/limits/{subject}/{limit}`.

use axum::extract::State;
use http::StatusCode;

use crate::{
    extract::{Params, ParamsOf, QueryParams},
    openapi::ItemProblems,
    problem::Problem,
    routes::admin::{Changes, put_limit::RulePath},
    state::ApiState,
};

/// The parameters of `DELETE /admin/limits/{subject}/{limit}`.
#[derive(Debug)]
pub(crate) struct Ask {
    shadow: bool,
}

impl QueryParams for Ask {
    fn take(params: &mut Params) -> Result<Self, Problem> {
        Ok(Self { shadow: params.take("shadow")?.unwrap_or(false) })
    }
}

/// Take a limit away
///
/// What is configured, or the rule of the tenant or tier, counts again everywhere within five seconds.
#[utoipa::path(
    delete,
    path = "/admin/limits/{subject}/{limit}",
    operation_id = "adminRemoveLimit",
    tag = "admin",
    params(
        ("subject" = String, Path, description = "`tier:<name>`, `tenant:<id>` or `key:<id>`."),
        ("limit" = String, Path, description = "The limit's name."),
        ("shadow" = Option<bool>, Query, description = "True for the one that only counts and tells."),
    ),
    responses((status = 204, description = "It is gone."), ItemProblems),
)]
pub(crate) async fn remove_limit(
    State(state): State<ApiState>,
    Changes { actor, .. }: Changes,
    path: RulePath,
    ParamsOf(ask): ParamsOf<Ask>,
) -> Result<StatusCode, Problem> {
    let _turn = state.store().pass().await?;
    state.operator().remove_limit(actor, path.rule(ask.shadow)).await?;
    Ok(StatusCode::NO_CONTENT)
}
