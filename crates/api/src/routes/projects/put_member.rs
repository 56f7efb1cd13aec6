//! `PUT /projects/{id}/members/{user_id}`.

use axum::{extract::State, response::Response};
use domain::principal::Role;
use serde::Deserialize;
use utoipa::ToSchema;

use crate::{
    extract::{Body, NoParams, Writer},
    openapi::{ItemProblems, WriteProblems},
    problem::Problem,
    routes::projects::{MemberPath, MemberView},
    state::ApiState,
    view::json,
};

/// A member's role.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = MemberRole)]
pub(crate) struct RoleOfMember {
    /// owner, editor or viewer.
    #[schema(value_type = String, pattern = "^(owner|editor|viewer)$")]
    role: Role,
}

/// Add a member, or change a member's role
///
/// For owners of the project. The last owner can't become anything else.
#[utoipa::path(
    put,
    path = "/projects/{id}/members/{user_id}",
    operation_id = "putMember",
    tag = "projects",
    params(
        ("id" = String, Path, description = "The project."),
        ("user_id" = String, Path, description = "A user of the same tenant."),
    ),
    request_body = RoleOfMember,
    responses((status = 200, description = "The member.", body = MemberView), ItemProblems, WriteProblems),
)]
pub(crate) async fn put_member(
    State(state): State<ApiState>,
    Writer(session): Writer,
    MemberPath { project, user }: MemberPath,
    _: NoParams,
    Body(RoleOfMember { role }): Body<RoleOfMember>,
) -> Result<Response, Problem> {
    let _turn = state.store().pass().await?;
    let member = state.tenancy().put_member(&session, project, user, role).await?;
    Ok(json(&MemberView::from(member)))
}
