//! What the owner of a waiting task is told: why it waits, with numbers, and about how long.

use std::time::Duration;

use control::{
    DispatchRates, ModelWait, ReadyTask, Rebuild, SlotClaim, SlotLimits, SlotOutcome, SlotTag, Trips,
};
use domain::{
    AttemptRef, ModelName, TaskId,
    wait::{Wait, WaitDetail, WaitReason},
};
use http::StatusCode;
use serde_json::{Value, json};

use crate::harness::{Api, Someone, video};

/// A user whose task waits in the ready queue while places are taken.
struct Waiting {
    api: Api,
    someone: Someone,
    task: TaskId,
}

impl Waiting {
    async fn new(tier: &str, model: &str) -> Self {
        let api = Api::new().await;
        let someone = api.someone(tier).await;
        let mut body = video();
        body["model"] = json!(model);
        body["priority"] = json!(7);
        let answer = api.post("/generations", &someone.key, &body).await;
        assert_eq!(answer.status, StatusCode::ACCEPTED, "{}", answer.json());
        let task: TaskId = answer.json()["task_id"].as_str().unwrap().parse().unwrap();
        let record = api.task_state.record(task).await.unwrap().unwrap();
        let ready = ReadyTask {
            task,
            model: record.snapshot.model.clone(),
            tenant: someone.tenant,
            user: someone.user,
            priority: record.snapshot.priority,
            tenant_weight: 1,
            created_ms: record.snapshot.created_at.timestamp_millis(),
            not_before_ms: 0,
            next_attempt_no: 1,
        };
        api.control.add_ready(&[ready]).await.unwrap();
        for tag in [SlotTag::Account("mock".parse().unwrap()), SlotTag::Tenant(someone.tenant)] {
            let ticket = api.control.begin_rebuild(&tag).await.unwrap().unwrap();
            assert_eq!(api.control.finish_rebuild(ticket, &[]).await, Ok(Rebuild::Done));
        }
        Self { api, someone, task }
    }

    /// Takes so many places of a model for the waiting task's user.
    async fn take(&self, model: &str, places: usize) {
        let claim = || SlotClaim {
            attempt: AttemptRef { task: TaskId::generate(), attempt_no: 1 },
            account: "mock".parse().unwrap(),
            model: model.parse().unwrap(),
            tenant: self.someone.tenant,
            user: self.someone.user,
            limits: SlotLimits { account: 1_000, model: 1_000, tenant: 1_000, user: 1_000 },
            rates: DispatchRates::default(),
        };
        let claims: Vec<_> = (0..places).map(|_| claim()).collect();
        for outcome in self.api.control.acquire_slots(&claims, Trips::Two).await {
            assert_eq!(outcome, Ok(SlotOutcome::Acquired));
        }
    }

    async fn read(&self) -> Value {
        self.api.get(&format!("/tasks/{}", self.task), &self.someone.key).await.json()
    }

    /// Reads until what readers of the same moment share is over.
    async fn read_anew(&self, holds: impl Fn(&Value) -> bool) -> Value {
        testkit::wait_for("a later answer", Duration::from_secs(5), async || {
            Some(self.read().await).filter(&holds)
        })
        .await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_at_their_own_limit_is_told_the_numbers_and_a_range() {
    let waiting = Waiting::new("free", "mock-fast").await;
    waiting.take("mock-fast", 1).await;
    let model: ModelName = "mock-fast".parse().unwrap();
    let seen = vec![Duration::from_secs(60); 100];
    waiting.api.control.learn_service_times(&[(model, seen)]).await.unwrap();
    let read = waiting.read().await;
    assert_eq!((&read["wait_reason"], &read["priority"]), (&json!("user_concurrency"), &json!(7)));
    assert_eq!(read["wait_detail"], json!({ "used": 1, "limit": 1 }));
    // One job of a minute, at whatever moment of it.
    assert_eq!((&read["queue_position"], &read["eta"]["from_seconds"]), (&json!(1), &json!(0)));
    assert!((60..=90).contains(&read["eta"]["to_seconds"].as_u64().unwrap()), "{}", read["eta"]);

    // What was told first is there for whoever starts it.
    let promise = waiting.api.control.take_promises(&[waiting.task]).await.unwrap()[0].unwrap();
    assert!((60_000..=90_000).contains(&(promise.to_ms - promise.from_ms)), "{promise:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_model_is_named_with_its_numbers() {
    let waiting = Waiting::new("enterprise", "mock-pro").await;
    let free = waiting.read().await;
    assert_eq!((&free["wait_reason"], &free["eta"]["to_seconds"]), (&json!(null), &json!(1)));
    waiting.take("mock-pro", 10).await;
    let full = waiting.read_anew(|read| read["wait_reason"] != json!(null)).await;
    assert_eq!(full["wait_reason"], "model_concurrency");
    assert_eq!(full["wait_detail"], json!({ "used": 10, "limit": 10 }));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_keeps_a_whole_model_waiting_is_told_to_all_of_its_tasks_until_it_is_over() {
    let waiting = Waiting::new("enterprise", "mock-fast").await;
    let until = chrono::DateTime::from_timestamp(4_000_000_000, 0).unwrap();
    let detail = WaitDetail { until: Some(until), ..WaitDetail::default() };
    let wait = Wait { reason: WaitReason::ProviderBackoff, detail };
    let of = ModelWait {
        model: "mock-fast".parse().unwrap(),
        lasts: Duration::from_secs(60),
        json: serde_json::to_string(&wait).unwrap(),
    };
    waiting.api.control.set_waits(&[], Some(of)).await.unwrap();
    let read = waiting.read().await;
    assert_eq!(read["wait_reason"], "provider_backoff");
    assert_eq!(read["wait_detail"], json!({ "until": "2096-10-02T07:06:40.000Z" }));
}
