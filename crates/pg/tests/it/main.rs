//! Transactions against a real server: what an abandoned caller, a panic and a missing migration leave behind.
#![expect(clippy::unwrap_used, reason = "a failed step is a failed test")]

use std::time::Duration;

use pg::{Dedicated, PgError, SchemaError};
use testkit::{Proxy, TestDb, wait_until};

async fn count(db: &TestDb) -> i64 {
    sqlx::query_scalar("SELECT count(*) FROM operator_log").fetch_one(&db.pool).await.unwrap()
}

async fn nobody_stays_in_a_transaction(db: &TestDb) {
    wait_until("every connection to be out of its transaction", Duration::from_secs(10), || async {
        let open: i64 = sqlx::query_scalar(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in%'",
        )
        .fetch_one(&db.pool)
        .await
        .unwrap();
        open == 0
    })
    .await;
}

fn insert(pool: &pg::PgPool, pause: &'static str) -> impl Future<Output = Result<(), PgError>> + use<> {
    let pool = pool.clone();
    async move {
        pg::transact(&pool, move |conn| {
            Box::pin(async move {
                sqlx::query("INSERT INTO operator_log (verb, subject) VALUES ('test', 'x')")
                    .execute(&mut *conn)
                    .await?;
                sqlx::query("SELECT pg_sleep($1::float8)")
                    .bind(pause.parse::<f64>().unwrap())
                    .execute(conn)
                    .await?;
                Ok(())
            })
        })
        .await
    }
}

#[tokio::test]
async fn a_caller_that_goes_away_aborts_nothing() {
    let db = TestDb::new().await;
    let gone = tokio::time::timeout(Duration::from_millis(20), insert(&db.pool, "0.2")).await;
    assert!(gone.is_err(), "the caller was to be cut off in the middle");
    wait_until("the transaction to end by itself", Duration::from_secs(10), || async {
        count(&db).await == 1
    })
    .await;
}

/// C41: futures dropped at every moment of a transaction's life, then normal traffic.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropped_futures_leave_no_open_transaction() {
    let db = TestDb::new().await;
    let drops =
        (0..200_u64).map(|n| tokio::time::timeout(Duration::from_micros(n * 50), insert(&db.pool, "0.001")));
    futures::future::join_all(drops).await;
    for _ in 0..20 {
        insert(&db.pool, "0").await.unwrap();
    }
    nobody_stays_in_a_transaction(&db).await;
}

#[tokio::test]
async fn a_panic_rolls_back_and_reaches_the_caller() {
    let db = TestDb::new().await;
    let pool = db.pool.clone();
    let failed = tokio::spawn(async move {
        pg::transact::<(), PgError, _>(&pool, |conn| {
            Box::pin(async move {
                sqlx::query("INSERT INTO operator_log (verb, subject) VALUES ('test', 'x')")
                    .execute(conn)
                    .await?;
                panic!("broken invariant");
            })
        })
        .await
    })
    .await;
    assert!(failed.unwrap_err().is_panic());
    assert_eq!(count(&db).await, 0);
}

#[tokio::test]
async fn a_constraint_is_known_by_its_name() {
    let db = TestDb::new().await;
    let error: PgError = sqlx::query("INSERT INTO open_counts VALUES ('user', gen_random_uuid(), -1)")
        .execute(&db.pool)
        .await
        .unwrap_err()
        .into();
    assert_eq!(error.constraint(), Some("open_counts_not_negative"));
}

