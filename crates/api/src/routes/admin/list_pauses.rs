//! `GET /admin/pauses`.

use axum::{extract::State, response::Response};
use operator::Intent;
use serde::Serialize;
use utoipa::ToSchema;

use crate::{
    extract::NoParams,
    openapi::ReadProblems,
    problem::Problem,
    routes::admin::Looks,
    state::ApiState,
    view::{Millis, Page, json},
};

/// What an operator keeps from being sent anything new.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Pause)]
pub(crate) struct PauseView {
    /// `account:<name>` or `model:<name>`.
    subject: String,
    /// `pause` for now, `drain` for good.
    kind: &'static str,
    /// Why.
    reason: String,
    /// Counts its changes.
    version: i64,
    /// When it was last changed.
    #[schema(value_type = String, format = DateTime)]
    set_at: Millis,
}

impl From<Intent> for PauseView {
    fn from(intent: Intent) -> Self {
        let Intent { subject, kind, reason, version, set_at, .. } = intent;
        Self { subject: subject.to_string(), kind: kind.as_str(), reason, version, set_at: Millis(set_at) }
    }
}

/// What is paused
#[utoipa::path(
    get,
    path = "/admin/pauses",
    operation_id = "adminListPauses",
    tag = "admin",
    responses((status = 200, description = "Everything that is paused.", body = Page<PauseView>), ReadProblems),
)]
pub(crate) async fn list_pauses(
    State(state): State<ApiState>,
    _: Looks,
    _: NoParams,
) -> Result<Response, Problem> {
    let _turn = state.store().pass().await?;
    let pauses = state.operator().pauses().await?;
    Ok(json(&Page::whole(pauses.into_iter().map(PauseView::from).collect())))
}
