//! `POST /browser-tokens`: what a browser may hold instead of a key.

use axum::{extract::State, response::Response};
use domain::Scope;
use serde::Deserialize;
use tenancy::NewToken;
use utoipa::ToSchema;

use crate::{
    extract::{Body, NoParams, auth::Minter},
    openapi::WriteProblems,
    problem::Problem,
    routes::tokens::{TokenView, minted},
    state::ApiState,
};

/// The longest life of a token, and its life when nothing is said.
pub(super) const TTL_SECONDS: u32 = 900;

/// A token to be minted.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewBrowserToken)]
pub(crate) struct NewTokenBody {
    /// For whom, by id or by the tenant's own name; the caller unless given. Another user needs `tenant:write`.
    #[serde(default)]
    user_id: Option<String>,
    /// For how long; 900 unless given.
    #[serde(default)]
    #[schema(minimum = 1, maximum = 900)]
    ttl_seconds: Option<u32>,
    /// `read`, `write` or both, and no more than the key has; all of these unless given.
    #[serde(default)]
    #[schema(value_type = Option<Vec<String>>, min_items = 1)]
    scopes: Option<Vec<Scope>>,
    /// Pages of these origins only; of any unless given.
    #[serde(default)]
    origins: Option<Vec<String>>,
}

/// Mint a browser token
///
/// A short-lived token that a browser may hold. It ends by itself and with the key that minted it, and mints nothing.
#[utoipa::path(
    post,
    path = "/browser-tokens",
    operation_id = "createBrowserToken",
    tag = "tokens",
    request_body = NewTokenBody,
    responses((status = 201, description = "The token.", body = TokenView<'static>), WriteProblems),
)]
pub(crate) async fn create_browser_token(
    State(state): State<ApiState>,
    Minter(session): Minter,
    _: NoParams,
    Body(body): Body<NewTokenBody>,
) -> Result<Response, Problem> {
    let new = NewToken {
        user: body.user_id,
        ttl_seconds: body.ttl_seconds.unwrap_or(TTL_SECONDS),
        scopes: body.scopes.map(|scopes| scopes.into_iter().collect()),
        origins: body.origins.unwrap_or_default(),
    };
    let _turn = state.store().pass().await?;
    let token = state.tenancy().mint_browser_token(&session, &new).await?;
    Ok(minted(&token))
}
