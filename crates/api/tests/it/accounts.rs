//! Who asks: keys, tokens, users for whom a server acts, and what they are told of themselves.

use api::ApiConfig;
use domain::{Scope, limits::Window};
use http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::harness::{Api, Setup, request};

#[tokio::test(flavor = "multi_thread")]
async fn a_key_is_told_who_it_is() {
    let api = Api::new().await;
    let someone = api.someone("pro").await;
    insta::assert_json_snapshot!(api.get("/me", &someone.key).await.json(), {
        ".user_id" => "[user]", ".tenant_id" => "[tenant]", ".credits.account_id" => "[account]",
    });
    insta::assert_json_snapshot!(api.get("/models", &someone.key).await.json());
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_are_counted_by_the_key_that_mints_them() {
    let minting = Some(Window { limit: 2, window_ms: 60_000 });
    let config = ApiConfig { minting, ..ApiConfig::default() };
    let api = Api::with(Setup { config, ..Setup::default() }).await;
    let someone = api.someone("pro").await;
    for _ in 0..2 {
        assert_eq!(api.post("/browser-tokens", &someone.key, &json!({})).await.status, StatusCode::CREATED);
    }
    let refused = api.post("/browser-tokens", &someone.key, &json!({})).await;
    assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS);
    let body = refused.json();
    assert_eq!(
        (&body["scope"], &body["policy"], &body["limit"]),
        (&json!("key"), &json!("minting"), &json!(2))
    );
    let wait_ms = body["retry_after_ms"].as_u64().unwrap();
    assert!((1..=60_000).contains(&wait_ms), "{wait_ms}");
    let other = api.key(someone.user, &[Scope::Read]).await;
    assert_eq!(api.post("/browser-tokens", &other, &json!({})).await.status, StatusCode::CREATED);
    assert_eq!(api.get("/me", &someone.key).await.status, StatusCode::OK);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenants_server_registers_users_and_acts_for_them() {
    let api = Api::new().await;
    let boss = api.someone("pro").await;
    let server = api.key(boss.user, &[Scope::Read, Scope::Write, Scope::TenantWrite]).await;
    let new = json!({ "name": "Linus", "external_id": "u-42" });
    assert_eq!(api.post("/users", &boss.key, &new).await.status, StatusCode::FORBIDDEN);
    let register = || {
        let mut ask = request(Method::POST, "/users", Some(&server), Some(&new));
        ask.headers_mut().insert("idempotency-key", "u".parse().unwrap());
        ask
    };
    let made = api.send(register()).await;
    assert_eq!(made.status, StatusCode::CREATED);
    let again = api.send(register()).await;
    assert_eq!(
        (again.bytes.clone(), again.header("idempotent-replayed")),
        (made.bytes.clone(), Some("true"))
    );
    let twice = api.post("/users", &server, &new).await;
    assert_eq!((twice.status.as_u16(), &twice.json()["errors"][0]["code"]), (422, &json!("taken")));
    let listed = api.get("/users", &server).await.json();
    assert!(listed["items"].as_array().unwrap().contains(&made.json()));

    let acting = async |key: &str, user: &str| {
        let mut ask = request(Method::GET, "/me", Some(key), None);
        ask.headers_mut().insert("aivideo-user", user.parse().unwrap());
        api.send(ask).await
    };
    let id = made.json()["id"].as_str().unwrap().to_owned();
    for name in ["u-42", &id] {
        let me = acting(&server, name).await.json();
        assert_eq!((&me["user_id"], &me["scopes"]), (&json!(id), &json!(["read", "write"])));
    }
    assert_eq!(acting(&server, "nobody").await.status, StatusCode::UNPROCESSABLE_ENTITY);
    let stranger = api.someone("pro").await;
    assert_eq!(acting(&server, &stranger.user.to_string()).await.status, StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(acting(&boss.key, "u-42").await.status, StatusCode::FORBIDDEN);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_browser_token_can_less_than_its_key() {
    let api = Api::new().await;
    let someone = api.someone("pro").await;
    let mint = async |body: Value| api.post("/browser-tokens", &someone.key, &body).await;
    let minted =
        mint(json!({ "ttl_seconds": 60, "scopes": ["read"], "origins": ["https://app.example"] })).await;
    assert_eq!(minted.status, StatusCode::CREATED);
    insta::assert_json_snapshot!(minted.json(), {
        ".token" => "[token]", ".expires_at" => "[time]", ".user_id" => "[user]",
    });
    let token = minted.json()["token"].as_str().unwrap().to_owned();
    let from = async |origin: Option<&str>| {
        let mut ask = request(Method::GET, "/me", Some(&token), None);
        if let Some(origin) = origin {
            ask.headers_mut().insert("origin", origin.parse().unwrap());
        }
        api.send(ask).await.status
    };
    assert_eq!(from(None).await, StatusCode::OK);
    assert_eq!(from(Some("https://app.example")).await, StatusCode::OK);
    assert_eq!(from(Some("https://evil.example")).await, StatusCode::FORBIDDEN);
    assert_eq!(api.post("/browser-tokens", &token, &json!({})).await.status, StatusCode::FORBIDDEN);
    assert_eq!(
        api.post("/generations", &token, &crate::harness::video()).await.status,
        StatusCode::FORBIDDEN
    );
    for (body, field) in [
        (json!({ "ttl_seconds": 901 }), "ttl_seconds"),
        (json!({ "ttl_seconds": 0 }), "ttl_seconds"),
        (json!({ "scopes": ["admin"] }), "scopes"),
        (json!({ "scopes": [] }), "scopes"),
        (json!({ "scopes": ["everything"] }), "scopes[0]"),
        (json!({ "origins": ["app.example"] }), "origins"),
        (json!({ "lifetime": 5 }), "lifetime"),
    ] {
        let answer = mint(body.clone()).await;
        assert_eq!(
            (answer.status.as_u16(), &answer.json()["errors"][0]["field"]),
            (422, &json!(field)),
            "{body}"
        );
    }
    assert_eq!(mint(json!({ "user_id": "somebody" })).await.status, StatusCode::FORBIDDEN);
    api.operator
        .revoke_key(operator::Actor::CommandLine, someone.key.split('_').nth(1).unwrap().parse().unwrap())
        .await
        .unwrap();
    testkit::wait_until("the end of the token", std::time::Duration::from_secs(5), async || {
        api.get("/me", &token).await.status == StatusCode::UNAUTHORIZED
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn being_wrong_too_often_is_limited_and_being_right_is_not() {
    let api = Api::new().await;
    let someone = api.someone("pro").await;
    let wrong = format!("avk_{}_{}", "x".repeat(12), "y".repeat(43));
    let first = api.get("/me", &wrong).await;
    assert_eq!((first.status, first.code().as_str()), (StatusCode::UNAUTHORIZED, "unauthenticated"));
    assert!(first.header("www-authenticate").unwrap().starts_with("Bearer"));
    let mut refused = None;
    for _ in 0..100 {
        let answer = api.get("/me", &wrong).await;
        if answer.status == StatusCode::TOO_MANY_REQUESTS {
            refused = Some(answer);
            break;
        }
    }
    let refused = refused.expect("60 wrong keys a minute are enough");
    assert_eq!((&refused.json()["scope"], &refused.json()["policy"]), (&json!("ip"), &json!("failed_auth")));
    assert_eq!(api.get("/me", &someone.key).await.status, StatusCode::OK);
    let missing = api.send(request(Method::GET, "/me", None, None)).await;
    assert_eq!(missing.status, StatusCode::UNAUTHORIZED, "no key is no wrong key");
}
