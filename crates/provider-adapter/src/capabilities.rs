//! What a provider can do and how long each call to it may take, as data.

use std::time::Duration;

/// When a job can be canceled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CancelForm {
    /// Never.
    Never,
    /// While it waits there.
    QueuedOnly,
    /// Until it ends.
    AnyLive,
    /// The provider tries, and says nothing about success.
    BestEffort,
}

/// What is said about progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgressForm {
    /// Nothing.
    None,
    /// A share of the work, which the adapter turns into whole percent.
    Percent,
    /// Only the place in the provider's queue.
    QueuePosition,
}

/// How a provider reports by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallbackForm {
    /// Not at all.
    None,
    /// To an address given with each submit.
    PerRequest,
    /// To an address set in the account.
    PerProject,
}

/// How an output is handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputForm {
    /// At an address that needs no credential.
    PublicUrl,
    /// At an address that expires and is renewed by looking at the job again.
    RenewableUrl,
    /// As a stream that needs the account's credential.
    AuthenticatedStream,
    /// Inside the answer.
    Inline,
}

/// The static description of a provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Whether a job can be found by our reference.
    pub look_up: bool,
    /// From when on an empty look-up proves that there is no job, counted from the end of the submit's own limit;
    /// `None` when it never does.
    pub absence_is_proof_after: Option<Duration>,
    /// When a job can be canceled.
    pub cancel: CancelForm,
    /// What is said about progress.
    pub progress: ProgressForm,
    /// How it reports by itself.
    pub callbacks: CallbackForm,
    /// How an output is handed over.
    pub output: OutputForm,
    /// How long an output can be fetched after its job has ended; `None` when that is not limited.
    pub output_kept_for: Option<Duration>,
    /// The pause between two looks at one job.
    pub poll_interval: Duration,
    /// The longest prompt, in Unicode scalars.
    pub prompt_chars_max: usize,
    /// How long each call may take.
    pub limits: ProviderLimits,
}

/// The limits of each call to one provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProviderLimits {
    /// The whole submit.
    pub submit: Duration,
    /// The whole of one look at a job.
    pub poll: Duration,
    /// The whole of one search.
    pub look_up: Duration,
    /// The whole of one cancel.
    pub cancel: Duration,
    /// The whole of one download.
    pub output_total: Duration,
    /// Between two arrivals of data, in every call.
    pub idle: Duration,
    /// The largest answer of the API, in bytes.
    pub answer_bytes_max: u64,
    /// The largest output, in bytes.
    pub output_bytes_max: u64,
    /// The shortest pause that a provider can impose: "0", the past and nonsense become this.
    pub retry_after_min: Duration,
    /// The longest pause that a provider can impose: dates in decades become this.
    pub retry_after_max: Duration,
}

impl Default for ProviderLimits {
    fn default() -> Self {
        Self {
            submit: Duration::from_secs(10),
            poll: Duration::from_secs(5),
            look_up: Duration::from_secs(5),
            cancel: Duration::from_secs(5),
            output_total: Duration::from_secs(600),
            idle: Duration::from_secs(15),
            answer_bytes_max: 256 << 10,
            output_bytes_max: 1 << 30,
            retry_after_min: Duration::from_secs(1),
            retry_after_max: Duration::from_secs(60),
        }
    }
}
