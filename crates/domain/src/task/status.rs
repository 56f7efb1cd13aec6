//! The names of states, events and stages.

use crate::text_enum::text_enum;

text_enum! {
    /// The state of a task. Each comment says who moves the task on.
    TaskStatus {
        /// Waits for its turn; a scheduler claims it, its owner or the deadline ends it.
        Queued = "QUEUED",
        /// Claimed by one worker that is about to call the provider, or just does.
        Scheduling = "SCHEDULING",
        /// The provider has accepted the job; polls and callbacks move it on.
        ProviderSubmitted = "PROVIDER_SUBMITTED",
        /// The provider generates.
        Running = "RUNNING",
        /// The provider is through; our own worker brings the file home.
        PostProcessing = "POST_PROCESSING",
        /// The video is stored and paid for.
        Succeeded = "SUCCEEDED",
        /// Ended without a video; nothing was charged.
        Failed = "FAILED",
        /// Ended by its owner; nothing was charged.
        Canceled = "CANCELED",
        /// A submit may or may not have been accepted; look-ups, a callback or the deadline decide.
        Reconciling = "RECONCILING",
    }
}

impl TaskStatus {
    /// Whether nothing can move the task any more.
    #[must_use]
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::Canceled)
    }
}

text_enum! {
    /// The type of a row in `task_events`: one per visible change.
    EventType {
        /// The task was accepted and its credits are held (version 1).
        Created = "created",
        /// A worker claimed it.
        Scheduled = "scheduled",
        /// The provider accepted the job.
        Submitted = "submitted",
        /// The provider began to generate.
        Running = "running",
        /// The provider is through; the file is being fetched.
        PostProcessing = "post_processing",
        /// The video is ready and the credits are captured.
        Succeeded = "succeeded",
        /// The task failed and the credits are released.
        Failed = "failed",
        /// The task was canceled and the credits are released.
        Canceled = "canceled",
        /// A try was refused, failed or proved absent; the task waits for another.
        Requeued = "requeued",
        /// It is not known whether the provider accepted the job.
        Reconciling = "reconciling",
        /// The owner asked for a cancel that the provider has to answer first.
        CancelRequested = "cancel_requested",
        /// Another worker follows the task now.
        TakenOver = "taken_over",
    }
}

text_enum! {
    /// Where a task stands, finer than its status and in a user's words.
    Stage {
        /// Waits in our queue.
        Queued = "queued",
        /// Is being sent to the provider.
        Dispatching = "dispatching",
        /// Waits in the provider's queue.
        ProviderQueued = "provider_queued",
        /// The provider generates.
        ProviderGenerating = "provider_generating",
        /// We find out whether the provider has the job.
        Reconciling = "reconciling",
        /// The file is being fetched and checked.
        FetchingOutput = "fetching_output",
        /// A cancel is under way.
        Canceling = "canceling",
        /// Over.
        Done = "done",
    }
}

impl Stage {
    /// The stage of a task in `status`, for which a cancel was requested or not.
    ///
    /// A reconciling task keeps its own stage even when a cancel was asked for: it ends only when the doubt is
    /// resolved, which may take minutes, and "canceling" promises seconds.
    #[must_use]
    pub const fn of(status: TaskStatus, cancel_requested: bool) -> Self {
        match status {
            TaskStatus::Succeeded | TaskStatus::Failed | TaskStatus::Canceled => Self::Done,
            TaskStatus::Reconciling => Self::Reconciling,
            TaskStatus::PostProcessing => Self::FetchingOutput,
            TaskStatus::Queued => Self::Queued,
            TaskStatus::Scheduling | TaskStatus::ProviderSubmitted | TaskStatus::Running
                if cancel_requested =>
            {
                Self::Canceling
            }
            TaskStatus::Scheduling => Self::Dispatching,
            TaskStatus::ProviderSubmitted => Self::ProviderQueued,
            TaskStatus::Running => Self::ProviderGenerating,
        }
    }
}
