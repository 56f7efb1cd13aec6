//! The queue that carries work from accepted tasks to schedulers.

use serde::{Deserialize, Serialize};

use super::fault::Faults;

/// Section `queue`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct QueueConfig {
    /// `postgres` (`QUEUE_URL`). `kafka://host:port[,…]` is understood and refused until it is served.
    pub(crate) url: String,
}

impl Default for QueueConfig {
    fn default() -> Self {
        Self { url: "postgres".to_owned() }
    }
}

impl QueueConfig {
    pub(super) fn check(&self, faults: &mut Faults) {
        match self.url.as_str() {
            "postgres" => {}
            url if url.starts_with("kafka://") => {
                faults.add("queue.url", "Kafka is not served yet; use postgres");
            }
            _ => faults.add("queue.url", "must be postgres"),
        }
    }
}
