//! A waiting task as the scripts keep it, and the queues' calls.

use std::{collections::BTreeMap, time::Duration};

use domain::{ModelName, Priority};

use super::ReadyTask;
use crate::{
    Control, ControlError,
    script::{Call, Script},
    ttl::jittered_ms,
};

/// How long the keys of a queue live that nobody touches.
const KEEP: Duration = Duration::from_secs(24 * 3_600);
/// Tasks per script at most, so that no script runs long.
const CHUNK: usize = 100;

impl ReadyTask {
    /// Lower goes first among one user's tasks.
    fn score(&self) -> i64 {
        self.priority.turn(self.created_ms)
    }

    /// The text that comes back when it is popped: see `lib_ready.lua`.
    pub(super) fn record(&self) -> String {
        format!(
            "{} {} {} {} {} {} {} {}",
            self.tenant,
            self.user,
            self.score(),
            self.tenant_weight.max(1),
            self.priority,
            self.created_ms,
            self.not_before_ms,
            self.next_attempt_no
        )
    }

    pub(super) fn from_record(model: &ModelName, task: &str, record: &str) -> Result<Self, ControlError> {
        let read = || -> Option<Self> {
            let mut words = record.split(' ');
            let (tenant, user, _score) = (words.next()?, words.next()?, words.next()?);
            Some(Self {
                task: task.parse().ok()?,
                model: model.clone(),
                tenant: tenant.parse().ok()?,
                user: user.parse().ok()?,
                tenant_weight: words.next()?.parse().ok()?,
                priority: Priority::new(words.next()?.parse().ok()?).ok()?,
                created_ms: words.next()?.parse().ok()?,
                not_before_ms: words.next()?.parse().ok()?,
                next_attempt_no: words.next()?.parse().ok()?,
            })
        };
        read().ok_or_else(|| ControlError::Protocol("a record of the ready queue cannot be read".to_owned()))
    }
}

impl Control {
    /// Starts a script on one model's queue.
    pub(super) fn ready_call(&self, script: Script, model: &ModelName) -> Call {
        script.on(&[self.keys().ready(model)]).arg(jittered_ms(KEEP))
    }
}

/// The elements of each model (one hash tag), in chunks, with their places in the slice.
pub(super) fn by_model<T>(
    items: &[T],
    model: impl Fn(&T) -> &ModelName,
) -> Vec<(&ModelName, Vec<(usize, &T)>)> {
    let mut models: BTreeMap<&ModelName, Vec<(usize, &T)>> = BTreeMap::new();
    for (place, item) in items.iter().enumerate() {
        models.entry(model(item)).or_default().push((place, item));
    }
    let mut chunks = Vec::new();
    for (model, mut items) in models {
        while items.len() > CHUNK {
            let rest = items.split_off(CHUNK);
            chunks.push((model, std::mem::replace(&mut items, rest)));
        }
        chunks.push((model, items));
    }
    chunks
}
