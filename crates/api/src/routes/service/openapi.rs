//! `GET /openapi.json`.

use std::sync::LazyLock;

use axum::response::Response;

use crate::{
    extract::NoParams,
    openapi::{StaticProblems, document_text},
    view::json_text,
};

static TEXT: LazyLock<String> = LazyLock::new(document_text);

/// This document
#[utoipa::path(
    get,
    path = "/openapi.json",
    operation_id = "getOpenApi",
    tag = "service",
    security(()),
    responses((status = 200, description = "OpenAPI 3.1.", body = Object), StaticProblems),
)]
pub(crate) async fn get_openapi(_: NoParams) -> Response {
    json_text(TEXT.as_str())
}
