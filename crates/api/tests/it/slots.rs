//! Who has places at providers, as operators see it.

use control::{DispatchRates, Rebuild, SlotClaim, SlotLimits, SlotOutcome, SlotRef, SlotTag};
use domain::{AttemptRef, Scope, TaskId, task::Seen};
use http::StatusCode;
use serde_json::{Value, json};

use crate::harness::{Api, Setup, Someone};

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

    async fn look(&self, query: &str) -> Value {
        let answer = self.api.get(&format!("/admin/slots{query}"), &self.admin).await;
        assert_eq!(answer.status, StatusCode::OK, "{query}: {}", answer.json());
        answer.json()
    }

    async fn make_ready(&self, tag: SlotTag, live: &[SlotRef]) {
        let ticket = self.api.control.begin_rebuild(&tag).await.unwrap().unwrap();
        assert_eq!(self.api.control.finish_rebuild(ticket, live).await, Ok(Rebuild::Done));
    }

    /// Takes the places of a task's first attempt, as a scheduler would before it claims.
    async fn take(&self, of: &Someone, task: TaskId) {
        let claim = SlotClaim {
            attempt: AttemptRef { task, attempt_no: 1 },
            account: "mock".parse().unwrap(),
            model: "mock-fast".parse().unwrap(),
            tenant: of.tenant,
            user: of.user,
            limits: SlotLimits { account: 200, model: 200, tenant: 100, user: 10 },
            rates: DispatchRates::default(),
        };
        let outcome = self.api.control.acquire_slots(&[claim], control::Trips::Two).await.remove(0);
        assert_eq!(outcome, Ok(SlotOutcome::Acquired));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_holds_what_is_seen_from_both_sides() {
    let desk = Desk::new().await;
    let someone = desk.api.someone("pro").await;
    let empty = desk.look("").await;
    assert_eq!((&empty["items"], &empty["sets"][0]["ready"]), (&json!([]), &json!(false)));
    desk.make_ready(SlotTag::Account("mock".parse().unwrap()), &[]).await;
    desk.make_ready(SlotTag::Tenant(someone.tenant), &[]).await;

    // One as it should be, one live without a place, one place whose attempt is over, one that was never claimed.
    let [good, bare, over] = [(); 3].map(|()| desk.api.task(&someone));
    let (good, bare, over) = (good.await, bare.await, over.await);
    let ghost = TaskId::generate();
    for task in [good, over, ghost] {
        desk.take(&someone, task).await;
    }
    for task in [good, bare] {
        desk.api.claim(task).await;
    }
    let attempt = desk.api.claim(over).await;
    desk.api.observe(over, attempt, Seen::Finished).await;

    let seen = desk.look("").await;
    let sets: Vec<_> = seen["sets"].as_array().unwrap().iter().collect();
    assert_eq!(
        sets[0],
        &json!({ "account": "mock", "model": null, "tenant_id": null, "user_id": null, "used": 3, "limit": 200, "ready": true })
    );
    let of_models: Vec<_> =
        sets[1..].iter().map(|set| (&set["model"], &set["used"], &set["limit"])).collect();
    let expected = [("mock-fast", 3, 200), ("mock-pro", 0, 10), ("mock-slow", 0, 200)]
        .map(|(model, used, limit)| (json!(model), json!(used), json!(limit)));
    assert_eq!(of_models, expected.iter().map(|(m, u, l)| (m, u, l)).collect::<Vec<_>>());

    let items = seen["items"].as_array().unwrap();
    let tasks: Vec<_> = items.iter().map(|item| item["task_id"].as_str().unwrap().to_owned()).collect();
    assert_eq!(tasks, [good, bare, over, ghost].map(|task| task.to_string()), "oldest first");
    let stands = |place: usize| (&items[place]["live"], items[place]["vouched_until"].is_string());
    assert_eq!(stands(0), (&json!(true), true));
    assert_eq!(stands(1), (&json!(true), false));
    assert_eq!(stands(2), (&json!(false), true));
    assert_eq!(stands(3), (&json!(false), true));
    insta::assert_json_snapshot!(items[0], {
        ".task_id" => "[task]", ".tenant_id" => "[tenant]", ".user_id" => "[user]", ".claimed_at" => "[time]",
        ".vouched_until" => "[time]",
    });
    assert_eq!((&items[3]["account"], &items[3]["worker"]), (&json!("mock"), &json!(null)));

    let of_tenant = desk.look(&format!("?tenant_id={}", someone.tenant)).await;
    let sets: Vec<_> = of_tenant["sets"]
        .as_array()
        .unwrap()
        .iter()
        .map(|set| (set["user_id"].is_null(), &set["used"], &set["limit"], &set["ready"]))
        .collect();
    let (three, yes) = (json!(3), json!(true));
    assert_eq!(sets, [(true, &three, &json!(100), &yes), (false, &three, &json!(10), &yes)]);
    assert_eq!(of_tenant["items"].as_array().unwrap().len(), 4);
    // Each side's place was taken by a script of its own, so they are not vouched for until the same millisecond.
    let seen_by = |item: &Value| {
        let mut item = item.clone();
        item["vouched_until"].take();
        item
    };
    assert_eq!(seen_by(&of_tenant["items"][0]), seen_by(&items[0]));
}

#[tokio::test(flavor = "multi_thread")]
async fn places_are_listed_page_by_page() {
    let desk = Desk::new().await;
    let someone = desk.api.someone("pro").await;
    let mut tasks = Vec::new();
    for _ in 0..5 {
        let task = desk.api.task(&someone).await;
        desk.api.claim(task).await;
        tasks.push(task.to_string());
    }
    let (mut seen, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = desk.look(&format!("?account=mock&limit=2{cursor}")).await;
        let items = page["items"].as_array().unwrap();
        assert!(items.len() <= 2);
        seen.extend(items.iter().map(|item| item["task_id"].as_str().unwrap().to_owned()));
        let Some(next) = page["next_cursor"].as_str() else { break };
        cursor = format!("&cursor={next}");
    }
    assert_eq!(seen, tasks);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_asked_wrongly_is_named_and_only_operators_are_told() {
    let desk = Desk::new().await;
    let someone = desk.api.someone("pro").await;
    let nobody = domain::TenantId::generate();
    for (query, field) in [
        ("?account=elsewhere".to_owned(), "account"),
        (format!("?tenant_id={nobody}"), "tenant_id"),
        (format!("?account=mock&tenant_id={}", someone.tenant), "tenant_id"),
        ("?user=x".to_owned(), "user"),
    ] {
        let answer = desk.api.get(&format!("/admin/slots{query}"), &desk.admin).await;
        assert_eq!(answer.status, StatusCode::UNPROCESSABLE_ENTITY, "{query}");
        assert_eq!(answer.json()["errors"][0]["field"], field, "{query}");
    }
    assert_eq!(desk.api.get("/admin/slots", &someone.key).await.status, StatusCode::FORBIDDEN);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_redis_nobody_can_say() {
    let api = Api::with(Setup { redis: false, ..Setup::default() }).await;
    let boss = api.someone("enterprise").await;
    let admin = api.key(boss.user, &[Scope::Admin]).await;
    let answer = api.get("/admin/slots", &admin).await;
    assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(answer.header("retry-after"), Some("1"));
}
