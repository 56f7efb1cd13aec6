//! The queue that carries work from accepted tasks to schedulers.

use bus::{BusOptions, GroupProtocol, MembershipOptions, QueueUrl};
use serde::{Deserialize, Serialize};

use super::fault::Faults;

/// Section `queue`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct QueueConfig {
    /// `postgres` or `kafka://host:port[,host:port…][/namespace]` (`QUEUE_URL`).
    pub(crate) url: String,
    /// Who shares a Kafka topic out among the schedulers.
    pub(crate) group_protocol: GroupProtocol,
}

impl Default for QueueConfig {
    fn default() -> Self {
        Self { url: "postgres".to_owned(), group_protocol: GroupProtocol::default() }
    }
}

impl QueueConfig {
    pub(super) fn check(&self, faults: &mut Faults) {
        if let Err(fault) = self.url.parse::<QueueUrl>() {
            faults.add("queue.url", fault);
        }
    }

    pub(crate) fn to_bus(&self) -> BusOptions {
        let membership = MembershipOptions { protocol: self.group_protocol, ..MembershipOptions::default() };
        BusOptions { membership, ..BusOptions::default() }
    }

    /// Whether a broker stands between the outbox and the schedulers.
    pub(crate) fn has_broker(&self) -> bool {
        matches!(self.url.parse(), Ok(QueueUrl::Kafka(_)))
    }
}
