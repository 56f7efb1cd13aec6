//! Why a task waits, as its scheduler last saw it: shown to its owner, and to whoever asks what would become of a request.
//! It decides nothing.

use std::time::Duration;

use domain::{ModelName, TaskId};

use crate::{Control, ControlError, instance::command, ttl::jittered_ms};

/// How long a note is worth showing.
const TTL: Duration = Duration::from_secs(30);
/// How long what keeps a whole model waiting is. Its schedulers look at least once a second, so whoever may start again
/// has started by then.
const MODEL_TTL: Duration = Duration::from_secs(3);

/// A task and the JSON that explains its wait.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitNote {
    /// The task.
    pub task: TaskId,
    /// Whatever the reader understands.
    pub json: String,
}

/// A model none of whose tasks starts now, for how long at least, and the JSON that explains it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelWait {
    /// The model.
    pub model: ModelName,
    /// As long as this lasts.
    pub lasts: Duration,
    /// Whatever the reader understands.
    pub json: String,
}

impl Control {
    /// Writes notes for 30 s, and what keeps all tasks of a model waiting for as long as it lasts and some seconds. Whoever
    /// keeps tasks waiting writes them again.
    ///
    /// # Errors
    /// When the cache cannot be reached.
    pub async fn set_waits(&self, notes: &[WaitNote], of: Option<ModelWait>) -> Result<(), ControlError> {
        let set =
            |key: String, json: &str, ttl| command("SET").arg(key).arg(json).arg("PX").arg(jittered_ms(ttl));
        let calls = notes.iter().map(|note| set(self.keys().wait(note.task), &note.json, TTL));
        let model =
            of.map(|of| set(self.keys().model_wait(&of.model), &of.json, of.lasts.saturating_add(MODEL_TTL)));
        self.0.cache.calls_done(calls.chain(model).collect()).await
    }

    /// What explains the wait of one task: its own note, and that of its model.
    ///
    /// # Errors
    /// When the cache cannot be reached.
    pub async fn wait_of(
        &self,
        task: TaskId,
        model: &ModelName,
    ) -> Result<(Option<String>, Option<String>), ControlError> {
        let calls =
            [self.keys().wait(task), self.keys().model_wait(model)].map(|key| command("GET").arg(key));
        let mut found: Vec<Option<String>> = self.0.cache.calls_as(calls.into()).await?;
        let model = found.pop().flatten();
        Ok((found.pop().flatten(), model))
    }

    /// What keeps a whole model waiting, if something does.
    ///
    /// # Errors
    /// When the cache cannot be reached.
    pub async fn model_wait(&self, model: &ModelName) -> Result<Option<String>, ControlError> {
        let call = command("GET").arg(self.keys().model_wait(model));
        let mut found: Vec<Option<String>> = self.0.cache.calls_as(vec![call]).await?;
        Ok(found.pop().flatten())
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
