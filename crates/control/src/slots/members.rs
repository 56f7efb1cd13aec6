//! Looking into the sets and mending them: for the reconciler and the audit, which know what lives.

use domain::AttemptRef;

use crate::{Control, ControlError, SlotMember, SlotRef, SlotSet};

impl Control {
    /// The members of each set, those nobody vouches for any more included.
    ///
    /// # Errors
    /// When control cannot be reached.
    pub async fn slot_members(&self, sets: &[SlotSet]) -> Result<Vec<Vec<SlotMember>>, ControlError> {
        let _ = sets;
        Err(ControlError::Unavailable)
    }

    /// Puts live attempts back that Redis lost, whatever the limits say: they are at the provider already.
    ///
    /// # Errors
    /// When control cannot be reached.
    pub async fn restore_slots(&self, slots: &[SlotRef]) -> Result<(), ControlError> {
        let _ = slots;
        Err(ControlError::Unavailable)
    }

    /// Removes attempts that are over, by the database, from all four sets. Returns how many sets had one.
    ///
    /// # Errors
    /// When control cannot be reached.
    pub async fn remove_slots(&self, slots: &[SlotRef]) -> Result<u64, ControlError> {
        let _ = slots;
        Err(ControlError::Unavailable)
    }

    /// Removes attempts that are over from one set, when nothing more is known of them than their name.
    ///
    /// # Errors
    /// When control cannot be reached.
    pub async fn remove_slot_members(
        &self,
        set: &SlotSet,
        attempts: &[AttemptRef],
    ) -> Result<u64, ControlError> {
        let _ = (set, attempts);
        Err(ControlError::Unavailable)
    }
}
