//! Members of a project: listing, adding, changing and removing them.

use domain::{ProjectId, UserId, principal::Role};
use futures::FutureExt as _;
use pg::{PgConnection, PgError};

use super::{Project, ProjectError, find, may_manage};
use crate::{Page, Session, Tenancy, rows::parse_role};

/// A member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// The user.
    pub user: UserId,
    /// The user's name.
    pub name: String,
    /// What the user may do.
    pub role: Role,
}

/// Why the members of a project are not changed.
#[derive(Debug, thiserror::Error)]
pub enum MemberError {
    /// The project does not exist, as far as this reader may know, or the user is no member.
    #[error("there is no such project or member")]
    NotFound,
    /// Only owners change members.
    #[error("only an owner may do that")]
    Forbidden,
    /// The tenant has no such user.
    #[error("the tenant has no such user")]
    UnknownUser,
    /// The project would have no owner left.
    #[error("a project needs an owner")]
    LastOwner,
    /// PostgreSQL failed.
    #[error(transparent)]
    Pg(#[from] PgError),
}

impl From<ProjectError> for MemberError {
    fn from(error: ProjectError) -> Self {
        match error {
            ProjectError::NotFound => Self::NotFound,
            ProjectError::Forbidden | ProjectError::Name(_) => Self::Forbidden,
            ProjectError::Pg(error) => Self::Pg(error),
        }
    }
}

impl Tenancy {
    /// At most `limit` members of a project after the given user.
    ///
    /// # Errors
    /// [`MemberError::NotFound`] when the session may not see the project.
    pub async fn list_members(
        &self,
        session: &Session,
        project: ProjectId,
        after: Option<UserId>,
        limit: u16,
    ) -> Result<Page<Member, UserId>, MemberError> {
        let mut conn = self.pool.acquire().await.map_err(PgError::from)?;
        find(&mut conn, &session.principal, project, false).await?;
        let rows = sqlx::query!(
            "SELECT m.user_id, u.name, m.role FROM project_members m JOIN users u ON u.id = m.user_id
             WHERE m.project_id = $1 AND m.user_id > $2 ORDER BY m.user_id LIMIT $3",
            project.as_uuid(),
            after.map_or(uuid::Uuid::nil(), UserId::as_uuid),
            i64::from(limit) + 1
        )
        .fetch_all(&mut *conn)
        .await
        .map_err(PgError::from)?;
        let members = rows
            .into_iter()
            .map(|row| {
                let role = parse_role(project, &row.role)?;
                Ok(Member { user: UserId::from_uuid(row.user_id), name: row.name, role })
            })
            .collect::<Result<Vec<_>, PgError>>()?;
        Ok(Page::cut(members, limit, |member| member.user))
    }

    /// Makes a user a member, or gives a member another role.
    ///
    /// # Errors
    /// [`MemberError`].
    pub async fn put_member(
        &self,
        session: &Session,
        project: ProjectId,
        user: UserId,
        role: Role,
    ) -> Result<Member, MemberError> {
        let principal = session.principal.clone();
        let member = pg::transact(&self.pool, move |conn| {
            async move {
                let found = find(conn, &principal, project, true).await?;
                if !may_manage(&principal, &found) {
                    return Err(MemberError::Forbidden);
                }
                let name = sqlx::query_scalar!(
                    "SELECT name FROM users WHERE id = $1 AND tenant_id = $2",
                    user.as_uuid(),
                    found.tenant.as_uuid()
                )
                .fetch_optional(&mut *conn)
                .await
                .map_err(PgError::from)?
                .ok_or(MemberError::UnknownUser)?;
                if role != Role::Owner && is_last_owner(conn, &found, user).await? {
                    return Err(MemberError::LastOwner);
                }
                sqlx::query!(
                    "INSERT INTO project_members (project_id, user_id, role) VALUES ($1, $2, $3)
                     ON CONFLICT (project_id, user_id) DO UPDATE SET role = excluded.role",
                    project.as_uuid(),
                    user.as_uuid(),
                    role.as_str()
                )
                .execute(conn)
                .await
                .map_err(PgError::from)?;
                Ok(Member { user, name, role })
            }
            .boxed()
        })
        .await?;
        self.forget_user(user).await;
        Ok(member)
    }

