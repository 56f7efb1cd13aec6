//! A database per test, cloned from a template that is migrated once per schema.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    path::Path,
    process,
    str::FromStr,
    sync::atomic::{AtomicU32, Ordering},
    thread,
    time::Duration,
};

use chrono::{DateTime, Utc};
use sqlx::{
    AssertSqlSafe, Connection, Executor, PgConnection, PgPool,
    postgres::{PgConnectOptions, PgPoolOptions},
};
use tokio::sync::OnceCell;
use url::Url;

use pg::MIGRATOR;

use crate::env_or;

/// Every test process that may create or sweep databases takes this advisory lock first ("aivtest").
const LOCK: i64 = 0x0061_6976_7465_7374;

/// Connections per test. Several tests run at once on a server with a few hundred.
const POOL_SIZE: u32 = 8;

/// A database that belongs to one test and is dropped with this value.
#[derive(Debug)]
pub struct TestDb {
    /// At most eight connections.
    pub pool: PgPool,
    /// The address of the database, for code that opens its own pool.
    pub url: String,
    name: String,
    server: Url,
}

impl TestDb {
    /// A fresh clone of the migrated schema, without rows.
    ///
    /// # Panics
    /// When there is no server at `DATABASE_URL`, or its role may not create databases.
    pub async fn new() -> Self {
        // A runtime of its own keeps this future `Send`, which sqlx's connection would not, so that it can be called
        // from anywhere.
        let server = server_url();
        let made =
            tokio::task::spawn_blocking(|| own_runtime().expect("a runtime").block_on(Self::create(server)));
        let (name, server) = made.await.expect("a test database");
        let mut own = server.clone();
        own.set_path(&name);
        Self { pool: lazy_pool(options(&own)), url: own.into(), name, server }
    }

    async fn create(server: Url) -> (String, Url) {
        static TEMPLATE: OnceCell<String> = OnceCell::const_new();
        static COUNT: AtomicU32 = AtomicU32::new(0);

        let mut admin = connect(&server).await;
        let template = TEMPLATE.get_or_init(|| prepare(&server)).await;
        let name = own_name(COUNT.fetch_add(1, Ordering::Relaxed));
        // Cloning fails while anybody is connected to the template; nobody ever is, because it was filled under
        // another name. The write-ahead-log strategy needs no checkpoint.
        run(&mut admin, format!("CREATE DATABASE {name} TEMPLATE {template} STRATEGY wal_log")).await;
        let _ = admin.close().await;
        (name, server)
    }

    /// A further pool whose sessions stand at `instant`: `aiv_now()` returns it.
    #[must_use]
    pub fn pool_at(&self, instant: DateTime<Utc>) -> PgPool {
        let url = Url::parse(&self.url).expect("made by us");
        lazy_pool(options(&url).options([("aiv.test_now", instant.to_rfc3339())]))
    }
}

impl Drop for TestDb {
    fn drop(&mut self) {
        if std::env::var_os("AIVTEST_KEEP").is_some() {
            eprintln!("testkit: kept {}", self.url);
            return;
        }
        // Drop cannot wait for a future of the test's own runtime, so another thread brings a runtime along.
        let (server, name) = (self.server.clone(), self.name.clone());
        let dropped = thread::spawn(move || {
            own_runtime()?.block_on(async {
                let mut admin = PgConnection::connect_with(&options(&server)).await?;
                admin.execute(AssertSqlSafe(format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)"))).await?;
                admin.close().await
            })
        })
        .join();
        if !matches!(dropped, Ok(Ok(()))) {
            eprintln!("testkit: {} was not dropped: {dropped:?}", self.name);
        }
    }
}

fn own_runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}

/// The server's maintenance database, whichever database `DATABASE_URL` names.
fn server_url() -> Url {
    let text = env_or("DATABASE_URL", "postgres://postgres@127.0.0.1:25432/postgres");
    let mut url = Url::parse(&text).expect("DATABASE_URL is a URL");
    url.set_path("postgres");
    url
}

fn options(url: &Url) -> PgConnectOptions {
    PgConnectOptions::from_str(url.as_str()).expect("DATABASE_URL is a PostgreSQL URL")
}

fn lazy_pool(options: PgConnectOptions) -> PgPool {
    PgPoolOptions::new()
        .max_connections(POOL_SIZE)
        .acquire_timeout(Duration::from_secs(30))
        .connect_lazy_with(options)
}

async fn connect(server: &Url) -> PgConnection {
    PgConnection::connect_with(&options(server)).await.expect("PostgreSQL at DATABASE_URL")
}

async fn run(connection: &mut PgConnection, statement: String) {
    if let Err(error) = connection.execute(AssertSqlSafe(statement.clone())).await {
        panic!("{statement}: {error}");
    }
}

/// What the names of all databases of one schema start with.
fn family() -> String {
    let mut hasher = DefaultHasher::new();
    for migration in MIGRATOR.iter() {
        (migration.version, &migration.checksum).hash(&mut hasher);
    }
    format!("aivtest_{:08x}", hasher.finish() >> 32)
}

