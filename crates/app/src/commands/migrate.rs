//! `aivideo migrate`: brings the database up to date, one process at a time.

use std::{path::Path, time::Duration};

use anyhow::Context;

use crate::{commands::load, config::Needs, telemetry};

/// PostgreSQL's code for a lock that was not had in time.
const LOCK_NOT_AVAILABLE: &str = "55P03";
/// How often a wait for a lock is begun again: some five minutes.
const LOCK_WAITS_MAX: u32 = 100;

pub(super) async fn migrate(file: Option<&Path>) -> anyhow::Result<()> {
    let config = load(file, Needs::Database)?;
    telemetry::start_logs(&config.log)?;
    run(config.database.url.reveal()).await
}

/// Applies what is missing. Migrations may take longer than any statement of the product, so their sessions have
/// no limit on statements. A wait for a lock stays short and is begun again, so that a migration that has to wait
/// never makes the product's writes queue up behind it; a second migration waits for the first in the same way.
pub(crate) async fn run(url: &str) -> anyhow::Result<()> {
    let config = pg::PgConfig {
        max_connections: 2,
        statement_timeout: Duration::ZERO,
        lock_timeout: Duration::from_secs(3),
        ..pg::PgConfig::new(url)
    };
    let pool = pg::connect(&config).await.context("cannot reach PostgreSQL")?;
    let mut waits = 0;
    while let Err(error) = pg::migrate(&pool).await {
        if !waited_for_a_lock(&error) || waits == LOCK_WAITS_MAX {
            return Err(error).context("the migration failed; what came before it is applied");
        }
        waits += 1;
        tracing::info!(waits, "somebody holds a lock, waiting again");
    }
    pg::close(&pool).await;
    tracing::info!("the database is up to date");
    Ok(())
}

fn waited_for_a_lock(error: &sqlx::migrate::MigrateError) -> bool {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<sqlx::Error>()
            && let Some(refused) = error.as_database_error()
        {
            return refused.code().is_some_and(|code| code == LOCK_NOT_AVAILABLE);
        }
        cause = error.source();
    }
    false
}

#[cfg(test)]
mod tests {
    use sqlx::Connection;

    use super::*;

    #[tokio::test]
    async fn a_second_migration_waits_for_the_first_and_finds_nothing_to_do() {
        let db = testkit::TestDb::new().await;
        // What the migrator locks while it works, held for longer than one wait.
        let name: String = sqlx::query_scalar("SELECT current_database()").fetch_one(&db.pool).await.unwrap();
        let mut first = sqlx::PgConnection::connect(&db.url).await.unwrap();
        sqlx::migrate::Migrate::lock(&mut first).await.unwrap();
        let second = tokio::spawn({
            let url = db.url.clone();
            async move { run(&url).await }
        });
        tokio::time::sleep(Duration::from_secs(4)).await;
        assert!(!second.is_finished(), "it did not wait ({name})");
        sqlx::migrate::Migrate::unlock(&mut first).await.unwrap();
        second.await.unwrap().unwrap();
    }
}
