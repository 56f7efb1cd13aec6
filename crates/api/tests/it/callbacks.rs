//! Providers' callbacks: who may call, what is stored, and that nothing is moved by them.

use std::collections::HashSet;

use api::ApiConfig;
use async_trait::async_trait;
use axum::body::Body;
use bytes::Bytes;
use domain::{
    AttemptRef, TaskId,
    callback::{
        CallbackAddress, CallbackNews, CallbackRejection, CallbackVerdict, CallbackVerifier, RawCallback,
    },
    task::{JobHandle, Seen},
};
use http::{Request, StatusCode};
use serde_json::{Value, json};

use crate::harness::{Answer, Api, Setup};

/// A provider that signs by writing its name, and addresses that are signed by a word in front.
pub(crate) struct SignedByHand;

#[async_trait]
impl CallbackVerifier for SignedByHand {
    fn address(&self, account: &str, token: &str) -> Option<CallbackAddress> {
        let attempt = token.strip_prefix("ours-")?.parse().ok()?;
        Some(CallbackAddress { account: account.parse().ok()?, attempt })
    }

    async fn verify(&self, _: &CallbackAddress, callback: RawCallback<'_>) -> CallbackVerdict {
        let header = |name: &str| callback.headers.get(name).and_then(|value| value.to_str().ok());
        let Some(delivery) = header("x-delivery") else {
            return CallbackVerdict::Reject(CallbackRejection::Unsigned);
        };
        let body: Value = serde_json::from_slice(callback.body).unwrap_or_default();
        let kind = body["status"].as_str().unwrap_or_default().to_owned();
        let news = CallbackNews { delivery: delivery.to_owned(), says_ended: kind != "running", kind };
        match (header("x-signed-by"), body["id"].as_str()) {
            (Some("provider"), Some(job)) => CallbackVerdict::Event { news, job: JobHandle::new(job) },
            (Some("nobody"), _) => CallbackVerdict::Hint(news),
            (Some("challenge"), _) => {
                CallbackVerdict::Handshake { content_type: "text/plain", body: Bytes::from_static(b"echo") }
            }
            _ => CallbackVerdict::Reject(CallbackRejection::Forged),
        }
    }
}

fn callback(task: TaskId, attempt_no: i32, delivery: &str, body: &Value) -> Request<Body> {
    let token = format!("ours-{}", AttemptRef { task, attempt_no });
    call(&format!("/callbacks/providers/mock/{token}"), delivery, "provider", body)
}

fn call(path: &str, delivery: &str, signed_by: &str, body: &Value) -> Request<Body> {
    Request::post(path)
        .header("x-delivery", delivery)
        .header("x-signed-by", signed_by)
        .body(Body::from(body.to_string()))
        .unwrap()
}

async fn rows(api: &Api) -> Vec<(String, String, Option<String>)> {
    sqlx::query_as("SELECT delivery_id, outcome, reason FROM provider_events ORDER BY delivery_id")
        .fetch_all(&api.db.pool)
        .await
        .unwrap()
}

/// Every order of these things.
fn orders<T: Clone>(things: &[T]) -> Vec<Vec<T>> {
    if things.is_empty() {
        return vec![Vec::new()];
    }
    let with_first = |n: usize| {
        let mut rest = things.to_vec();
        let first = rest.remove(n);
        orders(&rest).into_iter().map(move |mut order| {
            order.insert(0, first.clone());
            order
        })
    };
    (0..things.len()).flat_map(with_first).collect()
}

/// C27: whatever comes after the end, in whatever order, leaves the task, its output and the ledger as they are.
#[tokio::test]
async fn late_callbacks_in_every_order_change_nothing_and_are_taken_all_the_same() {
    let api = Api::new().await;
    let ada = api.someone("enterprise").await;
    let task = api.task(&ada).await;
    api.succeed(task).await;
    let view = async || {
        let task = api.get(&format!("/tasks/{task}"), &ada.key).await.json();
        let events =
            api.task_state.events(task["task_id"].as_str().unwrap().parse().unwrap(), 0).await.unwrap();
        let credits = api.get("/credits", &ada.key).await.json();
        let versions: Vec<i32> = events.iter().map(|event| event.version).collect();
        (without_links(task), versions, credits)
    };
    let before = view().await;
    let late = [
        (1, json!({"id": "job-1", "status": "running"})),
        (1, json!({"id": "job-1", "status": "failed"})),
        (1, json!({"id": "job-1", "status": "succeeded", "output_url": "http://elsewhere/other.mp4"})),
        (1, json!({"id": "job-of-an-older-attempt", "status": "failed"})),
    ];
    let mut sent = 0;
    for order in orders(&late) {
        for (attempt_no, body) in order {
            let answer = api.send(callback(task, attempt_no, &format!("d{sent:03}"), &body)).await;
            assert_eq!(answer.status, StatusCode::OK, "{}", answer.json());
            sent += 1;
        }
    }
    assert_eq!(view().await, before);
    let rows = rows(&api).await;
    assert_eq!((rows.len(), sent), (96, 96));
    assert!(rows.iter().all(|(_, outcome, _)| outcome == "ignored"));
    let reasons: HashSet<_> = rows.iter().filter_map(|(_, _, reason)| reason.as_deref()).collect();
    assert_eq!(reasons, HashSet::from(["task_ended", "other_job"]));
    assert!(api.called.lock().unwrap().is_empty(), "nobody has to look");
}

/// Links are made anew for each answer.
fn without_links(mut task: Value) -> Value {
    task.as_object_mut().unwrap().remove("output_url");
    task
}

