//! Redis, which is speed and control: three logical instances, each with its own address.

use std::time::Duration;

use control::ControlConfig;
use serde::{Deserialize, Serialize};

use super::{StoreUrl, fault::Faults};

/// Section `redis`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct RedisConfig {
    /// The address of every instance that has none of its own (`REDIS_URL`).
    pub(crate) url: StoreUrl,
    /// Snapshots and progress; may evict (`REDIS_CACHE_URL`).
    pub(crate) cache_url: Option<StoreUrl>,
    /// Limits, slots, leases, queues; must not evict (`REDIS_CONTROL_URL`).
    pub(crate) control_url: Option<StoreUrl>,
    /// Channels and streams (`REDIS_REALTIME_URL`).
    pub(crate) realtime_url: Option<StoreUrl>,
    /// Put before every key, for deployments that share a server.
    pub(crate) prefix: String,
    /// Connections per instance; each carries many commands at once.
    pub(crate) pool_size: u32,
    /// Limit for opening a connection, in milliseconds.
    pub(crate) connect_ms_max: u64,
    /// Limit for the answer to one pipeline, in milliseconds.
    pub(crate) response_ms_max: u64,
    /// Failures in a row after which an instance counts as away.
    pub(crate) breaker_failures: u32,
    /// How long an instance that is away is left alone before it is tried again, in milliseconds.
    pub(crate) breaker_pause_ms: u64,
}

impl Default for RedisConfig {
    fn default() -> Self {
        let limits = ControlConfig::single("");
        let millis = |limit: Duration| u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
        Self {
            url: StoreUrl::default(),
            cache_url: None,
            control_url: None,
            realtime_url: None,
            prefix: limits.prefix,
            pool_size: limits.pool_size,
            connect_ms_max: millis(limits.connect_limit),
            response_ms_max: millis(limits.response_limit),
            breaker_failures: limits.breaker_failures,
            breaker_pause_ms: millis(limits.breaker_pause),
        }
    }
}

impl RedisConfig {
    pub(super) fn check(&self, faults: &mut Faults) {
        let own = [&self.cache_url, &self.control_url, &self.realtime_url];
        if self.url.is_empty() && own.iter().any(|url| url.is_none()) {
            faults
                .add("redis.url", "is required, such as redis://host:6379, unless each instance has its own");
        } else {
            faults.check("redis", self.to_control().check());
        }
    }

    pub(crate) fn to_control(&self) -> ControlConfig {
        let of = |own: &Option<StoreUrl>| own.as_ref().unwrap_or(&self.url).reveal().to_owned();
        ControlConfig {
            cache_url: of(&self.cache_url),
            control_url: of(&self.control_url),
            realtime_url: of(&self.realtime_url),
            prefix: self.prefix.clone(),
            pool_size: self.pool_size,
            connect_limit: Duration::from_millis(self.connect_ms_max),
            response_limit: Duration::from_millis(self.response_ms_max),
            breaker_failures: self.breaker_failures,
            breaker_pause: Duration::from_millis(self.breaker_pause_ms),
            ..ControlConfig::single("")
        }
    }
}
