//! Pages, documents and what tells of the process.

use http::{Method, StatusCode};
use serde_json::Value;

use crate::harness::{Answer, Api, Setup, request};

async fn open(api: &Api, path: &str) -> Answer {
    api.send(request(Method::GET, path, None, None)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_console_is_served_with_its_policy() {
    let api = Api::new().await;
    let page = open(&api, "/").await;
    assert_eq!((page.status, page.header("cache-control")), (StatusCode::OK, Some("no-cache")));
    let html = String::from_utf8(page.bytes.clone()).unwrap();
    let Some(policy) = page.header("content-security-policy").filter(|_| html.contains("/console/")) else {
        assert!(html.contains("no console"), "a build without a console says so");
        return;
    };
    assert_eq!(
        policy,
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; media-src 'self'; connect-src \
         'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; \
         trusted-types 'none'"
    );
    let mut ask = request(Method::GET, "/", None, None);
    ask.headers_mut().insert("if-none-match", page.header("etag").unwrap().parse().unwrap());
    let unchanged = api.send(ask).await;
    assert_eq!(unchanged.status, StatusCode::NOT_MODIFIED);
    // A browser lays these headers over its copy of the page.
    assert_eq!(unchanged.header("content-security-policy"), Some(policy));
    for link in html.split('"').filter(|text| text.starts_with("/console/")) {
        let file = open(&api, link).await;
        assert_eq!(file.status, StatusCode::OK, "{link}");
        let kept = file.header("cache-control").unwrap();
        let hashed = link.contains("/index-") || link.contains("/style-");
        assert_eq!(kept.contains("immutable"), hashed, "{link}: {kept}");
        let mut ask = request(Method::GET, link, None, None);
        ask.headers_mut().insert("accept-encoding", "gzip".parse().unwrap());
        let zipped = api.send(ask).await;
        assert_eq!(zipped.header("content-type"), file.header("content-type"));
        if zipped.header("content-encoding") == Some("gzip") {
            assert!(zipped.bytes.len() < file.bytes.len() && zipped.bytes.starts_with(&[31, 139]), "{link}");
        }
    }
    for missing in ["/console/nothing.js", "/console/../Cargo.toml", "/console/%2e%2e/build.rs"] {
        assert_eq!(open(&api, missing).await.status, StatusCode::NOT_FOUND, "{missing}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn documents_need_no_script_and_no_other_host() {
    let api = Api::new().await;
    let document: Value = open(&api, "/openapi.json").await.json();
    assert_eq!(document["openapi"].as_str().unwrap(), "3.1.0");
    for path in ["/docs", "/problems/not_found"] {
        let page = open(&api, path).await;
        assert_eq!(
            (page.status, page.header("content-type")),
            (StatusCode::OK, Some("text/html; charset=utf-8"))
        );
        let html = String::from_utf8(page.bytes).unwrap();
        assert!(!html.contains("<script") && !html.contains("src=\"http"), "{path}");
    }
    assert_eq!(open(&api, "/docs/style.css").await.status, StatusCode::OK);
    assert_eq!(open(&api, "/problems/no_such_code").await.status, StatusCode::NOT_FOUND);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_tells_how_it_is() {
    let api = Api::new().await;
    assert_eq!(open(&api, "/healthz").await.json()["alive"], true);
    assert_eq!(open(&api, "/readyz").await.json()["ready"], true);
    assert_eq!(open(&api, "/readyz?role=api").await.status, StatusCode::OK);
    assert_eq!(open(&api, "/readyz?role=cook").await.status, StatusCode::UNPROCESSABLE_ENTITY);
    let metrics = open(&api, "/metrics").await;
    assert_eq!(metrics.bytes, b"up 1\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn only_a_demo_gives_its_token_and_only_to_its_own_machine() {
    let ask = |host: &str| {
        let mut ask = request(Method::POST, "/demo-token", None, None);
        ask.headers_mut().insert("host", host.parse().unwrap());
        ask
    };
    let plain = Api::new().await;
    assert_eq!(plain.send(ask("127.0.0.1:8080")).await.status, StatusCode::NOT_FOUND);
    let demo = Api::with(Setup { demo_key: true, ..Setup::default() }).await;
    assert_eq!(demo.send(ask("evil.example")).await.status, StatusCode::NOT_FOUND);
    let minted = demo.send(ask("127.0.0.1:8080")).await;
    assert_eq!(minted.status, StatusCode::CREATED);
    let token = minted.json()["token"].as_str().unwrap().to_owned();
    let me = demo.get("/me", &token).await.json();
    assert_eq!(me["scopes"], serde_json::json!(["read", "write"]));
}
