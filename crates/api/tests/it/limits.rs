//! Limits that operators set while everything runs.

use domain::Scope;
use http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::harness::{Answer, Api, Someone, request, video};

struct Desk {
    api: Api,
    admin: String,
}

impl Desk {
    async fn new() -> Self {
        let api = Api::new().await;
        let boss = api.someone("enterprise").await;
        let admin = api.key(boss.user, &[Scope::Admin]).await;
        Self { api, admin }
    }

    async fn put(&self, path: &str, body: &Value) -> Answer {
        let path = format!("/admin/limits/{path}");
        self.api.send(request(Method::PUT, &path, Some(&self.admin), Some(body))).await
    }

    async fn set(&self, path: &str, body: &Value) {
        let answer = self.put(path, body).await;
        assert_eq!(answer.status, StatusCode::OK, "{path}: {}", answer.json());
    }

    async fn remove(&self, path: &str) -> StatusCode {
        let path = format!("/admin/limits/{path}");
        self.api.send(request(Method::DELETE, &path, Some(&self.admin), None)).await.status
    }

    async fn submit(&self, who: &Someone) -> Answer {
        self.api.post("/generations", &who.key, &video()).await
    }

    async fn log(&self) -> Vec<String> {
        sqlx::query_scalar(
            "SELECT concat_ws(' ', verb, subject) FROM operator_log WHERE verb LIKE 'limit.%' ORDER BY id",
        )
        .fetch_all(&self.api.db.pool)
        .await
        .unwrap()
    }
}

