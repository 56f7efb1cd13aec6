//! Where the three Redis instances are and how long we wait for them.

use std::{str::FromStr, time::Duration};

use redis::{ConnectionInfo, IntoConnectionInfo};

/// Settings of the control crate. Times are limits, not targets.
#[derive(Debug, Clone)]
pub struct ControlConfig {
    /// Snapshots, progress, negative entries. May evict.
    pub cache_url: String,
    /// Limits, slots, leases, queues, replays. Must not evict.
    pub control_url: String,
    /// Channels and streams.
    pub realtime_url: String,
    /// Put before every key and channel; empty in production, one per test. It must not contain braces, or the
    /// hash tags of the keys would change.
    pub prefix: String,
    /// Connections per instance. Each carries many commands at once, so a few are enough.
    pub pool_size: u32,
    /// Limit for opening a connection.
    pub connect_limit: Duration,
    /// Limit for the answer to one pipeline.
    pub response_limit: Duration,
    /// Failures in a row after which the breaker opens.
    pub breaker_failures: u32,
    /// How long an open breaker refuses before it lets one probe through.
    pub breaker_pause: Duration,
    /// How long a freshly taken slot is vouched for. After that a reconciler may ask whether its attempt lives.
    pub slot_vouch: Duration,
    /// Callers of `admit` that may wait for an answer at once; more are refused with `Overloaded`.
    pub gather_waiting_max: usize,
}

impl ControlConfig {
    /// One server for everything, with the limits that production uses.
    #[must_use]
    pub fn single(url: impl Into<String>) -> Self {
        let url = url.into();
        Self {
            cache_url: url.clone(),
            control_url: url.clone(),
            realtime_url: url,
            prefix: String::new(),
            pool_size: 4,
            connect_limit: Duration::from_millis(80),
            response_limit: Duration::from_millis(80),
            breaker_failures: 5,
            breaker_pause: Duration::from_millis(500),
            slot_vouch: Duration::from_secs(30),
            gather_waiting_max: 8_192,
        }
    }
}

/// A setting that cannot work.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// Not a Redis URL.
    #[error("{name} is not a Redis URL: {reason}")]
    Url {
        /// Which setting.
        name: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// A kind of deployment that is understood but not served yet.
    #[error(
        "{name} asks for {kind}, which is not supported yet; give the URL of one server, redis://host:port"
    )]
    Unsupported {
        /// Which setting.
        name: &'static str,
        /// `Redis Cluster`, `Redis Sentinel` or `TLS`.
        kind: &'static str,
    },
    /// Cluster has only database 0.
    #[error("{name} names a database, but Redis Cluster has only database 0")]
    DatabaseWithCluster {
        /// Which setting.
        name: &'static str,
    },
    /// A prefix with braces would change every hash tag.
    #[error("the key prefix must not contain braces")]
    PrefixWithBraces,
    /// A limit of zero.
    #[error("{0} must be greater than zero")]
    Zero(&'static str),
}

/// How an instance is deployed, as its URL says it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Deployment {
    /// One server.
    Single(Box<SingleServer>),
    /// `redis+cluster://a,b,c`
    Cluster,
    /// `redis+sentinel://a,b,c/name`
    Sentinel,
}

/// The address of one server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SingleServer(pub(crate) String);

impl Deployment {
    /// Reads one URL. The only place that knows the schemes.
    fn parse(name: &'static str, url: &str) -> Result<Self, ConfigError> {
        let bad = |reason: &str| ConfigError::Url { name, reason: reason.to_owned() };
        let (scheme, rest) = url.split_once("://").ok_or_else(|| bad("it has no scheme"))?;
        // Credentials may contain anything; the hosts begin behind the last @.
        let hosts_and_path = rest.rsplit_once('@').map_or(rest, |(_, after)| after);
        let (hosts, path) = hosts_and_path.split_once('/').unwrap_or((hosts_and_path, ""));
        let every_host_named = hosts.split(',').all(|host| !host.is_empty() && !host.starts_with(':'));
        match scheme {
            "rediss" => Err(ConfigError::Unsupported { name, kind: "TLS" }),
            "redis" | "unix" | "redis+unix" => {
                // The URL may hold a password, so the parser's own message is not repeated.
                url.into_connection_info().map_err(|_| bad("it cannot be parsed"))?;
                Ok(Self::Single(Box::new(SingleServer(url.to_owned()))))
            }
            "redis+cluster" | "rediss+cluster" if !every_host_named => Err(bad("a host is missing")),
            "redis+cluster" | "rediss+cluster" if !matches!(path, "" | "0") => {
                Err(ConfigError::DatabaseWithCluster { name })
            }
            "redis+cluster" | "rediss+cluster" => Ok(Self::Cluster),
            "redis+sentinel" | "rediss+sentinel" if !every_host_named => Err(bad("a host is missing")),
            "redis+sentinel" | "rediss+sentinel" if path.is_empty() => {
                Err(bad("the name of the master is missing after the hosts"))
            }
            "redis+sentinel" | "rediss+sentinel" => Ok(Self::Sentinel),
            other => Err(bad(&format!("its scheme is {other}"))),
        }
    }
}

