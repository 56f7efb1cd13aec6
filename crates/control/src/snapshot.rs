//! Snapshots of tasks for readers, and the note that a task does not exist.

use std::time::Duration;

use domain::TaskId;

use crate::{Control, ControlError};

impl Control {
    /// The snapshots as they were set, `None` where there is none.
    ///
    /// # Errors
    /// When the cache cannot be reached; read PostgreSQL.
    pub async fn get_snapshots(&self, tasks: &[TaskId]) -> Result<Vec<Option<String>>, ControlError> {
        let _ = tasks;
        Err(ControlError::Unavailable)
    }

    /// Sets snapshots, each only if no newer version is there. The JSON must be an object with a `version`. Returns
    /// for each whether it was set. Clears the note that the task does not exist.
    ///
    /// # Errors
    /// When the cache cannot be reached; the old entries expire.
    pub async fn set_snapshots(
        &self,
        snapshots: &[(TaskId, i32, String, Duration)],
    ) -> Result<Vec<bool>, ControlError> {
        let _ = snapshots;
        Err(ControlError::Unavailable)
    }

    /// Notes for 30 s that no such task exists for anybody.
    ///
    /// # Errors
    /// When the cache cannot be reached.
    pub async fn mark_absent(&self, task: TaskId) -> Result<(), ControlError> {
        let _ = task;
        Err(ControlError::Unavailable)
    }

    /// Whether that is noted.
    ///
    /// # Errors
    /// When the cache cannot be reached.
    pub async fn is_absent(&self, task: TaskId) -> Result<bool, ControlError> {
        let _ = task;
        Err(ControlError::Unavailable)
    }

    /// Takes the notes away: the tasks were created.
    ///
    /// # Errors
    /// When the cache cannot be reached; the notes expire.
    pub async fn clear_absent(&self, tasks: &[TaskId]) -> Result<(), ControlError> {
        let _ = tasks;
        Err(ControlError::Unavailable)
    }
}
