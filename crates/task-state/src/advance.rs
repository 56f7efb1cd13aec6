//! Moving a task: the public verb and its answers.

use std::{sync::Arc, time::Duration};

use domain::{
    TaskId,
    task::{Attempt, Event, Refusal},
};
use media::Published;
use pg::PgError;

use crate::{TaskState, record::TaskRecord};

/// One wish to move one task.
#[derive(Debug, Clone)]
pub struct Move {
    /// The task.
    pub task: TaskId,
    /// What must still be so for the move to count.
    pub expect: Expect,
    /// What happened.
    pub event: Event,
    /// What else is to be recorded.
    pub detail: MoveDetail,
}

/// The fence of a move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expect {
    /// The mover owns the task: attempt and token must be the present ones.
    Owner(Attempt),
    /// The mover has read this version and decided by it.
    AsRead {
        /// The version.
        version: i32,
    },
    /// Whatever state the row is in when it is locked: for wishes such as a cancel, which the transition judges.
    AnyState,
}

/// What is recorded beside the state.
#[derive(Debug, Clone, Default)]
pub struct MoveDetail {
    /// A task that goes back to the queue is not tried again before this pause is over.
    pub pause: Option<Duration>,
    /// The provider's own words, for operators only.
    pub provider_message: Option<String>,
    /// The file that an `OutputPublished` is about.
    pub published: Option<Published>,
}

/// What became of a move. A lost race is an answer, not an error.
#[derive(Debug, Clone)]
pub enum MoveOutcome {
    /// It happened; this is the task after it.
    Moved(Arc<TaskRecord>),
    /// The state does not allow it; this is the task as it is.
    Refused(Refusal, Arc<TaskRecord>),
    /// Somebody else moved or owns the task; this is the task as it is.
    Stale(Arc<TaskRecord>),
    /// There is no such task.
    Missing,
}

/// The move may be tried again; whether it happened is unknown only after a lost COMMIT answer, and trying again
/// is safe then too, because every move is fenced.
#[derive(Debug, thiserror::Error)]
pub enum MoveError {
    /// The store failed.
    #[error("the move could not be written")]
    Pg(#[from] PgError),
    /// The process is shutting down.
    #[error("the writer has stopped")]
    Stopped,
}

impl Move {
    /// A move by the task's owner.
    #[must_use]
    pub fn by_owner(task: TaskId, attempt: Attempt, event: Event) -> Self {
        Self { task, expect: Expect::Owner(attempt), event, detail: MoveDetail::default() }
    }

    /// A move by somebody who has read the given version.
    #[must_use]
    pub fn as_read(record: &TaskRecord, event: Event) -> Self {
        let expect = Expect::AsRead { version: record.snapshot.version };
        Self { task: record.id(), expect, event, detail: MoveDetail::default() }
    }

    /// The same move with more to record.
    #[must_use]
    pub fn with(mut self, detail: MoveDetail) -> Self {
        self.detail = detail;
        self
    }
}

impl TaskState {
    /// Moves one task. Callers that ask at the same time share a commit.
    ///
    /// The move goes on when the caller is dropped.
    ///
    /// # Errors
    /// See [`MoveError`].
    pub async fn advance(&self, wish: Move) -> Result<MoveOutcome, MoveError> {
        self.shared.writers.send(wish, None).await
    }

    /// As [`advance`](Self::advance), by somebody who knows the task's last version. When that is still so the move takes
    /// fewer round trips; nothing else follows from it.
    ///
    /// # Errors
    /// See [`MoveError`].
    pub async fn advance_known(&self, wish: Move, known: Arc<TaskRecord>) -> Result<MoveOutcome, MoveError> {
        self.shared.writers.send(wish, Some(known)).await
    }
}
