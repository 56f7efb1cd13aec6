//! What all clients have in common: limits, and logs that an outage does not flood.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use rdkafka::{ClientConfig, ClientContext, config::RDKafkaLogLevel, error::KafkaError};

use crate::{ConsumerStatus, KafkaAddress};

/// At most one line of librdkafka's per this time, from all clients of the process.
const COMPLAIN_EVERY: Duration = Duration::from_secs(1);

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
        .set("reconnect.backoff.ms", "100")
        .set("reconnect.backoff.max.ms", "2000")
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
                complain(|silent| tracing::warn!(silent, "librdkafka: {facility}: {message}"))
            }
            _ => tracing::debug!("librdkafka: {facility}: {message}"),
        }
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.status.failed(&error);
        complain(|silent| tracing::warn!(silent, %error, "Kafka: {reason}"));
    }

    fn stats_raw(&self, _: &[u8]) {}
}

/// Calls `say` unless somebody has complained a moment ago; it is told how many lines were swallowed since.
pub(super) fn complain(say: impl FnOnce(u32)) {
    static LAST: Mutex<(Option<Instant>, u32)> = Mutex::new((None, 0));
    let silent = {
        let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
        if last.0.is_some_and(|at| at.elapsed() < COMPLAIN_EVERY) {
            last.1 = last.1.saturating_add(1);
            return;
        }
        last.0 = Some(Instant::now());
        std::mem::take(&mut last.1)
    };
    say(silent);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outage_gets_a_line_now_and_then_and_the_rest_is_counted() {
        let mut lines = Vec::new();
        let started = Instant::now();
        while started.elapsed() < Duration::from_millis(1_500) {
            complain(|silent| lines.push(silent));
            std::thread::sleep(Duration::from_millis(20));
        }
        assert!((1..=3).contains(&lines.len()), "{lines:?}");
        assert!(lines.len() < 2 || lines[1] > 0, "{lines:?}");
    }
}
