//! Event streams: what is told, from where, and when they end.

use std::time::Duration;

use api::ApiConfig;
use axum::body::Body;
use control::Change;
use domain::{TaskId, task::Seen};
use futures::StreamExt as _;
use http::{Method, Response, StatusCode};
use serde_json::Value;

use crate::harness::{Api, Setup, Someone, request};

/// An open stream, read line by line.
struct Stream {
    body: axum::body::BodyDataStream,
    text: String,
}

/// One event, or a comment.
#[derive(Debug, Clone, PartialEq)]
struct Told {
    event: String,
    id: Option<String>,
    data: Value,
    raw: String,
}

impl Stream {
    fn new(response: Response<Body>) -> Self {
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Self { body: response.into_body().into_data_stream(), text: String::new() }
    }

    /// The next block; none when the server has closed.
    async fn next(&mut self) -> Option<Told> {
        loop {
            if let Some((block, rest)) = self.text.split_once("\n\n") {
                let told = parse(block);
                self.text = rest.to_owned();
                return Some(told);
            }
            let chunk = tokio::time::timeout(Duration::from_secs(10), self.body.next()).await;
            let chunk = chunk.expect("the stream is silent")?.unwrap();
            self.text.push_str(std::str::from_utf8(&chunk).unwrap());
        }
    }

    async fn rest(mut self) -> Vec<Told> {
        let mut all = Vec::new();
        while let Some(told) = self.next().await {
            all.push(told);
        }
        all
    }
}

fn parse(block: &str) -> Told {
    let field = |name: &str| {
        let prefix = format!("{name}:");
        block.lines().find_map(|line| line.strip_prefix(&prefix)).map(|value| value.trim_start().to_owned())
    };
    Told {
        event: field("event").unwrap_or_default(),
        id: field("id"),
        data: field("data").map_or(Value::Null, |data| serde_json::from_str(&data).unwrap()),
        raw: block.to_owned(),
    }
}

async fn open(api: &Api, task: TaskId, who: &Someone, last: Option<&str>) -> Response<Body> {
    let mut ask = request(Method::GET, &format!("/tasks/{task}/events"), Some(&who.key), None);
    if let Some(last) = last {
        ask.headers_mut().insert("last-event-id", last.parse().unwrap());
    }
    api.open(ask).await
}

