//! What most tests of this crate begin with: a tenant with one user and one key.

use domain::{AccountId, Scope, Scopes, TenantId, UserId};
use pg::PgPool;

use crate::{
    MintedKey, NewTenant, NewUser, Payer, Tenancy, TenancyConfig, create_key, create_tenant, create_user,
};

pub(crate) struct Seed {
    pub(crate) tenancy: Tenancy,
    pub(crate) tenant: TenantId,
    pub(crate) user: UserId,
    pub(crate) user_account: AccountId,
    pub(crate) key: MintedKey,
}

impl Seed {
    pub(crate) async fn new(pool: &PgPool) -> Self {
        let tenancy = Tenancy::new(pool.clone(), TenancyConfig::default()).unwrap();
        let mut conn = pool.acquire().await.unwrap();
        let tenant = NewTenant {
            id: TenantId::generate(),
            name: "Acme".to_owned(),
            tier: None,
            time_zone: None,
            payer: Payer::User,
        };
        create_tenant(&mut conn, tenancy.tiers(), &tenant).await.unwrap();
        let user =
            NewUser { id: UserId::generate(), tenant: tenant.id, name: "Ada".to_owned(), external_id: None };
        let user = create_user(&mut conn, &user).await.unwrap();
        let key = create_key(&mut conn, user.id, Scopes::default_of_keys()).await.unwrap();
        Self { tenancy, tenant: tenant.id, user: user.id, user_account: user.account, key }
    }

    pub(crate) async fn another_user(
        &self,
        pool: &PgPool,
        tenant: TenantId,
        external_id: Option<&str>,
    ) -> UserId {
        let new = NewUser {
            id: UserId::generate(),
            tenant,
            name: "Bob".to_owned(),
            external_id: external_id.map(str::to_owned),
        };
        create_user(&mut pool.acquire().await.unwrap(), &new).await.unwrap().id
    }

    pub(crate) async fn key_with(&self, pool: &PgPool, user: UserId, scopes: &[Scope]) -> MintedKey {
        let scopes = scopes.iter().copied().collect();
        create_key(&mut pool.acquire().await.unwrap(), user, scopes).await.unwrap()
    }

    /// A process that remembers nothing yet.
    pub(crate) fn fresh(&self, pool: &PgPool) -> Tenancy {
        Tenancy::new(pool.clone(), TenancyConfig::default()).unwrap()
    }
}
