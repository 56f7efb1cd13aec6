//! The migrations, compiled in, and the check that a server has them.

use std::collections::HashSet;

use sqlx::{PgPool, migrate::Migrator};

use crate::error::PgError;

/// Every migration of this binary. Newer ones in the database are tolerated: binary N runs on schema N + 1.
pub static MIGRATOR: Migrator = {
    let mut migrator = sqlx::migrate!("../../migrations");
    migrator.ignore_missing = true;
    migrator
};

/// Why the schema does not fit.
#[derive(Debug, thiserror::Error)]
pub enum SchemaError {
    /// Migrations of this binary are missing.
    #[error("the database lacks {count} migration(s), first {first}: run `aivideo migrate`")]
    Older {
        /// How many.
        count: usize,
        /// The first of them.
        first: String,
    },
    /// The database cannot be asked.
    #[error(transparent)]
    Pg(#[from] PgError),
}

/// Brings the database up to date, one process at a time (an advisory lock).
///
/// # Errors
/// When a migration fails or was changed after it had been applied.
pub async fn migrate(pool: &PgPool) -> Result<(), sqlx::migrate::MigrateError> {
    MIGRATOR.run(pool).await
}

/// Checks that every migration of this binary has been applied.
///
/// # Errors
/// [`SchemaError::Older`] when one is missing.
pub async fn check_schema(pool: &PgPool) -> Result<(), SchemaError> {
    let known: Option<String> = sqlx::query_scalar("SELECT to_regclass('_sqlx_migrations')::text")
        .fetch_one(pool)
        .await
        .map_err(PgError::from)?;
    let applied: Vec<i64> = if known.is_some() {
        sqlx::query_scalar("SELECT version FROM _sqlx_migrations WHERE success")
            .fetch_all(pool)
            .await
            .map_err(PgError::from)?
    } else {
        Vec::new()
    };
    let applied: HashSet<i64> = applied.into_iter().collect();
    let missing: Vec<_> = MIGRATOR.iter().filter(|m| !applied.contains(&m.version)).collect();
    match missing.first() {
        None => Ok(()),
        Some(first) => Err(SchemaError::Older {
            count: missing.len(),
            first: format!("{:04} {}", first.version, first.description),
        }),
    }
}
