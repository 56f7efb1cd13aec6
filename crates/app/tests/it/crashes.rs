//! What survives a process that ends in the middle of everything, by a crash or in good order.

use std::{collections::HashSet, time::Duration};

use http::Method;
use serde_json::json;

use crate::harness::{Client, Demo, Folder, Server};

const TASKS: usize = 200;
/// A lease has to run out, a submit's own limit to pass, and two looks to agree, before anybody takes over.
const RECOVERY_MAX: Duration = Duration::from_secs(90);

/// Waits until the provider has seen as many submits.
pub(crate) async fn wait_for_submits(provider: &Client, count: u64) {
    let seen = async || provider.get("/_control/stats").await["submits"].as_u64() >= Some(count);
    testkit::wait_until("submits at the provider", Duration::from_secs(30), seen).await;
}

/// All of them succeed, each had one job alive at most, and every invariant holds.
pub(crate) async fn assert_all_succeed(demo: &Demo, client: &Client, tasks: &[String]) {
    let ends = client.ends_of(tasks, RECOVERY_MAX).await;
    let wrong: Vec<_> = ends.iter().filter(|end| end["status"] != "SUCCEEDED").collect();
    assert!(wrong.is_empty(), "{} of {} did not succeed, such as {}", wrong.len(), ends.len(), wrong[0]);
    let assets: HashSet<_> = ends.iter().map(|end| end["output_asset_id"].to_string()).collect();
    assert_eq!(assets.len(), tasks.len(), "tasks share an output");
    let stats = demo.provider().get("/_control/stats").await;
    assert_eq!(stats["max_live_by_task"], 1, "a task had two jobs at once");
    let by_reference = stats["submits_by_reference"].as_object().expect("a map");
    let twice: Vec<_> = by_reference.iter().filter(|(_, count)| count.as_u64() > Some(1)).collect();
    assert!(twice.is_empty(), "submitted twice: {twice:?}");
    demo.assert_audit().await;
}

/// Long enough that the crash finds jobs under way.
pub(crate) async fn slow_jobs(demo: &Demo) {
    let (status, _) = demo
        .provider()
        .ask(Method::PUT, "/_control/models/mock-fast", Some(&json!({ "duration_ms": 3_000 })))
        .await;
    assert!((200..300).contains(&status));
}

#[tokio::test]
async fn a_killed_process_loses_no_task_and_submits_none_twice() {
    let folder = Folder::new();
    let demo = Demo::start(folder.path()).await;
    slow_jobs(&demo).await;
    let tasks = demo.client().submit_many("mock-fast", TASKS).await;
    wait_for_submits(&demo.provider(), 40).await;
    demo.kill().await;
    let demo = Demo::start_within(folder.path(), Duration::from_secs(10), &[]).await;
    assert_all_succeed(&demo, &demo.client(), &tasks).await;
    demo.stop().await;
}

#[tokio::test]
async fn an_orderly_stop_loses_no_task_and_submits_none_twice() {
    let folder = Folder::new();
    let demo = Demo::start(folder.path()).await;
    slow_jobs(&demo).await;
    let tasks = demo.client().submit_many("mock-fast", TASKS).await;
    wait_for_submits(&demo.provider(), 40).await;
    let running = demo.provider().get("/_control/stats").await["running"].as_u64();
    assert!(running > Some(0), "nothing runs that could be lost");
    assert_eq!(demo.stop().await, Some(0));
    let demo = Demo::start_within(folder.path(), Duration::from_secs(10), &[]).await;
    assert_all_succeed(&demo, &demo.client(), &tasks).await;
    demo.stop().await;
}

#[tokio::test]
async fn a_neighbour_takes_over_although_redis_forgets_everything() {
    let folder = Folder::new();
    let demo = Demo::start(folder.path()).await;
    slow_jobs(&demo).await;
    let neighbour = Server::start(&demo.ready.env_file, &[]).await;
    let (here, there) = (demo.client(), Client::new(&neighbour.url, &demo.ready.api_key));
    let (mut tasks, more) =
        tokio::join!(here.submit_many("mock-fast", TASKS / 2), there.submit_many("mock-fast", TASKS / 2));
    tasks.extend(more);
    wait_for_submits(&demo.provider(), 40).await;
    flush_all(&demo.ready.redis_url).await;
    demo.kill().await;
    // The neighbour alone has to bring everything home; the demo comes back to be asked.
    let demo = Demo::start_within(folder.path(), Duration::from_secs(10), &["--roles", "api"]).await;
    assert_all_succeed(&demo, &there, &tasks).await;
    assert_eq!(neighbour.stop().await, Some(0));
    demo.stop().await;
}

/// What an operator's slip does.
async fn flush_all(redis_url: &str) {
    let output = tokio::process::Command::new("redis-cli")
        .args(["-u", redis_url, "FLUSHALL"])
        .output()
        .await
        .expect("redis-cli runs");
    assert!(String::from_utf8_lossy(&output.stdout).contains("OK"), "{output:?}");
}
