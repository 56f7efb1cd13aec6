//! Choosing the backend.

use std::{sync::Arc, time::Duration};

use domain::retry::Backoff;
use pg::PgPool;
use serde::{Deserialize, Serialize};

use crate::{AddressError, Bus, QueueUrl, kafka::KafkaBus, postgres::PostgresBus};

/// Why there is no queue.
#[derive(Debug, thiserror::Error)]
pub enum BusError {
    /// The address is none.
    #[error("QUEUE_URL {0}")]
    Address(#[from] AddressError),
}

/// How a consumer takes and retries.
#[derive(Debug, Clone)]
pub struct BusOptions {
    /// Messages per batch at most.
    pub batch_max: u32,
    /// The longest run of a handler before it counts as failed.
    pub handler_limit: Duration,
    /// How often a failed batch is handed in again.
    pub retries: u32,
    /// The pauses in between.
    pub backoff: Backoff,
    /// After which a consumer's messages come back when it is not heard of. Prolonged while it works.
    pub visible_for: Duration,
    /// How often an idle consumer looks by itself. The guarantee behind the nudges.
    pub poll: Duration,
    /// The shortest time between two looks, so that a flood of nudges makes batches instead of queries.
    pub gather: Duration,
    /// What only members of a Kafka group have.
    pub membership: MembershipOptions,
}

/// Who shares the partitions out among the members of a Kafka group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GroupProtocol {
    /// The broker (KIP-848, Kafka 4): a member that joins or leaves stops nobody else, and a broker that was away
    /// goes on with the members that it had.
    #[default]
    Consumer,
    /// The members among themselves, for brokers that know nothing else, such as Redpanda or Kafka 3. A broker that
    /// was away lets nobody in before it has missed the former members for a session.
    Classic,
}

impl GroupProtocol {
    /// Its name in the configuration, ours and librdkafka's.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Consumer => "consumer",
            Self::Classic => "classic",
        }
    }
}

/// How a member of a Kafka group stays one.
#[derive(Debug, Clone)]
pub struct MembershipOptions {
    /// Who shares the partitions out.
    pub protocol: GroupProtocol,
    /// After which a classic group gives up a member that it does not hear of. Elsewhere the broker says.
    pub session: Duration,
    /// After which a member whose thread stands still gives itself up. A long handler is no reason: the thread does
    /// not wait for it.
    pub stall: Duration,
    /// How long a member keeps partitions that the group wants back, to finish a batch.
    pub drain: Duration,
}

impl Default for MembershipOptions {
    fn default() -> Self {
        Self {
            protocol: GroupProtocol::default(),
            session: Duration::from_secs(10),
            stall: Duration::from_secs(60),
            drain: Duration::from_secs(10),
        }
    }
}

impl Default for BusOptions {
    fn default() -> Self {
        Self {
            batch_max: 256,
            handler_limit: Duration::from_secs(20),
            retries: 3,
            backoff: Backoff { first: Duration::from_millis(100), factor: 4, max: Duration::from_secs(5) },
            visible_for: Duration::from_secs(60),
            poll: Duration::from_millis(200),
            gather: Duration::from_millis(5),
            membership: MembershipOptions::default(),
        }
    }
}

/// Opens the queue that an address names. Nothing is connected before it is used.
///
/// # Errors
/// When the address is none.
///
/// # Panics
/// Outside of a tokio runtime.
pub fn connect(queue_url: &str, pool: PgPool) -> Result<Arc<dyn Bus>, BusError> {
    connect_with(queue_url, pool, BusOptions::default())
}

/// As [`connect`], with other options.
///
/// # Errors
/// When the address is none.
///
/// # Panics
/// Outside of a tokio runtime.
pub fn connect_with(queue_url: &str, pool: PgPool, options: BusOptions) -> Result<Arc<dyn Bus>, BusError> {
    match queue_url.parse()? {
        QueueUrl::Postgres => Ok(Arc::new(PostgresBus::new(pool, options))),
        QueueUrl::Kafka(address) => Ok(Arc::new(KafkaBus::new(address, pool, options))),
    }
}
