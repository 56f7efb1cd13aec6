//! The commands as an operator runs them.

use serde_json::Value;
use sqlx::migrate::Migrator;
use testkit::{TestDb, TestRedis};

use crate::harness::{Client, Server, command, run};

const KEY: &str = "q8vY0uJc3mZlT5xWn7RkB2sHd9FpGaE1iVoXtLy4wCg=";

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The variables of a deployment on the test's own stores.
fn deployment(db: &TestDb, redis: &TestRedis, storage: &tempfile::TempDir) -> Vec<(&'static str, String)> {
    vec![
        ("DATABASE_URL", db.url.clone()),
        ("REDIS_URL", redis.url.clone()),
        ("AIVIDEO_REDIS__PREFIX", redis.prefix.clone()),
        ("AIVIDEO_STORAGE_URL", format!("file://{}", storage.path().display())),
        ("AIVIDEO_SECRET_KEY", KEY.to_owned()),
        ("AIVIDEO_HTTP_ADDR", "127.0.0.1:0".to_owned()),
    ]
}

#[tokio::test]
async fn an_empty_environment_is_refused_with_every_missing_field() {
    for (name, code) in [("serve", 1), ("check-config", 1), ("audit", 2)] {
        let refused = run(&mut command(&[name])).await;
        assert_eq!(refused.status.code(), Some(code), "{name}");
        for field in ["database.url", "DATABASE_URL", "redis.url", "storage.url", "AIVIDEO_SECRET_KEY"] {
            assert!(text(&refused.stderr).contains(field), "{name} did not name {field}");
        }
    }
}

#[tokio::test]
async fn what_is_in_force_is_printed_without_secrets() {
    let shown = run(command(&["check-config"])
        .env("DATABASE_URL", "postgres://me:hunter2@db/aivideo")
        .env("REDIS_URL", "redis://:hunter2@r")
        .env("AIVIDEO_STORAGE_URL", "file:///srv/assets")
        .env("AIVIDEO_SECRET_KEY", KEY)
        .env("AIVIDEO_SCHEDULER__RECONCILING_SECONDS", "7"))
    .await;
    let said = text(&shown.stdout);
    assert!(shown.status.success(), "{}", text(&shown.stderr));
    assert!(said.contains("reconciling_seconds = 7") && said.contains("file:///srv/assets"), "{said}");
    assert!(!said.contains("hunter2") && !said.contains(KEY), "{said}");
}

#[tokio::test]
async fn an_older_schema_is_refused_by_serve_and_brought_up_to_date_by_migrate() {
    let (db, redis) = (TestDb::new().await, TestRedis::new());
    let storage = tempfile::tempdir().unwrap();
    let variables = deployment(&db, &redis, &storage);
    sqlx::raw_sql("DROP SCHEMA public CASCADE; CREATE SCHEMA public").execute(&db.pool).await.unwrap();
    let all = &pg::MIGRATOR.migrations;
    let older = Migrator { migrations: all[..all.len() - 1].to_vec().into(), ..Migrator::DEFAULT };
    older.run(&db.pool).await.unwrap();
    let refused = run(command(&["serve"]).envs(variables.clone())).await;
    assert_eq!(refused.status.code(), Some(1));
    assert!(text(&refused.stderr).contains("aivideo migrate"), "{}", text(&refused.stderr));

    let migrated = run(command(&["migrate"]).env("DATABASE_URL", &db.url)).await;
    assert!(migrated.status.success(), "{}", text(&migrated.stderr));
    let audited = run(command(&["audit"]).envs(variables)).await;
    assert!(audited.status.success(), "{}", text(&audited.stderr));
}

#[tokio::test]
async fn an_audit_names_what_is_wrong_and_fails() {
    let (db, redis) = (TestDb::new().await, TestRedis::new());
    let storage = tempfile::tempdir().unwrap();
    let variables = deployment(&db, &redis, &storage);
    let key = run(command(&["admin", "key", "create"]).env("DATABASE_URL", &db.url)).await;
    let key: Value = serde_json::from_slice(&key.stdout).unwrap();
    let user = key["user_id"].as_str().unwrap();
    let granted = run(command(&["admin", "grant", "create", "--user", user, "--credits", "500"])
        .env("DATABASE_URL", &db.url))
    .await;
    assert!(granted.status.success(), "{}", text(&granted.stderr));
    let audited = run(command(&["audit"]).envs(variables.clone())).await;
    assert!(audited.status.success() && audited.stdout.is_empty(), "{}", text(&audited.stdout));
    // Credits from nowhere.
    let made_up = sqlx::query("UPDATE credit_grants SET granted = granted + 1, available = available + 1");
    assert_eq!(made_up.execute(&db.pool).await.unwrap().rows_affected(), 1);
    let audited = run(command(&["audit"]).envs(variables)).await;
    assert_eq!(audited.status.code(), Some(1));
    assert!(!text(&audited.stdout).trim().is_empty(), "no row says what is wrong");
}

#[tokio::test]
async fn an_audit_that_reaches_no_store_is_no_audit_with_violations() {
    let (db, redis) = (TestDb::new().await, TestRedis::new());
    let storage = tempfile::tempdir().unwrap();
    // No port for clients is given out down there.
    let nobody = "127.0.0.1:1";
    for (variable, url) in
        [("DATABASE_URL", format!("postgres://{nobody}/x")), ("REDIS_URL", format!("redis://{nobody}"))]
    {
        let audited =
            run(command(&["audit"]).envs(deployment(&db, &redis, &storage)).env(variable, url)).await;
        assert_eq!(audited.status.code(), Some(2), "{variable}: {}", text(&audited.stderr));
        assert!(audited.stdout.is_empty() && text(&audited.stderr).contains("no result"), "{variable}");
    }
}