/// `aivtest_<schema>_<process>_<n>`. The process id tells the next run whether the owner still lives.
fn own_name(count: u32) -> String {
    format!("{}_{}_{count}", family(), process::id())
}

/// Sweeps what dead runs left, and makes the template of this schema if there is none. Returns its name.
async fn prepare(server: &Url) -> String {
    let template = format!("{}_template", family());
    let mut admin = connect(server).await;
    sqlx::query("SELECT pg_advisory_lock($1)").bind(LOCK).execute(&mut admin).await.expect("advisory lock");
    sweep(&mut admin).await;

    let exists: bool = sqlx::query_scalar("SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)")
        .bind(&template)
        .fetch_one(&mut admin)
        .await
        .expect("list of databases");
    if !exists {
        // Filled under the name of an ordinary test database, so that a run killed here leaves no half-made template.
        let draft = format!("{}_{}_draft", family(), process::id());
        run(&mut admin, format!("CREATE DATABASE {draft}")).await;
        let mut url = server.clone();
        url.set_path(&draft);
        let mut connection = connect(&url).await;
        MIGRATOR.run(&mut connection).await.expect("migrations");
        connection.close().await.expect("close");
        run(&mut admin, format!("ALTER DATABASE {draft} RENAME TO {template}")).await;
    }
    run(
        &mut admin,
        format!("DO $$ BEGIN EXECUTE format('COMMENT ON DATABASE {template} IS %L', extract(epoch FROM now())); END $$"),
    )
    .await;
    // Closing the session gives the lock back.
    let _ = admin.close().await;
    template
}

/// Drops databases whose process is gone and that nobody is connected to, and templates unused for a day.
async fn sweep(admin: &mut PgConnection) {
    let idle: Vec<(String, Option<String>)> = sqlx::query_as(
        r"SELECT datname::text, shobj_description(oid, 'pg_database')
          FROM pg_database d
          WHERE datname LIKE 'aivtest\_%'
            AND NOT EXISTS (SELECT FROM pg_stat_activity a WHERE a.datid = d.oid)",
    )
    .fetch_all(&mut *admin)
    .await
    .expect("list of databases");
    let now: i64 = sqlx::query_scalar("SELECT extract(epoch FROM now())::bigint")
        .fetch_one(&mut *admin)
        .await
        .expect("server time");
    for (name, used_at) in idle {
        let mut parts = name.split('_').skip(2);
        let abandoned = match parts.next() {
            Some("template") => {
                let used_at = used_at.and_then(|text| text.parse::<f64>().ok()).unwrap_or_default();
                Duration::try_from_secs_f64(used_at)
                    .is_ok_and(|used| u64::try_from(now).is_ok_and(|now| used.as_secs() + 24 * 3_600 < now))
            }
            Some(pid) => {
                pid.parse::<u32>().is_ok_and(|pid| !Path::new("/proc").join(pid.to_string()).exists())
            }
            None => false,
        };
        if abandoned {
            // Another machine's run may have a living process of a dead one's number here; without FORCE a
            // database that is in use after all stays.
            let _ = admin.execute(AssertSqlSafe(format!("DROP DATABASE IF EXISTS {name}"))).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn exists(name: &str) -> bool {
        let mut admin = connect(&server_url()).await;
        sqlx::query_scalar("SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)")
            .bind(name)
            .fetch_one(&mut admin)
            .await
            .unwrap()
    }

    async fn messages(db: &TestDb) -> i64 {
        sqlx::query_scalar("SELECT count(*) FROM outbox_events").fetch_one(&db.pool).await.unwrap()
    }

    #[tokio::test]
    async fn tests_do_not_see_each_others_rows_and_leave_nothing() {
        let (one, other) = tokio::join!(TestDb::new(), TestDb::new());
        sqlx::query("INSERT INTO outbox_events (topic, key, payload, shard) VALUES ('t', $1, '', 0)")
            .bind(uuid::Uuid::now_v7())
            .execute(&one.pool)
            .await
            .unwrap();
        assert_eq!((messages(&one).await, messages(&other).await), (1, 0));

        let name = one.name.clone();
        assert!(exists(&name).await);
        drop(one);
        assert!(!exists(&name).await);
    }

    #[tokio::test]
    async fn a_session_can_stand_at_any_instant() {
        let db = TestDb::new().await;
        let instant: DateTime<Utc> = "2026-03-08T06:59:59.900Z".parse().unwrap();
        let now: DateTime<Utc> =
            sqlx::query_scalar("SELECT aiv_now()").fetch_one(&db.pool_at(instant)).await.unwrap();
        assert_eq!(now, instant);
    }

    #[tokio::test]
    async fn the_leftovers_of_a_dead_run_are_swept() {
        // No process has this number: Linux ends at 2^22.
        let leftover = format!("{}_4194305_0", family());
        let mut admin = connect(&server_url()).await;
        run(&mut admin, format!("DROP DATABASE IF EXISTS {leftover}")).await;
        run(&mut admin, format!("CREATE DATABASE {leftover}")).await;
        prepare(&server_url()).await;
        assert!(!exists(&leftover).await);
    }
}
