//! Who uses the platform: tenants, users, projects and their members, keys, idempotency keys, the limits of each tier, and
//! the rules that operators set over them.
//!
//! Verbs that a larger change is made of ([`create_tenant()`], [`create_user()`], [`create_key()`], [`revoke_key()`],
//! [`idempotency`], [`limit_rules`]) take the caller's transaction. The others hang on [`Tenancy`], the handle that api and
//! generation hold; those decide for themselves whether the session may do it.

mod act_for;
mod audit;
mod authenticate;
mod config;
mod create_key;
mod create_tenant;
mod create_user;
mod dated;
pub mod idempotency;
pub mod limit_rules;
mod list_tenants;
mod list_users;
mod mint_browser_token;
pub mod projects;
mod retire;
mod revoke_key;
mod rows;
mod secret;
mod session;
#[cfg(test)]
mod tests_support;

use std::{sync::Arc, time::Duration};

pub use act_for::ActError;
pub use audit::audit;
pub use authenticate::AuthError;
pub use config::{ConfigError, RouteLimits, TenancyConfig, Tiers};
pub use create_key::{CreateKeyError, MintedKey, create_key};
pub use create_tenant::{CreateTenantError, NewTenant, Payer, Tenant, create_tenant};
pub use create_user::{CreateUserError, NewUser, User, create_user};
use dated::Memory;
use domain::{TenantId, UserId};
use limit_rules::{LiveRules, ShadowLog};
pub use list_tenants::{find_tenant, list_tenants};
pub use list_users::{ListError, find_user, list_users};
pub use mint_browser_token::{MintError, MintedToken, NewToken};
use moka::future::Cache;
use pg::PgPool;
pub use retire::retire;
pub use revoke_key::{KeyInfo, list_keys, revoke_key};
pub use session::{Profile, Session};
use tokio::sync::Semaphore;

/// A part of a list, and where the next part begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page<T, Id> {
    /// The items, in the order of their ids.
    pub items: Vec<T>,
    /// The id after which the next part begins; none when this was the last.
    pub next: Option<Id>,
}

/// Tenants, users and keys as every request needs them. Cheap to clone.
#[derive(Clone)]
pub struct Tenancy {
    pool: PgPool,
    tiers: Tiers,
    caches: Arc<Caches>,
    /// What operators set over the configured limits.
    rules: LiveRules,
}

/// What is remembered between requests. What may change is forgotten at most the configured five seconds after it was asked
/// for, while PostgreSQL answers.
struct Caches {
    /// Who a bearer text speaks for, by the text's SHA-256.
    credentials: Memory<[u8; 32], Arc<authenticate::Verified>>,
    /// Sessions that may outlive an outage of PostgreSQL for a minute.
    vouched: authenticate::Vouched,
    /// Bearer texts that were refused, for a second.
    refused: Cache<[u8; 32], authenticate::Refused>,
    /// Users with their tenant and memberships.
    profiles: Memory<UserId, Arc<Profile>>,
    /// A tenant's own names for its users, which never change.
    external_ids: Cache<(TenantId, String), UserId>,
    /// What limits in shadow mode were told of.
    shadows: ShadowLog,
    /// Look-ups of credentials at once.
    gate: Semaphore,
}

impl Tenancy {
    /// A handle with empty caches.
    ///
    /// # Errors
    /// When the configuration contradicts itself.
    pub fn new(pool: PgPool, config: TenancyConfig) -> Result<Self, ConfigError> {
        let age = Duration::from_millis(config.cache_ms);
        let tiers = Tiers::new(config)?;
        let caches = Caches {
            credentials: Memory::new(100_000, age),
            vouched: authenticate::Vouched::new(),
            refused: Cache::builder()
                .max_capacity(10_000)
                .time_to_live(Duration::from_secs(1).min(age))
                .build(),
            profiles: Memory::new(100_000, age),
            external_ids: Cache::builder().max_capacity(100_000).time_to_live(age).build(),
            shadows: ShadowLog::default(),
            gate: Semaphore::new(4),
        };
        let rules = LiveRules::new(pool.clone(), age);
        Ok(Self { pool, tiers, caches: Arc::new(caches), rules })
    }

    /// The same with connections of another event loop of this process. What is remembered, and what of it is dropped, is
    /// the same.
    #[must_use]
    pub fn beside(&self, pool: PgPool) -> Self {
        Self { rules: self.rules.beside(pool.clone()), pool, ..self.clone() }
    }

    /// The tiers as configured.
    #[must_use]
    pub const fn tiers(&self) -> &Tiers {
        &self.tiers
    }

    /// Drops what is remembered of a user, so that this process sees a committed change at once; others see it
    /// within five seconds.
    pub async fn forget_user(&self, user: UserId) {
        self.caches.profiles.forget(&user).await;
    }

    /// Drops what is remembered of the limit rules, so that this process sees a committed change at once; others see it
    /// within five seconds.
    pub async fn forget_limit_rules(&self) {
        self.rules.forget().await;
    }
}

impl std::fmt::Debug for Tenancy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tenancy").field("tiers", &self.tiers).finish_non_exhaustive()
    }
}
