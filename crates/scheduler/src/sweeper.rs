//! Deadlines and unanswered cancels, enforced without the owner of the task.
//!
//! The owner may be dead, stuck or another process; the sweeper asks nobody. It reads what is overdue and moves it by
//! the version that it read, so a task that was finished in between is left alone. Attempts that stay open after
//! that are seen to their end by whoever owns them.

use std::{sync::Arc, time::Duration};

use domain::{TaskStatus, task::Event};
use futures::future::join_all;
use task_state::{Move, MoveOutcome, TaskRecord};

use crate::{
    loops::{Next, PassError},
    worker::Worker,
};

/// How long a provider may take to answer a cancel before the task ends without it.
const CANCEL_LIMIT: Duration = Duration::from_secs(10);
/// Tasks swept together.
const PAGE: i64 = 500;

/// One pass.
///
/// # Errors
/// When PostgreSQL did not answer.
pub(crate) async fn pass(worker: &Arc<Worker>) -> Result<Next, PassError> {
    let overdue = worker.task_state.overdue(CANCEL_LIMIT, PAGE).await?;
    let more = i64::try_from(overdue.len()).is_ok_and(|count| count >= PAGE);
    for result in join_all(overdue.iter().map(|record| sweep(worker, record))).await {
        result?;
    }
    Ok(if more { Next::In(Duration::ZERO) } else { Next::Timer })
}

async fn sweep(worker: &Worker, record: &TaskRecord) -> Result<(), PassError> {
    let event = if record.snapshot.deadline_at <= record.read_at {
        Event::DeadlinePassed
    } else {
        Event::CancelExpired
    };
    let task = record.id();
    match worker.task_state.advance(Move::as_read(record, event.clone())).await? {
        MoveOutcome::Moved(after) => {
            let status = after.snapshot.status;
            tracing::info!(%task, ?event, from = %record.snapshot.status, to = %status, "a task was overdue");
            worker.finished(&after);
            if record.snapshot.status == TaskStatus::Queued {
                worker.dequeue(record).await;
            } else if let Some(owned) = record.attempt_ref().and_then(|name| worker.holdings.get(name)) {
                owned.end_task();
            }
        }
        MoveOutcome::Refused(..) | MoveOutcome::Stale(_) | MoveOutcome::Missing => {
            tracing::debug!(%task, ?event, "an overdue task moved by itself");
        }
    }
    Ok(())
}
