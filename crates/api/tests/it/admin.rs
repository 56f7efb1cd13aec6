//! Operators' routes.

use api::ApiConfig;
use domain::Scope;
use http::{Method, StatusCode};
use serde_json::{Value, json};
use tower::ServiceExt as _;

use crate::harness::{Api, Setup, read, request};

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_sets_up_a_customer() {
    let api = Api::new().await;
    let boss = api.someone("enterprise").await;
    let admin = api.key(boss.user, &[Scope::Admin]).await;
    let post = async |path: &str, body: Value| {
        let answer = api.post(path, &admin, &body).await;
        assert_eq!(answer.status, StatusCode::CREATED, "{path}: {}", answer.json());
        answer.json()
    };
    let tenant =
        post("/admin/tenants", json!({ "name": "Acme", "tier": "pro", "time_zone": "Asia/Tokyo" })).await;
    let user = post("/admin/users", json!({ "tenant_id": tenant["id"], "name": "Ada" })).await;
    let key = post("/admin/keys", json!({ "user_id": user["id"] })).await;
    let grant = post("/admin/grants", json!({ "user_id": user["id"], "credits": 25 })).await;
    for (name, made) in [("tenant", &tenant), ("user", &user), ("key", &key), ("grant", &grant)] {
        assert!(made["id"].is_string());
        insta::assert_json_snapshot!(name, made, {
            ".id" => "[id]", ".tenant_id" => "[id]", ".user_id" => "[id]", ".account_id" => "[id]",
            ".api_key" => "[key]", ".created_at" => "[time]",
        });
    }
    let customer = key["api_key"].as_str().unwrap();
    assert_eq!(api.get("/credits", customer).await.json()["available"], 25);
    let revoke = format!("/admin/keys/{}", key["id"].as_str().unwrap());
    let revoked = api.send(request(Method::DELETE, &revoke, Some(&admin), None)).await;
    assert_eq!(revoked.status, StatusCode::NO_CONTENT);
    testkit::wait_until("the end of the key", std::time::Duration::from_secs(5), async || {
        api.get("/me", customer).await.status == StatusCode::UNAUTHORIZED
    })
    .await;
    let tenants = api.get("/admin/tenants?limit=100", &admin).await.json();
    assert!(tenants["items"].as_array().unwrap().contains(&tenant));
    let users = api.get(&format!("/admin/users?tenant_id={}", tenant["id"].as_str().unwrap()), &admin).await;
    assert_eq!(users.json()["items"], json!([user]));
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_else_may() {
    let api = Api::new().await;
    let someone = api.someone("pro").await;
    let server =
        api.key(someone.user, &[Scope::Read, Scope::Write, Scope::TenantRead, Scope::TenantWrite]).await;
    for key in [&someone.key, &server] {
        let answer = api.post("/admin/grants", key, &json!({ "user_id": someone.user, "credits": 5 })).await;
        assert_eq!((answer.status, answer.code().as_str()), (StatusCode::FORBIDDEN, "forbidden"));
        assert_eq!(api.get("/admin/tenants", key).await.status, StatusCode::FORBIDDEN);
    }
    assert_eq!(api.get("/credits", &someone.key).await.json()["granted"], 1_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_grant_counts_once_and_a_repeated_key_stays_secret() {
    let api = Api::new().await;
    let boss = api.someone("enterprise").await;
    let admin = api.key(boss.user, &[Scope::Admin]).await;
    let send = async |path: &str, body: &Value| {
        let mut ask = request(Method::POST, path, Some(&admin), Some(body));
        ask.headers_mut().insert("idempotency-key", "once".parse().unwrap());
        api.send(ask).await
    };
    let grant = json!({ "user_id": boss.user, "credits": 5 });
    let first = send("/admin/grants", &grant).await;
    let second = send("/admin/grants", &grant).await;
    assert_eq!((first.status, first.bytes), (second.status, second.bytes.clone()));
    assert_eq!(second.header("idempotent-replayed"), Some("true"));
    let other = send("/admin/grants", &json!({ "user_id": boss.user, "credits": 6 })).await;
    assert_eq!(other.code(), "idempotency_mismatch");
    assert_eq!(api.get("/credits", &boss.key).await.json()["granted"], 1_005);

    let key = json!({ "user_id": boss.user });
    let first = send("/admin/keys", &key).await.json();
    let second = send("/admin/keys", &key).await.json();
    assert!(first["api_key"].is_string() && second["api_key"].is_null());
    assert_eq!(first["id"], second["id"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_acceptable_is_named() {
    let api = Api::new().await;
    let boss = api.someone("enterprise").await;
    let admin = api.key(boss.user, &[Scope::Admin]).await;
    let unknown = domain::UserId::generate().to_string();
    for (path, body, field) in [
        ("/admin/tenants", json!({}), "name"),
        ("/admin/tenants", json!({ "name": "A", "tier": "gold" }), "tier"),
        ("/admin/tenants", json!({ "name": "A", "time_zone": "Mars" }), "time_zone"),
        ("/admin/tenants", json!({ "name": "A", "colour": 1 }), "colour"),
        ("/admin/users", json!({ "tenant_id": "ten_1", "name": "A" }), "tenant_id"),
        ("/admin/users", json!({ "tenant_id": domain::TenantId::generate(), "name": "A" }), "tenant_id"),
        ("/admin/keys", json!({ "user_id": unknown }), "user_id"),
        ("/admin/keys", json!({ "user_id": boss.user, "scopes": [] }), "scopes"),
        ("/admin/grants", json!({ "user_id": unknown, "credits": 1 }), "user_id"),
        ("/admin/grants", json!({ "user_id": boss.user, "credits": 0 }), "credits"),
        ("/admin/grants", json!({ "user_id": boss.user, "credits": -1 }), "credits"),
        ("/admin/grants", json!({ "user_id": boss.user, "credits": 1.5 }), "credits"),
        ("/admin/grants", json!({ "user_id": boss.user, "credits": 9_007_199_254_740_992_i64 }), "credits"),
        ("/admin/grants", json!({ "user_id": boss.user, "credits": 9_007_199_254_740_991_i64 }), "credits"),
    ] {
        let answer = api.post(path, &admin, &body).await;
        assert_eq!(answer.status, StatusCode::UNPROCESSABLE_ENTITY, "{path} {body}");
        assert_eq!(answer.json()["errors"][0]["field"], field, "{path} {body}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn with_a_listener_of_its_own_admin_is_nowhere_else() {
    let config = ApiConfig { admin: false, ..ApiConfig::default() };
    let api = Api::with(Setup { config, ..Setup::default() }).await;
    let boss = api.someone("enterprise").await;
    let admin = api.key(boss.user, &[Scope::Admin]).await;
    assert_eq!(api.get("/admin/tenants", &admin).await.status, StatusCode::NOT_FOUND);
    let ask = async |path: &str| {
        read(api.admin.clone().oneshot(request(Method::GET, path, Some(&admin), None)).await.unwrap()).await
    };
    assert_eq!(ask("/admin/tenants").await.status, StatusCode::OK);
    assert_eq!(ask("/metrics").await.status, StatusCode::OK);
    assert_eq!(ask("/me").await.status, StatusCode::NOT_FOUND);
}