fn rate(capacity: u32) -> Value {
    json!({ "bucket": { "capacity": capacity, "refill": 1, "per_ms": 3_600_000 } })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_is_set_counts_at_once_and_is_taken_away_again() {
    let desk = Desk::new().await;
    let someone = desk.api.someone("free").await;
    let tenant = format!("tenant:{}", someone.tenant);
    let set = desk.put("tier:free/submit-user", &rate(1)).await;
    insta::assert_json_snapshot!(set.json(), { ".set_at" => "[time]" });
    assert_eq!(desk.submit(&someone).await.status, StatusCode::ACCEPTED);
    let refused = desk.submit(&someone).await;
    assert_eq!((refused.status, &refused.json()["limit"]), (StatusCode::TOO_MANY_REQUESTS, &json!(1)));
    assert_eq!(desk.api.get("/me", &someone.key).await.json()["limits"]["user"]["submit"]["capacity"], 1);

    desk.set(&format!("{tenant}/submit-user"), &json!({ "unlimited": true })).await;
    let accepted = desk.submit(&someone).await;
    assert_eq!(accepted.status, StatusCode::ACCEPTED, "the tenant's rule counts before the tier's");
    assert!(!accepted.header("ratelimit-policy").unwrap().contains("submit-user"));

    let listed = desk.api.get(&format!("/admin/limits?subject={tenant}"), &desk.admin).await.json();
    assert_eq!(listed["items"].as_array().unwrap().len(), 1);
    assert_eq!((&listed["items"][0]["unlimited"], &listed["items"][0]["version"]), (&json!(true), &json!(1)));
    let first = desk.api.get("/admin/limits?limit=1", &desk.admin).await.json();
    let next = format!("/admin/limits?limit=1&cursor={}", first["next_cursor"].as_str().unwrap());
    let second = desk.api.get(&next, &desk.admin).await.json();
    assert_eq!(
        (&first["items"][0]["subject"], &second["items"][0]["subject"], &second["next_cursor"]),
        (&json!(tenant), &json!("tier:free"), &json!(null))
    );

    assert_eq!(desk.remove(&format!("{tenant}/submit-user")).await, StatusCode::NO_CONTENT);
    assert_eq!(desk.remove(&format!("{tenant}/submit-user")).await, StatusCode::NOT_FOUND);
    assert_eq!(desk.submit(&someone).await.status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(desk.remove("tier:free/submit-user").await, StatusCode::NO_CONTENT);
    let configured = desk.api.get("/me", &someone.key).await.json();
    assert_eq!(configured["limits"]["user"]["submit"]["capacity"], 5);
    let another = desk.api.someone("free").await;
    for _ in 0..2 {
        assert_eq!(desk.submit(&another).await.status, StatusCode::ACCEPTED);
    }
    let tier = "submit-user force tier:free";
    let tenant = format!("submit-user force {tenant}");
    let log = [
        format!("limit.put {tier}"),
        format!("limit.put {tenant}"),
        format!("limit.remove {tenant}"),
        format!("limit.remove {tier}"),
    ];
    assert_eq!(desk.log().await, log);
}

/// C31, our side: the header is the real wait rounded up, and one request after it passes.
#[tokio::test(flavor = "multi_thread")]
async fn c31_a_retry_after_the_time_that_was_told_succeeds() {
    let desk = Desk::new().await;
    let someone = desk.api.someone("free").await;
    let slow = json!({ "bucket": { "capacity": 2, "refill": 1, "per_ms": 1_300 } });
    desk.set("tier:free/submit-user", &slow).await;
    for _ in 0..2 {
        assert_eq!(desk.submit(&someone).await.status, StatusCode::ACCEPTED);
    }
    let refused = desk.submit(&someone).await;
    let wait_ms = refused.json()["retry_after_ms"].as_u64().unwrap();
    let header: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!(
        (1..=1_300).contains(&wait_ms) && header == wait_ms.div_ceil(1_000).max(1),
        "{wait_ms} ms, {header} s"
    );
    tokio::time::sleep(std::time::Duration::from_millis(wait_ms)).await;
    assert_eq!(desk.submit(&someone).await.status, StatusCode::ACCEPTED);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_has_a_limit_of_its_own_in_place_of_its_users() {
    let desk = Desk::new().await;
    let someone = desk.api.someone("free").await;
    let (id, _) = someone.key.strip_prefix("avk_").unwrap().split_once('_').unwrap();
    desk.set(&format!("key:{id}/submit-key"), &rate(2)).await;
    desk.set(&format!("tenant:{}/queued-user", someone.tenant), &json!({ "count": 100 })).await;
    for left in [1, 0] {
        let accepted = desk.submit(&someone).await;
        assert_eq!(accepted.status, StatusCode::ACCEPTED);
        let told = accepted.header("ratelimit").unwrap().to_owned();
        assert!(
            told.starts_with(&format!("\"submit-key\";r={left};")) && !told.contains("submit-user"),
            "{told}"
        );
    }
    let refused = desk.submit(&someone).await.json();
    assert_eq!((&refused["scope"], &refused["policy"]), (&json!("key"), &json!("submit-key")));
    assert_eq!(desk.api.get("/me", &someone.key).await.json()["limits"]["key_submit"]["capacity"], 2);
    let another = Someone { key: desk.api.key(someone.user, &[Scope::Read, Scope::Write]).await, ..someone };
    for _ in 0..5 {
        assert_eq!(
            desk.submit(&another).await.status,
            StatusCode::ACCEPTED,
            "the user's own five are all there"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shadow_refuses_nobody_and_stands_beside_what_is_in_force() {
    let desk = Desk::new().await;
    let someone = desk.api.someone("free").await;
    let mut shadow = rate(1);
    shadow["shadow"] = json!(true);
    desk.set("tier:free/submit-user", &shadow).await;
    desk.set("tier:free/reads", &shadow).await;
    let strict = json!({ "window": { "limit": 1, "window_ms": 60_000 }, "shadow": true });
    desk.set("tier:free/expensive-user", &strict).await;
    let dear = json!({ "model": "mock-pro", "prompt": "A paper boat", "duration_seconds": 1 });
    for left in [2, 1, 0] {
        let accepted = desk.api.post("/generations", &someone.key, &dear).await;
        assert_eq!(accepted.status, StatusCode::ACCEPTED);
        let (policy, told) =
            (accepted.header("ratelimit-policy").unwrap(), accepted.header("ratelimit").unwrap());
        let shown = "\"submit-user\";q=5;w=60, \"submit-tenant\";q=50;w=60, \"expensive-user\";q=3;w=600";
        assert!(
            policy.starts_with(shown) && policy[shown.len()..].starts_with(", \"daily-user\";"),
            "{policy}"
        );
        assert!(told.contains(&format!("\"expensive-user\";r={left};")), "{told}");
    }
    for _ in 0..5 {
        assert_eq!(desk.api.get("/me", &someone.key).await.status, StatusCode::OK);
    }
    assert_eq!(desk.remove("tier:free/submit-user").await, StatusCode::NOT_FOUND, "none is in force");
    assert_eq!(desk.remove("tier:free/submit-user?shadow=true").await, StatusCode::NO_CONTENT);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_with_a_limit_is_named() {
    let desk = Desk::new().await;
    for (path, body, field) in [
        ("tier:free/submit-user", json!({}), "bucket"),
        ("tier:free/submit-user", json!({ "count": 1 }), "bucket"),
        ("tier:free/submit-user", json!({ "bucket": null, "count": null }), "bucket"),
        ("tier:free/submit-user", json!({ "count": 1, "unlimited": true }), "bucket"),
        ("tier:free/expensive-user", rate(1), "window"),
        ("tier:free/running-user", json!({ "count": 0 }), "count"),
        ("tier:free/running-user", json!({ "unlimited": true }), "unlimited"),
        ("tier:free/running-user", json!({ "count": 1, "shadow": true }), "shadow"),
        ("tier:free/submit-key", rate(1), "limit"),
        ("tier:free/submit-user", rate(0), "bucket.capacity"),
        ("tier:free/submit-user", json!({ "bucket": { "capacity": 1, "refill": 1 } }), "per_ms"),
        ("tier:free/submit-user", json!({ "rate": 1 }), "rate"),
        ("tier:free/submit-user", json!({ "count": -1 }), "count"),
    ] {
        let answer = desk.put(path, &body).await;
        assert_eq!(answer.status, StatusCode::UNPROCESSABLE_ENTITY, "{path} {body}");
        let named = answer.json()["errors"][0]["field"].as_str().unwrap().to_owned();
        assert!(named == field || named.ends_with(&format!(".{field}")), "{path} {body}: {named}");
    }
    for path in [
        "tier:free/submit-model:nope",
        "tier:gold/reads",
        "tier:free/nothing",
        "user:x/reads",
        "key:abcdefghijkl/reads",
    ] {
        assert_eq!(desk.put(path, &rate(1)).await.status, StatusCode::NOT_FOUND, "{path}");
    }
    assert_eq!(desk.log().await, Vec::<String>::new());
    let someone = desk.api.someone("pro").await;
    for (method, path) in [(Method::GET, "/admin/limits"), (Method::DELETE, "/admin/limits/tier:free/reads")]
    {
        let answer = desk.api.send(request(method, path, Some(&someone.key), None)).await;
        assert_eq!(answer.status, StatusCode::FORBIDDEN, "{path}");
    }
}
