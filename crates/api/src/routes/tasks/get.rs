//! `GET /tasks/{id}`: one task, now or as soon as something has changed.

use std::{sync::Arc, time::Duration};

use axum::{
    extract::State,
    response::{IntoResponse, Response},
};
use domain::{TaskId, task::TaskSnapshot};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use task_state::Changed;
use tenancy::Session;
use tokio::time::{Instant, timeout_at};

use crate::{
    config::LONG_POLL_SECONDS_MAX,
    edge::RequestContext,
    extract::{Id, Params, ParamsOf, QueryParams, Reader},
    openapi::ItemProblems,
    problem::Problem,
    routes::tasks::{view, visible, visible_fresh},
    state::ApiState,
    view::{json, task::TaskView},
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
    headers: HeaderMap,
) -> Result<Response, Problem> {
    context.note_task(id);
    let snapshot = match ask.wait {
        None => visible(&state, &session, id, ask.after_version).await?,
        Some(wait) => until(&state, &session, id, wait, ask.after_version, &context).await?,
    };
    let live = state.live().of(&snapshot, state.clock().now()).await;
    let view = view(&state, &snapshot, &live);
    let etag = view.etag();
    let caching = [
        (header::ETAG, etag.clone()),
        (header::CACHE_CONTROL, HeaderValue::from_static("private, no-cache")),
    ];
    if matches(&headers, &etag) {
        return Ok((StatusCode::NOT_MODIFIED, caching).into_response());
    }
    Ok((caching, json(&view)).into_response())
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

/// Whether the client has this very answer. Weak comparison, as RFC 9110 wants it for If-None-Match.
pub(crate) fn matches(headers: &HeaderMap, etag: &HeaderValue) -> bool {
    let ours = etag.to_str().unwrap_or_default().trim_start_matches("W/");
    headers
        .get_all(header::IF_NONE_MATCH)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(str::trim)
        .any(|tag| tag == "*" || tag.trim_start_matches("W/") == ours)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_listed_tag_will_do() {
        let etag = HeaderValue::from_static("W/\"3-x-x-00\"");
        let has = |value: &'static str| {
            let headers = HeaderMap::from_iter([(header::IF_NONE_MATCH, HeaderValue::from_static(value))]);
            matches(&headers, &etag)
        };
        assert!(has("W/\"3-x-x-00\"") && has("\"3-x-x-00\"") && has("\"a\", W/\"3-x-x-00\"") && has("*"));
        assert!(!has("W/\"3-x-x-01\"") && !has("") && !matches(&HeaderMap::new(), &etag));
    }
}
