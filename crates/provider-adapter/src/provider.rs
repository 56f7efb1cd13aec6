//! The trait and the outcomes of its verbs.
//!
//! Each outcome enum holds exactly the cases that lead to different acts of the caller. Texts in them (`message`,
//! `raw`) are the provider's own words, cut to a bounded length: for operators, never for users.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use domain::{
    failure::FailureClass,
    ids::{AttemptRef, ModelName, ProviderAccountId},
    task::state::JobHandle,
};
use fetch::SendGuard;
use futures::stream::BoxStream;

use crate::capabilities::Capabilities;

/// One account at one provider.
///
/// An adapter is bound to its account: host, region and credential belong together, and a job is only ever asked
/// about through the adapter of the account that made it.
#[async_trait]
pub trait Provider: Send + Sync + 'static {
    /// The account whose credential every call carries.
    fn account(&self) -> &ProviderAccountId;

    /// What this provider can do and how it wants to be treated: data, not calls.
    fn capabilities(&self) -> &Capabilities;

    /// Asks for a job, once. Nothing in here repeats a request, because no provider recognises a repetition. The
    /// guard is asked after the connection stands and directly before the request is written.
    async fn submit(&self, job: &SubmitJob, guard: SendGuard) -> SubmitOutcome;

    /// Looks at a job.
    ///
    /// # Errors
    /// When this look told nothing about the job. It is to be followed further.
    async fn observe(&self, job: &JobHandle) -> Result<Observation, Unclear>;

    /// Searches for the job that carries our reference.
    async fn look_up(&self, reference: AttemptRef) -> LookUp;

    /// Asks the provider to stop a job.
    async fn cancel(&self, job: &JobHandle) -> CancelOutcome;

    /// Opens the file of a succeeded job. Without an output reference (after a take-over, or when a link has
    /// expired) the provider is asked for a fresh one first.
    ///
    /// # Errors
    /// Whether trying again can help.
    async fn open_output(
        &self,
        job: &JobHandle,
        output: Option<&OutputRef>,
    ) -> Result<OutputStream, OutputError>;
}

/// What is to be generated.
#[derive(Clone, PartialEq, Eq)]
pub struct SubmitJob {
    /// Our name for this try at the provider.
    pub reference: AttemptRef,
    /// The provider's name of the model.
    pub model: ModelName,
    /// The prompt as the user wrote it.
    pub prompt: String,
    /// What shall not be seen.
    pub negative_prompt: Option<String>,
    /// Length in whole seconds.
    pub duration_seconds: u32,
    /// Such as `720p`.
    pub resolution: String,
    /// Such as `16:9`.
    pub aspect_ratio: Option<String>,
    /// For repeatable results.
    pub seed: Option<u32>,
    /// Where the provider may report to, if it reports at all.
    pub callback_url: Option<String>,
    /// The W3C trace context that the call belongs to.
    pub traceparent: Option<String>,
}

/// Prompts stay out of logs, so `Debug` leaves them out.
impl std::fmt::Debug for SubmitJob {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SubmitJob")
            .field("reference", &self.reference)
            .field("model", &self.model)
            .field("duration_seconds", &self.duration_seconds)
            .finish_non_exhaustive()
    }
}

/// How a submit ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SubmitOutcome {
    /// The job exists. Some providers answer with a finished one, which `seen` says.
    Accepted {
        /// How the provider knows it. Keep it, whatever has become of the task meanwhile.
        job: JobHandle,
        /// How far it is already.
        seen: Observation,
    },
    /// Certainly no job, and another try may succeed.
    RejectedRetryable {
        /// Why.
        class: FailureClass,
        /// The pause that the provider asked for, bounded by the limits.
        retry_after: Option<Duration>,
        /// In its words.
        message: String,
    },
    /// Certainly no job, and the same request will fail again.
    RejectedFinal {
        /// Why.
        class: FailureClass,
        /// In its words.
        message: String,
    },
    /// There may be a job. Never to be repeated before a look-up has proved its absence.
    Unknown {
        /// What happened.
        message: String,
    },
    /// The request did not leave: certainly no job, and no try used up.
    NotSent {
        /// Why.
        why: NotSent,
        /// In more words.
        message: String,
    },
}

/// Why a request did not leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotSent {
    /// The guard said no.
    HeldBack,
    /// The provider could not be connected to within the limits.
    Unreachable,
    /// The configured address is one that may not be connected to: an operator has to act.
    Blocked,
}

