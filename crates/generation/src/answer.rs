//! The body of a 202: made once, stored under the idempotency key, and sent again as it is.

use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use domain::{
    Credits, ModelName, TaskId, TaskStatus,
    task::{Stage, TaskSnapshot},
};
use serde::Serialize;

/// The status of an accepted submit.
pub(crate) const ACCEPTED: u16 = 202;

/// When a client should look for the first time.
const POLL_AFTER_MS: u32 = 1_000;

/// What an accepted submit is answered with.
#[derive(Debug, Serialize)]
struct Accepted<'a> {
    task_id: TaskId,
    status: TaskStatus,
    stage: Stage,
    version: i32,
    model: &'a ModelName,
    credits_held: Credits,
    /// Reads know it; here it is always null.
    queue_position: Option<u32>,
    poll_after_ms: u32,
    created_at: String,
    deadline_at: String,
}

/// The body for a task that is about to be made at `now`.
pub(crate) fn accepted(
    task: TaskId,
    model: &ModelName,
    price: Credits,
    now: DateTime<Utc>,
    deadline_seconds: u32,
) -> String {
    render(task, model, price, now, now + TimeDelta::seconds(deadline_seconds.into()))
}

/// The same body for a task that is found to have been made, whatever became of it since. `deadline_seconds` is
/// the request's, for a deadline may have been raised.
pub(crate) fn found(snapshot: &TaskSnapshot, deadline_seconds: u32) -> String {
    accepted(
        snapshot.task_id,
        &snapshot.model,
        snapshot.credits.quoted,
        snapshot.created_at,
        deadline_seconds,
    )
}

fn render(
    task: TaskId,
    model: &ModelName,
    price: Credits,
    created_at: DateTime<Utc>,
    deadline_at: DateTime<Utc>,
) -> String {
    let time = |at: DateTime<Utc>| at.to_rfc3339_opts(SecondsFormat::Millis, true);
    let body = Accepted {
        task_id: task,
        status: TaskStatus::Queued,
        stage: Stage::Queued,
        version: 1,
        model,
        credits_held: price,
        queue_position: None,
        poll_after_ms: POLL_AFTER_MS,
        created_at: time(created_at),
        deadline_at: time(deadline_at),
    };
    serde_json::to_string(&body).expect("ids, numbers and texts are JSON")
}
