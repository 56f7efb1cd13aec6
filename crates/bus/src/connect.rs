//! Choosing the backend.

use std::{str::FromStr, sync::Arc, time::Duration};

use domain::retry::Backoff;
use pg::PgPool;
use url::Url;

use crate::{Bus, postgres::PostgresBus};

/// Which queue to use (`QUEUE_URL`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QueueUrl {
    /// `postgres`: the outbox table is the queue.
    Postgres,
}

/// Why there is no queue.
#[derive(Debug, thiserror::Error)]
pub enum BusError {
    /// The address asks for Kafka.
    #[error(
        "QUEUE_URL: Kafka is not supported by this version; use `postgres`, where the outbox table is the queue"
    )]
    KafkaUnsupported,
    /// The address is none.
    #[error("QUEUE_URL is {0:?}; use `postgres`")]
    UnknownQueue(String),
}

impl FromStr for QueueUrl {
    type Err = BusError;

    fn from_str(text: &str) -> Result<Self, BusError> {
        match text {
            "postgres" => Ok(Self::Postgres),
            kafka if kafka.starts_with("kafka://") => Err(BusError::KafkaUnsupported),
            other => {
                // An address may carry a password, and an error goes into logs.
                let shown = Url::parse(other)
                    .map_or_else(|_| other.to_owned(), |url| format!("{}://…", url.scheme()));
                Err(BusError::UnknownQueue(shown))
            }
        }
    }
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
        }
    }
}

/// Opens the queue that an address names. Nothing is connected before it is used.
///
/// # Errors
/// When the address names no queue that this version has.
///
/// # Panics
/// Outside of a tokio runtime.
pub fn connect(queue_url: &str, pool: PgPool) -> Result<Arc<dyn Bus>, BusError> {
    connect_with(queue_url, pool, BusOptions::default())
}

/// As [`connect`], with other numbers.
///
/// # Errors
/// When the address names no queue that this version has.
///
/// # Panics
/// Outside of a tokio runtime.
pub fn connect_with(queue_url: &str, pool: PgPool, options: BusOptions) -> Result<Arc<dyn Bus>, BusError> {
    match queue_url.parse()? {
        QueueUrl::Postgres => Ok(Arc::new(PostgresBus::new(pool, options))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kafka_is_refused_in_words_and_passwords_stay_unsaid() {
        assert_eq!("postgres".parse::<QueueUrl>().unwrap(), QueueUrl::Postgres);
        let refused = "kafka://127.0.0.1:9092".parse::<QueueUrl>().unwrap_err();
        assert!(matches!(refused, BusError::KafkaUnsupported));
        assert!(refused.to_string().contains("postgres"), "{refused}");
        let refused = "amqp://user:secret@host".parse::<QueueUrl>().unwrap_err().to_string();
        assert!(refused.contains("amqp") && !refused.contains("secret"), "{refused}");
    }
}
