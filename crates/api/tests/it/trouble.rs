//! When something is away, too much, or hangs up in the middle.

use std::{sync::Arc, time::Duration};

use api::{
    ApiConfig,
    health::{HealthSource, Readiness, RoleReadiness},
};
use async_trait::async_trait;
use domain::task::Seen;
use futures::StreamExt as _;
use http::{HeaderValue, Method, StatusCode};
use serde_json::json;
use tower::ServiceExt as _;

use crate::harness::{Api, Setup, request, video};

#[tokio::test(flavor = "multi_thread")]
async fn without_redis_tasks_are_accepted_read_and_followed() {
    let config = ApiConfig { stream_reread_seconds: 1, ..ApiConfig::default() };
    let api = Api::with(Setup { redis: false, config, ..Setup::default() }).await;
    let someone = api.someone("pro").await;
    let mut ask = request(Method::POST, "/generations", Some(&someone.key), Some(&video()));
    ask.headers_mut().insert("idempotency-key", "k".parse().unwrap());
    let accepted = api.send(ask).await;
    assert_eq!(accepted.status, StatusCode::ACCEPTED);
    let task = accepted.json()["task_id"].as_str().unwrap().parse().unwrap();
    let mut again = request(Method::POST, "/generations", Some(&someone.key), Some(&video()));
    again.headers_mut().insert("idempotency-key", "k".parse().unwrap());
    let again = api.send(again).await;
    assert_eq!((again.bytes, again.status), (accepted.bytes, accepted.status), "PostgreSQL knows the key");

    let read = api.get(&format!("/tasks/{task}"), &someone.key).await.json();
    assert_eq!(read["wait_reason"], "control_unavailable");
    assert_eq!(
        (&read["queue_position"], &read["eta"]),
        (&json!(null), &json!(null)),
        "what nobody knows is null"
    );

    let stream = request(Method::GET, &format!("/tasks/{task}/events"), Some(&someone.key), None);
    let mut stream = api.open(stream).await.into_body().into_data_stream();
    let first = stream.next().await.unwrap().unwrap();
    assert!(first.starts_with(b"event: snapshot"), "{first:?}");
    let attempt = api.claim(task).await;
    api.observe(task, attempt, Seen::Running).await;
    let told = tokio::time::timeout(Duration::from_secs(8), async {
        let mut text = String::new();
        while !text.contains("\"type\":\"running\"") {
            text.push_str(std::str::from_utf8(&stream.next().await.unwrap().unwrap()).unwrap());
        }
        text
    });
    assert!(told.await.expect("the stream polls").contains("\"type\":\"scheduled\""));
}

/// Something is away, and a role can't work.
struct Unwell;

#[async_trait]
impl HealthSource for Unwell {
    fn degraded(&self) -> Option<HeaderValue> {
        Some(HeaderValue::from_static("control, realtime"))
    }

    fn alive(&self) -> Result<(), String> {
        Err("no progress in dispatch".to_owned())
    }

    async fn ready(&self, _: Option<&str>) -> Option<Readiness> {
        let reason = Some("PostgreSQL can't be reached".to_owned());
        let roles = vec![RoleReadiness { role: "api".to_owned(), ready: false, reason }];
        Some(Readiness { ready: false, roles, degraded: vec!["control".to_owned()], loops: vec![] })
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_away_is_named_on_every_answer() {
    let api = Api::with(Setup { health: Arc::new(Unwell), ..Setup::default() }).await;
    for (path, status) in [("/nowhere", 404), ("/healthz", 503), ("/readyz", 503), ("/", 200)] {
        let answer = api.send(request(Method::GET, path, None, None)).await;
        assert_eq!(answer.status.as_u16(), status, "{path}");
        assert_eq!(answer.header("aivideo-degraded"), Some("control, realtime"), "{path}");
    }
    let ready = api.send(request(Method::GET, "/readyz", None, None)).await.json();
    assert_eq!(ready["roles"][0]["reason"], "PostgreSQL can't be reached");
}

#[tokio::test(flavor = "multi_thread")]
async fn many_more_requests_than_connections_neither_block_nor_fail() {
    let api = Arc::new(Api::new().await);
    let someone = api.someone("enterprise").await;
    api.grant(someone.user, 1_000_000).await;
    let one = |index: usize| {
        let (api, key) = (Arc::clone(&api), someone.key.clone());
        async move {
            let accepted = api.post("/generations", &key, &video()).await;
            assert!(matches!(accepted.status.as_u16(), 202 | 503), "{index}: {}", accepted.json());
            if accepted.status != StatusCode::ACCEPTED {
                return accepted.header("retry-after").is_some();
            }
            let task = accepted.json()["task_id"].as_str().unwrap().to_owned();
            for (method, path) in [
                (Method::GET, "/credits".to_owned()),
                (Method::GET, "/tasks?limit=100".to_owned()),
                (Method::POST, format!("/tasks/{task}/cancel")),
            ] {
                let answer = api.send(request(method, &path, Some(&key), None)).await;
                assert!(matches!(answer.status.as_u16(), 200 | 503), "{path}: {}", answer.json());
            }
            true
        }
    };
    let all = futures::stream::iter((0..200).map(one)).buffer_unordered(200).all(std::future::ready);
    assert!(tokio::time::timeout(Duration::from_secs(30), all).await.expect("a stand-still"));
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_that_hang_up_leave_nothing_behind() {
    let api = Api::new().await;
    let someone = api.someone("enterprise").await;
    api.grant(someone.user, 1_000_000).await;
    let mut hung_up = Vec::new();
    for index in 0_u64..300 {
        let router = api.router.clone();
        let (method, path, body) = match index % 3 {
            0 => (Method::POST, "/generations", Some(video())),
            1 => (Method::POST, "/projects", Some(json!({ "name": "Film" }))),
            _ => (Method::GET, "/tasks", None),
        };
        let ask = request(method, path, Some(&someone.key), body.as_ref());
        let call = tokio::spawn(router.oneshot(ask));
        hung_up.push(tokio::spawn(async move {
            tokio::time::sleep(Duration::from_micros(index * 97 % 20_000)).await;
            call.abort();
        }));
    }
    for hang_up in hung_up {
        hang_up.await.unwrap();
    }
    for _ in 0..50 {
        assert_eq!(api.post("/generations", &someone.key, &video()).await.status, StatusCode::ACCEPTED);
    }
    testkit::wait_until("open transactions to end", Duration::from_secs(5), async || {
        let open: i64 = sqlx::query_scalar(
            "SELECT count(*) FROM pg_stat_activity
             WHERE datname = current_database() AND state LIKE 'idle in transaction%'
               AND state_change < now() - interval '1 s'",
        )
        .fetch_one(&api.db.pool)
        .await
        .unwrap();
        open == 0
    })
    .await;
    let credits = api.get("/credits", &someone.key).await.json();
    let tasks: i64 =
        sqlx::query_scalar("SELECT count(*) FROM generation_tasks").fetch_one(&api.db.pool).await.unwrap();
    assert_eq!(credits["held"], tasks * 10, "every task that exists holds its price, and nothing else does");
}
