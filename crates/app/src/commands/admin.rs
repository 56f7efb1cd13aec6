//! `aivideo admin …`: the operators' verbs at the machine, for the first keys and for emergencies. Each leaves its
//! row in `operator_log` like the same verb over HTTP. Prints one JSON object per line.

use std::{io::Write, path::Path};

use anyhow::{Context, bail};
use domain::{Scope, Scopes, UserId};
use operator::{Actor, Done, NewGrant, NewKey, NewTenant, NewUser, Operator};
use pg::PgPool;
use serde_json::{Value, json};
use tenancy::Tenancy;

use crate::{
    cli::{AdminCommand, GrantCommand, KeyCommand, TenantCommand, UserCommand},
    commands::load,
    config::{Config, Needs},
    telemetry,
};

/// Items per page of a list; all pages are printed.
const PAGE: u16 = 100;
/// The platform's own tenant, whose one user operates it.
const OPERATORS: &str = "Operators";

pub(super) async fn admin(file: Option<&Path>, command: AdminCommand) -> anyhow::Result<()> {
    let config = load(file, Needs::Database)?;
    telemetry::start_logs(&config.log)?;
    let pool = pg::connect(&config.database.to_pg()).await.context("cannot reach PostgreSQL")?;
    pg::check_schema(&pool).await?;
    let operator = operator(&config, &pool)?;
    match command {
        AdminCommand::Tenant(command) => tenant(&operator, command).await,
        AdminCommand::User(command) => user(&operator, command).await,
        AdminCommand::Key(command) => key(&operator, command).await,
        AdminCommand::Grant(command) => grant(&operator, command).await,
    }
}

/// The operators' verbs on this database.
pub(crate) fn operator(config: &Config, pool: &PgPool) -> anyhow::Result<Operator> {
    let tenancy = Tenancy::new(pool.clone(), config.tenancy.to_tenancy(&config.tiers))?;
    Ok(Operator::new(pool.clone(), tenancy))
}

/// What a verb at the command line has made: it sends no Idempotency-Key, so it is never a replay.
pub(crate) fn made<T>(done: Done<T>) -> anyhow::Result<T> {
    match done {
        Done::Fresh(made) => Ok(made),
        Done::Replayed { .. } => bail!("the answer is that of an earlier request"),
    }
}

/// The scopes of the platform's own operator.
pub(crate) fn every_scope() -> Scopes {
    Scope::ALL.iter().copied().collect()
}

/// The user whose keys operate the platform, made when it is first asked for.
pub(crate) async fn platform_operator(operator: &Operator) -> anyhow::Result<UserId> {
    let mut after = None;
    loop {
        let page = operator.tenants(after, PAGE).await?;
        for tenant in page.items.iter().filter(|tenant| tenant.name == OPERATORS) {
            if let Some(user) = operator.users(Some(tenant.id), None, 1).await?.items.first() {
                return Ok(user.id);
            }
        }
        match page.next {
            Some(next) => after = Some(next),
            None => break,
        }
    }
    let new = NewTenant { name: OPERATORS.to_owned(), tier: None, time_zone: None, payer: None };
    let tenant = made(operator.create_tenant(Actor::CommandLine, None, new).await?)?;
    let new = NewUser { tenant: tenant.id, name: "Operator".to_owned(), external_id: None };
    Ok(made(operator.create_user(Actor::CommandLine, None, new).await?)?.id)
}

async fn tenant(operator: &Operator, command: TenantCommand) -> anyhow::Result<()> {
    match command {
        TenantCommand::Create { name, tier, time_zone } => {
            let new = NewTenant { name, tier, time_zone, payer: None };
            let tenant = made(operator.create_tenant(Actor::CommandLine, None, new).await?)?;
            print(&json!({ "id": tenant.id, "name": tenant.name, "tier": tenant.tier }))
        }
        TenantCommand::List => {
            let mut after = None;
            loop {
                let page = operator.tenants(after, PAGE).await?;
                for tenant in page.items {
                    print(&json!({ "id": tenant.id, "name": tenant.name, "tier": tenant.tier }))?;
                }
                match page.next {
                    Some(next) => after = Some(next),
                    None => return Ok(()),
                }
            }
        }
    }
}

async fn user(operator: &Operator, command: UserCommand) -> anyhow::Result<()> {
    match command {
        UserCommand::Create { tenant, name, external_id } => {
            let new = NewUser { tenant, name, external_id };
            let user = made(operator.create_user(Actor::CommandLine, None, new).await?)?;
            print(&json!({ "id": user.id, "tenant_id": user.tenant, "name": user.name }))
        }
        UserCommand::List { tenant } => {
            let mut after = None;
            loop {
                let page = operator.users(tenant, after, PAGE).await?;
                for user in page.items {
                    print(&json!({
                        "id": user.id, "tenant_id": user.tenant, "name": user.name,
                        "external_id": user.external_id,
                    }))?;
                }
                match page.next {
                    Some(next) => after = Some(next),
                    None => return Ok(()),
                }
            }
        }
    }
}

async fn key(operator: &Operator, command: KeyCommand) -> anyhow::Result<()> {
    match command {
        KeyCommand::Create { user, scopes } => {
            let (user, default) = match user {
                Some(user) => (user, None),
                None => (platform_operator(operator).await?, Some(every_scope())),
            };
            let scopes = if scopes.is_empty() { default } else { Some(scopes.into_iter().collect()) };
            let key = made(operator.create_key(Actor::CommandLine, None, NewKey { user, scopes }).await?)?;
            let scopes: Vec<_> = key.scopes.iter().collect();
            print(&json!({ "id": key.id, "user_id": key.user, "scopes": scopes, "api_key": key.text }))
        }
        KeyCommand::List { user } => {
            for key in operator.keys(user).await? {
                let scopes: Vec<_> = key.scopes.iter().collect();
                print(&json!({
                    "id": key.id, "scopes": scopes, "created_at": key.created_at, "revoked_at": key.revoked_at,
                }))?;
            }
            Ok(())
        }
        KeyCommand::Revoke { key } => {
            let key = operator.revoke_key(Actor::CommandLine, key).await?;
            print(&json!({ "id": key.id, "revoked_at": key.revoked_at }))
        }
    }
}

async fn grant(operator: &Operator, command: GrantCommand) -> anyhow::Result<()> {
    let GrantCommand::Create { user, credits, category } = command;
    let new = NewGrant { user, credits, category };
    let grant = made(operator.grant(Actor::CommandLine, None, new).await?)?;
    print(&json!({ "id": grant.id, "account_id": grant.account, "credits": grant.credits }))
}

fn print(line: &Value) -> anyhow::Result<()> {
    writeln!(std::io::stdout(), "{line}").context("cannot print")
}