/// What a look at a job showed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Observation {
    /// Waits in the provider's queue.
    Queued,
    /// Held back by a limit of our account; not an error, it will start by itself.
    HeldByLimit,
    /// Being generated.
    Running {
        /// Whole percent, where the provider says.
        progress: Option<u8>,
    },
    /// A state that this adapter does not know. Counts as still running, until the deadline.
    Unrecognised {
        /// The provider's word for it.
        raw: String,
    },
    /// Done; the file can be fetched.
    Succeeded {
        /// Where.
        output: OutputRef,
    },
    /// Ended without a file.
    Failed {
        /// Why.
        class: FailureClass,
        /// In its words.
        message: String,
    },
    /// Ended by a cancel.
    Canceled,
    /// Ended because it waited or lay too long there.
    Expired,
    /// The provider does not know it. Once may be a lagging replica; the caller looks twice.
    Lost,
}

impl Observation {
    /// Whether the provider is certainly through with the job. `Lost` is no certainty.
    #[must_use]
    pub const fn is_through(&self) -> bool {
        matches!(self, Self::Succeeded { .. } | Self::Failed { .. } | Self::Canceled | Self::Expired)
    }

    /// Progress in whole percent, where it is known.
    #[must_use]
    pub const fn progress(&self) -> Option<u8> {
        match self {
            Self::Running { progress } => *progress,
            _ => None,
        }
    }
}

/// Where an output lies at the provider. Opaque: only the adapter that wrote it reads it, and it may expire.
#[derive(Clone, PartialEq, Eq)]
pub struct OutputRef(String);

impl OutputRef {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

/// Output addresses are often capabilities: whoever has one has the video.
impl std::fmt::Debug for OutputRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("OutputRef(..)")
    }
}

/// A call that told nothing about the job: a time-out, an error page, an answer that makes no sense.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unclear ({class}): {message}")]
pub struct Unclear {
    /// What kind of trouble. `ProviderAuth` and the like concern the account, not the job.
    pub class: FailureClass,
    /// The pause that the provider asked for, bounded by the limits.
    pub retry_after: Option<Duration>,
    /// What happened.
    pub message: String,
}

/// What a search by our reference showed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LookUp {
    /// The job, and how far it is.
    Found {
        /// How the provider knows it.
        job: JobHandle,
        /// How far it is.
        seen: Observation,
        /// Further live jobs with the same reference, which the provider made by a fault of its own: to be canceled.
        surplus: Vec<JobHandle>,
    },
    /// A proper answer without such a job. Proof only if the look-up began after
    /// [`Capabilities::absence_is_proof_after`], counted from the end of the submit's own limit.
    Absent,
    /// This provider cannot search.
    Unsupported,
    /// No proper answer.
    Unclear(Unclear),
}

/// What became of a cancel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CancelOutcome {
    /// Ended; nothing more will come.
    Canceled,
    /// Taken; the job goes on until an observation says otherwise.
    Requested,
    /// The job had ended by itself.
    TooLate(Observation),
    /// This provider cannot cancel, or not in this state: follow the job and discard its output.
    Unsupported,
    /// The provider does not know the job. As ambiguous as [`Observation::Lost`].
    NotFound,
    /// No proper answer.
    Unclear(Unclear),
}

/// A file under way.
pub struct OutputStream {
    /// The type that the provider names.
    pub content_type: Option<String>,
    /// The announced length in bytes; a stream that ends before it ends with an error.
    pub length: Option<u64>,
    /// The bytes. After an error nothing more comes.
    pub stream: BoxStream<'static, Result<Bytes, OutputError>>,
}

impl std::fmt::Debug for OutputStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OutputStream")
            .field("content_type", &self.content_type)
            .field("length", &self.length)
            .finish_non_exhaustive()
    }
}

/// Why a file could not be opened or read to its end.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OutputError {
    /// The link has expired or is not known any more. Another try without the reference asks for a fresh one.
    #[error("the output is gone: {0}")]
    Gone(String),
    /// A fault that may pass.
    #[error("the output cannot be fetched now: {message}")]
    Temporary {
        /// The pause that the provider asked for, bounded by the limits.
        retry_after: Option<Duration>,
        /// What happened.
        message: String,
    },
    /// Trying again will not help: the file is too large, or it lies where we may not go.
    #[error("the output is refused: {0}")]
    Refused(String),
}
