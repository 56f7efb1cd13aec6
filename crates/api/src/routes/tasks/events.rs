//! `GET /tasks/{id}/events`: a task's changes as they happen.
//!
//! Subscribe, then read, then forward only what is newer: nothing is missed and nothing is told twice. What is told
//! comes from `task_events` in PostgreSQL; the message that wakes the stream is only a hint, and without hints the
//! stream reads again by itself.
//!
//! The work is done in a task of its own, which fills a small buffer that the connection empties. Were it done by the
//! connection itself, a client that stops reading would stop it in the middle of a shared read, and everybody who
//! joined that read would wait for that client. A client that doesn't read is cut when its buffer stays full.

use std::{collections::VecDeque, convert::Infallible, sync::Arc, time::Duration};

use axum::{
    extract::State,
    response::{
        IntoResponse, Response,
        sse::{Event, Sse},
    },
};
use chrono::{DateTime, Utc};
use domain::{TaskId, metric, task::TaskSnapshot};
use futures::{Stream, stream};
use http::{HeaderMap, HeaderName, HeaderValue};
use serde::Serialize;
use task_state::{Changed, Watch};
use tenancy::{AuthError, Session};
use tokio::{
    sync::mpsc,
    time::{Instant, timeout, timeout_at},
};
use utoipa::ToSchema;

use crate::{
    extract::{
        Id, NoParams, Reader,
        auth::{bearer, single},
    },
    gate::Pass,
    openapi::ItemProblems,
    problem::Problem,
    routes::tasks::{comments::commented, view, visible, visible_fresh},
    state::ApiState,
    view::task::EventView,
};

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
const UNBUFFERED: HeaderName = HeaderName::from_static("x-accel-buffering");
/// After how long a reader should come back when this process stops.
const COME_BACK_AFTER: Duration = Duration::from_secs(1);
/// After how long reading is tried again when the store has failed.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Events that may wait for a slow reader.
const BUFFER: usize = 16;
/// For how many comments' time the buffer may stay full.
const STUCK_COMMENTS_MAX: u32 = 2;

/// Progress between two versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, ToSchema)]
#[schema(as = ProgressEvent)]
pub(crate) struct ProgressView {
    /// The version that it belongs to.
    version: i32,
    /// Per cent.
    progress: u8,
}

/// One event of a stream.
#[derive(Debug, ToSchema)]
#[schema(as = StreamEvent)]
#[expect(dead_code, reason = "describes what the events consist of in the document")]
struct StreamEvent {
    /// `task`, `progress` or `snapshot`.
    event: Option<String>,
    /// The version; `progress` has none.
    id: Option<String>,
    /// A TaskEvent, a ProgressEvent or a Task, as JSON.
    data: Option<String>,
}

/// A task's changes as server-sent events
///
/// `event: task` (id = version) carries a row of the task's history, `event: progress` (without id) what the provider
/// reports in between. Without `Last-Event-ID` one `event: snapshot` comes first; `Last-Event-ID: 0` replays the whole
/// history. A comment comes every 10 seconds. After the last change the server closes.
#[utoipa::path(
    get,
    path = "/tasks/{id}/events",
    operation_id = "followTask",
    tag = "tasks",
    params(
        ("id" = String, Path, description = "The task."),
        ("Last-Event-ID" = Option<i32>, Header, minimum = 0, description = "The last version that was received."),
    ),
    responses(
        (status = 200, description = "The stream.",
         body = StreamEvent, content_type = "text/event-stream"),
        ItemProblems,
    ),
)]
pub(crate) async fn follow_task(
    State(state): State<ApiState>,
    Reader(session): Reader,
    Id(id): Id<TaskId>,
    _: NoParams,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let last = last_event_id(&headers)?;
    let bearer = bearer(&headers)?.to_owned();
    let acts_for = single(&headers, &HeaderName::from_static("aivideo-user"))?.map(str::to_owned);
    let seen = visible(&state, &session, id, None).await?;
    let place = state.streams().pass().await?;
    let watch = state.task_state().watch(seen.tenant_id, id).await;
    let first = visible_fresh(&state, &session, id).await?;
    if last.is_some_and(|version| version > 0) {
        metrics::counter!(metric::CLIENT_RECONNECT, "endpoint" => "task_events").increment(1);
    }
    let comment_every = Duration::from_secs(state.config().stream_comment_seconds);
    let opened_at = state.clock().now();
    let follow = Follow {
        _open: OpenStream::new(place),
        reader: ReaderOf { session, bearer, acts_for, checked_at: Instant::now() },
        queue: VecDeque::new(),
        version: last.unwrap_or(first.version),
        progress: None,
        read_by: Instant::now(),
        opened_at,
        phase: if last.is_some() { Phase::CatchUp } else { Phase::Snapshot(first) },
        state,
        id,
        watch,
    };
    let sse = Sse::new(commented(follow.start(), comment_every));
    Ok(([(UNBUFFERED, HeaderValue::from_static("no"))], sse).into_response())
}

