//! Changing a project.

use domain::ProjectId;
use futures::FutureExt as _;
use pg::PgError;

use super::{Project, ProjectError, check_name, find, may_manage};
use crate::{Session, Tenancy};

impl Tenancy {
    /// Gives a project another name.
    ///
    /// # Errors
    /// [`ProjectError`].
    pub async fn rename_project(
        &self,
        session: &Session,
        id: ProjectId,
        name: &str,
    ) -> Result<Project, ProjectError> {
        check_name(name)?;
        let (principal, name) = (session.principal.clone(), name.to_owned());
        pg::transact(&self.pool, move |conn| {
            async move {
                let project = find(conn, &principal, id, true).await?;
                if !may_manage(&principal, &project) {
                    return Err(ProjectError::Forbidden);
                }
                sqlx::query!("UPDATE projects SET name = $2 WHERE id = $1", id.as_uuid(), name)
                    .execute(conn)
                    .await
                    .map_err(PgError::from)?;
                Ok(Project { name, ..project })
            }
            .boxed()
        })
        .await
    }
}
