//! `GET /problems/{code}`: the pages that a problem's `type` leads to.

use axum::response::Response;

use crate::{
    openapi::PageProblems,
    problem::{Code, Problem, pages},
    site::page,
};

/// What a problem code means
#[utoipa::path(
    get,
    path = "/problems/{code}",
    operation_id = "getProblem",
    tag = "service",
    security(()),
    params(("code" = String, Path, description = "A problem's `code`.")),
    responses((status = 200, description = "A page for people.", body = String, content_type = "text/html"), PageProblems),
)]
pub(crate) async fn get_problem(code: ProblemCode) -> Result<Response, Problem> {
    let html = pages::html(code.0).ok_or_else(Problem::not_found)?;
    Ok(page(code.0.title(), &html))
}

/// The path's `{code}`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ProblemCode(Code);

impl<S: Send + Sync> axum::extract::FromRequestParts<S> for ProblemCode {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut http::request::Parts, state: &S) -> Result<Self, Problem> {
        crate::extract::id::segment(parts, state, "code").await.map(Self)
    }
}