    /// Removes a member. Anybody may leave a project by themselves.
    ///
    /// # Errors
    /// [`MemberError`].
    pub async fn remove_member(
        &self,
        session: &Session,
        project: ProjectId,
        user: UserId,
    ) -> Result<(), MemberError> {
        let principal = session.principal.clone();
        pg::transact(&self.pool, move |conn| {
            async move {
                let found = find(conn, &principal, project, true).await?;
                if !may_manage(&principal, &found) && user != principal.user {
                    return Err(MemberError::Forbidden);
                }
                if is_last_owner(conn, &found, user).await? {
                    return Err(MemberError::LastOwner);
                }
                let removed = sqlx::query!(
                    "DELETE FROM project_members WHERE project_id = $1 AND user_id = $2",
                    project.as_uuid(),
                    user.as_uuid()
                )
                .execute(conn)
                .await
                .map_err(PgError::from)?;
                if removed.rows_affected() == 0 { Err(MemberError::NotFound) } else { Ok(()) }
            }
            .boxed()
        })
        .await?;
        self.forget_user(user).await;
        Ok(())
    }
}

/// Whether the user is the only owner. The project's row is locked, so nobody changes that meanwhile.
async fn is_last_owner(conn: &mut PgConnection, project: &Project, user: UserId) -> Result<bool, PgError> {
    let owners = sqlx::query_scalar!(
        "SELECT user_id FROM project_members WHERE project_id = $1 AND role = 'owner' LIMIT 2",
        project.id.as_uuid()
    )
    .fetch_all(conn)
    .await?;
    Ok(owners == [user.as_uuid()])
}

#[cfg(test)]
mod tests {
    use domain::{Scope, principal::Access};
    use testkit::TestDb;

    use super::*;
    use crate::tests_support::Seed;

    #[tokio::test]
    async fn owners_decide_who_is_in_and_viewers_only_look() {
        let db = TestDb::new().await;
        let seed = Seed::new(&db.pool).await;
        let tenancy = &seed.tenancy;
        let owner = tenancy.authenticate(&seed.key.text).await.unwrap();
        let project = tenancy.create_project(&owner, "Trailer").await.unwrap().id;
        let bob = seed.another_user(&db.pool, seed.tenant, None).await;
        let bobs_key = seed.key_with(&db.pool, bob, &[Scope::Read, Scope::Write]).await;
        let session = async || Session::clone(&*tenancy.authenticate(&bobs_key.text).await.unwrap());

        let hidden = tenancy.list_members(&session().await, project, None, 9).await;
        assert!(matches!(hidden, Err(MemberError::NotFound)));
        tenancy.put_member(&owner, project, bob, Role::Viewer).await.unwrap();
        let viewer = session().await;
        assert_eq!(viewer.principal.memberships.get(&project), Some(&Role::Viewer), "known here at once");
        assert_eq!(tenancy.list_members(&viewer, project, None, 9).await.unwrap().items.len(), 2);
        let task = domain::principal::Owner { tenant: seed.tenant, user: seed.user, project: Some(project) };
        assert_eq!(viewer.principal.access(&task), Access::Read);
        let refused = tenancy.put_member(&viewer, project, bob, Role::Owner).await;
        assert!(matches!(refused, Err(MemberError::Forbidden)));
        let refused = tenancy.rename_project(&viewer, project, "Mine").await;
        assert!(matches!(refused, Err(ProjectError::Forbidden)));

        tenancy.put_member(&owner, project, bob, Role::Editor).await.unwrap();
        assert_eq!(session().await.principal.access(&task), Access::Write);
        tenancy.remove_member(&session().await, project, bob).await.unwrap();
        let gone = tenancy.remove_member(&owner, project, bob).await;
        assert!(matches!(gone, Err(MemberError::NotFound)));
        assert_eq!(session().await.principal.access(&task), Access::Hidden);
    }

    #[tokio::test]
    async fn a_project_keeps_an_owner_even_when_two_leave_at_once() {
        let db = TestDb::new().await;
        let seed = Seed::new(&db.pool).await;
        let tenancy = &seed.tenancy;
        let owner = tenancy.authenticate(&seed.key.text).await.unwrap();
        let project = tenancy.create_project(&owner, "Trailer").await.unwrap().id;
        let alone = tenancy.put_member(&owner, project, seed.user, Role::Editor).await;
        assert!(matches!(alone, Err(MemberError::LastOwner)));

        let bob = seed.another_user(&db.pool, seed.tenant, None).await;
        tenancy.put_member(&owner, project, bob, Role::Owner).await.unwrap();
        let (one, two) = tokio::join!(
            tenancy.remove_member(&owner, project, bob),
            tenancy.remove_member(&owner, project, seed.user),
        );
        assert_eq!([one.is_ok(), two.is_ok()].into_iter().filter(|left| *left).count(), 1);
    }

    #[tokio::test]
    async fn a_user_of_another_tenant_cannot_become_a_member() {
        let db = TestDb::new().await;
        let (seed, foreign) = (Seed::new(&db.pool).await, Seed::new(&db.pool).await);
        let owner = seed.tenancy.authenticate(&seed.key.text).await.unwrap();
        let project = seed.tenancy.create_project(&owner, "Trailer").await.unwrap().id;
        let refused = seed.tenancy.put_member(&owner, project, foreign.user, Role::Viewer).await;
        assert!(matches!(refused, Err(MemberError::UnknownUser)));
    }
}
