//! What a consumer writes.

use async_trait::async_trait;

use crate::Message;

/// Acts on messages, a batch at a time.
///
/// The same message may come again, late or out of order, so a handler loads the present facts by id and does what
/// they ask for. It is short: it calls nobody outside. When it returns `Ok`, every message of the batch is done.
#[async_trait]
pub trait Handler: Send + Sync + 'static {
    /// Handles a batch.
    ///
    /// # Errors
    /// [`HandlerError`] says which messages are not done. A panic counts as [`HandlerError::Failed`].
    async fn handle(&self, batch: &[Message]) -> Result<(), HandlerError>;
}

/// A message that nobody will ever be able to handle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejected {
    /// Its index in the batch.
    pub index: usize,
    /// Why, for the operator.
    pub reason: String,
}

/// Why a batch is not wholly done.
#[derive(Debug, thiserror::Error)]
pub enum HandlerError {
    /// These can never be handled (not readable, about nothing); all others are done. They go to the dead letters at
    /// once, since trying again would change nothing.
    #[error("{} message(s) were rejected", .0.len())]
    Rejected(Vec<Rejected>),
    /// Something failed that may succeed a moment later. The batch is handed in again.
    #[error("the handler failed")]
    Failed(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl HandlerError {
    /// Wraps a failure that may pass.
    pub fn failed(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Failed(error.into())
    }
}
