//! Pausing provider accounts and models, and what operators and users see of it.

use std::time::Duration;

use control::{BreakerRule, Sign};
use domain::{AttemptRef, Scope, TaskId};
use http::{Method, Request, StatusCode};
use serde_json::{Value, json};
use testkit::wait_until;

use crate::harness::Api;

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_account_is_seen_by_operators_and_by_those_whose_tasks_wait_until_it_is_resumed() {
    let api = Api::new().await;
    let someone = api.someone("pro").await;
    let admin = api.key(someone.user, &[Scope::Admin]).await;
    let call = async |method: Method, path: &str, body: &Value| {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("authorization", format!("Bearer {admin}"))
            .header("content-type", "application/json");
        let body = if body.is_null() { String::new() } else { body.to_string() };
        api.send(request.body(body.into()).unwrap()).await
    };
    let task = api.task(&someone).await;
    let reason =
        async || api.get(&format!("/tasks/{task}"), &someone.key).await.json()["wait_reason"].clone();
    let put = call(Method::PUT, "/admin/pauses/account:mock", &json!({ "reason": "billing" })).await;
    assert_eq!(put.status, StatusCode::OK, "{}", put.json());
    assert_eq!((&put.json()["kind"], &put.json()["version"]), (&json!("pause"), &json!(1)));
    assert_eq!(reason().await, "provider_paused");

    let attempt = AttemptRef { task: TaskId::generate(), attempt_no: 1 };
    let rule = BreakerRule { chance: 0, ..BreakerRule::default() };
    let mock = "mock".parse().unwrap();
    api.control.note_sign(&mock, attempt, Sign::Trouble, &rule, 0.5).await.unwrap();
    let accounts = call(Method::GET, "/admin/accounts", &Value::Null).await.json();
    let account = &accounts["items"][0];
    assert_eq!((&account["account"], &account["breaker"]), (&json!("mock"), &json!("open")));
    assert_eq!((&account["pause"]["reason"], &account["slots"]), (&json!("billing"), &json!(200)));

    let gone = call(Method::DELETE, "/admin/pauses/account:mock", &Value::Null).await;
    assert_eq!(gone.status, StatusCode::NO_CONTENT);
    // What readers of one version share is old in a moment.
    wait_until("the task to say so", Duration::from_secs(5), async || reason().await != "provider_paused")
        .await;
    assert_eq!(call(Method::GET, "/admin/pauses", &Value::Null).await.json()["items"], json!([]));

    for (method, path, body, status) in [
        (Method::DELETE, "/admin/pauses/account:mock", Value::Null, StatusCode::NOT_FOUND),
        (Method::PUT, "/admin/pauses/account:other", json!({ "reason": "x" }), StatusCode::NOT_FOUND),
        (Method::PUT, "/admin/pauses/mock", json!({ "reason": "x" }), StatusCode::NOT_FOUND),
        (
            Method::PUT,
            "/admin/pauses/model:mock-pro",
            json!({ "reason": " " }),
            StatusCode::UNPROCESSABLE_ENTITY,
        ),
        (Method::PUT, "/admin/pauses/model:mock-pro", json!({}), StatusCode::UNPROCESSABLE_ENTITY),
    ] {
        let answer = call(method, path, &body).await;
        assert_eq!(answer.status, status, "{path}: {}", answer.json());
    }
    assert_eq!(api.get("/admin/pauses", &someone.key).await.status, StatusCode::FORBIDDEN);
}
