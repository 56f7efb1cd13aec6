//! Projects and their members.
//!
//! Owners and editors submit into a project and cancel its tasks; viewers look; for everybody else it does not
//! exist. Roles decided here are read fresh, never from the session, which may be five seconds old.

mod create;
mod list;
mod members;
mod patch;

use chrono::{DateTime, Utc};
use domain::{
    Principal, ProjectId, Scope, TenantId, UserId,
    principal::Role,
    text::{self, TextFault},
};
pub use members::{Member, MemberError};
use pg::{PgConnection, PgError};
use uuid::Uuid;

use crate::{create_tenant::NAME_CHARS_MAX, rows::parse_role};

/// A project as its reader sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Project {
    /// Its id.
    pub id: ProjectId,
    /// Its tenant.
    pub tenant: TenantId,
    /// Its name.
    pub name: String,
    /// The reader's own role; none for one who sees it by a scope of the tenant.
    pub role: Option<Role>,
    /// When it was made.
    pub created_at: DateTime<Utc>,
}

/// Why a project is not made, shown or changed.
#[derive(Debug, thiserror::Error)]
pub enum ProjectError {
    /// It does not exist, as far as this reader may know.
    #[error("there is no such project")]
    NotFound,
    /// The reader sees it but may not do this.
    #[error("this role may not do that")]
    Forbidden,
    /// The name is refused.
    #[error("the name {0}")]
    Name(#[source] TextFault),
    /// PostgreSQL failed.
    #[error(transparent)]
    Pg(#[from] PgError),
}

fn check_name(name: &str) -> Result<(), ProjectError> {
    text::check(name, NAME_CHARS_MAX).map_err(ProjectError::Name)
}

/// The project, if this principal may see it, with the principal's present role. `lock` holds the row until the
/// transaction ends, so that two changes of its members cannot cross.
async fn find(
    conn: &mut PgConnection,
    principal: &Principal,
    id: ProjectId,
    lock: bool,
) -> Result<Project, ProjectError> {
    if lock {
        sqlx::query!("SELECT id FROM projects WHERE id = $1 FOR NO KEY UPDATE", id.as_uuid())
            .fetch_optional(&mut *conn)
            .await
            .map_err(PgError::from)?;
    }
    let row = sqlx::query_as!(
        Row,
        r#"SELECT p.id, p.tenant_id, p.name, p.created_at, m.role AS "role?"
           FROM projects p LEFT JOIN project_members m ON m.project_id = p.id AND m.user_id = $2
           WHERE p.id = $1"#,
        id.as_uuid(),
        principal.user.as_uuid()
    )
    .fetch_optional(conn)
    .await
    .map_err(PgError::from)?;
    let project: Project = row.ok_or(ProjectError::NotFound)?.try_into()?;
    let scopes = principal.scopes;
    let of_tenant = project.tenant == principal.tenant;
    let visible = scopes.has(Scope::Admin)
        || (of_tenant && (scopes.has(Scope::TenantRead) || scopes.has(Scope::TenantWrite)))
        || (of_tenant && project.role.is_some() && (scopes.has(Scope::Read) || scopes.has(Scope::Write)));
    if visible { Ok(project) } else { Err(ProjectError::NotFound) }
}

/// Whether the principal may change a project that they see, and its members.
fn may_manage(principal: &Principal, project: &Project) -> bool {
    let scopes = principal.scopes;
    scopes.has(Scope::Admin)
        || scopes.has(Scope::TenantWrite)
        || (scopes.has(Scope::Write) && project.role == Some(Role::Owner))
}

/// A wish to submit into a project.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SubmitInto {
    /// The project.
    pub project: ProjectId,
    /// The tenant of who asks.
    pub tenant: TenantId,
    /// Who asks.
    pub user: UserId,
}

/// Whether one may submit into a project.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SubmitAccess {
    /// The project exists and the user has this role in it.
    Member(Role),
    /// The project is of the user's tenant, but the user is no member.
    SameTenant,
    /// The tenant has no such project.
    Unknown,
}

/// How each of these users stands to the project that they name, in the order given, in one statement.
///
/// # Errors
/// When the statement fails.
pub async fn submit_access(
    conn: &mut PgConnection,
    wishes: &[SubmitInto],
) -> Result<Vec<SubmitAccess>, PgError> {
    if wishes.is_empty() {
        return Ok(Vec::new());
    }
    let projects: Vec<Uuid> = wishes.iter().map(|wish| wish.project.as_uuid()).collect();
    let tenants: Vec<Uuid> = wishes.iter().map(|wish| wish.tenant.as_uuid()).collect();
    let users: Vec<Uuid> = wishes.iter().map(|wish| wish.user.as_uuid()).collect();
    let rows = sqlx::query!(
        r#"SELECT p.id IS NOT NULL AS "exists!", m.role AS "role?"
           FROM unnest($1::uuid[], $2::uuid[], $3::uuid[]) WITH ORDINALITY AS w(project, tenant, member, place)
           LEFT JOIN projects p ON p.id = w.project AND p.tenant_id = w.tenant
           LEFT JOIN project_members m ON m.project_id = p.id AND m.user_id = w.member
           ORDER BY w.place"#,
        &projects,
        &tenants,
        &users
    )
    .fetch_all(conn)
    .await?;
    rows.iter()
        .zip(wishes)
        .map(|(row, wish)| match &row.role {
            Some(role) => Ok(SubmitAccess::Member(parse_role(wish.project, role)?)),
            None if row.exists => Ok(SubmitAccess::SameTenant),
            None => Ok(SubmitAccess::Unknown),
        })
        .collect()
}

struct Row {
    id: Uuid,
    tenant_id: Uuid,
    name: String,
    created_at: DateTime<Utc>,
    role: Option<String>,
}

impl TryFrom<Row> for Project {
    type Error = PgError;

    fn try_from(row: Row) -> Result<Self, PgError> {
        let id = ProjectId::from_uuid(row.id);
        let role = row.role.map(|role| parse_role(id, &role)).transpose()?;
        let tenant = TenantId::from_uuid(row.tenant_id);
        Ok(Self { id, tenant, name: row.name, role, created_at: row.created_at })
    }
}

#[cfg(test)]
mod tests {
    use testkit::TestDb;

    use super::*;
    use crate::tests_support::Seed;

    #[tokio::test]
    async fn each_stands_to_a_project_as_they_are() {
        let db = TestDb::new().await;
        let (seed, foreign) = (Seed::new(&db.pool).await, Seed::new(&db.pool).await);
        let session = seed.tenancy.authenticate(&seed.key.text).await.unwrap();
        let project = seed.tenancy.create_project(&session, "Trailer").await.unwrap().id;
        let colleague = seed.another_user(&db.pool, seed.tenant, None).await;
        let mut conn = db.pool.acquire().await.unwrap();
        let wish = |tenant, user| SubmitInto { project, tenant, user };
        let wishes = [
            wish(foreign.tenant, foreign.user),
            wish(seed.tenant, seed.user),
            wish(seed.tenant, colleague),
            SubmitInto { project: ProjectId::generate(), tenant: seed.tenant, user: seed.user },
            wish(seed.tenant, seed.user),
        ];
        let expected = [
            SubmitAccess::Unknown,
            SubmitAccess::Member(Role::Owner),
            SubmitAccess::SameTenant,
            SubmitAccess::Unknown,
            SubmitAccess::Member(Role::Owner),
        ];
        assert_eq!(submit_access(&mut conn, &wishes).await.unwrap(), expected);
    }
}
