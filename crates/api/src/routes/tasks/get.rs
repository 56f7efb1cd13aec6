//! `GET /tasks/{id}`: one task, now or as soon as something has changed.

use std::{sync::Arc, time::Duration};

use axum::{
    extract::State,
    response::{IntoResponse, Response},
};
use domain::{TaskId, task::TaskSnapshot};
use http::{HeaderValue, StatusCode, header};
use task_state::Changed;
use tenancy::Session;
use tokio::time::{Instant, timeout_at};

use crate::{
    config::LONG_POLL_SECONDS_MAX,
    edge::RequestContext,
    extract::{Id, IfNoneMatch, Params, ParamsOf, QueryParams, Reader},
    openapi::ItemProblems,
    problem::Problem,
    routes::tasks::{view, visible, visible_fresh},
    state::ApiState,
    view::{answer::Answer, json_text, task::TaskView},
};

/// The parameters of `GET /tasks/{id}`.
#[derive(Debug)]
pub(crate) struct Ask {
    wait: Option<Duration>,
    after_version: Option<i32>,
}

impl QueryParams for Ask {
    fn take(params: &mut Params) -> Result<Self, Problem> {
        let wait = params.number("wait", 0..=LONG_POLL_SECONDS_MAX)?.map(Duration::from_secs);
        let after_version = params.number("after_version", 0..=u64::from(i32::MAX.unsigned_abs()))?;
        Ok(Self { wait, after_version: after_version.and_then(|version| i32::try_from(version).ok()) })
    }
}

/// One task
///
/// The facts of one version, with what is known at this moment beside it. `wait` holds the answer back until the
/// task has ended, or with `after_version` until it has a later version; after that many seconds the present state
/// is the answer. `after_version` alone refuses older answers from caches.
#[utoipa::path(
    get,
    path = "/tasks/{id}",
    operation_id = "getTask",
    tag = "tasks",
    params(
        ("id" = String, Path, description = "The task."),
        ("wait" = Option<u64>, Query, minimum = 0, maximum = 25, description = "Seconds to wait at most."),
        ("after_version" = Option<i32>, Query, minimum = 0, description = "A version that was seen."),
        ("If-None-Match" = Option<String>, Header, description = "An ETag that was seen."),
    ),
    responses(
        (status = 200, description = "The task.", body = TaskView, headers(
            ("ETag" = String, description = "Changes with anything in the answer."),
        )),
        (status = 304, description = "Nothing has changed since the given ETag."),
        ItemProblems,
    ),
)]
pub(crate) async fn get_task(
    State(state): State<ApiState>,
    Reader(session): Reader,
    Id(id): Id<TaskId>,
    ParamsOf(ask): ParamsOf<Ask>,
    context: RequestContext,
    seen: IfNoneMatch,
) -> Result<Response, Problem> {
    context.note_task(id);
    let snapshot = match ask.wait {
        None => visible(&state, &session, id, ask.after_version).await?,
        // Boxed, as whatever most reads don't need: it would make the future of every read large.
        Some(wait) => Box::pin(until(&state, &session, id, wait, ask.after_version, &context)).await?,
    };
    let now = state.clock().now();
    let answer = if snapshot.status.is_terminal() {
        state.ended().answer(&snapshot, state.media(), now)?
    } else {
        let live = state.live().of(&snapshot, now).await;
        Arc::new(Answer::new(&view(&state, &snapshot, &live))?)
    };
    let mut response = if seen.has(answer.etag()) {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        json_text(answer.text(|asset| state.media().sign_link(asset, now)))
    };
    let headers = response.headers_mut();
    headers.insert(header::ETAG, answer.etag().clone());
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("private, no-cache"));
    Ok(response)
}

/// Waits until the task has ended or, if a version is given, has a later one.
async fn until(
    state: &ApiState,
    session: &Session,
    id: TaskId,
    wait: Duration,
    after_version: Option<i32>,
    context: &RequestContext,
) -> Result<Arc<TaskSnapshot>, Problem> {
    let deadline = Instant::now() + wait;
    let done = |snapshot: &TaskSnapshot| match after_version {
        Some(version) => snapshot.version > version,
        None => snapshot.status.is_terminal(),
    };
    let mut snapshot = visible(state, session, id, after_version).await?;
    if done(&snapshot) || wait.is_zero() {
        return Ok(snapshot);
    }
    // A waiting request is no work: it gives its place at the gate back, and is counted with the streams.
    let _waiting = state.streams().pass().await?;
    context.leave_gate();
    // Subscribe first, then read: what is committed in between wakes the watch.
    let mut watch = state.task_state().watch(snapshot.tenant_id, id).await;
    snapshot = visible_fresh(state, session, id).await?;
    while !done(&snapshot) {
        let changed = tokio::select! {
            changed = timeout_at(deadline, watch.changed()) => changed,
            () = state.shutdown().cancelled() => return Ok(snapshot),
        };
        snapshot = match changed {
            Err(_) => return Ok(snapshot),
            Ok(Changed::Version(version)) if version > snapshot.version => {
                visible(state, session, id, Some(version)).await?
            }
            Ok(Changed::Version(_) | Changed::Progress { .. }) => continue,
            Ok(Changed::Unsure) => visible_fresh(state, session, id).await?,
        };
    }
    Ok(snapshot)
}

#[cfg(test)]
mod tests {
    use axum::extract::FromRequestParts as _;
    use http::request::Parts;

    use super::*;

    /// Every read pays for moving its future to the heap, so what waits, computes or loads is boxed where it begins.
    #[test]
    fn the_future_of_a_read_has_no_room_for_what_most_reads_do_without() {
        fn read<A, B, C, D, E, F, Fut>(_: impl Fn(A, B, C, D, E, F) -> Fut) -> usize {
            size_of::<Fut>()
        }
        fn extract<Fut>(_: impl Fn(&'static mut Parts, &'static ApiState) -> Fut) -> usize {
            size_of::<Fut>()
        }
        let (read, extract) = (read(get_task), extract(Reader::from_request_parts));
        assert!(read < 2_560 && extract < 3_584, "{read} bytes, and {extract} to know who asks");
    }
}
