//! The pool. Every session carries limits of its own, so that a stuck statement, lock or forgotten transaction
//! ends by itself.

use std::{str::FromStr, time::Duration};

use sqlx::{
    Connection as _,
    postgres::{PgConnectOptions, PgPool, PgPoolOptions},
};

use crate::error::PgError;

/// How long a connection may have been idle before it is asked whether it lives.
const IDLE_BEFORE_TEST: Duration = Duration::from_secs(1);
/// How long connections may take to finish what they do and say goodbye.
const CLOSE_MAX: Duration = Duration::from_secs(5);

/// How to reach PostgreSQL, and for how long to wait for it.
#[derive(Clone)]
pub struct PgConfig {
    /// `postgres://user:password@host:port/database`.
    pub url: String,
    /// Connections of this process at most.
    pub max_connections: u32,
    /// How long a caller waits for a connection; shorter than any request's own limit.
    pub acquire_timeout: Duration,
    /// The longest statement.
    pub statement_timeout: Duration,
    /// The longest wait for a lock.
    pub lock_timeout: Duration,
    /// The longest pause inside a transaction before the server ends it.
    pub idle_in_transaction_timeout: Duration,
}

impl PgConfig {
    /// The limits that the product runs with, for the given server.
    #[must_use]
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            max_connections: 16,
            acquire_timeout: Duration::from_secs(3),
            statement_timeout: Duration::from_secs(10),
            lock_timeout: Duration::from_secs(2),
            idle_in_transaction_timeout: Duration::from_secs(10),
        }
    }
}

impl std::fmt::Debug for PgConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The URL may carry a password.
        f.debug_struct("PgConfig").field("max_connections", &self.max_connections).finish_non_exhaustive()
    }
}

/// Opens the pool and one connection, so that a wrong address is seen at start.
///
/// # Errors
/// When the URL cannot be read or the server cannot be reached.
pub async fn connect(config: &PgConfig) -> Result<PgPool, PgError> {
    let millis = |limit: Duration| limit.as_millis().to_string();
    let options = PgConnectOptions::from_str(&config.url)?.application_name("aivideo").options([
        ("statement_timeout", millis(config.statement_timeout)),
        ("lock_timeout", millis(config.lock_timeout)),
        ("idle_in_transaction_session_timeout", millis(config.idle_in_transaction_timeout)),
        // Sessions differ in nothing that a prepared statement could notice.
        ("timezone", "UTC".to_owned()),
        // Our statements take arrays and find rows by their keys, whatever the arrays hold. Left to itself, PostgreSQL
        // finds a plan for one element cheaper than the plan for any and makes one at every execution, which takes five
        // times as long as the execution itself.
        ("plan_cache_mode", "force_generic_plan".to_owned()),
        // A plan that is made once is often made while the tables are still empty, where reading them whole looks
        // cheapest, and it would still read them whole when they are large. Every statement of ours has an index to go
        // by, so the ways that read a whole table are out of the question (a snapshot for audits allows them again).
        ("enable_seqscan", "off".to_owned()),
        ("enable_hashjoin", "off".to_owned()),
        ("enable_mergejoin", "off".to_owned()),
        // So is reading all rows of an index once and comparing each element with them.
        ("enable_material", "off".to_owned()),
        // Being out of the question is expressed as an enormous cost, which must not look worth compiling for.
        ("jit", "off".to_owned()),
    ]);
    Ok(PgPoolOptions::new()
        .max_connections(config.max_connections)
        .min_connections(config.max_connections.min(2))
        .acquire_timeout(config.acquire_timeout)
        // The pool's own test costs a round trip each time. A server that went away and came back is gone for longer
        // than this, and a connection that was used a moment ago shows in its next statement whether it lives.
        .test_before_acquire(false)
        .before_acquire(|conn, meta| {
            Box::pin(async move {
                if meta.idle_for >= IDLE_BEFORE_TEST {
                    conn.ping().await?;
                }
                Ok(true)
            })
        })
        // Kept for good: opening connections under load is what turns a slow moment into an outage.
        .idle_timeout(None)
        .max_lifetime(None)
        .connect_with(options)
        .await?)
}

/// Ends a pool: nobody gets a connection of it any more, and those that are left end in order while there is time.
///
/// A pool that has lost its server replaces its connections for minutes and would not be closed before. What is left
/// behind leaves nothing half-done: the server rolls back what the session of whoever is gone had begun.
pub async fn close(pool: &PgPool) {
    if tokio::time::timeout(CLOSE_MAX, pool.close()).await.is_err() {
        tracing::warn!("connections to PostgreSQL did not end in time and are left behind");
    }
}
