//! Faults between the processes: a provider that drops connections, clients that do.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use sqlx::{Connection, PgConnection};
use tokio::{io::AsyncWriteExt, net::TcpStream};

use crate::harness::{Demo, Folder};

const TASKS: usize = 20;
const END_MAX: Duration = Duration::from_secs(60);

/// Lets the provider drop the connection of the next submits in the given way.
async fn drop_submits(demo: &Demo, how: &str) {
    let rules = json!([{ "on": "submit", "action": { "drop": how }, "times": TASKS }]);
    let (status, answer) = demo.provider().ask(Method::PUT, "/_control/faults", Some(&rules)).await;
    assert!((200..300).contains(&status), "{answer}");
    let (status, _) = demo.provider().ask(Method::POST, "/_control/reset", None).await;
    assert!((200..300).contains(&status));
}

fn assert_succeeded(ends: &[Value], attempt_no: i64) {
    for end in ends {
        assert_eq!((&end["status"], &end["attempt_no"]), (&"SUCCEEDED".into(), &attempt_no.into()), "{end}");
    }
}

#[tokio::test]
async fn a_submit_whose_answer_was_lost_is_found_again_and_one_that_never_arrived_is_repeated_once() {
    let folder = Folder::new();
    let demo = Demo::start(folder.path()).await;

    drop_submits(&demo, "after_accept").await;
    let tasks = demo.client().submit_many("mock-fast", TASKS).await;
    assert_succeeded(&demo.client().ends_of(&tasks, END_MAX).await, 1);
    let stats = demo.provider().get("/_control/stats").await;
    assert_eq!((&stats["submits"], &stats["max_live_by_task"]), (&TASKS.into(), &1.into()), "{stats}");

    drop_submits(&demo, "before_accept").await;
    let tasks = demo.client().submit_many("mock-fast", TASKS).await;
    assert_succeeded(&demo.client().ends_of(&tasks, END_MAX).await, 2);
    let stats = demo.provider().get("/_control/stats").await;
    assert_eq!((&stats["submits"], &stats["max_live_by_task"]), (&TASKS.into(), &1.into()), "{stats}");
    demo.assert_audit().await;
    demo.stop().await;
}

#[tokio::test]
async fn clients_that_go_away_in_mid_request_leave_nothing_stuck() {
    let folder = Folder::new();
    let demo = Demo::start(folder.path()).await;
    let address = demo.ready.url.strip_prefix("http://").unwrap();
    let body = json!({ "model": "mock-slow", "prompt": "gone", "duration_seconds": 1 }).to_string();
    let request = format!(
        "POST /generations HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {}\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        demo.ready.api_key,
        body.len()
    );
    for n in 0..300 {
        let mut stream = TcpStream::connect(address).await.unwrap();
        // Some go in the middle of the body, some when all is sent; none reads an answer.
        let sent = if n % 3 == 0 { request.len() - 5 } else { request.len() };
        stream.write_all(&request.as_bytes()[..sent]).await.unwrap();
        drop(stream);
    }
    let mut connection = PgConnection::connect(&demo.ready.database_url).await.unwrap();
    for _ in 0..10 {
        tokio::time::sleep(Duration::from_millis(300)).await;
        let stuck: i64 = sqlx::query_scalar(
            "SELECT count(*) FROM pg_stat_activity
             WHERE state LIKE 'idle in transaction%' AND state_change < now() - interval '1 second'",
        )
        .fetch_one(&mut connection)
        .await
        .unwrap();
        assert_eq!(stuck, 0, "transactions were left open");
    }
    let tasks = demo.client().submit_many("mock-slow", 1_000).await;
    assert_eq!(tasks.len(), 1_000);
    demo.assert_audit().await;
    demo.stop().await;
}
