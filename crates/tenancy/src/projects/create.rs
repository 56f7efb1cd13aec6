//! Making a project.

use domain::{ProjectId, Scope, principal::Role};
use futures::FutureExt as _;
use pg::PgError;

use super::{Project, ProjectError, check_name};
use crate::{Session, Tenancy};

impl Tenancy {
    /// Makes a project whose first owner is the session's user.
    ///
    /// # Errors
    /// [`ProjectError::Forbidden`] without `write`; [`ProjectError::Name`].
    pub async fn create_project(&self, session: &Session, name: &str) -> Result<Project, ProjectError> {
        let principal = &session.principal;
        if !principal.scopes.has(Scope::Write) && !principal.scopes.has(Scope::TenantWrite) {
            return Err(ProjectError::Forbidden);
        }
        check_name(name)?;
        let (id, tenant, user) = (ProjectId::generate(), principal.tenant, principal.user);
        let own_name = name.to_owned();
        let created_at = pg::transact(&self.pool, move |conn| {
            async move {
                let created_at = sqlx::query_scalar!(
                    "INSERT INTO projects (id, tenant_id, name) VALUES ($1, $2, $3) RETURNING created_at",
                    id.as_uuid(),
                    tenant.as_uuid(),
                    own_name
                )
                .fetch_one(&mut *conn)
                .await?;
                sqlx::query!(
                    "INSERT INTO project_members (project_id, user_id, role) VALUES ($1, $2, $3)",
                    id.as_uuid(),
                    user.as_uuid(),
                    Role::Owner.as_str()
                )
                .execute(conn)
                .await?;
                Ok::<_, PgError>(created_at)
            }
            .boxed()
        })
        .await?;
        self.forget_user(user).await;
        Ok(Project { id, tenant, name: name.to_owned(), role: Some(Role::Owner), created_at })
    }
}
