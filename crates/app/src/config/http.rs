//! Where the process listens.

use std::net::{Ipv4Addr, SocketAddr};

use serde::{Deserialize, Serialize};

use super::fault::Faults;

/// Section `http`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct HttpConfig {
    /// The address of the API and the console (`AIVIDEO_HTTP_ADDR`); port 0 takes a free one.
    pub(crate) addr: SocketAddr,
    /// A listener of its own for `/admin` (`AIVIDEO_ADMIN_ADDR`). Without it the first one serves `/admin` too.
    pub(crate) admin_addr: Option<SocketAddr>,
    /// Connections served at once on each listener; the kernel's backlog holds the rest.
    pub(crate) connections_max: usize,
    /// How long a request's head may take to arrive, in seconds.
    pub(crate) head_seconds_max: u64,
    /// How long a client may leave what was sent to it unacknowledged, or leave no room for more, in seconds.
    pub(crate) stuck_seconds_max: u64,
    /// The same for streams of events, which hold a place each.
    pub(crate) stream_stuck_seconds_max: u64,
    /// How long answers under way may take after the shutdown signal, in seconds.
    pub(crate) drain_seconds_max: u64,
}

impl Default for HttpConfig {
    fn default() -> Self {
        Self {
            addr: SocketAddr::from((Ipv4Addr::LOCALHOST, 8080)),
            admin_addr: None,
            connections_max: 20_000,
            head_seconds_max: 15,
            stuck_seconds_max: 60,
            stream_stuck_seconds_max: 10,
            drain_seconds_max: 10,
        }
    }
}

impl HttpConfig {
    pub(super) fn check(&self, faults: &mut Faults) {
        let same = self.admin_addr == Some(self.addr) && self.addr.port() != 0;
        faults.require(
            !same,
            "http.admin_addr",
            "is the address of http.addr; leave it out to serve /admin there",
        );
        faults.require(self.connections_max > 0, "http.connections_max", "must be at least 1");
        for (key, seconds) in [
            ("head_seconds_max", self.head_seconds_max),
            ("stuck_seconds_max", self.stuck_seconds_max),
            ("stream_stuck_seconds_max", self.stream_stuck_seconds_max),
        ] {
            faults.require(seconds > 0, format!("http.{key}"), "must be at least 1");
        }
    }
}
