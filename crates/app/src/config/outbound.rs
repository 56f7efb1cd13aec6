//! Requests to addresses that came from outside.

use std::{path::PathBuf, time::Duration};

use fetch::FetchConfig;
use serde::{Deserialize, Serialize};

use super::fault::Faults;

/// Section `outbound`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct OutboundConfig {
    /// `host:port` entries that may be reached although their addresses are private. The hosts of mock provider
    /// accounts are always among them.
    pub(crate) private_hosts: Vec<String>,
    /// Ports that public hosts may be reached on.
    pub(crate) ports: Vec<u16>,
    /// The longest that resolving, connecting and agreeing on TLS may take together, in milliseconds.
    pub(crate) connect_ms_max: u64,
    /// Connections kept open to one host when nothing is under way.
    pub(crate) idle_connections_per_host: usize,
    /// A PEM file of certificate authorities that are trusted beside the built-in public ones.
    pub(crate) extra_roots: Option<PathBuf>,
}

impl Default for OutboundConfig {
    fn default() -> Self {
        let fetch = FetchConfig::default();
        Self {
            private_hosts: fetch.private_hosts,
            ports: fetch.ports,
            connect_ms_max: u64::try_from(fetch.connect.as_millis()).unwrap_or(u64::MAX),
            idle_connections_per_host: fetch.idle_connections_per_host,
            extra_roots: fetch.extra_roots,
        }
    }
}

impl OutboundConfig {
    pub(super) fn check(&self, faults: &mut Faults) {
        faults.require(self.connect_ms_max > 0, "outbound.connect_ms_max", "must be at least 1");
        faults.check("outbound", fetch::Fetch::new(self.to_fetch([])).map(drop));
    }

    /// The client's settings, with the given hosts besides those configured.
    pub(crate) fn to_fetch(&self, private_hosts: impl IntoIterator<Item = String>) -> FetchConfig {
        FetchConfig {
            private_hosts: self.private_hosts.iter().cloned().chain(private_hosts).collect(),
            ports: self.ports.clone(),
            connect: Duration::from_millis(self.connect_ms_max),
            idle_connections_per_host: self.idle_connections_per_host,
            extra_roots: self.extra_roots.clone(),
            ..FetchConfig::default()
        }
    }
}
