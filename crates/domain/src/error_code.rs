//! Why a task failed, as its owner is told.

use crate::text_enum::text_enum;

text_enum! {
    /// The `error_code` of a failed task. Documented: clients show a sentence per code and may switch on it.
    ErrorCode {
        /// The provider refused the parameters.
        InvalidInput = "invalid_input",
        /// A safety check refused the prompt.
        ModeratedInput = "moderated_input",
        /// A safety check withheld the result.
        ModeratedOutput = "moderated_output",
        /// Our credentials at the provider do not work.
        ProviderAuth = "provider_auth",
        /// The provider does not serve our region.
        RegionBlocked = "region_blocked",
        /// Our account at the provider has no money.
        ProviderCredit = "provider_credit",
        /// The provider's request rate was exceeded in every try.
        RateLimited = "rate_limited",
        /// The provider had no room in any try.
        ConcurrencyFull = "concurrency_full",
        /// The provider was overloaded in every try.
        Overloaded = "overloaded",
        /// The provider failed while generating.
        ProviderInternal = "provider_internal",
        /// The provider no longer knows a job that it had accepted.
        ProviderLost = "provider_lost",
        /// The model was withdrawn by the provider.
        ModelGone = "model_gone",
        /// The task was not ready by its deadline.
        DeadlineExceeded = "deadline_exceeded",
        /// It never became known whether the provider had accepted the job.
        Unconfirmed = "unconfirmed",
        /// The provider's file is not a playable video, or could not be fetched whole.
        BadOutput = "bad_output",
    }
}

impl ErrorCode {
    /// A sentence for the task's owner. It never repeats a provider's own words, which may carry anything.
    #[must_use]
    pub const fn sentence(self) -> &'static str {
        match self {
            Self::InvalidInput => "The model can't use these settings.",
            Self::ModeratedInput => "The provider's safety check refused the prompt.",
            Self::ModeratedOutput => "The provider's safety check withheld the result.",
            Self::ProviderAuth | Self::RegionBlocked | Self::ProviderCredit => {
                "The model is unavailable; the fault is ours."
            }
            Self::RateLimited | Self::ConcurrencyFull | Self::Overloaded => {
                "The provider was too busy in every try."
            }
            Self::ProviderInternal | Self::ProviderLost => "The provider failed while generating.",
            Self::ModelGone => "The model was withdrawn by its provider.",
            Self::DeadlineExceeded => "The video was not ready by its deadline.",
            Self::Unconfirmed => "The provider never confirmed this job. An operator was told.",
            Self::BadOutput => "The provider's file could not be fetched whole or does not play.",
        }
    }
}
