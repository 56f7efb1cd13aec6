//! Finding and listing users.

use chrono::{DateTime, Utc};
use domain::{AccountId, Scope, TenantId, UserId};
use pg::{PgConnection, PgError};
use uuid::Uuid;

use crate::{Page, Session, Tenancy, User};

/// Why a list is not given.
#[derive(Debug, thiserror::Error)]
pub enum ListError {
    /// The session may not see it.
    #[error("the scope tenant:write is needed")]
    Forbidden,
    /// PostgreSQL failed.
    #[error(transparent)]
    Pg(#[from] PgError),
}

impl Tenancy {
    /// At most `limit` users of the session's tenant after the given one, oldest first.
    ///
    /// # Errors
    /// [`ListError::Forbidden`] without `tenant:write`.
    pub async fn list_users(
        &self,
        session: &Session,
        after: Option<UserId>,
        limit: u16,
    ) -> Result<Page<User, UserId>, ListError> {
        let scopes = session.principal.scopes;
        if !scopes.has(Scope::TenantWrite) && !scopes.has(Scope::Admin) {
            return Err(ListError::Forbidden);
        }
        let mut conn = self.pool.acquire().await.map_err(PgError::from)?;
        Ok(list_users(&mut conn, Some(session.principal.tenant), after, limit).await?)
    }
}

/// The user of this id.
///
/// # Errors
/// When the statement fails.
pub async fn find_user(conn: &mut PgConnection, id: UserId) -> Result<Option<User>, PgError> {
    let row = sqlx::query_as!(
        Row,
        "SELECT id, tenant_id, name, external_id, account_id, created_at FROM users WHERE id = $1",
        id.as_uuid()
    )
    .fetch_optional(conn)
    .await?;
    Ok(row.map(Into::into))
}

/// At most `limit` users after the given one, of one tenant or of all, oldest first.
///
/// # Errors
/// When the statement fails.
pub async fn list_users(
    conn: &mut PgConnection,
    tenant: Option<TenantId>,
    after: Option<UserId>,
    limit: u16,
) -> Result<Page<User, UserId>, PgError> {
    let rows = sqlx::query_as!(
        Row,
        "SELECT id, tenant_id, name, external_id, account_id, created_at FROM users
         WHERE id > $1 AND ($2::uuid IS NULL OR tenant_id = $2) ORDER BY id LIMIT $3",
        after.map_or(Uuid::nil(), UserId::as_uuid),
        tenant.map(TenantId::as_uuid),
        i64::from(limit) + 1
    )
    .fetch_all(conn)
    .await?;
    Ok(Page::cut(rows.into_iter().map(User::from).collect(), limit, |user| user.id))
}

struct Row {
    id: Uuid,
    tenant_id: Uuid,
    name: String,
    external_id: Option<String>,
    account_id: Uuid,
    created_at: DateTime<Utc>,
}

impl From<Row> for User {
    fn from(row: Row) -> Self {
        Self {
            id: UserId::from_uuid(row.id),
            tenant: TenantId::from_uuid(row.tenant_id),
            name: row.name,
            external_id: row.external_id,
            account: AccountId::from_uuid(row.account_id),
            created_at: row.created_at,
        }
    }
}

#[cfg(test)]
mod tests {
    use testkit::TestDb;

    use super::*;
    use crate::tests_support::Seed;

    #[tokio::test]
    async fn a_tenants_server_pages_through_its_own_users_only() {
        let db = TestDb::new().await;
        let (seed, foreign) = (Seed::new(&db.pool).await, Seed::new(&db.pool).await);
        let second = seed.another_user(&db.pool, seed.tenant, None).await;
        let third = seed.another_user(&db.pool, seed.tenant, None).await;
        let plain = seed.tenancy.authenticate(&seed.key.text).await.unwrap();
        let refused = seed.tenancy.list_users(&plain, None, 2).await;
        assert!(matches!(refused, Err(ListError::Forbidden)));

        let server = seed.key_with(&db.pool, seed.user, &[Scope::TenantWrite]).await;
        let server = seed.tenancy.authenticate(&server.text).await.unwrap();
        let ids = |page: &Page<User, UserId>| page.items.iter().map(|user| user.id).collect::<Vec<_>>();
        let first = seed.tenancy.list_users(&server, None, 2).await.unwrap();
        assert_eq!((ids(&first), first.next), (vec![seed.user, second], Some(second)));
        let rest = seed.tenancy.list_users(&server, first.next, 2).await.unwrap();
        assert_eq!((ids(&rest), rest.next), (vec![third], None));
        assert!(!ids(&first).contains(&foreign.user));
    }
}
