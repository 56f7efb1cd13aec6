//! A message as its handler sees it.

use std::fmt;

use outbox::{Envelope, Topic};

/// Where a message lies in its queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// Kafka's partition, or [`outbox::PARTITION_OF_OUTBOX`].
    pub partition: i32,
    /// Kafka's offset, or the outbox id.
    pub offset: i64,
}

/// A message.
#[derive(Clone, PartialEq, Eq)]
pub struct Message {
    /// The topic.
    pub topic: Topic,
    /// Where it lies.
    pub place: Place,
    /// The key's bytes; empty when it has none.
    pub key: Vec<u8>,
    /// The payload's bytes. Usually an [`Envelope`], but nothing guarantees it.
    pub payload: Vec<u8>,
}

impl Message {
    /// Reads the payload.
    ///
    /// # Errors
    /// When it is no envelope. Nobody will ever be able to read it: reject the message.
    pub fn envelope(&self) -> Result<Envelope, serde_json::Error> {
        Envelope::parse(&self.payload)
    }
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { topic, place, payload, .. } = self;
        f.debug_struct("Message")
            .field("topic", topic)
            .field("place", place)
            .field("payload", &String::from_utf8_lossy(payload))
            .finish_non_exhaustive()
    }
}