fn last_event_id(headers: &HeaderMap) -> Result<Option<i32>, Problem> {
    let Some(text) = single(headers, &LAST_EVENT_ID)? else { return Ok(None) };
    let version = text.trim().parse::<i32>().ok().filter(|version| *version >= 0);
    version.map(Some).ok_or_else(|| Problem::malformed("Last-Event-ID must be a version, or 0."))
}

/// Counts open streams for as long as it lives.
struct OpenStream {
    _place: Pass,
}

impl OpenStream {
    fn new(place: Pass) -> Self {
        metrics::gauge!(metric::SSE_STREAMS_OPEN).increment(1.0);
        Self { _place: place }
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        metrics::gauge!(metric::SSE_STREAMS_OPEN).decrement(1.0);
    }
}

/// Who reads, and whether they still may: a stream outlives tokens, keys and memberships.
struct ReaderOf {
    session: Arc<Session>,
    bearer: String,
    acts_for: Option<String>,
    checked_at: Instant,
}

impl ReaderOf {
    /// Asks again who the reader is, whenever the store is read again anyway. False when they may not read any more.
    async fn may_still_read(&mut self, state: &ApiState, task: &TaskSnapshot) -> bool {
        if self.checked_at.elapsed() >= Duration::from_secs(state.config().stream_reread_seconds) {
            self.checked_at = Instant::now();
            match state.tenancy().authenticate_to_read(&self.bearer).await {
                Ok(session) => self.session = session,
                // Not being able to ask is no reason to send somebody away.
                Err(AuthError::Unavailable(_)) => return true,
                Err(AuthError::Unknown | AuthError::Revoked | AuthError::Expired) => return false,
            }
            if let Some(user) = &self.acts_for {
                match state.tenancy().act_for(&self.session, user).await {
                    Ok(session) => self.session = session,
                    Err(tenancy::ActError::Unavailable(_)) => return true,
                    Err(_) => return false,
                }
            }
        }
        self.session.principal.sees(&task.owner())
    }
}

/// What a stream does next.
enum Phase {
    /// Tell where the task stands.
    Snapshot(Arc<TaskSnapshot>),
    /// Read what happened since the last version that was told.
    CatchUp,
    /// Wait for a change.
    Wait,
    /// The process stops.
    Farewell,
    /// Say no more.
    Closed,
}

/// One open stream.
struct Follow {
    state: ApiState,
    id: TaskId,
    watch: Watch,
    reader: ReaderOf,
    /// Events that were read and not yet sent: at most one reading's worth.
    queue: VecDeque<Event>,
    /// The last version that was told or queued.
    version: i32,
    /// The last progress that was told.
    progress: Option<ProgressView>,
    /// When the store is read again, whatever is announced.
    read_by: Instant,
    /// When the stream was opened: what happened before is told late through nobody's fault.
    opened_at: DateTime<Utc>,
    phase: Phase,
    _open: OpenStream,
}

impl Follow {
    /// Starts following. It ends with the task, with the reader, or with the process.
    fn start(self) -> impl Stream<Item = Result<Event, Infallible>> + Send {
        let (sender, mut receiver) = mpsc::channel(BUFFER);
        tokio::spawn(self.run(sender));
        stream::poll_fn(move |cx| receiver.poll_recv(cx).map(|event| event.map(Ok)))
    }

    async fn run(mut self, reader: mpsc::Sender<Event>) {
        let stuck_max = Duration::from_secs(self.state.config().stream_comment_seconds) * STUCK_COMMENTS_MAX;
        loop {
            let event = tokio::select! {
                event = self.next() => event,
                () = reader.closed() => return,
            };
            let Some(event) = event else { return };
            if !matches!(timeout(stuck_max, reader.send(event)).await, Ok(Ok(()))) {
                return;
            }
            metrics::counter!(metric::SSE_PUSH).increment(1);
        }
    }

