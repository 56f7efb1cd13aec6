//! PostgreSQL, as every owner of tables uses it. This crate knows no table.
//!
//! It holds what all owners need and none should write twice: the pool with its session limits, [`transact()`]
//! (transactions that a dropped future cannot leave half-way), [`Dedicated`] (the same for a writer that commits without
//! a pause), the migrator, and an error type that tells a lost
//! COMMIT answer from a failure.

pub mod audit;
mod dedicated;
mod error;
mod migrate;
mod pool;
mod transact;

pub use audit::Violation;
pub use dedicated::Dedicated;
pub use error::PgError;
pub use migrate::{MIGRATOR, SchemaError, check_schema, migrate};
pub use pool::{PgConfig, close, connect};
pub use sqlx::{PgConnection, PgPool};
pub use transact::{read_snapshot, transact};

/// The instant that decides for this transaction: PostgreSQL's, or the one a test has set.
///
/// # Errors
/// When the connection is gone.
pub async fn now(conn: &mut PgConnection) -> Result<chrono::DateTime<chrono::Utc>, PgError> {
    Ok(sqlx::query_scalar("SELECT aiv_now()").fetch_one(conn).await?)
}
