//! Publishing.

use crate::{Change, Control, ControlError, Projection};

impl Control {
    /// Publishes changes to their tenants' channels and appends them to the capped streams.
    ///
    /// # Errors
    /// When realtime cannot be reached; streams poll.
    pub async fn publish(&self, changes: &[Change]) -> Result<(), ControlError> {
        let _ = changes;
        Err(ControlError::Unavailable)
    }

    /// After the commit of a batch of transitions: snapshots (only if not older), channel and stream, one pipeline
    /// per instance. A crash before it is healed by the snapshots' expiry and the streams' own reads.
    ///
    /// # Errors
    /// When cache or realtime cannot be reached; the other one was written all the same.
    pub async fn project(&self, projections: &[Projection]) -> Result<(), ControlError> {
        let _ = projections;
        Err(ControlError::Unavailable)
    }
}
