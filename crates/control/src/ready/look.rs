//! Positions and depth.

use domain::{ModelName, TaskId, TenantId, UserId};

use crate::{Control, ControlError};

impl Control {
    /// About how many turns away each task is, 1 being the next; `None` when it is not among the heads.
    ///
    /// # Errors
    /// When control cannot be reached.
    pub async fn positions(
        &self,
        of: &[(ModelName, TenantId, UserId, TaskId)],
    ) -> Result<Vec<Option<u64>>, ControlError> {
        let _ = of;
        Err(ControlError::Unavailable)
    }

    /// Tasks in each model's queue, parked ones included, claimed ones not.
    ///
    /// # Errors
    /// When control cannot be reached.
    pub async fn queue_depths(&self, models: &[ModelName]) -> Result<Vec<u64>, ControlError> {
        let _ = models;
        Err(ControlError::Unavailable)
    }

    /// Whether the queue is known to be complete.
    ///
    /// # Errors
    /// When control cannot be reached.
    pub async fn ready_marker(&self, model: &ModelName) -> Result<bool, ControlError> {
        let _ = model;
        Err(ControlError::Unavailable)
    }
}
