//! Granting credits to whoever pays for a user's tasks.

use chrono::{DateTime, Utc};
use domain::{AccountId, Credits, GrantId, UserId};
use ledger::grant::GrantError;
use pg::PgConnection;
use serde_json::json;
use tenancy::Payer;

use crate::{
    Actor, Done, Operator, OperatorError,
    log::{self, Entry},
    once::{self, Once, Stop},
};

/// Holds burn grants of a lower number first; an operator's grant has no precedence.
const PRIORITY: i32 = 100;
const CATEGORY_CHARS_MAX: usize = 64;

/// A grant to be made.
#[derive(Debug, Clone)]
pub struct NewGrant {
    /// The user; the grant goes to the account that pays for this user's tasks.
    pub user: UserId,
    /// How much.
    pub credits: Credits,
    /// For display; `operator` when nothing is said.
    pub category: Option<String>,
}

/// A grant that was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrantMade {
    /// Its id.
    pub id: GrantId,
    /// The user.
    pub user: UserId,
    /// The account that got it.
    pub account: AccountId,
    /// How much.
    pub credits: Credits,
    /// For display.
    pub category: String,
    /// When.
    pub created_at: DateTime<Utc>,
}

impl Operator {
    /// Grants credits.
    ///
    /// # Errors
    /// [`OperatorError`].
    pub async fn grant(
        &self,
        actor: Actor,
        once: Option<Once<GrantMade>>,
        new: NewGrant,
    ) -> Result<Done<GrantMade>, OperatorError> {
        once::transact(&self.pool, move |conn| {
            Box::pin(async move {
                let NewGrant { user, credits, category } = new;
                let category = category.unwrap_or_else(|| "operator".to_owned());
                domain::text::check(&category, CATEGORY_CHARS_MAX)
                    .map_err(|fault| OperatorError::field("category", "invalid", fault))?;
                let made = GrantMade {
                    id: GrantId::generate(),
                    user,
                    account: payer_of(conn, user).await?,
                    credits,
                    category,
                    created_at: pg::now(conn).await?,
                };
                let subject = made.id.to_string();
                once::reserve(conn, once.as_ref(), &subject, &made).await?;
                let ask = ledger::NewGrant {
                    id: made.id,
                    account: made.account,
                    category: made.category.clone(),
                    priority: PRIORITY,
                    expires_at: None,
                    // The request is the reason; its repetition is caught by the key, not by the source.
                    source: format!("operator:{subject}"),
                    amount: made.credits,
                };
                ledger::grant(conn, &ask).await.map_err(refused)?;
                let after = json!({
                    "user_id": made.user, "account_id": made.account,
                    "credits": made.credits, "category": made.category,
                });
                let entry =
                    Entry { verb: "grant.create", subject: &subject, before: None, after: Some(after) };
                log::write(conn, &actor, entry).await?;
                Ok(made)
            })
        })
        .await
    }
}

/// The account that pays for the user's tasks.
async fn payer_of(conn: &mut PgConnection, user: UserId) -> Result<AccountId, Stop> {
    let unknown = || OperatorError::field("user_id", "unknown_value", "there is no such user");
    let user = tenancy::find_user(conn, user).await?.ok_or_else(unknown)?;
    let tenant = tenancy::find_tenant(conn, user.tenant).await?.ok_or_else(unknown)?;
    Ok(match tenant.payer {
        Payer::User => user.account,
        Payer::Tenant => tenant.account,
    })
}

fn refused(error: GrantError) -> OperatorError {
    match error {
        GrantError::Amount => OperatorError::field("credits", "out_of_range", error),
        // The account of a user who exists is opened in the user's own transaction.
        GrantError::NoAccount => OperatorError::field("user_id", "unknown_value", error),
        GrantError::Pg(error) => error.into(),
    }
}

#[cfg(test)]
mod tests {
    use ledger::Ledger;
    use testkit::TestDb;

    use super::*;
    use crate::{
        NewTenant,
        tests::{new_tenant, operator, rows, tenant, user},
    };

    fn credits(amount: i64) -> Credits {
        Credits::new(amount).unwrap()
    }

    #[tokio::test]
    async fn a_grant_can_be_spent_and_a_repeated_one_counts_once() {
        let db = TestDb::new().await;
        let operator = operator(&db);
        let tenant = tenant(&operator).await;
        let user = user(&operator, tenant).await;
        let ask = async || {
            let once = Once {
                user,
                route: "POST /admin/grants",
                key: "k".to_owned(),
                fingerprint: [0; 32],
                status: 201,
                render: |made: &GrantMade| made.account.to_string(),
            };
            let new = NewGrant { user, credits: credits(30), category: None };
            operator.grant(Actor::CommandLine, Some(once), new).await.unwrap()
        };
        let Done::Fresh(made) = ask().await else { panic!("nothing to replay") };
        assert!(matches!(ask().await, Done::Replayed { .. }));
        let balance = Ledger::new(db.pool.clone()).balance(made.account).await.unwrap();
        assert_eq!((balance.granted, balance.available), (credits(30), credits(30)));
        assert_eq!(rows(&db, "SELECT verb FROM operator_log WHERE verb = 'grant.create'").await.len(), 1);
    }

    #[tokio::test]
    async fn where_the_tenant_pays_the_tenant_gets_it() {
        let db = TestDb::new().await;
        let operator = operator(&db);
        let new = NewTenant { payer: Some(Payer::Tenant), ..new_tenant("Acme") };
        let Done::Fresh(tenant) = operator.create_tenant(Actor::CommandLine, None, new).await.unwrap() else {
            panic!("nothing to replay");
        };
        let user = user(&operator, tenant.id).await;
        let new = NewGrant { user, credits: credits(5), category: Some("bonus".to_owned()) };
        operator.grant(Actor::CommandLine, None, new).await.unwrap();
        let owners = rows(&db, "SELECT owner_kind FROM credit_accounts WHERE available = 5").await;
        assert_eq!(owners, ["tenant"]);
    }

    #[tokio::test]
    async fn nobody_and_nothing_are_values_to_correct() {
        let db = TestDb::new().await;
        let operator = operator(&db);
        let tenant = tenant(&operator).await;
        let known = user(&operator, tenant).await;
        for (user, amount, field) in [(UserId::generate(), 5, "user_id"), (known, 0, "credits")] {
            let new = NewGrant { user, credits: credits(amount), category: None };
            match operator.grant(Actor::CommandLine, None, new).await {
                Err(OperatorError::Field { field: named, .. }) => assert_eq!(named, field),
                other => panic!("{other:?}"),
            }
        }
    }
}
