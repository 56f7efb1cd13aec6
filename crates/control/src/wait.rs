//! Why a task waits, as its scheduler last saw it: shown to its owner, decides nothing.

use std::time::Duration;

use domain::TaskId;

use crate::{Control, ControlError, instance::command, ttl::jittered_ms};

/// How long a note is worth showing.
const TTL: Duration = Duration::from_secs(30);

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
        let calls = notes.iter().map(|note| {
            command("SET").arg(self.keys().wait(note.task)).arg(&note.json).arg("PX").arg(jittered_ms(TTL))
        });
        self.0.cache.calls_done(calls.collect()).await
    }

    /// The notes, `None` where there is none.
    ///
    /// # Errors
    /// When the cache cannot be reached.
    pub async fn get_waits(&self, tasks: &[TaskId]) -> Result<Vec<Option<String>>, ControlError> {
        let calls = tasks.iter().map(|task| command("GET").arg(self.keys().wait(*task)));
        self.0.cache.calls_as(calls.collect()).await
    }
}