#[tokio::test]
async fn a_lock_that_is_not_to_be_had_says_so() {
    let db = TestDb::new().await;
    let pool = db.pool.clone();
    let holder = tokio::spawn(async move {
        pg::transact(&pool, |conn| {
            Box::pin(async move {
                sqlx::query("LOCK TABLE operator_log").execute(&mut *conn).await?;
                sqlx::query("SELECT pg_sleep(1)").execute(conn).await?;
                Ok::<_, PgError>(())
            })
        })
        .await
    });
    wait_until("the lock to be held", Duration::from_secs(10), || async {
        let locked: bool = sqlx::query_scalar(
            "SELECT EXISTS (SELECT FROM pg_locks WHERE relation = 'operator_log'::regclass AND mode = 'AccessExclusiveLock')",
        )
        .fetch_one(&db.pool)
        .await
        .unwrap();
        locked
    })
    .await;
    let error: PgError = pg::transact(&db.pool, |conn| {
        Box::pin(async move {
            sqlx::query("SET LOCAL lock_timeout = '10ms'").execute(&mut *conn).await?;
            sqlx::query("INSERT INTO operator_log (verb, subject) VALUES ('test', 'x')")
                .execute(conn)
                .await?;
            Ok::<_, PgError>(())
        })
    })
    .await
    .unwrap_err();
    assert!(matches!(error, PgError::LockTimeout(_)), "{error:?}");
    holder.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_missing_migration_is_named() {
    let db = TestDb::new().await;
    pg::check_schema(&db.pool).await.unwrap();
    sqlx::query("DELETE FROM _sqlx_migrations WHERE version = 8").execute(&db.pool).await.unwrap();
    let error = pg::check_schema(&db.pool).await.unwrap_err();
    assert!(matches!(&error, SchemaError::Older { count: 1, first } if first.starts_with("0008")), "{error}");
}

#[tokio::test]
async fn the_deciding_instant_can_be_set_by_a_test() {
    let db = TestDb::new().await;
    let now = pg::transact(&db.pool, |conn| {
        Box::pin(async move {
            sqlx::query("SET LOCAL aiv.test_now = '2026-03-29 01:59:59+00'").execute(&mut *conn).await?;
            pg::now(conn).await
        })
    })
    .await
    .unwrap();
    assert_eq!(now.to_rfc3339(), "2026-03-29T01:59:59+00:00");
}

const LOCK: Duration = Duration::from_secs(2);

/// One row by a dedicated connection; the backend that wrote it.
async fn write(dedicated: &Dedicated, follows: bool) -> Result<i32, PgError> {
    dedicated
        .transact(
            LOCK,
            move || follows,
            |conn, _| {
                Box::pin(async move {
                    sqlx::query("INSERT INTO operator_log (verb, subject) VALUES ('test', 'x')")
                        .execute(&mut *conn)
                        .await?;
                    Ok(sqlx::query_scalar("SELECT pg_backend_pid()").fetch_one(conn).await?)
                })
            },
        )
        .await
}

#[tokio::test]
async fn a_dedicated_connection_is_kept_and_commits_each_time() {
    let db = TestDb::new().await;
    let dedicated = Dedicated::new(db.pool.clone());
    let first = write(&dedicated, false).await.unwrap();
    assert_eq!(count(&db).await, 1);
    // What was committed together with the beginning of the next one is there for everybody, used or not.
    assert_eq!(write(&dedicated, true).await.unwrap(), first);
    assert_eq!(count(&db).await, 2);
    assert_eq!(write(&dedicated, false).await.unwrap(), first);
    assert_eq!(count(&db).await, 3);
}

#[tokio::test]
async fn a_dedicated_transaction_that_was_begun_ahead_and_not_used_is_begun_anew() {
    let db = TestDb::new().await;
    let dedicated = Dedicated::new(db.pool.clone());
    write(&dedicated, true).await.unwrap();
    tokio::time::sleep(Duration::from_millis(80)).await;
    let (begun, read): (chrono::DateTime<chrono::Utc>, _) = dedicated
        .transact(
            LOCK,
            || false,
            |conn, now| Box::pin(async move { Ok::<_, PgError>((now, pg::now(conn).await?)) }),
        )
        .await
        .unwrap();
    assert_eq!(begun, read, "the instant is that of the transaction");
    write(&dedicated, true).await.unwrap();
    drop(dedicated);
    nobody_stays_in_a_transaction(&db).await;
    assert_eq!(count(&db).await, 2);
}

#[tokio::test]
async fn a_dedicated_connection_that_died_is_replaced_unnoticed() {
    let db = TestDb::new().await;
    let dedicated = Dedicated::new(db.pool.clone());
    for follows in [false, true] {
        let backend = write(&dedicated, follows).await.unwrap();
        sqlx::query("SELECT pg_terminate_backend($1, 5000)").bind(backend).execute(&db.pool).await.unwrap();
    }
    tokio::time::sleep(Duration::from_millis(80)).await;
    write(&dedicated, false).await.unwrap();
    assert_eq!(count(&db).await, 3);
}

#[tokio::test]
async fn a_panic_in_a_dedicated_transaction_leaves_nothing() {
    let db = TestDb::new().await;
    let dedicated = Dedicated::new(db.pool.clone());
    let panicking = dedicated.clone();
    let failed = tokio::spawn(async move {
        panicking
            .transact::<(), PgError, _>(
                LOCK,
                || true,
                |conn, _| {
                    Box::pin(async move {
                        sqlx::query("INSERT INTO operator_log (verb, subject) VALUES ('test', 'x')")
                            .execute(conn)
                            .await?;
                        panic!("broken invariant");
                    })
                },
            )
            .await
    })
    .await;
    assert!(failed.unwrap_err().is_panic());
    assert_eq!(count(&db).await, 0);
    write(&dedicated, false).await.unwrap();
    assert_eq!(count(&db).await, 1);
}

#[tokio::test]
async fn a_pool_that_has_lost_its_server_is_closed_all_the_same() {
    let db = TestDb::new().await;
    let proxy = Proxy::before(&db.url).await;
    let pool = pg::connect(&pg::PgConfig::new(proxy.url(&db.url))).await.unwrap();
    // Nothing listens there any more. The pool finds out by using its connections, and then tries to replace them.
    drop(proxy);
    wait_until("the loss to be seen", Duration::from_secs(30), || async {
        matches!(sqlx::query("SELECT 1").execute(&pool).await, Err(sqlx::Error::PoolTimedOut))
    })
    .await;
    let closed = tokio::time::timeout(Duration::from_secs(10), pg::close(&pool)).await;
    assert_eq!(closed, Ok(()));
    assert!(pool.is_closed());
}
