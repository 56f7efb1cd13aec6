//! What a demo is seeded with: one tenant, one user with a key and credits, and an operator's key.

use std::path::Path;

use anyhow::Context;
use domain::{Credits, TenantId, UserId};
use operator::{Actor, NewGrant, NewKey, NewTenant, NewUser};
use serde::{Deserialize, Serialize};

use super::place::Place;
use crate::{
    commands::admin::{every_scope, made, platform_operator},
    compose::Stores,
};

/// Where the seed is kept.
const FILE: &str = "seed.json";

/// The ids and keys that stay the same from start to start.
#[derive(Serialize, Deserialize)]
pub(crate) struct Seed {
    pub(super) tenant_id: TenantId,
    pub(super) user_id: UserId,
    pub(super) api_key: String,
    pub(super) admin_key: String,
}

/// Seeds a deployment that is no demo's own; the folder keeps nothing but the seed.
///
/// # Errors
/// As [`ensure`], and when somebody else uses the folder.
pub(crate) async fn seed_in(folder: &Path, stores: &Stores, credits: Credits) -> anyhow::Result<Seed> {
    ensure(&Place::take(folder)?, stores, credits).await
}

/// The seed of an earlier start, if the database still knows it, else a new one; and its credits.
///
/// # Errors
/// When the database refuses, or the file cannot be understood.
pub(super) async fn ensure(place: &Place, stores: &Stores, credits: Credits) -> anyhow::Result<Seed> {
    let seed = match place.kept::<Seed>(FILE)? {
        Some(seed) if is_known(stores, &seed).await => seed,
        Some(_) => {
            eprintln!("The database knows nothing of the keys in {FILE} any more: making new ones");
            make(place, stores).await?
        }
        None => make(place, stores).await?,
    };
    top_up(stores, &seed, credits).await?;
    Ok(seed)
}

async fn is_known(stores: &Stores, seed: &Seed) -> bool {
    let user = stores.tenancy.authenticate(&seed.api_key).await;
    let admin = stores.tenancy.authenticate(&seed.admin_key).await;
    user.is_ok_and(|session| session.principal.user == seed.user_id) && admin.is_ok()
}

async fn make(place: &Place, stores: &Stores) -> anyhow::Result<Seed> {
    let operator = &stores.operator;
    let by = || Actor::CommandLine;
    let new = NewTenant {
        name: "Demo".to_owned(),
        tier: Some("enterprise".to_owned()),
        time_zone: None,
        payer: None,
    };
    let tenant = made(operator.create_tenant(by(), None, new).await?)?;
    let new = NewUser { tenant: tenant.id, name: "Demo user".to_owned(), external_id: None };
    let user = made(operator.create_user(by(), None, new).await?)?;
    let key = made(operator.create_key(by(), None, NewKey { user: user.id, scopes: None }).await?)?;
    let new = NewKey { user: platform_operator(operator).await?, scopes: Some(every_scope()) };
    let admin = made(operator.create_key(by(), None, new).await?)?;
    let seed = Seed { tenant_id: tenant.id, user_id: user.id, api_key: key.text, admin_key: admin.text };
    // A crash before this line leaves a tenant that nobody has a key for, and the next start makes another.
    place.keep(FILE, &seed)?;
    Ok(seed)
}

/// Gives what is missing to the wanted figure, so that a crash after the keys or another configuration loses nothing.
async fn top_up(stores: &Stores, seed: &Seed, wanted: Credits) -> anyhow::Result<()> {
    let session = stores.tenancy.authenticate(&seed.api_key).await.context("the demo's own key")?;
    let granted = stores.ledger.balance(session.principal.account).await?.granted;
    let Some(missing) = wanted.checked_sub(granted).filter(|missing| *missing > Credits::ZERO) else {
        return Ok(());
    };
    let new = NewGrant { user: seed.user_id, credits: missing, category: Some("demo".to_owned()) };
    made(stores.operator.grant(Actor::CommandLine, None, new).await?)?;
    Ok(())
}
