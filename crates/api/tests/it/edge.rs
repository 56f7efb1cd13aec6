//! What happens to every request.

use api::ApiConfig;
use domain::limits::Bucket;
use http::{Method, StatusCode};

use crate::harness::{Api, Setup, request};

#[tokio::test(flavor = "multi_thread")]
async fn every_answer_names_its_request() {
    let api = Api::new().await;
    let mut ask = request(Method::GET, "/nowhere", None, None);
    ask.headers_mut().insert("x-request-id", "mine-1".parse().unwrap());
    let answer = api.send(ask).await;
    assert_eq!((answer.status, answer.header("x-request-id")), (StatusCode::NOT_FOUND, Some("mine-1")));
    assert_eq!(answer.header("content-type"), Some("application/problem+json"));
    insta::assert_json_snapshot!(answer.json());
    let made = api.send(request(Method::GET, "/healthz", None, None)).await;
    assert!(made.header("x-request-id").unwrap().starts_with("req_"));
    assert_eq!(made.header("x-content-type-options"), Some("nosniff"));
    assert_eq!(made.header("content-security-policy"), Some("default-src 'none'; frame-ancestors 'none'"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_method_is_told_the_right_ones() {
    let api = Api::new().await;
    let answer = api.send(request(Method::DELETE, "/projects", None, None)).await;
    assert_eq!(
        (answer.status, answer.code().as_str()),
        (StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed")
    );
    let allowed = answer.header("allow").expect("RFC 9110 wants it");
    assert!(allowed.contains("GET") && allowed.contains("POST"), "{allowed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_that_writes_too_often_is_refused_before_its_key_is_looked_at() {
    let config = ApiConfig { ip: Some(Bucket::per_minute(60, 3)), ..ApiConfig::default() };
    let api = Api::with(Setup { config, ..Setup::default() }).await;
    for _ in 0..3 {
        let answer = api.send(request(Method::POST, "/generations", None, None)).await;
        assert_eq!(answer.status, StatusCode::UNAUTHORIZED);
    }
    let refused = api.send(request(Method::POST, "/generations", None, None)).await;
    assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(refused.header("retry-after"), Some("1"));
    assert_eq!(refused.header("ratelimit-policy"), Some("\"ip\";q=3;w=3"));
    insta::assert_json_snapshot!(refused.json(), { ".request_id" => "[id]", ".reset" => "[time]" });
    let reading = api.send(request(Method::GET, "/me", None, None)).await;
    assert_eq!(reading.status, StatusCode::UNAUTHORIZED, "reads are counted by key");
}

/// One client that writes what it likes into every header about addresses has one bucket; honest ones have their own.
#[tokio::test(flavor = "multi_thread")]
async fn c33_a_forged_address_is_no_fresh_bucket() {
    let config = ApiConfig {
        ip: Some(Bucket { capacity: 5, refill: 1, per_ms: 3_600_000 }),
        trusted_hops: 1,
        trusted_proxies: vec!["10.0.0.0/8".parse().unwrap()],
        ..ApiConfig::default()
    };
    let api = Api::with(Setup { config, ..Setup::default() }).await;
    // How many of these requests the limit lets through, to be refused for having no credential.
    let passed = async |peer: &str, count: u32, forwarded: &dyn Fn(u32) -> String| {
        let mut passed = 0;
        for n in 0..count {
            let forged = std::net::Ipv4Addr::from(0x0900_0000 + n).to_string();
            let mut ask = request(Method::POST, "/generations", None, None);
            for (name, value) in [
                ("x-forwarded-for", forwarded(n)),
                ("x-real-ip", forged.clone()),
                ("forwarded", format!("for={forged}")),
            ] {
                ask.headers_mut().insert(name, value.parse().unwrap());
            }
            let answer = api.send_from(peer, ask).await;
            match answer.status {
                StatusCode::UNAUTHORIZED => passed += 1,
                StatusCode::TOO_MANY_REQUESTS => {}
                other => panic!("{other}"),
            }
        }
        passed
    };
    let forged = |n: u32| std::net::Ipv4Addr::from(0x0B00_0000 + n).to_string();
    // The proxy appends the address that it saw.
    assert_eq!(passed("10.0.0.1", 10_000, &|n| format!("{}, 203.0.113.9", forged(n))).await, 5);
    assert_eq!(passed("10.0.0.1", 1_000, &|n| format!("{}, 2001:db8:1:2::{n:x}", forged(n))).await, 5);
    assert_eq!(passed("198.51.100.7", 1_000, &forged).await, 5, "not by way of the proxy");
    for honest in ["203.0.113.20", "203.0.113.21"] {
        assert_eq!(passed("10.0.0.1", 20, &|_| honest.to_owned()).await, 5, "{honest}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn too_much_at_once_is_told_so_at_once_and_health_still_answers() {
    let config = ApiConfig { in_flight_max: 1, ..ApiConfig::default() };
    let api = Api::with(Setup { config, ..Setup::default() }).await;
    let someone = api.someone("pro").await;
    // A body that never comes holds the only place; that it is asked for says that the request is inside.
    let (inside, entered) = tokio::sync::oneshot::channel();
    let mut inside = Some(inside);
    let body = futures::stream::poll_fn(move |_| {
        if let Some(inside) = inside.take() {
            let _ = inside.send(());
        }
        std::task::Poll::<Option<Result<bytes::Bytes, std::io::Error>>>::Pending
    });
    let mut stuck = request(Method::POST, "/generations", Some(&someone.key), Some(&serde_json::json!({})));
    *stuck.body_mut() = axum::body::Body::from_stream(body);
    let router = api.router.clone();
    let held = tokio::spawn(tower::ServiceExt::oneshot(router, stuck));
    entered.await.unwrap();
    let refused = api.get("/me", &someone.key).await;
    assert_eq!((refused.status, refused.header("retry-after")), (StatusCode::SERVICE_UNAVAILABLE, Some("1")));
    let health = api.send(request(Method::GET, "/healthz", None, None)).await;
    assert_eq!(health.status, StatusCode::OK);
    held.abort();
    testkit::wait_until("the place to be free again", std::time::Duration::from_secs(5), async || {
        api.get("/me", &someone.key).await.status == StatusCode::OK
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_of_listed_origins_may_call_and_read_the_headers() {
    let config = ApiConfig { cors_origins: vec!["https://app.example".to_owned()], ..ApiConfig::default() };
    let api = Api::with(Setup { config, ..Setup::default() }).await;
    let preflight = async |origin: &str| {
        let mut ask = request(Method::OPTIONS, "/generations", None, None);
        for (name, value) in [
            ("origin", origin),
            ("access-control-request-method", "POST"),
            ("access-control-request-headers", "authorization,idempotency-key"),
        ] {
            ask.headers_mut().insert(name, value.parse().unwrap());
        }
        api.send(ask).await
    };
    let allowed = preflight("https://app.example").await;
    assert_eq!(allowed.header("access-control-allow-origin"), Some("https://app.example"));
    assert!(allowed.header("access-control-allow-headers").unwrap().contains("idempotency-key"));
    assert_eq!(preflight("https://evil.example").await.header("access-control-allow-origin"), None);
    let mut ask = request(Method::GET, "/me", None, None);
    ask.headers_mut().insert("origin", "https://app.example".parse().unwrap());
    let exposed = api.send(ask).await.header("access-control-expose-headers").unwrap().to_lowercase();
    for name in [
        "location",
        "etag",
        "retry-after",
        "ratelimit",
        "ratelimit-policy",
        "idempotent-replayed",
        "aivideo-degraded",
        "x-request-id",
    ] {
        assert!(exposed.split(',').any(|exposed| exposed.trim() == name), "{name} in {exposed}");
    }
}
