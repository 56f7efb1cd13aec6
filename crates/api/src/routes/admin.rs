//! Operators: tenants, users, keys, grants, limits, pauses; and what they look at. For keys with the scope `admin`.

pub(crate) mod create_grant;
pub(crate) mod create_key;
pub(crate) mod create_tenant;
pub(crate) mod create_user;
pub(crate) mod list_accounts;
pub(crate) mod list_limits;
pub(crate) mod list_pauses;
pub(crate) mod list_queues;
pub(crate) mod list_slots;
pub(crate) mod list_tenants;
pub(crate) mod list_users;
pub(crate) mod pause;
pub(crate) mod put_limit;
pub(crate) mod remove_limit;
pub(crate) mod resume;
pub(crate) mod revoke_key;

use std::sync::Arc;

use axum::extract::FromRequestParts;
use domain::{Scope, principal::Credential};
use http::request::Parts;
use operator::Actor;
use tenancy::Session;

use crate::{
    extract::{Reader, Writer, auth::require},
    problem::Problem,
    state::ApiState,
};

/// An operator who looks.
#[derive(Debug, Clone)]
pub(crate) struct Looks;

/// An operator who changes something, as the log will name them.
#[derive(Debug, Clone)]
pub(crate) struct Changes {
    session: Arc<Session>,
    actor: Actor,
}

impl FromRequestParts<ApiState> for Looks {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &ApiState) -> Result<Self, Problem> {
        let session = Reader::from_request_parts(parts, state).await?;
        require(&session, &[Scope::Admin])?;
        Ok(Self)
    }
}

impl FromRequestParts<ApiState> for Changes {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &ApiState) -> Result<Self, Problem> {
        let Writer(session) = Writer::from_request_parts(parts, state).await?;
        require(&session, &[Scope::Admin])?;
        let Credential::Key(key) = &session.principal.credential else {
            return Err(Problem::forbidden("This needs a key with the scope admin."));
        };
        let actor = Actor::Key { key: key.clone(), user: session.principal.user };
        Ok(Self { session, actor })
    }
}
