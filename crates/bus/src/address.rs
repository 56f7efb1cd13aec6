//! The address of the queue: `postgres`, or `kafka://host:port[,host:port…][/namespace]`.

use std::{
    fmt,
    net::{Ipv4Addr, Ipv6Addr},
    str::FromStr,
};

/// Which queue to use (`QUEUE_URL`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QueueUrl {
    /// `postgres`: the outbox table is the queue.
    Postgres,
    /// `kafka://…`: a relay feeds Kafka from the outbox.
    Kafka(KafkaAddress),
}

/// Where Kafka is found, and what is ours in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KafkaAddress {
    /// `host:port` of some brokers; they tell of the others.
    brokers: Vec<String>,
    /// What the names of topics and groups begin with, so that deployments can share a cluster.
    namespace: Option<String>,
}

/// Why a text is no address of a queue. Messages leave out whatever may be a password.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// Neither of the two forms.
    #[error("is {0:?}; use `postgres` or `kafka://host:port[,host:port…]`")]
    Unknown(String),
    /// Credentials in the address.
    #[error("holds a user or a password, which Kafka's address does not take")]
    Credentials,
    /// A broker that is no `host:port`.
    #[error("names the broker {broker:?}: {fault}")]
    Broker {
        /// As written.
        broker: String,
        /// What is wrong with it.
        fault: &'static str,
    },
    /// A namespace that Kafka would refuse.
    #[error("has the namespace {0:?}: use 1 to 100 of a-z, 0-9, `.`, `_` and `-`")]
    Namespace(String),
}

impl FromStr for QueueUrl {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        if text == "postgres" {
            return Ok(Self::Postgres);
        }
        match text.split_once("://") {
            Some(("kafka", rest)) => rest.parse().map(Self::Kafka),
            Some((scheme, _)) => Err(AddressError::Unknown(format!("{scheme}://…"))),
            None => Err(AddressError::Unknown(text.chars().take(40).collect())),
        }
    }
}

impl FromStr for KafkaAddress {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        if text.contains('@') {
            return Err(AddressError::Credentials);
        }
        let (brokers, namespace) = match text.split_once('/') {
            Some((brokers, "")) => (brokers, None),
            Some((brokers, namespace)) => (brokers, Some(namespace)),
            None => (text, None),
        };
        for broker in brokers.split(',') {
            check_broker(broker)
                .map_err(|fault| AddressError::Broker { broker: broker.to_owned(), fault })?;
        }
        if let Some(namespace) = namespace {
            let fits = |c: u8| matches!(c, b'a'..=b'z' | b'0'..=b'9' | b'.' | b'_' | b'-');
            if namespace.len() > 100 || !namespace.bytes().all(fits) {
                return Err(AddressError::Namespace(namespace.chars().take(120).collect()));
            }
        }
        Ok(Self {
            brokers: brokers.split(',').map(str::to_owned).collect(),
            namespace: namespace.map(str::to_owned),
        })
    }
}

fn check_broker(broker: &str) -> Result<(), &'static str> {
    let (host, port) = broker.rsplit_once(':').ok_or("it needs a port, as in host:9092")?;
    if !port.bytes().all(|c| c.is_ascii_digit()) || !port.parse::<u16>().is_ok_and(|port| port > 0) {
        return Err("its port is no number from 1 to 65535");
    }
    if let Some(v6) = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        return v6.parse::<Ipv6Addr>().map(drop).map_err(|_| "its host is no IPv6 address");
    }
    let is_name = host.len() <= 253
        && host.split('.').all(|label| {
            !label.is_empty()
                && label.len() <= 63
                && label.bytes().all(|c| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_'))
        });
    if is_name || host.parse::<Ipv4Addr>().is_ok() {
        Ok(())
    } else {
        Err("its host is no name and no address")
    }
}

impl KafkaAddress {
    /// The brokers, as librdkafka lists them.
    #[must_use]
    pub fn bootstrap(&self) -> String {
        self.brokers.join(",")
    }

    /// A name within our namespace.
    #[must_use]
    pub fn named(&self, name: &str) -> String {
        self.namespace.as_ref().map_or_else(|| name.to_owned(), |namespace| format!("{namespace}.{name}"))
    }
}

impl fmt::Display for KafkaAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "kafka://{}", self.bootstrap())?;
        self.namespace.as_ref().map_or(Ok(()), |namespace| write!(f, "/{namespace}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_are_read() {
        assert_eq!("postgres".parse(), Ok(QueueUrl::Postgres));
        for text in [
            "kafka://127.0.0.1:9092",
            "kafka://b1.example:9092,b2.example:9093",
            "kafka://[::1]:9092",
            "kafka://kafka_1:9092/team-a",
        ] {
            let Ok(QueueUrl::Kafka(address)) = text.parse() else { panic!("{text} is not read") };
            assert_eq!(address.to_string(), text);
        }
        let Ok(QueueUrl::Kafka(address)) = "kafka://a:1,b:2/mine".parse() else { panic!("not read") };
        assert_eq!((address.bootstrap().as_str(), address.named("t").as_str()), ("a:1,b:2", "mine.t"));
    }

    #[test]
    fn what_is_wrong_is_said_and_passwords_stay_unsaid() {
        for (text, says) in [
            ("", "use `postgres`"),
            ("rabbit", "\"rabbit\""),
            ("amqp://user:secret@host", "amqp://…"),
            ("kafka://user:secret@host:9092", "password"),
            ("kafka://", "port"),
            ("kafka://host", "port"),
            ("kafka://host:", "port"),
            ("kafka://host:0", "port"),
            ("kafka://host:+1", "port"),
            ("kafka://host:65536", "port"),
            ("kafka://a:1,,b:2", "port"),
            ("kafka://a:1, b:2", "host"),
            ("kafka://:9092", "host"),
            ("kafka://[::g]:9092", "IPv6"),
            ("kafka://a:1/Über", "namespace"),
            ("kafka://a:1/x?y=z", "namespace"),
        ] {
            let refused = text.parse::<QueueUrl>().unwrap_err().to_string();
            assert!(refused.contains(says), "{text}: {refused}");
            assert!(!refused.contains("secret"), "{refused}");
        }
    }
}