    /// The next event; none when the stream is over.
    async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.queue.pop_front() {
                return Some(event);
            }
            match std::mem::replace(&mut self.phase, Phase::Wait) {
                Phase::Snapshot(snapshot) => self.tell_snapshot(&snapshot).await,
                Phase::CatchUp => self.catch_up().await,
                Phase::Wait => self.wait().await,
                Phase::Farewell => {
                    self.phase = Phase::Closed;
                    return Some(Event::default().comment("stopping").retry(COME_BACK_AFTER));
                }
                Phase::Closed => {
                    self.phase = Phase::Closed;
                    return None;
                }
            }
        }
    }

    async fn tell_snapshot(&mut self, snapshot: &TaskSnapshot) {
        let live = self.state.live().of(snapshot, self.state.clock().now()).await;
        let view = view(&self.state, snapshot, &live);
        self.push("snapshot", Some(snapshot.version), &view);
        self.read_by = Instant::now() + Duration::from_secs(self.state.config().stream_reread_seconds);
        self.version = snapshot.version;
        if let Some(progress) = live.progress {
            self.progress = Some(ProgressView { version: snapshot.version, progress });
        }
        if snapshot.status.is_terminal() {
            self.phase = Phase::Closed;
        }
    }

    /// Reads the history behind the last told version.
    async fn catch_up(&mut self) {
        self.read_by = Instant::now() + Duration::from_secs(self.state.config().stream_reread_seconds);
        match self.state.task_state().events(self.id, self.version).await {
            Ok(rows) => {
                for row in &rows {
                    self.push("task", Some(row.version), &EventView::from(row));
                    self.measure_lag(row.at);
                    self.version = row.version;
                    if row.status.is_terminal() {
                        self.phase = Phase::Closed;
                        return;
                    }
                }
                if rows.is_empty() {
                    self.close_if_over().await;
                }
            }
            Err(error) => {
                tracing::debug!(%error, task_id = %self.id, "a stream can't read the history");
                self.read_by = Instant::now() + RETRY_AFTER;
            }
        }
    }

    /// How long after its commit a change is told to somebody who was listening.
    fn measure_lag(&self, happened_at: DateTime<Utc>) {
        if happened_at >= self.opened_at {
            let lag = self.state.clock().now() - happened_at;
            let lag_ms = lag.to_std().unwrap_or_default().as_secs_f64() * 1_000.0;
            metrics::histogram!(metric::STREAM_LAG_MS).record(lag_ms);
        }
    }

    /// A reader who knows the last version already is told nothing, for ever: better to close at once.
    async fn close_if_over(&mut self) {
        if let Ok(Some(snapshot)) = self.state.task_state().snapshot(self.id, None).await
            && snapshot.status.is_terminal()
            && snapshot.version <= self.version
        {
            self.phase = Phase::Closed;
        }
    }

    async fn wait(&mut self) {
        let changed = tokio::select! {
            changed = timeout_at(self.read_by, self.watch.changed()) => changed.unwrap_or(Changed::Unsure),
            () = self.state.shutdown().cancelled() => {
                self.phase = Phase::Farewell;
                return;
            }
        };
        match changed {
            Changed::Version(version) if version <= self.version => {}
            Changed::Version(_) => self.phase = Phase::CatchUp,
            Changed::Progress { version, percent } => self.tell_progress(version, percent),
            Changed::Unsure => self.reread().await,
        }
    }

    fn tell_progress(&mut self, version: i32, percent: u8) {
        if version > self.version {
            // The change to that version comes first; its progress is reported again.
            self.phase = Phase::CatchUp;
            return;
        }
        let progress = ProgressView { version, progress: percent };
        if version == self.version && self.progress.is_none_or(|told| told < progress) {
            self.progress = Some(progress);
            self.push("progress", None, &progress);
        }
    }

    /// Nothing was announced for a while, or too much: look at what is there.
    async fn reread(&mut self) {
        metrics::counter!(metric::TASK_SNAPSHOT_REFETCH).increment(1);
        let snapshot = match self.state.task_state().snapshot(self.id, Some(self.version)).await {
            Ok(Some(snapshot)) => snapshot,
            Ok(None) => {
                self.phase = Phase::Closed;
                return;
            }
            Err(_) => {
                self.read_by = Instant::now() + RETRY_AFTER;
                return;
            }
        };
        if !self.reader.may_still_read(&self.state, &snapshot).await {
            self.phase = Phase::Closed;
            return;
        }
        let live = self.state.live().of(&snapshot, self.state.clock().now()).await;
        if let Some(percent) = live.progress {
            self.tell_progress(snapshot.version, percent);
        }
        self.phase = Phase::CatchUp;
    }

    fn push(&mut self, name: &'static str, version: Option<i32>, data: &impl Serialize) {
        let event = Event::default().event(name).json_data(data);
        match event {
            Ok(event) => self.queue.push_back(match version {
                Some(version) => event.id(version.to_string()),
                None => event,
            }),
            Err(error) => tracing::error!(%error, task_id = %self.id, "an event can't be written"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_event_is_a_version_or_nothing() {
        let read = |value: Option<&str>| {
            let headers = value.map(|value| (LAST_EVENT_ID, HeaderValue::from_str(value).unwrap()));
            last_event_id(&headers.into_iter().collect()).map_err(|problem| problem.code())
        };
        assert_eq!(read(None), Ok(None));
        assert_eq!(read(Some("0")), Ok(Some(0)));
        assert_eq!(read(Some("17")), Ok(Some(17)));
        for bad in ["", "-1", "x", "1.5", "99999999999"] {
            assert_eq!(read(Some(bad)), Err(crate::problem::Code::MalformedRequest), "{bad}");
        }
    }
}
