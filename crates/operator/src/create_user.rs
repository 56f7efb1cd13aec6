//! Making a user with their credit account: by an operator, or by a tenant's own server.

use chrono::{DateTime, Utc};
use domain::{Scope, TenantId, UserId, principal::Credential};
use ledger::AccountOwner;
use serde_json::json;
use tenancy::{CreateUserError, Session};

use crate::{
    Actor, Done, Operator, OperatorError,
    log::{self, Entry},
    once::{self, Once},
};

/// A user to be made.
#[derive(Debug, Clone)]
pub struct NewUser {
    /// The tenant.
    pub tenant: TenantId,
    /// The name.
    pub name: String,
    /// The tenant's own name for the user.
    pub external_id: Option<String>,
}

/// A user that was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserMade {
    /// The id.
    pub id: UserId,
    /// The tenant.
    pub tenant: TenantId,
    /// The name.
    pub name: String,
    /// The tenant's own name for the user.
    pub external_id: Option<String>,
    /// When.
    pub created_at: DateTime<Utc>,
}

impl Operator {
    /// Makes a user.
    ///
    /// # Errors
    /// [`OperatorError`].
    pub async fn create_user(
        &self,
        actor: Actor,
        once: Option<Once<UserMade>>,
        new: NewUser,
    ) -> Result<Done<UserMade>, OperatorError> {
        self.make_user(actor, "user.create", once, new).await
    }

    /// Makes a user of the session's own tenant.
    ///
    /// # Errors
    /// [`OperatorError::Forbidden`] without `tenant:write`, else as [`Operator::create_user`].
    pub async fn register_user(
        &self,
        session: &Session,
        once: Option<Once<UserMade>>,
        name: String,
        external_id: Option<String>,
    ) -> Result<Done<UserMade>, OperatorError> {
        let caller = &session.principal;
        let Credential::Key(key) = &caller.credential else {
            return Err(OperatorError::Forbidden(Scope::TenantWrite.as_str()));
        };
        if !caller.scopes.has(Scope::TenantWrite) {
            return Err(OperatorError::Forbidden(Scope::TenantWrite.as_str()));
        }
        let actor = Actor::Key { key: key.clone(), user: caller.user };
        let new = NewUser { tenant: caller.tenant, name, external_id };
        self.make_user(actor, "user.register", once, new).await
    }

    async fn make_user(
        &self,
        actor: Actor,
        verb: &'static str,
        once: Option<Once<UserMade>>,
        new: NewUser,
    ) -> Result<Done<UserMade>, OperatorError> {
        once::transact(&self.pool, move |conn| {
            Box::pin(async move {
                let NewUser { tenant, name, external_id } = new;
                let created_at = pg::now(conn).await?;
                let made = UserMade { id: UserId::generate(), tenant, name, external_id, created_at };
                let subject = made.id.to_string();
                once::reserve(conn, once.as_ref(), &subject, &made).await?;
                let ask = tenancy::NewUser {
                    id: made.id,
                    tenant: made.tenant,
                    name: made.name.clone(),
                    external_id: made.external_id.clone(),
                };
                let user = tenancy::create_user(conn, &ask).await.map_err(refused)?;
                ledger::open_account(conn, user.account, AccountOwner::User(made.id)).await?;
                let after =
                    json!({ "tenant_id": made.tenant, "name": made.name, "external_id": made.external_id });
                log::write(conn, &actor, Entry { verb, subject: &subject, before: None, after: Some(after) })
                    .await?;
                Ok(made)
            })
        })
        .await
    }
}

fn refused(error: CreateUserError) -> OperatorError {
    match error {
        CreateUserError::Name(fault) => OperatorError::field("name", "invalid", fault),
        CreateUserError::ExternalId => OperatorError::field("external_id", "invalid", error),
        CreateUserError::ExternalIdTaken => OperatorError::field("external_id", "taken", error),
        CreateUserError::UnknownTenant => OperatorError::field("tenant_id", "unknown_value", error),
        CreateUserError::Pg(error) => error.into(),
    }
}

#[cfg(test)]
mod tests {
    use testkit::TestDb;

    use super::*;
    use crate::tests::{operator, rows, tenant, user};

    #[tokio::test]
    async fn a_user_comes_with_an_account() {
        let db = TestDb::new().await;
        let operator = operator(&db);
        let tenant = tenant(&operator).await;
        let made = user(&operator, tenant).await;
        let owners = rows(&db, "SELECT owner_id::text FROM credit_accounts WHERE owner_kind = 'user'").await;
        assert_eq!(owners, [made.as_uuid().to_string()]);
    }

    #[tokio::test]
    async fn an_unknown_tenant_is_a_value_to_correct() {
        let db = TestDb::new().await;
        let new = NewUser { tenant: TenantId::generate(), name: "Ada".to_owned(), external_id: None };
        match operator(&db).create_user(Actor::CommandLine, None, new).await {
            Err(OperatorError::Field { field, .. }) => assert_eq!(field, "tenant_id"),
            other => panic!("{other:?}"),
        }
    }
}
