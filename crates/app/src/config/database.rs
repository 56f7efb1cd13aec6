//! PostgreSQL, which holds the facts.

use std::{str::FromStr, time::Duration};

use serde::{Deserialize, Serialize};

use super::{StoreUrl, fault::Faults};

/// Section `database`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct DatabaseConfig {
    /// `postgres://user:password@host:port/database` (`DATABASE_URL`). Required.
    pub(crate) url: StoreUrl,
    /// Connections of this process at most.
    pub(crate) max_connections: u32,
    /// How long a caller waits for a connection, in milliseconds.
    pub(crate) acquire_ms_max: u64,
    /// The longest statement, in milliseconds.
    pub(crate) statement_ms_max: u64,
    /// The longest wait for a lock, in milliseconds.
    pub(crate) lock_ms_max: u64,
    /// The longest pause inside a transaction before the server ends it, in milliseconds.
    pub(crate) idle_in_transaction_ms_max: u64,
}

impl Default for DatabaseConfig {
    fn default() -> Self {
        let limits = pg::PgConfig::new("");
        let millis = |limit: Duration| u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
        Self {
            url: StoreUrl::default(),
            max_connections: 26,
            acquire_ms_max: millis(limits.acquire_timeout),
            statement_ms_max: millis(limits.statement_timeout),
            lock_ms_max: millis(limits.lock_timeout),
            idle_in_transaction_ms_max: millis(limits.idle_in_transaction_timeout),
        }
    }
}

impl DatabaseConfig {
    pub(super) fn check(&self, faults: &mut Faults) {
        if self.url.is_empty() {
            faults.add("database.url", "is required, such as postgres://user:password@host:5432/aivideo");
        } else {
            let scheme = self.url.reveal().split_once("://").map(|(scheme, _)| scheme);
            let readable = matches!(scheme, Some("postgres" | "postgresql"))
                && sqlx::postgres::PgConnectOptions::from_str(self.url.reveal()).is_ok();
            faults.require(readable, "database.url", "is no postgres:// URL");
        }
        faults.require(self.max_connections >= 2, "database.max_connections", "must be at least 2");
        for (key, millis) in [
            ("acquire_ms_max", self.acquire_ms_max),
            ("statement_ms_max", self.statement_ms_max),
            ("lock_ms_max", self.lock_ms_max),
            ("idle_in_transaction_ms_max", self.idle_in_transaction_ms_max),
        ] {
            faults.require(
                millis > 0,
                format!("database.{key}"),
                "must be at least 1; PostgreSQL reads 0 as no limit",
            );
        }
        faults.require(
            self.lock_ms_max < self.statement_ms_max,
            "database.lock_ms_max",
            "must be below statement_ms_max, or a wait for a lock would look like a slow statement",
        );
    }

    pub(crate) fn to_pg(&self) -> pg::PgConfig {
        pg::PgConfig {
            url: self.url.reveal().to_owned(),
            max_connections: self.max_connections,
            acquire_timeout: Duration::from_millis(self.acquire_ms_max),
            statement_timeout: Duration::from_millis(self.statement_ms_max),
            lock_timeout: Duration::from_millis(self.lock_ms_max),
            idle_in_transaction_timeout: Duration::from_millis(self.idle_in_transaction_ms_max),
        }
    }
}
