//! Settings of the HTTP side.
//!
//! | variable | meaning | default |
//! |---|---|---|
//! | `AIVIDEO_PUBLIC_URL` | the address under which the world reaches this service | none: links are paths |
//! | `AIVIDEO_API__TRUSTED_HOPS`, `__TRUSTED_PROXIES` | proxies in front, and their networks | 0, none |
//! | `AIVIDEO_API__CORS_ORIGINS` | pages of these origins may call the API | none |
//! | `AIVIDEO_API__BODY_BYTES_MAX` | largest JSON body | 262144 |
//! | `AIVIDEO_API__IN_FLIGHT_MAX` | requests answered at once; more are refused with 503 | 4096 |
//! | `AIVIDEO_API__STORE_IN_FLIGHT_MAX` | of those, how many may be busy in PostgreSQL outside the submit writer | 32 |

use domain::limits::{Bucket, Window};
use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use url::Url;

/// Settings of the HTTP side.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ApiConfig {
    /// The address under which the world reaches this service. Filled from `AIVIDEO_PUBLIC_URL`.
    pub public_url: Option<Url>,
    /// How many proxies of ours each request passes; its client is that many X-Forwarded-For entries from the right.
    pub trusted_hops: usize,
    /// The networks of those proxies; others' forwarding headers are not believed.
    pub trusted_proxies: Vec<IpNet>,
    /// Origins whose pages may call the API from a browser.
    pub cors_origins: Vec<String>,
    /// The largest JSON body in bytes.
    pub body_bytes_max: u64,
    /// How long a body may take to arrive, in seconds.
    pub body_seconds_max: u64,
    /// How long any answer may take, in seconds; longer than the longest long poll (25 s).
    pub request_seconds_max: u64,
    /// How long a read may take that does not ask to wait, in seconds: a store that hangs must not keep its readers.
    pub read_seconds_max: u64,
    /// Requests answered at once. Streams and downloads count only until they begin.
    pub in_flight_max: usize,
    /// Requests that may be busy with PostgreSQL outside the submit writer: not more than the pool has connections.
    pub store_in_flight_max: usize,
    /// How long a request may wait for its turn at PostgreSQL before it is refused, in milliseconds.
    pub store_wait_ms_max: u64,
    /// Requests per address, in process. None is unlimited.
    pub ip: Option<Bucket>,
    /// Writes per address over all processes, counted in Redis; submits are counted there by the admission. None is
    /// unlimited.
    pub ip_window: Option<IpWindow>,
    /// Wrong credentials per address. None is unlimited.
    pub failed_auth: Option<FailedAuth>,
    /// Browser tokens that one key may mint within a window. None is unlimited.
    pub minting: Option<Window>,
    /// Seconds between two comments on a stream, be it quiet or busy.
    pub stream_comment_seconds: u64,
    /// Seconds after which a stream reads PostgreSQL again although nothing was announced.
    pub stream_reread_seconds: u64,
    /// Event streams open at once in this process.
    pub streams_max: usize,
    /// Whether `/admin` is served here; false when it has a listener of its own. Not configured but decided by app.
    #[serde(skip)]
    pub admin: bool,
}

/// Requests of one address within a sliding window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct IpWindow {
    /// How many.
    pub limit: u32,
    /// The window in milliseconds.
    pub window_ms: u32,
}

/// Wrong credentials that an address may present within a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedAuth {
    /// How many.
    pub limit: u32,
    /// The window in milliseconds.
    pub window_ms: u64,
}

impl Default for ApiConfig {
    fn default() -> Self {
        Self {
            public_url: None,
            trusted_hops: 0,
            trusted_proxies: Vec::new(),
            cors_origins: Vec::new(),
            body_bytes_max: 256 * 1024,
            body_seconds_max: 10,
            request_seconds_max: 35,
            read_seconds_max: 10,
            in_flight_max: 4_096,
            store_in_flight_max: 20,
            store_wait_ms_max: 1_000,
            ip: Some(Bucket::per_second(2_000, 4_000)),
            ip_window: Some(IpWindow { limit: 20_000, window_ms: 10_000 }),
            failed_auth: Some(FailedAuth { limit: 60, window_ms: 60_000 }),
            minting: Some(Window { limit: 1_000, window_ms: 60_000 }),
            stream_comment_seconds: 10,
            stream_reread_seconds: 10,
            streams_max: 10_000,
            admin: true,
        }
    }
}

