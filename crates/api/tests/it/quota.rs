//! Daily quotas as clients and operators are told of them.

use domain::Scope;
use http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::harness::{Answer, Api, Setup, Someone, request, video};

/// A user of the tier free in Paris, where it is half past ten in the evening of a summer day, and an operator's key.
async fn evening() -> (Api, Someone, String) {
    let now = Some("2026-06-15T20:30:00Z".parse().unwrap());
    let api = Api::with(Setup { now, ..Setup::default() }).await;
    let boss = api.someone("enterprise").await;
    let admin = api.key(boss.user, &[Scope::Admin]).await;
    let someone = api.someone("free").await;
    for limit in ["submit-user", "submit-tenant"] {
        let answer = put(&api, &admin, limit, &json!({ "unlimited": true })).await;
        assert_eq!(answer.status, StatusCode::OK);
    }
    (api, someone, admin)
}

async fn put(api: &Api, admin: &str, limit: &str, body: &Value) -> Answer {
    api.send(request(Method::PUT, &format!("/admin/limits/tier:free/{limit}"), Some(admin), Some(body))).await
}

#[tokio::test(flavor = "multi_thread")]
async fn over_the_days_quota_the_answer_says_when_the_next_day_begins() {
    let (api, someone, admin) = evening().await;
    let set = put(&api, &admin, "daily-user", &json!({ "count": 2 })).await.json();
    assert_eq!((&set["count"], &set["unlimited"]), (&json!(2), &json!(false)));
    let mut first = None;
    for left in [1, 0] {
        let accepted = api.post("/generations", &someone.key, &video()).await;
        assert_eq!(accepted.status, StatusCode::ACCEPTED);
        assert_eq!(
            accepted.header("ratelimit-policy").unwrap(),
            "\"daily-user\";q=2;w=86400, \"daily-tenant\";q=100;w=86400"
        );
        let told = format!("\"daily-user\";r={left};t=5400, \"daily-tenant\";r={};t=5400", 98 + left);
        assert_eq!(accepted.header("ratelimit").unwrap(), told);
        first.get_or_insert(accepted.json()["task_id"].as_str().unwrap().to_owned());
    }
    let refused = api.post("/generations", &someone.key, &video()).await;
    assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(refused.header("retry-after"), Some("5400"));
    let told = "\"daily-user\";r=0;t=5400, \"daily-tenant\";r=98;t=5400";
    assert_eq!(refused.header("ratelimit"), Some(told));
    insta::assert_json_snapshot!(refused.json(), { ".request_id" => "[id]" });
    let foretold = api.post("/generations?dry_run=true", &someone.key, &video()).await.json();
    insta::assert_json_snapshot!(foretold, { ".problem.request_id" => "[id]" });
    insta::assert_json_snapshot!(api.get("/me", &someone.key).await.json()["quota"]);

    let cancel = format!("/tasks/{}/cancel", first.unwrap());
    assert_eq!(api.post(&cancel, &someone.key, &json!({})).await.status, StatusCode::OK);
    assert_eq!(api.post("/generations", &someone.key, &video()).await.status, StatusCode::ACCEPTED);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daily_quota_can_be_taken_away_and_never_be_nothing() {
    let (api, someone, admin) = evening().await;
    for body in [json!({ "count": 0 }), json!({ "count": 1, "shadow": true }), json!({})] {
        let answer = put(&api, &admin, "daily-user", &body).await;
        assert_eq!(answer.status, StatusCode::UNPROCESSABLE_ENTITY, "{body}");
    }
    for limit in ["daily-user", "daily-tenant"] {
        let answer = put(&api, &admin, limit, &json!({ "unlimited": true })).await;
        assert_eq!(answer.json()["unlimited"], json!(true));
    }
    let accepted = api.post("/generations", &someone.key, &video()).await;
    assert_eq!((accepted.status, accepted.header("ratelimit")), (StatusCode::ACCEPTED, None));
    let me = api.get("/me", &someone.key).await.json();
    assert_eq!(me["quota"], json!({ "user": null, "tenant": null }));
    assert_eq!(me["limits"]["user"]["daily"], json!(null));
}
