//! `GET /healthz` and `GET /readyz`.

use axum::{
    extract::State,
    response::{IntoResponse, Response},
};
use http::StatusCode;
use serde::Serialize;
use utoipa::ToSchema;

use crate::{
    extract::{NoParams, Params, ParamsOf, QueryParams},
    health::Readiness,
    openapi::QueryProblems,
    problem::Problem,
    state::ApiState,
    view::json,
};

/// Whether the process makes progress.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Liveness)]
pub(crate) struct LivenessView {
    /// Whether it does.
    alive: bool,
    /// Why not.
    reason: Option<String>,
}

/// Liveness
///
/// 503 when this process makes no progress and should be started again.
#[utoipa::path(
    get,
    path = "/healthz",
    operation_id = "getHealth",
    tag = "service",
    security(()),
    responses(
        (status = 200, description = "It makes progress.", body = LivenessView),
        (status = 503, description = "It doesn't.", body = LivenessView),
        QueryProblems,
    ),
)]
pub(crate) async fn get_health(State(state): State<ApiState>, _: NoParams) -> Response {
    match state.health().alive() {
        Ok(()) => json(&LivenessView { alive: true, reason: None }),
        Err(reason) => {
            let view = LivenessView { alive: false, reason: Some(reason) };
            (StatusCode::SERVICE_UNAVAILABLE, json(&view)).into_response()
        }
    }
}

/// The parameters of `GET /readyz`.
#[derive(Debug)]
pub(crate) struct Ask {
    role: Option<String>,
}

impl QueryParams for Ask {
    fn take(params: &mut Params) -> Result<Self, Problem> {
        Ok(Self { role: params.text("role") })
    }
}

/// Readiness
///
/// 503 only when a role of this process can't work; what is merely degraded is named.
#[utoipa::path(
    get,
    path = "/readyz",
    operation_id = "getReadiness",
    tag = "service",
    security(()),
    params(("role" = Option<String>, Query, pattern = "^(api|relay|scheduler)$", description = "Only this role.")),
    responses(
        (status = 200, description = "Every role that was asked about can work.", body = Readiness),
        (status = 503, description = "A role can't.", body = Readiness),
        QueryProblems,
    ),
)]
pub(crate) async fn get_readiness(
    State(state): State<ApiState>,
    ParamsOf(ask): ParamsOf<Ask>,
) -> Result<Response, Problem> {
    let readiness = state.health().ready(ask.role.as_deref()).await;
    let readiness =
        readiness.ok_or_else(|| Problem::field("role", "unknown_value", "this process has no such role"))?;
    let status = if readiness.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    Ok((status, json(&readiness)).into_response())
}
