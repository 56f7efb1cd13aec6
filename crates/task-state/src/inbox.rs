//! The inbox of provider callbacks: stored once, answered after the commit, told to the attempt's owner.
//!
//! A callback moves nothing. It is a reason for the owner to look, and the owner believes only what it sees. So late,
//! repeated, reordered and early ones need no rules of their own: a row says whose it is and what became of it.
//!
//! - [`receive`](TaskState::receive) stores; callers that come at the same time share one commit and one connection
//! - [`tell`](TaskState::tell) hands a worker what has come for its attempts
//! - [`retire_events`](retire::retire_events) forgets after thirty days

mod receive;
pub(crate) mod retire;
mod tell;
mod writer;

use bytes::Bytes;
use domain::{AttemptRef, ProviderAccountId, WorkerId, callback::CallbackNews, task::JobHandle};
use pg::PgError;

pub(crate) use writer::{Inbox, spawn};

use crate::TaskState;

/// Bytes of a body that are kept: more than any provider sends about one job.
pub const BODY_BYTES_KEPT: usize = 64 << 10;

/// A callback that somebody who knows the provider has read.
#[derive(Debug, Clone)]
pub struct NewProviderEvent {
    /// The account at the provider.
    pub account: ProviderAccountId,
    /// The attempt, by the address to which it was sent.
    pub attempt: AttemptRef,
    /// What it says.
    pub news: CallbackNews,
    /// The job that it speaks of, if the provider has signed that.
    pub job: Option<JobHandle>,
    /// The body as it came.
    pub body: Bytes,
}

/// What became of a callback.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Received {
    /// Its attempt is under way; this worker owns it and is to be told.
    Pending {
        /// The owner.
        owner: WorkerId,
    },
    /// It is stored, and nobody has to look.
    Ignored(IgnoredBecause),
}

/// Why nobody has to look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IgnoredBecause {
    /// This delivery has come before. It has no row of its own.
    Repeated,
    /// There is no such attempt at this account.
    UnknownAttempt,
    /// The task went on with a later attempt.
    OlderAttempt,
    /// The task has ended.
    TaskEnded,
    /// We know already that the provider is through with the job.
    ProviderThrough,
    /// The attempt is over, and the task goes on without it.
    AttemptClosed,
    /// It speaks of a job that is not the attempt's.
    OtherJob,
}

impl IgnoredBecause {
    /// The text in `provider_events.reason` and in logs.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Repeated => "repeated",
            Self::UnknownAttempt => "unknown_attempt",
            Self::OlderAttempt => "older_attempt",
            Self::TaskEnded => "task_ended",
            Self::ProviderThrough => "provider_through",
            Self::AttemptClosed => "attempt_closed",
            Self::OtherJob => "other_job",
        }
    }
}

/// Why a callback was not stored. Its sender is to come again: the delivery id makes that harmless.
#[derive(Debug, thiserror::Error)]
pub enum ReceiveError {
    /// More callbacks wait than may.
    #[error("too many callbacks wait to be stored")]
    Full,
    /// The store failed.
    #[error(transparent)]
    Store(#[from] PgError),
    /// The process is ending.
    #[error("no more callbacks are taken")]
    Stopped,
}

/// An owner's attempt about which something has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Called {
    /// The attempt.
    pub attempt: AttemptRef,
    /// Whether the provider says that the job has ended.
    pub says_ended: bool,
}

impl TaskState {
    /// Stores a callback. When this returns well, it is committed.
    ///
    /// # Errors
    /// When nothing is known to be stored.
    pub async fn receive(&self, event: NewProviderEvent) -> Result<Received, ReceiveError> {
        self.shared.inbox.send(event).await
    }
}
