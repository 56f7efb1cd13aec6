//! What `aivideo demo` gives its tenant, and how it sets up its PostgreSQL.

use std::collections::BTreeMap;

use domain::Credits;
use serde::{Deserialize, Serialize};

use super::fault::Faults;

/// What demo decides itself.
const RESERVED: &[&str] = &["port", "listen_addresses", "unix_socket_directories", "data_directory"];

/// Section `demo`; read by `aivideo demo` alone.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct DemoConfig {
    /// The demo user's credits. A later start adds what is missing to this figure.
    pub(crate) credits: Credits,
    /// Settings of the private PostgreSQL, by their names there.
    pub(crate) postgres: BTreeMap<String, String>,
}

impl Default for DemoConfig {
    fn default() -> Self {
        let settings = [("max_connections", "200"), ("shared_buffers", "256MB")];
        Self {
            credits: Credits::new(1_000_000).unwrap_or(Credits::MAX),
            postgres: settings.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
        }
    }
}

impl DemoConfig {
    pub(super) fn check(&self, faults: &mut Faults) {
        for name in self.postgres.keys() {
            let field = format!("demo.postgres.{name}");
            let is_name = name.starts_with(|c: char| c.is_ascii_lowercase())
                && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "_.".contains(c));
            faults.require(is_name, &field, "is no name of a PostgreSQL setting");
            faults.require(!RESERVED.contains(&name.as_str()), field, "is decided by the demo itself");
        }
    }
}
