//! Telling streams that a task changed. A hint only: streams read the snapshot, and again every 10 s anyway.

mod publish;
mod ring;
mod subscribe;

use std::time::Duration;

use domain::{TaskId, TenantId};
use serde::{Deserialize, Serialize};

pub(crate) use subscribe::Subscriptions;
pub use subscribe::{Signal, TenantWatch};

/// One visible change of a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// Whose; the channel is the tenant's.
    pub tenant: TenantId,
    /// Which task.
    pub task: TaskId,
    /// Its version after the change.
    pub version: i32,
    /// The kind of event, in the words of `task_events`, or `progress`.
    pub kind: String,
    /// 0 to 100, where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<u8>,
}

/// What a committed transition tells Redis.
#[derive(Debug, Clone)]
pub struct Projection {
    /// The snapshot after it: a JSON object with a `version`.
    pub json: String,
    /// How long the snapshot is worth keeping; jitter is added.
    pub ttl: Duration,
    /// The change; its version is the snapshot's.
    pub change: Change,
}
