//! Why a verb is refused.

use std::sync::Arc;

use control::ControlError;
use pg::PgError;

/// A refused or failed verb. Nothing was changed, except perhaps after [`OperatorError::Unknown`].
#[derive(Debug, thiserror::Error)]
pub enum OperatorError {
    /// A value is not acceptable.
    #[error("{field} {message}")]
    Field {
        /// Which one.
        field: &'static str,
        /// What is wrong in one word.
        code: &'static str,
        /// What is wrong in a sentence without its subject.
        message: String,
    },
    /// There is no such thing.
    #[error("there is no such thing")]
    NotFound,
    /// The caller lacks a scope.
    #[error("the scope {0} is needed")]
    Forbidden(&'static str),
    /// The Idempotency-Key belongs to another request.
    #[error("the Idempotency-Key belongs to another request")]
    Mismatch,
    /// A request with the same Idempotency-Key is still under way.
    #[error("a request with this Idempotency-Key is under way")]
    InProgress,
    /// The answer to COMMIT was lost: it is not known whether the change was made.
    #[error("it is not known whether the change was made")]
    Unknown(#[source] PgError),
    /// PostgreSQL failed.
    #[error("the change cannot be made now")]
    Pg(#[source] PgError),
    /// PostgreSQL failed, for this caller and others who asked at the same time.
    #[error("it can't be looked up now")]
    SharedPg(#[source] Arc<PgError>),
    /// Redis failed.
    #[error("it can't be seen now")]
    Control(#[source] ControlError),
}

impl OperatorError {
    pub(crate) fn field(field: &'static str, code: &'static str, message: impl ToString) -> Self {
        Self::Field { field, code, message: message.to_string() }
    }

    /// Whether the same request may succeed a moment later.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::InProgress | Self::Unknown(_) | Self::Control(_) => true,
            Self::Pg(error) => error.is_transient(),
            Self::SharedPg(error) => error.is_transient(),
            Self::Field { .. } | Self::NotFound | Self::Forbidden(_) | Self::Mismatch => false,
        }
    }
}

impl From<PgError> for OperatorError {
    fn from(error: PgError) -> Self {
        match error {
            PgError::CommitUnknown(_) => Self::Unknown(error),
            other => Self::Pg(other),
        }
    }
}

impl From<Arc<PgError>> for OperatorError {
    fn from(error: Arc<PgError>) -> Self {
        Self::SharedPg(error)
    }
}

impl From<ControlError> for OperatorError {
    fn from(error: ControlError) -> Self {
        Self::Control(error)
    }
}
