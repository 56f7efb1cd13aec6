//! Classes of provider failure, and what each class means for the task.
//!
//! A provider speaks in status codes, body codes and sentences; the adapter translates them into one of these
//! classes, and everything after that (retry or not, what the user is told, who is alarmed) follows from the
//! class alone.

use crate::{error_code::ErrorCode, text_enum::text_enum};

text_enum! {
    /// What kind of failure a provider reported, from its status and body together.
    FailureClass {
        /// The request's parameters are not acceptable to the model.
        InvalidInput = "invalid_input",
        /// A safety check refused the prompt or the input image.
        ModeratedInput = "moderated_input",
        /// A safety check withheld the generated video.
        ModeratedOutput = "moderated_output",
        /// Our credentials are wrong or lack a permission.
        ProviderAuth = "provider_auth",
        /// The provider does not serve our address.
        RegionBlocked = "region_blocked",
        /// Our account is out of credit or over its spending cap.
        ProviderCredit = "provider_credit",
        /// Too many requests.
        RateLimited = "rate_limited",
        /// Too many jobs at once.
        ConcurrencyFull = "concurrency_full",
        /// The provider has too much to do for everybody.
        Overloaded = "overloaded",
        /// The provider broke.
        ProviderInternal = "provider_internal",
        /// The model does not exist any more.
        ModelGone = "model_gone",
        /// The job that we ask about is unknown there.
        NotFound = "not_found",
        /// Nothing that we know. Kept with its raw text for the operator.
        Unknown = "unknown",
    }
}

impl FailureClass {
    /// Whether another try may succeed, given that this one certainly made no job or a job that ended failed.
    #[must_use]
    pub const fn is_retryable(self) -> bool {
        match self {
            Self::RateLimited
            | Self::ConcurrencyFull
            | Self::Overloaded
            | Self::ProviderInternal
            | Self::Unknown => true,
            Self::InvalidInput
            | Self::ModeratedInput
            | Self::ModeratedOutput
            | Self::ProviderAuth
            | Self::RegionBlocked
            | Self::ProviderCredit
            | Self::ModelGone
            | Self::NotFound => false,
        }
    }

    /// What the task's owner is told when this failure ends the task.
    #[must_use]
    pub const fn error_code(self) -> ErrorCode {
        match self {
            Self::InvalidInput => ErrorCode::InvalidInput,
            Self::ModeratedInput => ErrorCode::ModeratedInput,
            Self::ModeratedOutput => ErrorCode::ModeratedOutput,
            Self::ProviderAuth => ErrorCode::ProviderAuth,
            Self::RegionBlocked => ErrorCode::RegionBlocked,
            Self::ProviderCredit => ErrorCode::ProviderCredit,
            Self::RateLimited => ErrorCode::RateLimited,
            Self::ConcurrencyFull => ErrorCode::ConcurrencyFull,
            Self::Overloaded => ErrorCode::Overloaded,
            Self::ProviderInternal | Self::Unknown => ErrorCode::ProviderInternal,
            Self::ModelGone => ErrorCode::ModelGone,
            Self::NotFound => ErrorCode::ProviderLost,
        }
    }

    /// Whether the fault lies in our account rather than in the request: an operator has to act.
    #[must_use]
    pub const fn alarms_operator(self) -> bool {
        matches!(
            self,
            Self::ProviderAuth | Self::RegionBlocked | Self::ProviderCredit | Self::ModelGone | Self::Unknown
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_class_has_one_text_and_reads_back() {
        for class in FailureClass::ALL {
            assert_eq!(class.as_str().parse::<FailureClass>(), Ok(*class));
        }
    }

    #[test]
    fn what_an_operator_must_mend_is_not_retried_blindly() {
        for class in [FailureClass::ProviderAuth, FailureClass::ProviderCredit, FailureClass::RegionBlocked] {
            assert!(class.alarms_operator() && !class.is_retryable());
        }
    }
}