impl ControlConfig {
    /// # Errors
    /// The first setting that cannot work.
    pub fn check(&self) -> Result<(), ConfigError> {
        self.connection(Instance::Cache)?;
        self.connection(Instance::Control)?;
        self.connection(Instance::Realtime)?;
        if self.prefix.contains(['{', '}']) {
            return Err(ConfigError::PrefixWithBraces);
        }
        let positive = [
            ("pool_size", self.pool_size > 0),
            ("connect_limit", !self.connect_limit.is_zero()),
            ("response_limit", !self.response_limit.is_zero()),
            ("breaker_failures", self.breaker_failures > 0),
            ("gather_waiting_max", self.gather_waiting_max > 0),
            ("slot_vouch", !self.slot_vouch.is_zero()),
        ];
        match positive.into_iter().find(|(_, holds)| !holds) {
            Some((name, _)) => Err(ConfigError::Zero(name)),
            None => Ok(()),
        }
    }

    /// The address of one instance: the seam at which Cluster and Sentinel will be told apart.
    pub(crate) fn connection(&self, instance: Instance) -> Result<ConnectionInfo, ConfigError> {
        let (name, url) = match instance {
            Instance::Cache => ("REDIS_CACHE_URL", &self.cache_url),
            Instance::Control => ("REDIS_CONTROL_URL", &self.control_url),
            Instance::Realtime => ("REDIS_REALTIME_URL", &self.realtime_url),
        };
        match Deployment::parse(name, url)? {
            Deployment::Single(server) => ConnectionInfo::from_str(&server.0)
                .map_err(|_| ConfigError::Url { name, reason: "it cannot be parsed".to_owned() }),
            Deployment::Cluster => Err(ConfigError::Unsupported { name, kind: "Redis Cluster" }),
            Deployment::Sentinel => Err(ConfigError::Unsupported { name, kind: "Redis Sentinel" }),
        }
    }
}

/// The three logical servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Instance {
    Cache,
    Control,
    Realtime,
}

impl Instance {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Cache => "cache",
            Self::Control => "control",
            Self::Realtime => "realtime",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(url: &str) -> Result<(), ConfigError> {
        ControlConfig::single(url).check()
    }

    #[test]
    fn one_server_is_accepted_in_every_spelling() {
        for url in [
            "redis://127.0.0.1",
            "redis://:pw@h:6380/3",
            "redis://user:pw@[::1]:1/0",
            "unix:///run/redis.sock",
        ] {
            assert_eq!(check(url), Ok(()), "{url}");
        }
    }

    #[test]
    fn clusters_and_sentinels_are_understood_and_refused_by_name() {
        let kind = |url: &str| match check(url) {
            Err(ConfigError::Unsupported { kind, .. }) => kind,
            other => panic!("{url}: {other:?}"),
        };
        assert_eq!(kind("redis+cluster://a:7000,b:7001,c:7002"), "Redis Cluster");
        assert_eq!(kind("redis+sentinel://a,b,c/main"), "Redis Sentinel");
        assert_eq!(kind("rediss://a"), "TLS");
        let name = "REDIS_CACHE_URL";
        assert_eq!(check("redis+cluster://a,b/3"), Err(ConfigError::DatabaseWithCluster { name }));
        for bad in ["redis+sentinel://a,b", "redis+cluster://a,,b", "http://a", "localhost:6379", ""] {
            assert!(matches!(check(bad), Err(ConfigError::Url { .. })), "{bad}: {:?}", check(bad));
        }
    }

    #[test]
    fn a_refusal_never_repeats_a_password() {
        for url in ["redis://:s3cret@:x", "rediss+sentinel://:s3cret@a", "gopher://:s3cret@a"] {
            let error = check(url).unwrap_err().to_string();
            assert!(!error.contains("s3cret"), "{error}");
        }
    }

    #[test]
    fn a_prefix_cannot_move_a_hash_tag() {
        let config = ControlConfig { prefix: "t:{x}:".to_owned(), ..ControlConfig::single("redis://h") };
        assert_eq!(config.check(), Err(ConfigError::PrefixWithBraces));
    }
}
