//! Adding tasks and taking them out again.

use domain::ModelName;

use crate::{Added, Control, ControlError, ReadyTask};

impl Control {
    /// Adds tasks, idempotently by task.
    ///
    /// # Errors
    /// When control cannot be reached; a reconciler adds them later.
    pub async fn add_ready(&self, tasks: &[ReadyTask]) -> Result<Vec<Added>, ControlError> {
        let _ = tasks;
        Err(ControlError::Unavailable)
    }

    /// Forgets tasks that were popped and are now claimed in PostgreSQL, or turned out to be over.
    ///
    /// # Errors
    /// When control cannot be reached; they come back after their claim and PostgreSQL refuses them.
    pub async fn done_ready(&self, tasks: &[ReadyTask]) -> Result<(), ControlError> {
        self.remove_ready(tasks).await
    }

    /// Forgets tasks wherever they are: waiting, parked or claimed (cancel).
    ///
    /// # Errors
    /// When control cannot be reached; PostgreSQL refuses them when they are popped.
    pub async fn remove_ready(&self, tasks: &[ReadyTask]) -> Result<(), ControlError> {
        let _ = tasks;
        Err(ControlError::Unavailable)
    }

    /// States that a queue is complete: every queued task of the model was added.
    ///
    /// # Errors
    /// When control cannot be reached.
    pub async fn mark_ready(&self, model: &ModelName) -> Result<(), ControlError> {
        let _ = model;
        Err(ControlError::Unavailable)
    }
}
