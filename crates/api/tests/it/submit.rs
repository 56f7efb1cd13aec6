//! `POST /generations`: accepted, refused, repeated, quoted.

use axum::body::Body;
use http::{Method, Request, StatusCode};
use serde_json::{Value, json};

use crate::harness::{Api, Setup, request, video};

fn keyed(key: &str, idempotency_key: &str, body: &Value) -> Request<Body> {
    let mut ask = request(Method::POST, "/generations", Some(key), Some(body));
    ask.headers_mut().insert("idempotency-key", idempotency_key.parse().unwrap());
    ask
}

async fn held(api: &Api, key: &str) -> i64 {
    api.get("/credits", key).await.json()["held"].as_i64().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn accepted_means_held_and_findable() {
    let api = Api::new().await;
    let someone = api.someone("pro").await;
    let answer = api.post("/generations", &someone.key, &video()).await;
    assert_eq!(answer.status, StatusCode::ACCEPTED);
    let body = answer.json();
    insta::assert_json_snapshot!(body, {
        ".task_id" => "[task]", ".created_at" => "[time]", ".deadline_at" => "[time]",
    });
    let path = format!("/tasks/{}", body["task_id"].as_str().unwrap());
    assert_eq!(answer.header("location"), Some(path.as_str()));
    assert_eq!(answer.header("retry-after"), Some("1"));
    assert_eq!(
        answer.header("ratelimit-policy"),
        Some("\"submit-user\";q=60;w=6, \"submit-tenant\";q=600;w=6")
    );
    assert!(answer.header("ratelimit").unwrap().starts_with("\"submit-user\";r=59;t="));
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    assert_eq!(api.get(&path, &someone.key).await.json()["credits"]["held"], 10);
    assert_eq!(held(&api, &someone.key).await, 10);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_key_is_the_same_task_in_any_spelling() {
    let api = Api::new().await;
    let someone = api.someone("pro").await;
    let first = api.send(keyed(&someone.key, "k-1", &video())).await;
    assert_eq!(first.status, StatusCode::ACCEPTED);
    assert_eq!(first.header("idempotent-replayed"), None);
    let reordered: Value = serde_json::from_str(
        r#"{"duration_seconds":5,"resolution":"720p","prompt":"A paper boat","model":"mock-fast"}"#,
    )
    .unwrap();
    for (spelling, body) in [("k-1", &video()), ("\"k-1\"", &reordered)] {
        let again = api.send(keyed(&someone.key, spelling, body)).await;
        assert_eq!((again.status, again.bytes.clone()), (first.status, first.bytes.clone()));
        assert_eq!(again.header("idempotent-replayed"), Some("true"));
        assert_eq!(again.header("location"), first.header("location"));
    }
    let mut other = video();
    other["duration_seconds"] = json!(6);
    let mismatch = api.send(keyed(&someone.key, "k-1", &other)).await;
    assert_eq!(
        (mismatch.status, mismatch.code().as_str()),
        (StatusCode::UNPROCESSABLE_ENTITY, "idempotency_mismatch")
    );
    assert_eq!(held(&api, &someone.key).await, 10, "one task, one hold");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_credits_the_figures_are_told_and_nothing_is_left() {
    let api = Api::new().await;
    let someone = api.someone("pro").await;
    let poor = api.colleague(&someone).await;
    api.grant(poor.user, 9).await;
    let answer = api.send(keyed(&poor.key, "k", &video())).await;
    assert_eq!(answer.status, StatusCode::PAYMENT_REQUIRED);
    insta::assert_json_snapshot!(answer.json(), { ".request_id" => "[id]" });
    api.grant(poor.user, 1).await;
    assert_eq!(
        api.send(keyed(&poor.key, "k", &video())).await.status,
        StatusCode::ACCEPTED,
        "the key was not used up"
    );
}

/// C31, our side.
#[tokio::test(flavor = "multi_thread")]
async fn a_limit_says_truly_when_to_come_back() {
    let api = Api::new().await;
    let someone = api.someone("free").await;
    for _ in 0..5 {
        assert_eq!(api.post("/generations", &someone.key, &video()).await.status, StatusCode::ACCEPTED);
    }
    let refused = api.post("/generations", &someone.key, &video()).await;
    assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS);
    let body = refused.json();
    insta::assert_json_snapshot!(body, {
        ".request_id" => "[id]", ".reset" => "[time]", ".retry_after_ms" => "[ms]",
    });
    let wait_ms = body["retry_after_ms"].as_u64().unwrap();
    assert!((1..=12_000).contains(&wait_ms), "5 a minute is one in 12 s, not {wait_ms} ms");
    let header: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert_eq!(header, wait_ms.div_ceil(1_000));
    assert!(refused.header("ratelimit").unwrap().contains("\"submit-user\";r=0"));
    assert!(refused.header("ratelimit-policy").unwrap().contains("\"submit-user\";q=5;w=60"));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expensive_model_is_counted_one_by_one() {
    let api = Api::new().await;
    let someone = api.someone("free").await;
    let dear = json!({ "model": "mock-pro", "prompt": "A paper boat", "duration_seconds": 1 });
    for left in [2, 1, 0] {
        let answer = api.post("/generations", &someone.key, &dear).await;
        assert_eq!(answer.status, StatusCode::ACCEPTED);
        assert!(answer.header("ratelimit-policy").unwrap().contains(", \"expensive-user\";q=3;w=600"));
        let line = format!(", \"expensive-user\";r={left};t=600");
        assert!(answer.header("ratelimit").unwrap().contains(&line), "{:?}", answer.header("ratelimit"));
    }
    let foretold = api.post("/generations?dry_run=true", &someone.key, &dear).await.json();
    let refused = api.post("/generations", &someone.key, &dear).await;
    assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS);
    for problem in [&foretold["problem"], &refused.json()] {
        assert_eq!(
            (&problem["code"], &problem["scope"], &problem["policy"], &problem["limit"]),
            (&json!("rate_limited"), &json!("user"), &json!("expensive-user"), &json!(3))
        );
        let wait_ms = problem["retry_after_ms"].as_u64().unwrap();
        assert!(
            (500_000..=600_000).contains(&wait_ms),
            "the oldest of three leaves in ten minutes, not {wait_ms}"
        );
    }
    assert_eq!(foretold["binding_limit"]["policy"], "expensive-user");
    let wait_s: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert_eq!(wait_s, refused.json()["retry_after_ms"].as_u64().unwrap().div_ceil(1_000));
    assert_eq!(api.post("/generations", &someone.key, &video()).await.status, StatusCode::ACCEPTED);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_only_redis_can_count_is_refused_while_it_is_away() {
    let api = Api::with(Setup { redis: false, ..Setup::default() }).await;
    let (free, pro) = (api.someone("free").await, api.someone("pro").await);
    let dear = json!({ "model": "mock-pro", "prompt": "A paper boat", "duration_seconds": 1 });
    let refused = api.post("/generations", &free.key, &dear).await;
    assert_eq!(
        (refused.status, refused.code().as_str(), refused.header("retry-after")),
        (StatusCode::SERVICE_UNAVAILABLE, "unavailable", Some("1"))
    );
    let foretold = api.post("/generations?dry_run=true", &free.key, &dear).await.json();
    assert_eq!(
        (&foretold["decision"], &foretold["problem"]["code"]),
        (&json!("refused"), &json!("unavailable"))
    );
    assert_eq!(api.post("/generations", &free.key, &video()).await.status, StatusCode::ACCEPTED);
    assert_eq!(api.post("/generations", &pro.key, &dear).await.status, StatusCode::ACCEPTED);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_may_ask_not_to_wait() {
    let api = Api::new().await;
    let someone = api.someone("free").await;
    let mut at_once = video();
    at_once["on_limit"] = json!("reject");
    assert_eq!(api.post("/generations", &someone.key, &at_once).await.status, StatusCode::ACCEPTED);
    let foretold = api.post("/generations?dry_run=true", &someone.key, &at_once).await.json();
    let refused = api.post("/generations", &someone.key, &at_once).await;
    assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS);
    for problem in [&foretold["problem"], &refused.json()] {
        assert_eq!(
            (&problem["code"], &problem["scope"], &problem["policy"], &problem["limit"]),
            (&json!("concurrency"), &json!("user"), &json!("running-user"), &json!(1))
        );
    }
    assert_eq!(foretold["binding_limit"]["policy"], "running-user");
    assert!(refused.header("retry-after").is_some());
    at_once["on_limit"] = json!("queue");
    assert_eq!(api.post("/generations", &someone.key, &at_once).await.status, StatusCode::ACCEPTED);
    at_once["on_limit"] = json!("wait");
    let unknown = api.post("/generations", &someone.key, &at_once).await;
    assert_eq!((unknown.status.as_u16(), &unknown.json()["errors"][0]["field"]), (422, &json!("on_limit")));
}

#[tokio::test(flavor = "multi_thread")]
async fn refusals_come_in_the_published_order() {
    let api = Api::new().await;
    let someone = api.someone("pro").await;
    let build = |key: Option<&str>, headers: &[(&str, &str)], body: Vec<u8>| {
        let mut ask = request(Method::POST, "/generations?colour=red", key, None);
        for (name, value) in headers {
            ask.headers_mut().insert(http::HeaderName::try_from(*name).unwrap(), value.parse().unwrap());
        }
        *ask.body_mut() = Body::from(body);
        ask
    };
    let huge = [("content-length", "300000"), ("content-type", "application/json")];
    let zipped = [("content-encoding", "gzip"), ("content-type", "application/json")];
    // The declared size is looked at before anything else, the credential before the body.
    let unread = api.send(build(None, &huge, vec![])).await;
    assert_eq!((unread.status, unread.header("connection")), (StatusCode::PAYLOAD_TOO_LARGE, Some("close")));
    let small = api.send(build(None, &zipped, vec![31, 139])).await;
    assert_eq!((small.status, small.header("connection")), (StatusCode::UNAUTHORIZED, None));
    assert_eq!(
        api.send(build(Some(&someone.key), &zipped, vec![])).await.status,
        StatusCode::UNPROCESSABLE_ENTITY
    );
    let ask = |headers: &[(&str, &str)], body: Vec<u8>| {
        let mut ask = build(Some(&someone.key), headers, body);
        *ask.uri_mut() = "/generations".parse().unwrap();
        ask
    };
    for encoding in ["gzip", "br", "zstd", "gzip, gzip"] {
        let headers = [("content-encoding", encoding), ("content-type", "application/json")];
        assert_eq!(api.send(ask(&headers, vec![31, 139])).await.status, StatusCode::UNSUPPORTED_MEDIA_TYPE);
    }
    assert_eq!(api.send(ask(&[], b"{}".to_vec())).await.status, StatusCode::UNSUPPORTED_MEDIA_TYPE);
    // What was read to its end leaves the connection as it is.
    let long = format!("{{{}}}", " ".repeat(20_000));
    let length = long.len().to_string();
    let headers = [("content-length", length.as_str()), ("content-type", "application/json")];
    let read = api.send(ask(&headers, long.into_bytes())).await;
    assert_eq!((read.status, read.header("connection")), (StatusCode::UNPROCESSABLE_ENTITY, None));
    // Nothing was declared, so the limit has to hold while the body arrives.
    let mut undeclared = ask(&huge[1..], vec![]);
    let chunks =
        futures::stream::repeat_with(|| Ok::<_, std::io::Error>(bytes::Bytes::from(vec![b' '; 65_536])));
    *undeclared.body_mut() = Body::from_stream(chunks);
    assert_eq!(api.send(undeclared).await.status, StatusCode::PAYLOAD_TOO_LARGE);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_is_named_and_costs_nothing() {
    let api = Api::new().await;
    let someone = api.someone("pro").await;
    let send = async |body: &str| {
        let mut ask = request(Method::POST, "/generations", Some(&someone.key), Some(&json!({})));
        *ask.body_mut() = Body::from(body.to_owned());
        api.send(ask).await
    };
    let all =
        send(r#"{"model":"nope","duration_seconds":0.5,"duration_seconds":5,"webhook_url":"x","seed":-1}"#)
            .await;
    assert_eq!(all.status, StatusCode::UNPROCESSABLE_ENTITY);
    insta::assert_json_snapshot!(all.json(), { ".request_id" => "[id]" });
    for body in ["", "{", "NaN", "\u{FEFF}{}", r#"{"model":"mock-fast"} x"#] {
        let answer = send(body).await;
        assert_eq!(
            (answer.status, answer.code().as_str()),
            (StatusCode::BAD_REQUEST, "malformed_request"),
            "{body}"
        );
    }
    for query in ["dry_run=maybe", "dry_run="] {
        let answer = api.post(&format!("/generations?{query}"), &someone.key, &video()).await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{query}");
    }
    for query in ["dry_run=true&dry_run=true", "dryrun=true"] {
        let answer = api.post(&format!("/generations?{query}"), &someone.key, &video()).await;
        assert_eq!(answer.status, StatusCode::UNPROCESSABLE_ENTITY, "{query}");
    }
    let mut ask = keyed(&someone.key, "a", &video());
    ask.headers_mut().append("idempotency-key", "b".parse().unwrap());
    assert_eq!(api.send(ask).await.status, StatusCode::BAD_REQUEST);
    assert_eq!(held(&api, &someone.key).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_decides_like_the_real_one_and_does_nothing() {
    let api = Api::new().await;
    let someone = api.someone("free").await;
    let quote = async |body: &Value| {
        let mut ask = request(Method::POST, "/generations?dry_run=true", Some(&someone.key), Some(body));
        ask.headers_mut().insert("idempotency-key", "q".parse().unwrap());
        api.send(ask).await
    };
    for _ in 0..10 {
        let answer = quote(&video()).await;
        assert_eq!(answer.status, StatusCode::OK);
        assert_eq!(answer.json()["credits"], 10);
        assert_ne!(answer.json()["decision"], "refused", "asking charges no submit");
        assert!(answer.header("ratelimit").unwrap().starts_with("\"reads\""), "it charges the read bucket");
    }
    assert_eq!(held(&api, &someone.key).await, 0);
    assert_eq!(
        api.send(keyed(&someone.key, "q", &video())).await.status,
        StatusCode::ACCEPTED,
        "the key is free"
    );

    let mut dear = video();
    dear["model"] = json!("mock-pro");
    dear["duration_seconds"] = json!(10);
    api.grant(someone.user, 1).await;
    let poor = api.colleague(&someone).await;
    let mut ask = request(Method::POST, "/generations?dry_run=true", Some(&poor.key), Some(&dear));
    ask.headers_mut().insert("x-request-id", "mine".parse().unwrap());
    let refused = api.send(ask).await;
    assert_eq!(refused.status, StatusCode::OK, "a refusal is an answer here");
    insta::assert_json_snapshot!(refused.json());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_project_takes_its_editors_and_nobody_elses_tasks() {
    let api = Api::new().await;
    let owner = api.someone("pro").await;
    let viewer = api.colleague(&owner).await;
    api.grant(viewer.user, 100).await;
    let project = api.post("/projects", &owner.key, &json!({ "name": "Film" })).await.json()["id"].clone();
    let path = format!("/projects/{}/members/{}", project.as_str().unwrap(), viewer.user);
    let put = request(Method::PUT, &path, Some(&owner.key), Some(&json!({ "role": "viewer" })));
    assert_eq!(api.send(put).await.status, StatusCode::OK);
    let mut body = video();
    body["project_id"] = project;
    assert_eq!(api.post("/generations", &owner.key, &body).await.status, StatusCode::ACCEPTED);
    assert_eq!(api.post("/generations", &viewer.key, &body).await.status, StatusCode::FORBIDDEN);
    let stranger = api.someone("pro").await;
    let foreign = api.post("/generations", &stranger.key, &body).await;
    body["project_id"] = json!(domain::ProjectId::generate().to_string());
    let unknown = api.post("/generations", &stranger.key, &body).await;
    assert_eq!(foreign.status, StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(foreign.without_request_id(), unknown.without_request_id());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_may_only_read_submits_nothing() {
    let api = Api::with(Setup::default()).await;
    let someone = api.someone("pro").await;
    let reader = api.key(someone.user, &[domain::Scope::Read]).await;
    assert_eq!(api.post("/generations", &reader, &video()).await.status, StatusCode::FORBIDDEN);
    assert_eq!(held(&api, &someone.key).await, 0);
}
