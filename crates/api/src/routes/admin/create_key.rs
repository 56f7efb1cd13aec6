//! `POST /admin/keys`.

use axum::{extract::State, response::Response};
use domain::{KeyId, Scope, UserId};
use operator::{KeyMade, NewKey};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{
    extract::{Body, IdempotencyKey, NoParams},
    once::{created, once, render},
    openapi::{ConflictProblems, WriteProblems},
    problem::Problem,
    routes::admin::Changes,
    state::ApiState,
    view::Millis,
};

/// A key to be made.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewKey)]
pub(crate) struct NewKeyBody {
    /// Whose key.
    #[schema(value_type = String)]
    user_id: UserId,
    /// read, write, tenant:read, tenant:write, admin; read and write unless given.
    #[serde(default)]
    #[schema(value_type = Option<Vec<String>>, min_items = 1)]
    scopes: Option<Vec<Scope>>,
}

/// A key.
#[derive(Serialize, ToSchema)]
#[schema(as = Key)]
struct KeyView<'a> {
    /// The public part.
    #[schema(value_type = String)]
    id: &'a KeyId,
    /// The whole key. It is told once: a repetition by Idempotency-Key has null here.
    api_key: Option<&'a str>,
    /// Whose.
    #[schema(value_type = String)]
    user_id: UserId,
    /// What it allows.
    #[schema(value_type = Vec<String>)]
    scopes: Vec<Scope>,
    /// When it was made.
    #[schema(value_type = String, format = DateTime)]
    created_at: Millis,
}

fn view(made: &KeyMade, with_secret: bool) -> KeyView<'_> {
    KeyView {
        id: &made.id,
        api_key: with_secret.then_some(made.text.as_str()),
        user_id: made.user,
        scopes: made.scopes.iter().collect(),
        created_at: Millis(made.created_at),
    }
}

/// Make a key
#[utoipa::path(
    post,
    path = "/admin/keys",
    operation_id = "adminCreateKey",
    tag = "admin",
    params(("Idempotency-Key" = Option<String>, Header, min_length = 1, pattern = "^[!-~]+$", description = "Makes the request repeatable for 24 hours.")),
    request_body = NewKeyBody,
    responses((status = 201, description = "The key.", body = KeyView<'static>), WriteProblems, ConflictProblems),
)]
pub(crate) async fn create_key(
    State(state): State<ApiState>,
    Changes { session, actor }: Changes,
    _: NoParams,
    IdempotencyKey(key): IdempotencyKey,
    Body(body): Body<NewKeyBody>,
) -> Result<Response, Problem> {
    let _turn = state.store().pass().await?;
    // What is kept for repetitions lies in the database, so the secret is not in it.
    let once = once(&session, "POST /admin/keys", key, &body, |made| render(&view(made, false)));
    let new = NewKey { user: body.user_id, scopes: body.scopes.map(|scopes| scopes.into_iter().collect()) };
    let done = state.operator().create_key(actor, once, new).await?;
    Ok(created(done, |made| render(&view(made, true)), |_| None))
}