#[tokio::test]
async fn a_callback_wakes_the_owner_and_moves_nothing() {
    let api = Api::new().await;
    let ada = api.someone("enterprise").await;
    let task = api.task(&ada).await;
    let attempt = api.claim(task).await;
    // Early, before the answer to the submit is stored; then repeated; then one that nobody signed.
    let early = json!({"id": "job-1", "status": "succeeded"});
    for delivery in ["d1", "d1"] {
        assert_eq!(api.send(callback(task, 1, delivery, &early)).await.status, StatusCode::OK);
    }
    let hint = format!("/callbacks/providers/mock/ours-{task}.1");
    assert_eq!(api.send(call(&hint, "d2", "nobody", &json!({}))).await.status, StatusCode::OK);
    let owner = "here:1:a".parse().unwrap();
    assert_eq!(*api.called.lock().unwrap(), [owner, "here:1:a".parse().unwrap()], "once per delivery");
    let pending = |delivery: &str| (delivery.to_owned(), "pending".to_owned(), None);
    assert_eq!(rows(&api).await, [pending("d1"), pending("d2")]);
    let status = async || api.get(&format!("/tasks/{task}"), &ada.key).await.json()["status"].clone();
    assert_eq!(status().await, "SCHEDULING");
    api.observe(task, attempt, Seen::Accepted).await;
    assert_eq!(status().await, "PROVIDER_SUBMITTED");
    let shook = api.send(call(&hint, "d3", "challenge", &json!({}))).await;
    assert_eq!(
        (shook.status, &*shook.bytes, shook.header("content-type")),
        (StatusCode::OK, &b"echo"[..], Some("text/plain"))
    );
}

#[tokio::test]
async fn an_address_that_was_never_given_out_is_like_any_other_unknown_path() {
    let api = Api::new().await;
    let ada = api.someone("enterprise").await;
    let task = api.task(&ada).await;
    let body = json!({"id": "job-1", "status": "failed"});
    let unknown = api.send(call("/callbacks/nowhere", "d1", "provider", &body)).await;
    assert_eq!(unknown.status, StatusCode::NOT_FOUND);
    for path in [
        format!("/callbacks/providers/mock/{task}.1"),
        format!("/callbacks/providers/mock/ours-{task}"),
        "/callbacks/providers/mock/ours-%ff".to_owned(),
        format!("/callbacks/providers/MOCK%20/ours-{task}.1"),
    ] {
        let forged = api.send(call(&path, "d1", "provider", &body)).await;
        assert_eq!(forged.status, StatusCode::NOT_FOUND, "{path}");
        assert_eq!(forged.without_request_id(), unknown.without_request_id(), "{path}");
    }
    // Whoever has the address and not the signature learns that, and nothing happens.
    let path = format!("/callbacks/providers/mock/ours-{task}.1");
    let unsigned = api.send(call(&path, "d1", "somebody else", &body)).await;
    assert_eq!((unsigned.status, unsigned.code().as_str()), (StatusCode::UNAUTHORIZED, "unauthenticated"));
    let encoded = Request::post(&path).header("content-encoding", "gzip").body(Body::from("x")).unwrap();
    assert_eq!(api.send(encoded).await.status, StatusCode::UNSUPPORTED_MEDIA_TYPE);
    let large = Request::post(&path).body(Body::from(vec![b' '; 256 * 1024 + 1])).unwrap();
    assert_eq!(api.send(large).await.status, StatusCode::PAYLOAD_TOO_LARGE);
    assert_eq!(rows(&api).await, []);
}

/// C42: submits, cancels and callbacks of two hundred clients over a pool of five. Nobody waits for ever, and who cannot
/// be served is told to come again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_small_pool_serves_submits_cancels_and_callbacks_side_by_side() {
    let config = ApiConfig { store_in_flight_max: 3, ..ApiConfig::default() };
    let api = Api::with(Setup { config, connections: Some(5), ..Setup::default() }).await;
    let ada = api.someone("enterprise").await;
    api.grant(ada.user, 100_000).await;
    let (api, ada) = (&api, &ada);
    let client = async |n: usize| {
        let mut answers: Vec<Answer> = Vec::new();
        for round in 0..3 {
            let submitted = api.post("/generations", &ada.key, &crate::harness::video()).await;
            let task = submitted.json()["task_id"].as_str().and_then(|id| id.parse::<TaskId>().ok());
            answers.push(submitted);
            let Some(task) = task else { continue };
            let body = json!({"id": "job-1", "status": "running"});
            let (path, nothing) = (format!("/tasks/{task}/cancel"), json!({}));
            let called = api.send(callback(task, 1, &format!("c{n}-{round}"), &body));
            let canceled = api.post(&path, &ada.key, &nothing);
            let (called, canceled) = futures::join!(called, canceled);
            answers.extend([called, canceled]);
        }
        answers
    };
    let answers = futures::future::join_all((0..200).map(client)).await;
    let mut served = 0;
    for answer in answers.into_iter().flatten() {
        match answer.status {
            StatusCode::OK | StatusCode::ACCEPTED => served += 1,
            StatusCode::SERVICE_UNAVAILABLE => {
                let seconds: u32 = answer.header("retry-after").unwrap().parse().unwrap();
                assert!(seconds >= 1);
            }
            // Six hundred submits may empty a bucket, which is an honest answer.
            StatusCode::TOO_MANY_REQUESTS => {}
            other => panic!("{other}: {}", answer.json()),
        }
    }
    assert!(served > 0);
    // The pool is whole afterwards: nothing is left open, and the next request is served.
    let left: i64 = sqlx::query_scalar(
        "SELECT count(*) FROM pg_stat_activity
         WHERE datname = current_database() AND state LIKE 'idle in transaction%'",
    )
    .fetch_one(&api.db.pool)
    .await
    .unwrap();
    assert_eq!(left, 0);
    assert_eq!(api.get("/me", &ada.key).await.status, StatusCode::OK);
}
