//! Filling a tag from the database after Redis lost it.

use crate::{Control, ControlError, Rebuild, RebuildTicket, SlotRef, SlotTag};

impl Control {
    /// Takes the lock for one tag. `None`: somebody else rebuilds it, or it is ready by now; claim again shortly.
    ///
    /// # Errors
    /// When control cannot be reached.
    pub async fn begin_rebuild(&self, tag: &SlotTag) -> Result<Option<RebuildTicket>, ControlError> {
        let _ = tag;
        Err(ControlError::Unavailable)
    }

    /// Adds the live attempts of the ticket's tag, read after [`Control::begin_rebuild`], and sets the marker.
    /// Members that are there already stay: they may be attempts that are just being claimed.
    ///
    /// # Errors
    /// When control cannot be reached. After `Unknown`, begin again.
    pub async fn finish_rebuild(
        &self,
        ticket: RebuildTicket,
        live: &[SlotRef],
    ) -> Result<Rebuild, ControlError> {
        let _ = (ticket, live);
        Err(ControlError::Unavailable)
    }
}
