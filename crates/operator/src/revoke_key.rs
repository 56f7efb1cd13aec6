//! Revoking an API key, and with it every token that it minted.

use domain::KeyId;
use serde_json::json;
use tenancy::KeyInfo;

use crate::{
    Actor, Operator, OperatorError,
    log::{self, Entry},
};

impl Operator {
    /// Revokes a key. It is refused everywhere within five seconds. Revoking it again changes nothing.
    ///
    /// # Errors
    /// [`OperatorError::NotFound`] when there is no such key.
    pub async fn revoke_key(&self, actor: Actor, key: KeyId) -> Result<KeyInfo, OperatorError> {
        pg::transact(&self.pool, move |conn| {
            Box::pin(async move {
                let info = tenancy::revoke_key(conn, &key).await?.ok_or(OperatorError::NotFound)?;
                let after = json!({ "revoked_at": info.revoked_at });
                let entry =
                    Entry { verb: "key.revoke", subject: key.as_str(), before: None, after: Some(after) };
                log::write(conn, &actor, entry).await?;
                Ok(info)
            })
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use testkit::TestDb;

    use super::*;
    use crate::{
        Done, NewKey,
        tests::{operator, rows, tenant, user},
    };

    #[tokio::test]
    async fn revoking_twice_is_revoking_once_and_both_are_logged() {
        let db = TestDb::new().await;
        let operator = operator(&db);
        let tenant = tenant(&operator).await;
        let user = user(&operator, tenant).await;
        let new = NewKey { user, scopes: None };
        let Done::Fresh(key) = operator.create_key(Actor::CommandLine, None, new).await.unwrap() else {
            panic!("nothing to replay");
        };
        let first = operator.revoke_key(Actor::CommandLine, key.id.clone()).await.unwrap();
        let second = operator.revoke_key(Actor::CommandLine, key.id).await.unwrap();
        assert!(first.revoked_at.is_some() && first.revoked_at == second.revoked_at);
        assert_eq!(rows(&db, "SELECT subject FROM operator_log WHERE verb = 'key.revoke'").await.len(), 2);
        let unknown = operator.revoke_key(Actor::CommandLine, "abcdefghijkl".parse().unwrap()).await;
        assert!(matches!(unknown, Err(OperatorError::NotFound)));
    }
}