#[tokio::test]
async fn a_seed_is_made_once_and_its_key_opens_the_platform_whose_health_is_asked_for() {
    let (db, redis) = (TestDb::new().await, TestRedis::new());
    let folder = tempfile::tempdir().unwrap();
    let variables = deployment(&db, &redis, &folder);
    let kept = folder.path().join("seed");
    let seed = async |more: &[&str]| {
        let args = [&["seed", "--data-dir", kept.to_str().unwrap()], more].concat();
        let output = run(command(&args).envs(variables.clone())).await;
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    let line: Value =
        serde_json::from_str(&seed(&["--json", "--url", "http://example.test/"]).await).unwrap();
    assert_eq!(line["url"], "http://example.test");
    let for_people = seed(&[]).await;
    assert!(for_people.contains(line["api_key"].as_str().unwrap()), "{for_people}");

    let env_file = folder.path().join("env");
    let lines: String = variables.iter().map(|(name, value)| format!("{name}={value}\n")).collect();
    std::fs::write(&env_file, lines).unwrap();
    let server = Server::start(&env_file, &["--roles", "api"]).await;
    let ready = run(&mut command(&["health", &format!("{}/readyz", server.url)])).await;
    assert!(
        ready.status.success() && text(&ready.stdout).contains("\"ready\":true"),
        "{}",
        text(&ready.stdout)
    );
    let absent = run(&mut command(&["health", &format!("{}/nothing", server.url)])).await;
    assert_eq!(absent.status.code(), Some(1), "what is no health is none");
    let me = Client::new(&server.url, line["api_key"].as_str().unwrap()).get("/me").await;
    assert_eq!(me["user_id"], line["user_id"], "{me}");
    // The same without being told where: by the address that the process was given.
    let address = server.url.trim_start_matches("http://").to_owned();
    let ready = run(command(&["health"]).env("AIVIDEO_HTTP_ADDR", &address)).await;
    assert!(ready.status.success(), "{}", text(&ready.stderr));
    server.stop().await;
    let gone = run(command(&["health"]).env("AIVIDEO_HTTP_ADDR", &address)).await;
    assert_eq!(gone.status.code(), Some(1));
}

#[tokio::test]
async fn the_first_admin_key_comes_from_the_command_line_and_is_logged() {
    let db = TestDb::new().await;
    let admin = async |args: &[&str]| {
        let output = run(command(&[&["admin"], args].concat()).env("DATABASE_URL", &db.url)).await;
        assert!(output.status.success(), "{args:?}: {}", text(&output.stderr));
        let lines = text(&output.stdout);
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect::<Vec<Value>>()
    };
    let key = &admin(&["key", "create"]).await[0];
    assert!(key["api_key"].as_str().unwrap().starts_with("avk_"));
    assert!(key["scopes"].as_array().unwrap().contains(&"admin".into()), "{key}");
    let second = &admin(&["key", "create"]).await[0];
    assert_eq!(second["user_id"], key["user_id"], "the operator is one user");

    let tenant = &admin(&["tenant", "create", "--name", "Acme", "--tier", "pro"]).await[0];
    let tenant = tenant["id"].as_str().unwrap();
    let user = &admin(&["user", "create", "--tenant", tenant, "--name", "Ada"]).await[0];
    let user = user["id"].as_str().unwrap();
    let key = &admin(&["key", "create", "--user", user, "--scopes", "read,tenant:read"]).await[0];
    assert_eq!(key["scopes"], serde_json::json!(["read", "tenant:read"]));
    admin(&["grant", "create", "--user", user, "--credits", "1000"]).await;
    assert_eq!(admin(&["tenant", "list"]).await.len(), 2);
    assert_eq!(admin(&["user", "list", "--tenant", tenant]).await.len(), 1);
    let id = key["id"].as_str().unwrap();
    admin(&["key", "revoke", "--key", id]).await;
    assert!(!admin(&["key", "list", "--user", user]).await[0]["revoked_at"].is_null());

    let logged: i64 = sqlx::query_scalar("SELECT count(*) FROM operator_log WHERE key_id IS NULL")
        .fetch_one(&db.pool)
        .await
        .unwrap();
    // The operator's tenant and user, three keys, a tenant, a user, a grant, a revocation.
    assert_eq!(logged, 9);
}

#[tokio::test]
async fn the_printed_document_is_the_committed_one() {
    let printed = run(&mut command(&["openapi"])).await;
    let committed = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../openapi/openapi.json");
    let same = text(&printed.stdout) == std::fs::read_to_string(committed).unwrap_or_default();
    assert!(same, "openapi/openapi.json is stale");
}

#[tokio::test]
async fn a_kafka_queue_without_a_port_is_refused_in_words() {
    let refused = run(command(&["check-config"]).env("QUEUE_URL", "kafka://broker")).await;
    assert!(text(&refused.stderr).contains("QUEUE_URL"), "{}", text(&refused.stderr));
    assert!(text(&refused.stderr).contains("port"), "{}", text(&refused.stderr));
}
