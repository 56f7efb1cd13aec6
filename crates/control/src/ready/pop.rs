//! Whose turn it is.

use std::time::Duration;

use domain::{ModelName, TenantId, UserId, WorkerId};

use super::{QueuedUser, ReadyTask};
use crate::{Control, ControlError, Popped, script::Script, ttl::millis};

/// How long a popped task is out before it comes back by itself.
const CLAIM: Duration = Duration::from_secs(10);
/// Tasks per call at most, so that no script runs long.
const POP_MAX: u32 = 256;

impl Control {
    /// Takes up to `max` tasks in fair order and claims each for ten seconds. Claims and parkings that ran out come
    /// back first.
    ///
    /// `by` pops one batch of a model after the other, and numbers them. After an error it names the same number again: if
    /// that pop was made and only its answer lost, the answer is given once more and nothing new is taken.
    ///
    /// # Errors
    /// When control cannot be reached. After `Unknown` what was popped comes back by itself, unless it is asked for again.
    pub async fn pop_ready(
        &self,
        model: &ModelName,
        max: u32,
        by: &WorkerId,
        number: u64,
    ) -> Result<Popped, ControlError> {
        let call = self
            .ready_call(Script::ReadyPop, model)
            .arg(max.min(POP_MAX))
            .arg(millis(CLAIM))
            .arg(by.as_str())
            .arg(number);
        let (marked, due, refill, popped): (bool, i64, Vec<String>, Vec<String>) =
            self.0.control.call(call).await?;
        let tasks = popped
            .chunks_exact(2)
            .map(|pair| ReadyTask::from_record(model, &pair[0], &pair[1]))
            .collect::<Result<_, _>>()?;
        let refill =
            refill.chunks_exact(2).map(|pair| queued_user(&pair[0], &pair[1])).collect::<Result<_, _>>()?;
        Ok(Popped { tasks, refill, marked, next_due_ms: u64::try_from(due).ok() })
    }
}

fn queued_user(tenant: &str, user: &str) -> Result<QueuedUser, ControlError> {
    match (tenant.parse::<TenantId>(), user.parse::<UserId>()) {
        (Ok(tenant), Ok(user)) => Ok(QueuedUser { tenant, user }),
        _ => Err(ControlError::Protocol("a user of the ready queue cannot be read".to_owned())),
    }
}
