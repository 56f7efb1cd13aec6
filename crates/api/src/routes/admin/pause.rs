//! `PUT /admin/pauses/{subject}`.

use axum::{
    extract::{FromRequestParts, State},
    response::Response,
};
use http::request::Parts;
use operator::{IntentKind, NewPause, Subject};
use serde::Deserialize;
use utoipa::ToSchema;

use crate::{
    extract::{Body, NoParams, id::segment},
    openapi::{ItemProblems, WriteProblems},
    problem::Problem,
    routes::admin::{Changes, list_pauses::PauseView},
    state::ApiState,
    view::json,
};

/// The path of one pause: `{subject}`.
#[derive(Debug, Clone)]
pub(crate) struct PausePath(pub(super) Subject);

impl<S: Send + Sync> FromRequestParts<S> for PausePath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        segment(parts, state, "subject").await.map(Self)
    }
}

/// What is intended, and why.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewPause)]
pub(crate) struct NewPauseBody {
    /// `pause` for now, `drain` for good; `pause` unless given.
    #[serde(default)]
    kind: Option<Kind>,
    /// Why, for the next operator.
    #[schema(min_length = 1, max_length = 500)]
    reason: String,
}

#[derive(Debug, Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = PauseKind)]
enum Kind {
    Pause,
    Drain,
}

/// Pause an account or a model
///
/// Nothing new is sent there, by this process from now on, by the others within five seconds; what runs goes on to its end and
/// is fetched from the account that has it. Tasks wait, or take another account of their model. It lasts until it is taken back,
/// whatever is started anew or lost meanwhile.
#[utoipa::path(
    put,
    path = "/admin/pauses/{subject}",
    operation_id = "adminPause",
    tag = "admin",
    params(("subject" = String, Path, description = "`account:<name>` or `model:<name>`.")),
    request_body = NewPauseBody,
    responses((status = 200, description = "It is paused.", body = PauseView), WriteProblems, ItemProblems),
)]
pub(crate) async fn pause(
    State(state): State<ApiState>,
    Changes { actor, .. }: Changes,
    PausePath(subject): PausePath,
    _: NoParams,
    Body(body): Body<NewPauseBody>,
) -> Result<Response, Problem> {
    let kind = match body.kind {
        Some(Kind::Drain) => IntentKind::Drain,
        Some(Kind::Pause) | None => IntentKind::Pause,
    };
    let _turn = state.store().pass().await?;
    let new = NewPause { subject, kind, reason: body.reason };
    let intent = state.operator().pause(actor, state.catalogue(), new).await?;
    Ok(json(&PauseView::from(intent)))
}
