//! Callbacks between real processes: they make an end prompt, and nothing rests on them.

use std::{path::PathBuf, time::Duration};

use http::Method;
use serde_json::{Value, json};
use sqlx::{Connection, PgConnection};

use crate::harness::{Demo, Folder, Server};

const READY_MAX: Duration = Duration::from_secs(60);
/// Before the first look of one's own would be due.
const PROMPT: Duration = Duration::from_secs(50);
const END_MAX: Duration = Duration::from_secs(60);

/// A demo whose own looks come too late for any of these tests: the first after mock-slow's usual minute.
async fn patient_demo(folder: &Folder, extra: &[&str]) -> Demo {
    let config = config(folder, "[providers.mock]\npoll_ms = 600_000\nlookup = false\n");
    let arguments = [&["--config", config.to_str().expect("UTF-8")], extra].concat();
    let demo = Demo::start_within(folder.path(), READY_MAX, &arguments).await;
    // Its jobs are quicker than usual.
    let (status, _) = demo
        .provider()
        .ask(Method::PUT, "/_control/models/mock-slow", Some(&json!({"duration_ms": 2_500})))
        .await;
    assert_eq!(status, 200);
    demo
}

fn config(folder: &Folder, text: &str) -> PathBuf {
    let file = folder.path().join("test.toml");
    std::fs::write(&file, text).expect("ours");
    file
}

async fn faults(demo: &Demo, rules: Value) {
    let (status, answer) = demo.provider().ask(Method::PUT, "/_control/faults", Some(&rules)).await;
    assert_eq!(status, 200, "{answer}");
}

/// How many callbacks were stored, by what became of them.
async fn stored(demo: &Demo, outcome: &str) -> i64 {
    let mut conn = PgConnection::connect(&demo.ready.database_url).await.expect("connected");
    sqlx::query_scalar("SELECT count(*) FROM provider_events WHERE outcome = $1")
        .bind(outcome)
        .fetch_one(&mut conn)
        .await
        .expect("counted")
}

fn assert_succeeded(ends: &[Value]) {
    for end in ends {
        assert_eq!((&end["status"], &end["attempt_no"]), (&"SUCCEEDED".into(), &1.into()), "{end}");
    }
}

#[tokio::test]
async fn an_end_is_known_by_its_callback_and_so_is_a_job_whose_submit_was_never_answered() {
    let folder = Folder::new();
    let demo = patient_demo(&folder, &[]).await;
    // Each report comes twice, and each is stored once.
    faults(&demo, json!([{"on": "callback", "action": {"duplicate": true}}])).await;
    let tasks = demo.client().submit_many("mock-slow", 5).await;
    assert_succeeded(&demo.client().ends_of(&tasks, PROMPT).await);
    assert!(stored(&demo, "told").await >= 5);

    // The provider cannot be asked by our reference, so only its call can tell which job this is.
    let lost = json!([{"on": "submit", "action": {"drop": "after_accept"}, "times": 1}]);
    faults(&demo, lost).await;
    let task = demo.client().submit("mock-slow", "an answer that is lost").await;
    assert_succeeded(&[demo.client().end_of(&task, PROMPT).await]);
    let stats = demo.provider().get("/_control/stats").await;
    assert_eq!((&stats["submits"], &stats["max_live_by_task"]), (&6.into(), &1.into()), "{stats}");
    demo.assert_audit().await;
    demo.stop().await;
}

#[tokio::test]
async fn a_callback_reaches_the_scheduler_of_another_process() {
    let folder = Folder::new();
    let demo = patient_demo(&folder, &["--roles", "api"]).await;
    let scheduler = Server::start(&demo.ready.env_file, &["--roles", "scheduler"]).await;
    let tasks = demo.client().submit_many("mock-slow", 5).await;
    assert_succeeded(&demo.client().ends_of(&tasks, PROMPT).await);
    assert!(stored(&demo, "told").await >= 5);
    scheduler.stop().await;
    demo.stop().await;
}

#[tokio::test]
async fn where_callbacks_are_lost_or_forged_looking_brings_the_end() {
    let folder = Folder::new();
    let demo = Demo::start(folder.path()).await;
    let ends = async |rules: Value| {
        faults(&demo, rules).await;
        let tasks = demo.client().submit_many("mock-fast", 5).await;
        assert_succeeded(&demo.client().ends_of(&tasks, END_MAX).await);
    };
    ends(json!([{"on": "callback", "action": {"drop": "before_accept"}}])).await;
    let stats = demo.provider().get("/_control/stats").await;
    assert_eq!(stats["callbacks"], 0, "{stats}");
    assert!(stats["polls"].as_u64() >= Some(5), "{stats}");

    ends(json!([{"on": "callback", "action": {"headers": {"webhook-signature": "v1,Zm9yZ2Vk"}}}])).await;
    ends(json!([{"on": "callback", "action": {"headers": {"webhook-timestamp": "1700000000"}}}])).await;
    ends(json!([{"on": "callback", "action": {"body": {"id": "job_x", "status": "failed"}, "truncate_bytes": 3}}])).await;
    ends(json!([{"on": "callback", "action": {"hang": true}}])).await;
    let stats = demo.provider().get("/_control/stats").await;
    assert!(stats["callbacks"].as_u64() > Some(0), "{stats}");
    assert_eq!(stats["callbacks_taken"], 0, "{stats}");
    for outcome in ["pending", "told", "ignored"] {
        assert_eq!(stored(&demo, outcome).await, 0, "{outcome}");
    }

    // They come again, and the first one that does is taken.
    ends(json!([])).await;
    assert!(stored(&demo, "told").await + stored(&demo, "ignored").await > 0);
    demo.assert_audit().await;
    demo.stop().await;
}
