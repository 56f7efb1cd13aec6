//! Adding tasks and taking them out again.

use std::time::Duration;

use domain::ModelName;

use super::record::by_model;
use crate::{Added, Control, ControlError, ReadyTask, instance::command, script::Script, ttl::jittered_ms};

/// How long a queue counts as complete; then its owner adds everything again, which changes nothing.
const MARKER_TTL: Duration = Duration::from_secs(3_600);

impl Control {
    /// Adds tasks, idempotently by task.
    ///
    /// # Errors
    /// When control cannot be reached; a reconciler adds them later.
    pub async fn add_ready(&self, tasks: &[ReadyTask]) -> Result<Vec<Added>, ControlError> {
        let groups = by_model(tasks, |task| &task.model);
        let calls = groups.iter().map(|(model, tasks)| {
            let call = self.ready_call(Script::ReadyAdd, model);
            tasks.iter().fold(call, |call, (_, task)| {
                call.arg(task.task.to_string()).arg(task.not_before_ms).arg(task.record())
            })
        });
        let replies: Vec<Vec<u8>> = self.0.control.calls_as(calls.collect()).await?;
        let mut added = vec![Added::Already; tasks.len()];
        for ((_, tasks), codes) in groups.iter().zip(replies) {
            for ((place, _), code) in tasks.iter().zip(codes) {
                added[*place] = match code {
                    1 => Added::New,
                    2 => Added::Already,
                    3 => Added::Full,
                    other => return Err(ControlError::Protocol(format!("ready_add.lua answered {other}"))),
                };
            }
        }
        Ok(added)
    }

    /// Forgets tasks that were popped and are now claimed in PostgreSQL: their turns are used.
    ///
    /// # Errors
    /// When control cannot be reached; they come back after their claim and PostgreSQL refuses them.
    pub async fn done_ready(&self, tasks: &[ReadyTask]) -> Result<(), ControlError> {
        self.forget_ready(tasks, "started").await
    }

    /// Forgets tasks wherever they are, waiting, parked or claimed, that were canceled or turned out to be over: their turns
    /// are given back.
    ///
    /// # Errors
    /// When control cannot be reached; PostgreSQL refuses them when they are popped.
    pub async fn remove_ready(&self, tasks: &[ReadyTask]) -> Result<(), ControlError> {
        self.forget_ready(tasks, "gone").await
    }

    async fn forget_ready(&self, tasks: &[ReadyTask], why: &str) -> Result<(), ControlError> {
        let calls = by_model(tasks, |task| &task.model).into_iter().map(|(model, tasks)| {
            let call = self.ready_call(Script::ReadyRemove, model).arg(why);
            tasks.iter().fold(call, |call, (_, task)| {
                let call = call.arg(task.task.to_string()).arg(task.tenant.to_string());
                call.arg(task.user.to_string()).arg(task.next_attempt_no)
            })
        });
        self.0.control.calls_done(calls.collect()).await
    }

    /// States that a queue is complete: every queued task of the model was added.
    ///
    /// # Errors
    /// When control cannot be reached.
    pub async fn mark_ready(&self, model: &ModelName) -> Result<(), ControlError> {
        let set = command("SET").arg(self.keys().ready_marker(model)).arg(1);
        self.0.control.calls_done(vec![set.arg("PX").arg(jittered_ms(MARKER_TTL))]).await
    }
}
