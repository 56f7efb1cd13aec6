//! Reading tasks: one, many, now or as soon as something changes.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use chrono::TimeDelta;
use domain::{
    TaskId,
    clock::{ManualClock, SharedClock},
    task::Seen,
};
use http::{Method, StatusCode};
use serde_json::json;

use crate::harness::{Api, Setup, request, video};

#[tokio::test(flavor = "multi_thread")]
async fn a_finished_task_tells_everything() {
    let api = Api::new().await;
    let someone = api.someone("pro").await;
    let task = api.task(&someone).await;
    api.succeed(task).await;
    let answer = api.get(&format!("/tasks/{task}"), &someone.key).await;
    assert_eq!(answer.header("cache-control"), Some("private, no-cache"));
    insta::assert_json_snapshot!(answer.json(), {
        ".task_id" => "[task]", ".output_asset_id" => "[asset]", ".output_url" => "[link]", ".deadline_at" => "[time]",
        ".created_at" => "[time]", ".updated_at" => "[time]", ".ended_at" => "[time]",
    });
    let list = api.get("/tasks", &someone.key).await.json();
    assert_eq!(list["items"][0], answer.json(), "an item of a list has the same members");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_has_not_changed_is_not_sent_again() {
    let api = Api::new().await;
    let someone = api.someone("pro").await;
    let path = format!("/tasks/{}", api.task(&someone).await);
    let first = api.get(&path, &someone.key).await;
    let etag = first.header("etag").unwrap().to_owned();
    assert!(etag.starts_with("W/\"1-x-"), "{etag}");
    let mut ask = request(Method::GET, &path, Some(&someone.key), None);
    ask.headers_mut().insert("if-none-match", etag.parse().unwrap());
    let second = api.send(ask).await;
    assert_eq!((second.status, second.bytes.len()), (StatusCode::NOT_MODIFIED, 0));
    assert_eq!(second.header("etag"), Some(etag.as_str()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kept_answer_is_for_those_who_may_see_it_and_its_link_is_always_new() {
    let clock = Arc::new(ManualClock::at("2026-01-01T10:59:59Z".parse().unwrap()));
    let shared_clock: SharedClock = clock.clone();
    let api = Api::with(Setup { clock: shared_clock, ..Setup::default() }).await;
    let (someone, other) = (api.someone("pro").await, api.someone("pro").await);
    let task = api.task(&someone).await;
    api.succeed(task).await;
    let path = format!("/tasks/{task}");
    let first = api.get(&path, &someone.key).await;
    let again = api.get(&path, &someone.key).await;
    assert_eq!((&first.bytes, first.header("etag")), (&again.bytes, again.header("etag")));
    assert_eq!(api.get(&path, &other.key).await.status, StatusCode::NOT_FOUND);
    // The clock strikes: the same version has another link, with another tag, at once.
    clock.advance(TimeDelta::seconds(2));
    let later = api.get(&path, &someone.key).await;
    assert_ne!(later.header("etag"), first.header("etag"));
    let (early, late) = (first.json(), later.json());
    assert_ne!(early["output_url"], late["output_url"]);
    assert_eq!(api.get(late["output_url"].as_str().unwrap(), "").await.status, StatusCode::OK);
    let mut same = late.clone();
    same["output_url"] = early["output_url"].clone();
    assert_eq!(same, early);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_poll_ends_with_the_change_it_waits_for() {
    let api = Api::new().await;
    let someone = api.someone("pro").await;
    let task = api.task(&someone).await;
    let wait = async |query: &str| {
        let begun = Instant::now();
        let answer = api.get(&format!("/tasks/{task}?{query}"), &someone.key).await;
        (answer.json(), begun.elapsed())
    };
    // Nothing happens: the present state, after the time.
    let (still, took) = wait("wait=1").await;
    assert_eq!((&still["version"], took >= Duration::from_secs(1)), (&json!(1), true));
    // It has a later version already.
    let (now, took) = wait("wait=20&after_version=0").await;
    assert_eq!((&now["version"], took < Duration::from_secs(1)), (&json!(1), true));
    // The next version comes while we wait; the end comes later.
    let change = async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        let attempt = api.claim(task).await;
        tokio::time::sleep(Duration::from_millis(200)).await;
        api.observe(task, attempt, Seen::Running).await;
        tokio::time::sleep(Duration::from_millis(200)).await;
        let path = format!("/tasks/{task}/cancel");
        let cancel = api.send(request(Method::POST, &path, Some(&someone.key), None)).await;
        assert_eq!(cancel.status, StatusCode::ACCEPTED);
        assert_eq!(cancel.json()["stage"], "canceling");
        let canceled = domain::task::Event::ProviderCanceled;
        api.advance(task_state::Move::by_owner(task, attempt, canceled)).await;
    };
    let (next, end, ()) = tokio::join!(wait("wait=20&after_version=1"), wait("wait=20"), change);
    assert_eq!((&next.0["version"], &next.0["status"]), (&json!(2), &json!("SCHEDULING")));
    assert!(next.1 < Duration::from_secs(5), "{:?}", next.1);
    assert_eq!((&end.0["status"], &end.0["credits"]["released"]), (&json!("CANCELED"), &json!(10)));
    assert!(end.1 < Duration::from_secs(5), "{:?}", end.1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_that_was_seen_is_never_taken_back() {
    let api = Api::new().await;
    let someone = api.someone("pro").await;
    let task = api.task(&someone).await;
    let read = async |query: &str| api.get(&format!("/tasks/{task}{query}"), &someone.key).await.json();
    assert_eq!(read("").await["version"], 1);
    api.claim(task).await;
    for _ in 0..20 {
        assert_eq!(read("?after_version=2").await["version"], 2);
    }
    assert_eq!(
        read("?after_version=99").await["version"],
        2,
        "a version that does not exist yet is no error"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn cancelling_is_idempotent_and_gives_everything_back() {
    let api = Api::new().await;
    let someone = api.someone("pro").await;
    let task = api.task(&someone).await;
    for _ in 0..2 {
        let path = format!("/tasks/{task}/cancel");
        let answer = api.send(request(Method::POST, &path, Some(&someone.key), None)).await;
        assert_eq!((answer.status, answer.json()["status"].clone()), (StatusCode::OK, json!("CANCELED")));
    }
    let path = format!("/tasks/{task}/cancel");
    let odd = api.post(&path, &someone.key, &json!({ "reason": "bored" })).await;
    assert_eq!(odd.status, StatusCode::UNPROCESSABLE_ENTITY, "a member that would be ignored");
    assert_eq!(api.post(&path, &someone.key, &json!({})).await.status, StatusCode::OK);
    let late = api.task(&someone).await;
    let attempt = api.claim(late).await;
    api.observe(late, attempt, Seen::Finished).await;
    let path = format!("/tasks/{late}/cancel");
    let answer = api.send(request(Method::POST, &path, Some(&someone.key), None)).await;
    assert_eq!((answer.status, answer.code().as_str()), (StatusCode::CONFLICT, "too_late"));
    let credits = api.get("/credits", &someone.key).await.json();
    assert_eq!((&credits["available"], &credits["held"]), (&json!(990), &json!(10)));
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_are_filtered_and_paged() {
    let api = Api::new().await;
    let someone = api.someone("pro").await;
    let mut tasks: Vec<TaskId> = Vec::new();
    for index in 0..5 {
        let mut body = video();
        body["tags"] = json!([format!("t{index}"), "all"]);
        let answer = api.post("/generations", &someone.key, &body).await.json();
        tasks.push(answer["task_id"].as_str().unwrap().parse().unwrap());
    }
    tasks.reverse();
    api.claim(tasks[0]).await;
    let ids = async |query: &str| {
        let page = api.get(&format!("/tasks?{query}"), &someone.key).await;
        assert_eq!(page.status, StatusCode::OK, "{query}: {}", page.json());
        let page = page.json();
        let items = page["items"].as_array().unwrap();
        let ids: Vec<TaskId> =
            items.iter().map(|item| item["task_id"].as_str().unwrap().parse().unwrap()).collect();
        (ids, page["next_cursor"].as_str().map(str::to_owned))
    };
    assert_eq!(ids("").await, (tasks.clone(), None), "newest first");
    let (first, cursor) = ids("limit=2").await;
    let (second, cursor) = ids(&format!("limit=2&cursor={}", cursor.unwrap())).await;
    let (third, cursor) = ids(&format!("limit=2&cursor={}", cursor.unwrap())).await;
    assert_eq!(([first, second, third].concat(), cursor), (tasks.clone(), None));
    assert_eq!(ids("status=SCHEDULING").await.0, [tasks[0]]);
    assert_eq!(ids("status=QUEUED,SCHEDULING&tag=t4").await.0, [tasks[0]]);
    assert_eq!(ids("tag=t1&model=mock-fast").await.0, [tasks[3]]);
    assert!(ids("model=mock-slow").await.0.is_empty());
    assert!(ids("created_before=2020-01-01T00:00:00Z").await.0.is_empty());
    assert_eq!(ids("created_after=2020-01-01T00:00:00Z&tag=all").await.0.len(), 5);
    for (query, status) in [
        ("cursor=x", 400),
        ("status=DONE", 400),
        ("created_after=yesterday", 400),
        ("ids=task_1", 400),
        ("limit=x", 400),
        ("limit=0", 422),
        ("limit=101", 422),
        ("tag=", 422),
        ("webhook=1", 422),
        ("limit=1&limit=1", 422),
    ] {
        let answer = api.get(&format!("/tasks?{query}"), &someone.key).await;
        assert_eq!(answer.status.as_u16(), status, "{query}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn reading_costs_no_credits() {
    let api = Api::new().await;
    let someone = api.someone("pro").await;
    let task = api.task(&someone).await;
    api.succeed(task).await;
    let before = api.get("/credits", &someone.key).await.json();
    let link = api.get(&format!("/tasks/{task}"), &someone.key).await.json()["output_url"].clone();
    for _ in 0..100 {
        assert_eq!(api.get(&format!("/tasks/{task}"), &someone.key).await.status, StatusCode::OK);
    }
    for _ in 0..3 {
        assert_eq!(api.get(&format!("/tasks/{task}/events"), &someone.key).await.status, StatusCode::OK);
        assert_eq!(api.get(link.as_str().unwrap(), "").await.status, StatusCode::OK);
    }
    assert_eq!(api.get("/credits", &someone.key).await.json(), before);
    assert_eq!(before["captured"], 10);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_reads_as_often_as_its_tier_allows() {
    let api = Api::new().await;
    let someone = api.someone("free").await;
    let path = format!("/tasks/{}", TaskId::generate());
    let first = api.get(&path, &someone.key).await;
    assert_eq!(first.header("ratelimit-policy"), Some("\"reads\";q=200;w=2"));
    assert!(first.header("ratelimit").unwrap().starts_with("\"reads\";r=199;t="));
    let mut refused = None;
    for _ in 0..2_000 {
        let answer = api.get(&path, &someone.key).await;
        if answer.status == StatusCode::TOO_MANY_REQUESTS {
            refused = Some(answer);
            break;
        }
    }
    let refused = refused.expect("the burst is over at some time");
    assert_eq!((refused.code().as_str(), refused.header("retry-after")), ("rate_limited", Some("1")));
    assert_eq!(refused.json()["scope"], "key");
}
