//! Tokens for browsers.

pub(crate) mod browser;
pub(crate) mod demo;

use axum::response::{IntoResponse, Response};
use domain::{Scope, UserId};
use http::StatusCode;
use serde::Serialize;
use tenancy::MintedToken;
use utoipa::ToSchema;

use crate::view::{Millis, json};

/// A browser token. Its text is told once.
#[derive(Serialize, ToSchema)]
#[schema(as = BrowserToken)]
pub(crate) struct TokenView<'a> {
    /// The text, to be sent as `Authorization: Bearer`.
    token: &'a str,
    /// When it ends.
    #[schema(value_type = String, format = DateTime)]
    expires_at: Millis,
    /// For whom it speaks.
    #[schema(value_type = String)]
    user_id: UserId,
    /// What it allows.
    #[schema(value_type = Vec<String>)]
    scopes: Vec<Scope>,
}

/// The 201 of a minted token.
fn minted(token: &MintedToken) -> Response {
    let view = TokenView {
        token: &token.text,
        expires_at: Millis(token.expires_at),
        user_id: token.user,
        scopes: token.scopes.iter().collect(),
    };
    (StatusCode::CREATED, json(&view)).into_response()
}