fn types(told: &[Told]) -> Vec<String> {
    told.iter().map(|told| told.data["type"].as_str().unwrap_or(&told.event).to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_begins_with_the_snapshot_and_ends_with_the_task() {
    let api = Api::new().await;
    let someone = api.someone("pro").await;
    let task = api.task(&someone).await;
    let mut stream = Stream::new(open(&api, task, &someone, None).await);
    let first = stream.next().await.unwrap();
    assert_eq!((first.event.as_str(), first.id.as_deref()), ("snapshot", Some("1")));
    assert_eq!(first.data["task_id"], task.to_string());
    assert_eq!(first.data["inputs"]["prompt"], "A paper boat");
    api.succeed(task).await;
    let told = stream.rest().await;
    assert_eq!(types(&told), ["scheduled", "post_processing", "succeeded"], "and then the server closes");
    let last = told.last().unwrap();
    assert_eq!((last.event.as_str(), last.id.as_deref()), ("task", Some("4")));
    insta::assert_json_snapshot!(last.data, { ".task_id" => "[task]", ".at" => "[time]" });
}

#[tokio::test(flavor = "multi_thread")]
async fn history_is_replayed_from_any_version() {
    let api = Api::new().await;
    let someone = api.someone("pro").await;
    let task = api.task(&someone).await;
    api.succeed(task).await;
    let replay = async |last: &str| Stream::new(open(&api, task, &someone, Some(last)).await).rest().await;
    assert_eq!(types(&replay("0").await), ["created", "scheduled", "post_processing", "succeeded"]);
    assert_eq!(types(&replay("2").await), ["post_processing", "succeeded"]);
    assert_eq!(replay("4").await, [], "whoever knows the end is told nothing and let go");
    for bad in ["x", "-1", "1.5"] {
        assert_eq!(open(&api, task, &someone, Some(bad)).await.status(), StatusCode::BAD_REQUEST, "{bad}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn progress_is_told_between_versions_and_never_runs_back() {
    let api = Api::new().await;
    let someone = api.someone("pro").await;
    let task = api.task(&someone).await;
    let attempt = api.claim(task).await;
    api.observe(task, attempt, Seen::Running).await;
    let mut stream = Stream::new(open(&api, task, &someone, None).await);
    assert_eq!(stream.next().await.unwrap().id.as_deref(), Some("3"));
    for (version, percent) in [(3, 10), (3, 42), (3, 42), (3, 7), (2, 90), (3, 43)] {
        let change = Change {
            tenant: someone.tenant,
            task,
            version,
            kind: "progress".to_owned(),
            progress: Some(percent),
        };
        api.control.publish(&[change]).await.unwrap();
    }
    let mut told = Vec::new();
    while told.last().is_none_or(|told: &Told| told.data["progress"] != 43) {
        told.push(stream.next().await.unwrap());
    }
    let progress: Vec<&Value> = told.iter().map(|told| &told.data["progress"]).collect();
    assert_eq!(progress, [10, 42, 43]);
    let failed = domain::task::Event::ProviderFailed { class: domain::FailureClass::ModeratedOutput };
    api.advance(task_state::Move::by_owner(task, attempt, failed)).await;
    told.extend(stream.rest().await);
    assert!(told.iter().filter(|told| told.event == "progress").all(|told| told.id.is_none()));
    assert_eq!(told.last().unwrap().data["error_code"], "moderated_output");
}

fn quick() -> Setup {
    let config = ApiConfig {
        stream_comment_seconds: 1,
        stream_reread_seconds: 1,
        streams_max: 1,
        ..ApiConfig::default()
    };
    Setup { config, ..Setup::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quiet_stream_sends_comments_and_a_closed_one_gives_its_place_back() {
    let api = Api::with(quick()).await;
    let someone = api.someone("pro").await;
    let task = api.task(&someone).await;
    let mut stream = Stream::new(open(&api, task, &someone, None).await);
    stream.next().await.unwrap();
    let comment = stream.next().await.unwrap();
    assert!(comment.raw.starts_with(':'), "{comment:?}");
    let refused = open(&api, task, &someone, None).await;
    assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(refused.headers()["retry-after"], "1");
    drop(stream);
    testkit::wait_until("the place to be free again", Duration::from_secs(5), async || {
        open(&api, task, &someone, None).await.status() == StatusCode::OK
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_stops_reading_holds_up_nobody() {
    let api = Api::with(quick()).await;
    let someone = api.someone("pro").await;
    let task = api.task(&someone).await;
    let mut stream = Stream::new(open(&api, task, &someone, None).await);
    stream.next().await.unwrap();
    // The comment came between two readings of the store, or in the middle of one. From here on nobody reads.
    assert!(stream.next().await.unwrap().raw.starts_with(':'));
    for _ in 0..30 {
        let path = format!("/tasks/{task}");
        let read = api.get(&path, &someone.key);
        let read = tokio::time::timeout(Duration::from_secs(5), read).await;
        assert_eq!(read.expect("reading waits for another client").status, StatusCode::OK);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    drop(stream);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_never_reads_is_cut_when_its_buffer_stays_full() {
    let api = Api::with(quick()).await;
    let someone = api.someone("pro").await;
    let task = api.task(&someone).await;
    let attempt = api.claim(task).await;
    api.observe(task, attempt, Seen::Running).await;
    let never_read = open(&api, task, &someone, None).await;
    assert_eq!(never_read.status(), StatusCode::OK);
    // More than the buffer holds.
    for percent in 1..=60 {
        let change = Change {
            tenant: someone.tenant,
            task,
            version: 3,
            kind: "progress".to_owned(),
            progress: Some(percent),
        };
        api.control.publish(&[change]).await.unwrap();
    }
    testkit::wait_until("its place to be free", Duration::from_secs(30), async || {
        open(&api, task, &someone, None).await.status() == StatusCode::OK
    })
    .await;
    let told = Stream::new(never_read).rest().await;
    assert!(told.len() < 60, "everything was kept for a client that does not read");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_stops_says_when_to_come_back() {
    let api = Api::new().await;
    let someone = api.someone("pro").await;
    let task = api.task(&someone).await;
    let mut stream = Stream::new(open(&api, task, &someone, None).await);
    stream.next().await.unwrap();
    api.shutdown.cancel();
    let told = stream.rest().await;
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].raw.contains("retry: 1000") || told[0].raw.contains("retry:1000"), "{told:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_nobody_announced_is_found_by_reading_again() {
    let api = Api::with(quick()).await;
    let someone = api.someone("pro").await;
    let task = api.task(&someone).await;
    let mut stream = Stream::new(open(&api, task, &someone, None).await);
    stream.next().await.unwrap();
    // A change that was committed, and of which Redis never heard.
    for statement in [
        "INSERT INTO task_events (task_id, version, type, status, stage, attempt_no, at)
         SELECT id, 2, 'canceled', 'CANCELED', 'done', 0, now() FROM generation_tasks",
        "UPDATE generation_tasks SET status = 'CANCELED', version = 2, ended_at = now()",
    ] {
        sqlx::query(statement).execute(&api.db.pool).await.unwrap();
    }
    let told: Vec<Told> = stream.rest().await.into_iter().filter(|told| !told.event.is_empty()).collect();
    assert_eq!(types(&told), ["canceled"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_ends_with_the_right_to_read_it() {
    let api = Api::with(quick()).await;
    let someone = api.someone("pro").await;
    let task = api.task(&someone).await;
    let mut stream = Stream::new(open(&api, task, &someone, None).await);
    stream.next().await.unwrap();
    let key = someone.key.split('_').nth(1).unwrap().parse().unwrap();
    api.operator.revoke_key(operator::Actor::CommandLine, key).await.unwrap();
    let told: Vec<Told> = stream.rest().await.into_iter().filter(|told| !told.event.is_empty()).collect();
    assert_eq!(told, [], "closed without a word");
}
