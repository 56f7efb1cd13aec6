//! Returning what could not start, and waking what was parked.

use crate::{Control, ControlError, Park, ReadyTask, Wake};

impl Control {
    /// Returns popped tasks with their turn.
    ///
    /// # Errors
    /// When control cannot be reached; they come back when their claim runs out.
    pub async fn put_back(&self, tasks: &[(ReadyTask, Park)]) -> Result<(), ControlError> {
        let _ = tasks;
        Err(ControlError::Unavailable)
    }

    /// Lets parked users and tenants take part again. Call it after a release.
    ///
    /// # Errors
    /// When control cannot be reached; they return by their timers.
    pub async fn wake(&self, wakes: &[Wake]) -> Result<(), ControlError> {
        let _ = wakes;
        Err(ControlError::Unavailable)
    }
}
