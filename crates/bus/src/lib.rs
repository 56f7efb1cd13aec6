//! The queue: carries nudges from those who commit facts to those who act on them.
//!
//! The promise is small on purpose, so that a table and a broker can both keep it: every message is handled at
//! least once, and acknowledged after its handler; order per key is usual and not promised; there is no delay, no
//! priority and no refusal of single messages. A handler that fails is tried again in place a few times; what still
//! fails goes to `dead_letters`, exactly those messages and no neighbours, and the consumer goes on.
//!
//! Read [`Handler`] for what a consumer writes, `deliver` for how failures are told apart, `postgres` for the backend
//! in which the outbox table is the queue, and `kafka` for the one that a relay feeds. One conformance suite (`tests/it/conformance`) holds every
//! backend to the promise.

mod address;
mod connect;
mod deliver;
mod handler;
mod hints;
mod kafka;
mod letters;
mod message;
mod postgres;
mod status;

use std::sync::Arc;

pub use address::{AddressError, KafkaAddress, QueueUrl};
use async_trait::async_trait;
pub use connect::{BusError, BusOptions, GroupProtocol, MembershipOptions, connect, connect_with};
pub use handler::{Handler, HandlerError, Rejected};
pub use message::{Message, Place};
pub use outbox::{Envelope, Topic};
pub use status::ConsumerStatus;
use tokio_util::sync::CancellationToken;

/// A queue. Messages are put in by `outbox::append`, in the transaction that makes their fact.
#[async_trait]
pub trait Bus: Send + Sync + 'static {
    /// Consumes a topic until `shutdown`: then nothing more is taken, the batch in hand is finished or given back,
    /// and the call returns. Several consumers of one topic, in any number of processes, share its messages.
    ///
    /// Faults of the queue are waited out, and seen in `status`. Dropping the future is safe too; what it had in
    /// hand comes again after a while.
    ///
    /// # Errors
    /// Only when waiting cannot help, such as a topic that the broker refuses to this client.
    async fn run(
        &self,
        topic: Topic,
        handler: Arc<dyn Handler>,
        status: ConsumerStatus,
        shutdown: CancellationToken,
    ) -> Result<(), BusError>;

    /// Carries messages from the outbox to the broker until `shutdown`. Several relays, in any number of processes,
    /// share the work. Where the outbox is the queue there is nothing to carry, and the call returns at once.
    ///
    /// Faults are waited out, and seen in `status`. Dropping the future is safe: what it had in hand is sent again.
    ///
    /// # Errors
    /// Only when waiting cannot help.
    async fn relay(&self, status: ConsumerStatus, shutdown: CancellationToken) -> Result<(), BusError>;

    /// Says that messages of a topic have been committed. Only a hint that saves waiting for the next look; it never
    /// blocks, and losing it costs a moment.
    fn nudge(&self, topic: Topic);
}
