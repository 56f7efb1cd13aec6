//! Positions and depth.

use domain::{ModelName, TaskId, TenantId, UserId};

use super::Place;
use crate::{Control, ControlError, instance::command, script::Script};

impl Control {
    /// Where each task stands; `None` when it is not among the heads.
    ///
    /// # Errors
    /// When control cannot be reached.
    pub async fn positions(
        &self,
        of: &[(ModelName, TenantId, UserId, TaskId)],
    ) -> Result<Vec<Option<Place>>, ControlError> {
        let calls = of.iter().map(|(model, tenant, user, task)| {
            self.ready_call(Script::ReadyPosition, model)
                .arg(task.to_string())
                .arg(tenant.to_string())
                .arg(user.to_string())
        });
        let places: Vec<(u64, u64, u64)> = self.0.control.calls_as(calls.collect()).await?;
        let place = |(of_model, of_tenant, of_user)| Place { of_model, of_tenant, of_user };
        Ok(places.into_iter().map(|turns| (turns.0 > 0).then(|| place(turns))).collect())
    }

    /// Tasks in each model's queue, parked ones included, claimed ones not.
    ///
    /// # Errors
    /// When control cannot be reached.
    pub async fn queue_depths(&self, models: &[ModelName]) -> Result<Vec<u64>, ControlError> {
        let calls = models.iter().map(|model| command("GET").arg(self.keys().ready_depth(model)));
        let depths: Vec<Option<i64>> = self.0.control.calls_as(calls.collect()).await?;
        Ok(depths
            .into_iter()
            .map(|depth| depth.and_then(|depth| u64::try_from(depth).ok()).unwrap_or(0))
            .collect())
    }

    /// Whether the queue is known to be complete.
    ///
    /// # Errors
    /// When control cannot be reached.
    pub async fn ready_marker(&self, model: &ModelName) -> Result<bool, ControlError> {
        self.0.control.call(command("EXISTS").arg(self.keys().ready_marker(model))).await
    }
}
