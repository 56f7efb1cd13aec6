//! Showing projects.

use domain::{ProjectId, Scope};
use pg::PgError;
use uuid::Uuid;

use super::{Project, ProjectError, Row, find};
use crate::{Page, Session, Tenancy};

impl Tenancy {
    /// The project, if the session may see it.
    ///
    /// # Errors
    /// [`ProjectError::NotFound`] when it does not exist or is hidden.
    pub async fn project(&self, session: &Session, id: ProjectId) -> Result<Project, ProjectError> {
        let mut conn = self.pool.acquire().await.map_err(PgError::from)?;
        find(&mut conn, &session.principal, id, false).await
    }

    /// At most `limit` projects after the given one, oldest first: those of which the session's user is a member, or
    /// all of the tenant with a scope of the tenant.
    ///
    /// # Errors
    /// When the statement fails.
    pub async fn list_projects(
        &self,
        session: &Session,
        after: Option<ProjectId>,
        limit: u16,
    ) -> Result<Page<Project, ProjectId>, PgError> {
        let principal = &session.principal;
        let scopes = principal.scopes;
        let all =
            [Scope::TenantRead, Scope::TenantWrite, Scope::Admin].into_iter().any(|scope| scopes.has(scope));
        let rows = sqlx::query_as!(
            Row,
            r#"SELECT p.id, p.tenant_id, p.name, p.created_at, m.role AS "role?"
               FROM projects p LEFT JOIN project_members m ON m.project_id = p.id AND m.user_id = $2
               WHERE p.tenant_id = $1 AND p.id > $3 AND ($4 OR m.role IS NOT NULL)
               ORDER BY p.id LIMIT $5"#,
            principal.tenant.as_uuid(),
            principal.user.as_uuid(),
            after.map_or(Uuid::nil(), ProjectId::as_uuid),
            all,
            i64::from(limit) + 1
        )
        .fetch_all(&self.pool)
        .await?;
        let projects = rows.into_iter().map(TryInto::try_into).collect::<Result<Vec<Project>, PgError>>()?;
        Ok(Page::cut(projects, limit, |project| project.id))
    }
}

#[cfg(test)]
mod tests {
    use testkit::TestDb;

    use super::*;
    use crate::tests_support::Seed;

    #[tokio::test]
    async fn members_see_theirs_and_a_tenants_reader_sees_all() {
        let db = TestDb::new().await;
        let (seed, foreign) = (Seed::new(&db.pool).await, Seed::new(&db.pool).await);
        let owner = seed.tenancy.authenticate(&seed.key.text).await.unwrap();
        let first = seed.tenancy.create_project(&owner, "One").await.unwrap();
        let second = seed.tenancy.create_project(&owner, "Two").await.unwrap();
        let page = seed.tenancy.list_projects(&owner, None, 1).await.unwrap();
        assert_eq!((page.items, page.next), (vec![first.clone()], Some(first.id)));
        let page = seed.tenancy.list_projects(&owner, Some(first.id), 1).await.unwrap();
        assert_eq!((page.items, page.next), (vec![second], None));

        let colleague = seed.another_user(&db.pool, seed.tenant, None).await;
        let plain = seed.key_with(&db.pool, colleague, &[Scope::Read, Scope::Write]).await;
        let plain = seed.tenancy.authenticate(&plain.text).await.unwrap();
        assert!(seed.tenancy.list_projects(&plain, None, 9).await.unwrap().items.is_empty());
        let reader = seed.key_with(&db.pool, colleague, &[Scope::TenantRead]).await;
        let reader = seed.tenancy.authenticate(&reader.text).await.unwrap();
        assert_eq!(seed.tenancy.list_projects(&reader, None, 9).await.unwrap().items.len(), 2);

        let stranger = foreign.tenancy.authenticate(&foreign.key.text).await.unwrap();
        for session in [&plain, &stranger] {
            let hidden = seed.tenancy.project(session, first.id).await;
            assert!(matches!(hidden, Err(ProjectError::NotFound)));
        }
        assert_eq!(seed.tenancy.project(&reader, first.id).await.unwrap().role, None);
    }
}
