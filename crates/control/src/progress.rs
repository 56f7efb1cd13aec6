//! Progress between versions: what the provider says, too fine for a row per step.

use domain::TaskId;

use crate::{Control, ControlError};

/// How far a task is, ordered by version, then percent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Progress {
    /// The version of the task that it belongs to.
    pub version: i32,
    /// 0 to 100.
    pub percent: u8,
}

impl Control {
    /// Sets progress, each only if it is later than what is there. Returns for each whether it was.
    ///
    /// # Errors
    /// When the cache cannot be reached.
    pub async fn set_progress(&self, of: &[(TaskId, Progress)]) -> Result<Vec<bool>, ControlError> {
        let _ = of;
        Err(ControlError::Unavailable)
    }

    /// Progress as far as it is known.
    ///
    /// # Errors
    /// When the cache cannot be reached.
    pub async fn get_progress(&self, tasks: &[TaskId]) -> Result<Vec<Option<Progress>>, ControlError> {
        let _ = tasks;
        Err(ControlError::Unavailable)
    }
}
