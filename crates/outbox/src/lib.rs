//! Messages that must leave once their transaction has committed, and those that nobody could handle.
//!
//! A message is appended on the caller's own connection, inside the caller's transaction: it exists exactly when
//! its fact does. With the `postgres` queue this table *is* the queue (claim, then acknowledge by deleting); with
//! Kafka a relay empties it. Either way a message is a nudge and never the truth: whoever reads it loads the task
//! again, so a message that comes twice, late or out of order does no harm.
//!
//! Messages that could not be handled lie in `dead_letters` with their bytes and the reason, until an operator
//! replays them or a month has passed.

mod age;
mod append;
mod claim;
mod dead_letter;
mod envelope;
mod replay;
mod retire;
mod shards;
mod topic;

pub use age::{audit, depth, oldest_age};
pub use append::{Columns, NewEvent, SHARDS, append, shard_of};
pub use claim::{Claimed, ack, claim, claim_recent, extend, release, remove};
pub use dead_letter::{
    Buried, DeadLetter, DeadLetterId, NewDeadLetter, PARTITION_OF_OUTBOX, bury, dead_letters,
};
pub use envelope::Envelope;
pub use replay::{ReplayOutcome, replay};
pub use retire::retire;
pub use shards::{Outgoing, ShardSession};
pub use topic::Topic;
