//! Projects and their members.

pub(crate) mod create;
pub(crate) mod delete_member;
pub(crate) mod get;
pub(crate) mod list;
pub(crate) mod list_members;
pub(crate) mod patch;
pub(crate) mod put_member;

use axum::extract::FromRequestParts;
use domain::{ProjectId, UserId, principal::Role};
use http::request::Parts;
use serde::Serialize;
use tenancy::projects::{Member, Project};
use utoipa::ToSchema;

use crate::{extract::id::segment, problem::Problem, view::Millis};

/// A project.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Project)]
pub(crate) struct ProjectView {
    /// The project.
    #[schema(value_type = String)]
    id: ProjectId,
    /// Its name.
    name: String,
    /// The caller's role: owner, editor or viewer; null for one who sees it by a scope of the tenant.
    #[schema(value_type = Option<String>)]
    role: Option<Role>,
    /// When it was made.
    #[schema(value_type = String, format = DateTime)]
    created_at: Millis,
}

impl From<Project> for ProjectView {
    fn from(project: Project) -> Self {
        let Project { id, name, role, created_at, .. } = project;
        Self { id, name, role, created_at: Millis(created_at) }
    }
}

/// A member of a project.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Member)]
pub(crate) struct MemberView {
    /// The user.
    #[schema(value_type = String)]
    user_id: UserId,
    /// The user's name.
    name: String,
    /// owner, editor or viewer.
    #[schema(value_type = String)]
    role: Role,
}

impl From<Member> for MemberView {
    fn from(member: Member) -> Self {
        Self { user_id: member.user, name: member.name, role: member.role }
    }
}

/// The path of one member: `{id}` and `{user_id}`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MemberPath {
    project: ProjectId,
    user: UserId,
}

impl<S: Send + Sync> FromRequestParts<S> for MemberPath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let project = segment(parts, state, "id").await?;
        let user = segment(parts, state, "user_id").await?;
        Ok(Self { project, user })
    }
}
