//! `POST /tasks/{id}/cancel`.

use axum::{
    extract::State,
    response::{IntoResponse, Response},
};
use domain::TaskId;
use generation::{CancelError, CancelOutcome};
use http::StatusCode;

use crate::{
    edge::RequestContext,
    extract::{Id, NoBody, NoParams, Writer},
    openapi::{ItemProblems, TooLateProblem},
    problem::{Code, Problem},
    routes::tasks::view,
    state::ApiState,
    view::{json, task::TaskView},
};

/// Cancel a task
///
/// A queued task ends at once (200). One that a provider has is cancelled there first (202): it ends at the provider's
/// answer, or after 10 seconds. Until the video is being saved, all credits return. A task that has ended stays as it
/// is (200). Asking again changes nothing.
#[utoipa::path(
    post,
    path = "/tasks/{id}/cancel",
    operation_id = "cancelTask",
    tag = "tasks",
    params(("id" = String, Path, description = "The task.")),
    responses(
        (status = 200, description = "The task has ended, now or earlier.", body = TaskView<'static>),
        (status = 202, description = "The provider was asked; the stage is `canceling`.", body = TaskView<'static>),
        ItemProblems,
        TooLateProblem,
    ),
)]
pub(crate) async fn cancel_task(
    State(state): State<ApiState>,
    Writer(session): Writer,
    Id(id): Id<TaskId>,
    _: NoParams,
    context: RequestContext,
    _: NoBody,
) -> Result<Response, Problem> {
    context.note_task(id);
    let _turn = state.store().pass().await?;
    let (status, snapshot) = match state.generation().cancel(&session, id).await {
        Ok(CancelOutcome::Canceled(snapshot) | CancelOutcome::Already(snapshot)) => {
            (StatusCode::OK, snapshot)
        }
        Ok(CancelOutcome::Canceling(snapshot)) => (StatusCode::ACCEPTED, snapshot),
        Err(CancelError::NotFound) => return Err(Problem::not_found()),
        Err(CancelError::Forbidden) => {
            return Err(Problem::forbidden("You may look at this task, not cancel it."));
        }
        Err(CancelError::TooLate(_)) => {
            return Err(Problem::new(Code::TooLate, "The video is being saved; it will be charged."));
        }
        Err(error @ CancelError::Unavailable(_)) => {
            return Err(Problem::unavailable("The cancel can't be recorded at the moment.").because(error));
        }
    };
    let live = state.live().of(&snapshot, state.clock().now()).await;
    Ok((status, json(&view(&state, &snapshot, &live))).into_response())
}
