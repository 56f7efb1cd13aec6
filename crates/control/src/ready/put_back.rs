//! Returning what could not start, and waking what was parked.

use super::record::by_model;
use crate::{Control, ControlError, Park, ReadyTask, Wake, script::Script, ttl::millis};

impl Control {
    /// Returns popped tasks with their turn.
    ///
    /// # Errors
    /// When control cannot be reached; they come back when their claim runs out.
    pub async fn put_back(&self, tasks: &[(ReadyTask, Park)]) -> Result<(), ControlError> {
        let calls = by_model(tasks, |(task, _)| &task.model).into_iter().map(|(model, tasks)| {
            let call = self.ready_call(Script::ReadyPutBack, model);
            tasks.iter().fold(call, |call, (_, (task, park))| {
                let call = call.arg(task.task.to_string()).arg(task.record());
                match park {
                    Park::Head => call.arg("head").arg(0),
                    Park::User { for_at_most } => call.arg("user").arg(millis(*for_at_most)),
                    Park::Tenant { for_at_most } => call.arg("tenant").arg(millis(*for_at_most)),
                    Park::Task { until_ms } => call.arg("task").arg(*until_ms),
                }
            })
        });
        self.0.control.calls_done(calls.collect()).await
    }

    /// Lets parked users and tenants take part again. Call it after a release.
    ///
    /// # Errors
    /// When control cannot be reached; they return by their timers.
    pub async fn wake(&self, wakes: &[Wake]) -> Result<(), ControlError> {
        let calls = by_model(wakes, |wake| &wake.model).into_iter().map(|(model, wakes)| {
            let call = self.ready_call(Script::ReadyWake, model);
            wakes
                .iter()
                .fold(call, |call, (_, wake)| call.arg(wake.tenant.to_string()).arg(wake.user.to_string()))
        });
        self.0.control.calls_done(calls.collect()).await
    }
}
