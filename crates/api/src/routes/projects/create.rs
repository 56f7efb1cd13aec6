//! `POST /projects`.

use axum::{
    extract::State,
    response::{IntoResponse, Response},
};
use http::{StatusCode, header};
use serde::Deserialize;
use utoipa::ToSchema;

use crate::{
    extract::{Body, NoParams, Writer},
    openapi::WriteProblems,
    problem::Problem,
    routes::projects::ProjectView,
    state::ApiState,
    view::json,
};

/// A project to be made, or its new name.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewProject)]
pub(crate) struct ProjectName {
    /// 1 to 200 characters after trimming.
    #[schema(min_length = 1, pattern = "\\S")]
    pub(super) name: String,
}

/// Make a project
///
/// The caller becomes its owner.
#[utoipa::path(
    post,
    path = "/projects",
    operation_id = "createProject",
    tag = "projects",
    request_body = ProjectName,
    responses(
        (status = 201, description = "It was made.", body = ProjectView, headers(
            ("Location" = String, description = "Where it is."),
        )),
        WriteProblems,
    ),
)]
pub(crate) async fn create_project(
    State(state): State<ApiState>,
    Writer(session): Writer,
    _: NoParams,
    Body(ProjectName { name }): Body<ProjectName>,
) -> Result<Response, Problem> {
    let _turn = state.store().pass().await?;
    let project = state.tenancy().create_project(&session, &name).await?;
    let location = format!("/projects/{}", project.id);
    Ok((StatusCode::CREATED, [(header::LOCATION, location)], json(&ProjectView::from(project)))
        .into_response())
}
