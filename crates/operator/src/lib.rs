//! What operators do by hand: tenants, users, keys, grants, limits and pauses; and what they look at.
//!
//! Each verb that changes something is one transaction that makes the change through its owner, writes who did what into `operator_log`, and
//! reserves the caller's Idempotency-Key if there is one. So there is no change without its row, no row without its
//! change, and a repeated request changes nothing. This crate owns `operator_log` and nothing else.

mod accounts;
mod create_key;
mod create_tenant;
mod create_user;
mod error;
mod grant;
mod limits;
mod list;
mod log;
mod once;
mod pause;
mod queue;
mod revoke_key;
mod slots;

use domain::{KeyId, UserId};
use pg::PgPool;
use tenancy::Tenancy;

pub use accounts::{AccountSeen, look_at_accounts};
pub use catalogue::{Intent, IntentKind, Subject};
pub use create_key::{KeyMade, NewKey};
pub use create_tenant::{NewTenant, TenantMade};
pub use create_user::{NewUser, UserMade};
pub use error::OperatorError;
pub use grant::{GrantMade, NewGrant};
pub use once::{Done, Once};
pub use pause::NewPause;
pub use queue::{QueueSeen, look_at_queues};
pub use slots::{PlaceSeen, SetSeen, SlotSeen, SlotSources, SlotsOf, SlotsSeen, look_at_slots};
pub use tenancy::{
    KeyInfo, Page, Payer, Tenant, User,
    limit_rules::{Figure, LimitRule, RuleKey, RuleSubject},
};

/// The operators' verbs. Cheap to clone.
#[derive(Clone)]
pub struct Operator {
    pool: PgPool,
    tenancy: Tenancy,
}

/// Who does it.
#[derive(Debug, Clone)]
pub enum Actor {
    /// The holder of a key.
    Key {
        /// The key that was used.
        key: KeyId,
        /// Its user.
        user: UserId,
    },
    /// Somebody at the machine, by `aivideo admin`.
    CommandLine,
}

impl Actor {
    const fn key(&self) -> Option<&KeyId> {
        match self {
            Self::Key { key, .. } => Some(key),
            Self::CommandLine => None,
        }
    }
}

impl Operator {
    /// A handle that writes through the given pool.
    #[must_use]
    pub const fn new(pool: PgPool, tenancy: Tenancy) -> Self {
        Self { pool, tenancy }
    }
}

impl std::fmt::Debug for Operator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Operator").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use domain::TenantId;
    use sqlx::AssertSqlSafe;
    use tenancy::TenancyConfig;
    use testkit::TestDb;

    use super::*;

    pub(crate) fn operator(db: &TestDb) -> Operator {
        let tenancy = Tenancy::new(db.pool.clone(), TenancyConfig::default()).unwrap();
        Operator::new(db.pool.clone(), tenancy)
    }

    pub(crate) fn new_tenant(name: &str) -> NewTenant {
        NewTenant { name: name.to_owned(), tier: None, time_zone: None, payer: None }
    }

    pub(crate) async fn tenant(operator: &Operator) -> TenantId {
        match operator.create_tenant(Actor::CommandLine, None, new_tenant("Acme")).await.unwrap() {
            Done::Fresh(made) => made.id,
            Done::Replayed { .. } => panic!("nothing to replay"),
        }
    }

    pub(crate) async fn user(operator: &Operator, tenant: TenantId) -> UserId {
        let new = NewUser { tenant, name: "Ada".to_owned(), external_id: None };
        match operator.create_user(Actor::CommandLine, None, new).await.unwrap() {
            Done::Fresh(made) => made.id,
            Done::Replayed { .. } => panic!("nothing to replay"),
        }
    }

    /// One text column of every row.
    pub(crate) async fn rows(db: &TestDb, query: &str) -> Vec<String> {
        sqlx::query_scalar(AssertSqlSafe(query.to_owned())).fetch_all(&db.pool).await.unwrap()
    }
}
