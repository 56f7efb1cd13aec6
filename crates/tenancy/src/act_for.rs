//! Acting for a user: a tenant's own server names the user for whom it asks.

use std::sync::Arc;

use domain::{Scope, Scopes, UserId};
use pg::PgError;

use crate::{Tenancy, create_user::is_external_id, session::Session};

/// Why one may not act for a user.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ActError {
    /// The session has no `tenant:write`.
    #[error("acting for a user needs the scope tenant:write")]
    Forbidden,
    /// The tenant has no such user.
    #[error("the tenant has no such user")]
    UnknownUser,
    /// Users cannot be looked up now.
    #[error("users cannot be looked up now")]
    Unavailable(#[source] Arc<PgError>),
}

impl Tenancy {
    /// The session of the user whom `user_ref` names, by id or by the tenant's own name. It can read and write as
    /// that user, and no more than that.
    ///
    /// # Errors
    /// [`ActError`].
    pub async fn act_for(&self, session: &Session, user_ref: &str) -> Result<Arc<Session>, ActError> {
        if !session.principal.scopes.has(Scope::TenantWrite) {
            return Err(ActError::Forbidden);
        }
        let tenant = session.principal.tenant;
        let user = self.resolve_user(session, user_ref).await?.ok_or(ActError::UnknownUser)?;
        let profile = self.profile(user).await.map_err(ActError::Unavailable)?;
        let profile = profile.filter(|profile| profile.tenant == tenant).ok_or(ActError::UnknownUser)?;
        let book = self.rules.get().await.map_err(ActError::Unavailable)?;
        let scopes: Scopes = [Scope::Read, Scope::Write].into_iter().collect();
        let credential = session.principal.credential.clone();
        let mut acting = self.session(&profile, scopes, credential, &session.origins, &book);
        // What the key may do in its own name says nothing of what each user may do.
        if !acting.rules.is_without_key() {
            Arc::make_mut(&mut acting.rules).leave_key_out();
        }
        Ok(Arc::new(acting))
    }

    /// The user of the session's tenant whom a text names. An id is not checked to exist.
    async fn resolve_user(&self, session: &Session, user_ref: &str) -> Result<Option<UserId>, ActError> {
        if let Ok(id) = user_ref.parse::<UserId>() {
            return Ok(Some(id));
        }
        if !is_external_id(user_ref) {
            return Ok(None);
        }
        let key = (session.principal.tenant, user_ref.to_owned());
        if let Some(user) = self.caches.external_ids.get(&key).await {
            return Ok(Some(user));
        }
        let found = sqlx::query_scalar!(
            "SELECT id FROM users WHERE tenant_id = $1 AND external_id = $2",
            key.0.as_uuid(),
            key.1
        )
        .fetch_optional(&self.pool)
        .await
        .map_err(|error| ActError::Unavailable(Arc::new(error.into())))?;
        let Some(id) = found else { return Ok(None) };
        let user = UserId::from_uuid(id);
        self.caches.external_ids.insert(key, user).await;
        Ok(Some(user))
    }
}

#[cfg(test)]
mod tests {
    use testkit::TestDb;

    use super::*;
    use crate::tests_support::Seed;

    #[tokio::test]
    async fn a_tenants_server_acts_for_its_users_by_either_name() {
        let db = TestDb::new().await;
        let seed = Seed::new(&db.pool).await;
        let server = seed.key_with(&db.pool, seed.user, &[Scope::TenantWrite]).await;
        let server = seed.tenancy.authenticate(&server.text).await.unwrap();
        let other = seed.another_user(&db.pool, seed.tenant, Some("u-42")).await;
        for name in ["u-42".to_owned(), other.to_string()] {
            let acting = seed.tenancy.act_for(&server, &name).await.unwrap();
            assert_eq!(acting.principal.user, other);
            let scopes = acting.principal.scopes;
            assert!(scopes.has(Scope::Write) && !scopes.has(Scope::TenantWrite), "no more than the user may");
        }
    }

    #[tokio::test]
    async fn strangers_and_plain_keys_are_refused() {
        let db = TestDb::new().await;
        let (seed, foreign) = (Seed::new(&db.pool).await, Seed::new(&db.pool).await);
        seed.another_user(&db.pool, foreign.tenant, Some("theirs")).await;
        let plain = seed.tenancy.authenticate(&seed.key.text).await.unwrap();
        let refused = seed.tenancy.act_for(&plain, &seed.user.to_string()).await;
        assert!(matches!(refused, Err(ActError::Forbidden)));

        let server = seed.key_with(&db.pool, seed.user, &[Scope::TenantWrite]).await;
        let server = seed.tenancy.authenticate(&server.text).await.unwrap();
        for name in [foreign.user.to_string().as_str(), "theirs", "nobody", "", "a\u{e9}"] {
            let refused = seed.tenancy.act_for(&server, name).await;
            assert!(matches!(refused, Err(ActError::UnknownUser)), "{name}");
        }
    }
}
