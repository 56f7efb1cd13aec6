//! Making an API key. Its text is in the first answer only: neither the log nor a repetition has it.

use chrono::{DateTime, Utc};
use domain::{KeyId, Scopes, UserId};
use serde_json::json;
use tenancy::CreateKeyError;

use crate::{
    Actor, Done, Operator, OperatorError,
    log::{self, Entry},
    once::{self, Once},
};

/// A key to be made.
#[derive(Debug, Clone)]
pub struct NewKey {
    /// Whose key.
    pub user: UserId,
    /// What it allows; read and write when nothing is said.
    pub scopes: Option<Scopes>,
}

/// A key that was made.
#[derive(Clone)]
pub struct KeyMade {
    /// The public part.
    pub id: KeyId,
    /// The whole text, stored nowhere.
    pub text: String,
    /// Whose.
    pub user: UserId,
    /// What it allows.
    pub scopes: Scopes,
    /// When.
    pub created_at: DateTime<Utc>,
}

impl std::fmt::Debug for KeyMade {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KeyMade").field("id", &self.id).field("user", &self.user).finish_non_exhaustive()
    }
}

impl Operator {
    /// Makes a key. The caller's right to give these scopes is not checked here: whoever may use this verb may give
    /// any.
    ///
    /// # Errors
    /// [`OperatorError`].
    pub async fn create_key(
        &self,
        actor: Actor,
        once: Option<Once<KeyMade>>,
        new: NewKey,
    ) -> Result<Done<KeyMade>, OperatorError> {
        once::transact(&self.pool, move |conn| {
            Box::pin(async move {
                let scopes = new.scopes.unwrap_or_else(Scopes::default_of_keys);
                let created_at = pg::now(conn).await?;
                // A key collides with nothing, so it may be made first; a repetition rolls it back.
                let key = tenancy::create_key(conn, new.user, scopes).await.map_err(refused)?;
                let made = KeyMade { id: key.id, text: key.text, user: new.user, scopes, created_at };
                once::reserve(conn, once.as_ref(), made.id.as_str(), &made).await?;
                let scopes: Vec<_> = scopes.iter().collect();
                let after = json!({ "user_id": made.user, "scopes": scopes });
                let entry =
                    Entry { verb: "key.create", subject: made.id.as_str(), before: None, after: Some(after) };
                log::write(conn, &actor, entry).await?;
                Ok(made)
            })
        })
        .await
    }
}

fn refused(error: CreateKeyError) -> OperatorError {
    match error {
        CreateKeyError::UnknownUser => OperatorError::field("user_id", "unknown_value", error),
        CreateKeyError::NoScopes => OperatorError::field("scopes", "invalid", error),
        CreateKeyError::Pg(error) => error.into(),
    }
}

#[cfg(test)]
mod tests {
    use domain::Scope;
    use testkit::TestDb;

    use super::*;
    use crate::tests::{operator, rows, tenant, user};

    #[tokio::test]
    async fn a_key_works_and_its_secret_lies_nowhere() {
        let db = TestDb::new().await;
        let operator = operator(&db);
        let tenant = tenant(&operator).await;
        let user = user(&operator, tenant).await;
        let new = NewKey { user, scopes: Some([Scope::Admin].into_iter().collect()) };
        let once = Once {
            user,
            route: "POST /admin/keys",
            key: "k".to_owned(),
            fingerprint: [0; 32],
            status: 201,
            render: |made: &KeyMade| made.id.to_string(),
        };
        let Done::Fresh(made) = operator.create_key(Actor::CommandLine, Some(once), new).await.unwrap()
        else {
            panic!("nothing to replay");
        };
        let session = operator.tenancy.authenticate(&made.text).await.unwrap();
        assert!(session.principal.scopes.has(Scope::Admin));
        let secret = made.text.rsplit('_').next().unwrap();
        for table in ["operator_log", "idempotency_keys", "api_keys"] {
            let texts = rows(&db, &format!("SELECT t::text FROM {table} t")).await;
            assert!(!texts.is_empty() && texts.iter().all(|text| !text.contains(secret)), "{table}");
        }
    }
}
