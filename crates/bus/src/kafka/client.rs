//! What all clients have in common: limits, and logs that an outage does not flood.

use std::time::Instant;

use domain::complaints::Complaints;
use rdkafka::{ClientConfig, ClientContext, config::RDKafkaLogLevel, error::KafkaError};

use crate::{ConsumerStatus, KafkaAddress};

/// What librdkafka complains of, from all clients of the process.
static LIBRARY: Complaints = Complaints::new();

/// The settings that every client starts from.
pub(super) fn config(address: &KafkaAddress) -> ClientConfig {
    let mut config = ClientConfig::new();
    config
        .set("bootstrap.servers", address.bootstrap())
        .set("client.id", "aivideo")
        .set("socket.keepalive.enable", "true")
        // A broker that stops answering without closing its connections is noticed by this.
        .set("socket.timeout.ms", "6000")
        .set("socket.connection.setup.timeout.ms", "5000")
        // A broker that is back is found within a second.
        .set("reconnect.backoff.ms", "100")
        .set("reconnect.backoff.max.ms", "1000")
        .set("log.connection.close", "false")
        .set("allow.auto.create.topics", "false");
    config.set_log_level(RDKafkaLogLevel::Info);
    config
}

/// A client's voice: its logs go to tracing, its faults into the status.
pub(super) struct Voice {
    status: ConsumerStatus,
}

impl Voice {
    pub(super) fn new(status: ConsumerStatus) -> Self {
        Self { status }
    }
}

impl ClientContext for Voice {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        match level {
            RDKafkaLogLevel::Emerg
            | RDKafkaLogLevel::Alert
            | RDKafkaLogLevel::Critical
            | RDKafkaLogLevel::Error
            | RDKafkaLogLevel::Warning => {
                if let Some(silent) = LIBRARY.complain(Instant::now()) {
                    tracing::warn!(silent, "librdkafka: {facility}: {message}");
                }
            }
            _ => tracing::debug!("librdkafka: {facility}: {message}"),
        }
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.status.failed(&error);
        if let Some(silent) = LIBRARY.complain(Instant::now()) {
            tracing::warn!(silent, %error, "Kafka: {reason}");
        }
    }

    fn stats_raw(&self, _: &[u8]) {}
}