/// Settings that contradict each other.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// The answer's limit must leave room for a long poll.
    #[error("api.request_seconds_max must be above {LONG_POLL_SECONDS_MAX}, the longest long poll")]
    RequestShorterThanLongPoll,
    /// Forwarding headers are believed from nobody.
    #[error("api.trusted_hops is set, but api.trusted_proxies names no network")]
    HopsWithoutProxies,
    /// A limit of zero would refuse everything.
    #[error("api.{0} must be at least 1")]
    Zero(&'static str),
    /// Not the origin of a page.
    #[error("api.cors_origins: `{0}` is not an origin such as https://app.example")]
    Origin(String),
}

/// The longest `?wait=` in seconds.
pub(crate) const LONG_POLL_SECONDS_MAX: u64 = 25;

impl ApiConfig {
    /// Refuses contradictions.
    ///
    /// # Errors
    /// The first one found.
    pub fn check(&self) -> Result<(), ConfigError> {
        if self.request_seconds_max <= LONG_POLL_SECONDS_MAX {
            return Err(ConfigError::RequestShorterThanLongPoll);
        }
        if self.trusted_hops > 0 && self.trusted_proxies.is_empty() {
            return Err(ConfigError::HopsWithoutProxies);
        }
        for (name, zero) in [
            ("body_bytes_max", self.body_bytes_max == 0),
            ("body_seconds_max", self.body_seconds_max == 0),
            ("read_seconds_max", self.read_seconds_max == 0),
            ("in_flight_max", self.in_flight_max == 0),
            ("store_in_flight_max", self.store_in_flight_max == 0),
            ("streams_max", self.streams_max == 0),
            ("stream_comment_seconds", self.stream_comment_seconds == 0),
            ("stream_reread_seconds", self.stream_reread_seconds == 0),
            ("ip", self.ip.is_some_and(|ip| ip.capacity == 0 || ip.refill == 0 || ip.per_ms == 0)),
            ("ip_window", self.ip_window.is_some_and(|w| w.limit == 0 || w.window_ms == 0)),
            ("failed_auth", self.failed_auth.is_some_and(|f| f.limit == 0 || f.window_ms == 0)),
            ("minting", self.minting.is_some_and(|m| m.limit == 0 || m.window_ms == 0)),
        ] {
            if zero {
                return Err(ConfigError::Zero(name));
            }
        }
        for origin in &self.cors_origins {
            let is_origin = Url::parse(origin).is_ok_and(|url| url.origin().ascii_serialization() == *origin);
            if !is_origin {
                return Err(ConfigError::Origin(origin.clone()));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contradictions_are_refused() {
        let config = |change: fn(&mut ApiConfig)| {
            let mut config = ApiConfig::default();
            change(&mut config);
            config.check()
        };
        assert_eq!(config(|_| ()), Ok(()));
        assert_eq!(config(|c| c.request_seconds_max = 25), Err(ConfigError::RequestShorterThanLongPoll));
        assert_eq!(config(|c| c.trusted_hops = 1), Err(ConfigError::HopsWithoutProxies));
        assert_eq!(config(|c| c.in_flight_max = 0), Err(ConfigError::Zero("in_flight_max")));
        assert_eq!(config(|c| c.cors_origins = vec!["https://a.example".into()]), Ok(()));
        for bad in ["*", "https://a.example/", "https://a.example/x", "a.example"] {
            let config = ApiConfig { cors_origins: vec![bad.into()], ..ApiConfig::default() };
            assert_eq!(config.check(), Err(ConfigError::Origin(bad.into())));
        }
    }
}
