//! `GET /metrics`.

use axum::{
    extract::State,
    response::{IntoResponse, Response},
};
use http::header;

use crate::{extract::NoParams, openapi::QueryProblems, state::ApiState};

const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Metrics
///
/// Of this process, as Prometheus reads them.
#[utoipa::path(
    get,
    path = "/metrics",
    operation_id = "getMetrics",
    tag = "service",
    security(()),
    responses((status = 200, description = "The metrics.", body = String, content_type = "text/plain"), QueryProblems),
)]
pub(crate) async fn get_metrics(State(state): State<ApiState>, _: NoParams) -> Response {
    ([(header::CONTENT_TYPE, TEXT)], state.metrics()).into_response()
}
