//! Why a task waits, as its scheduler last saw it: shown to its owner, decides nothing.

use domain::TaskId;

use crate::{Control, ControlError};

/// A task and the JSON that explains its wait.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitNote {
    /// The task.
    pub task: TaskId,
    /// Whatever the reader understands.
    pub json: String,
}

impl Control {
    /// Writes notes for 30 s; whoever keeps a task waiting writes them again.
    ///
    /// # Errors
    /// When the cache cannot be reached.
    pub async fn set_waits(&self, notes: &[WaitNote]) -> Result<(), ControlError> {
        let _ = notes;
        Err(ControlError::Unavailable)
    }

    /// The notes, `None` where there is none.
    ///
    /// # Errors
    /// When the cache cannot be reached.
    pub async fn get_waits(&self, tasks: &[TaskId]) -> Result<Vec<Option<String>>, ControlError> {
        let _ = tasks;
        Err(ControlError::Unavailable)
    }
}
