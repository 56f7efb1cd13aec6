//! What waits for each model, as operators see it.

use control::ReadyTask;
use domain::{Priority, Scope};
use http::StatusCode;
use serde_json::json;

use crate::harness::{Api, Someone};

/// Puts a queued task into the ready queue, as a scheduler would.
async fn enqueue(api: &Api, of: &Someone, weight: u32) {
    let task = api.task(of).await;
    let record = api.task_state.record(task).await.unwrap().unwrap();
    let ready = ReadyTask {
        task,
        model: record.snapshot.model.clone(),
        tenant: of.tenant,
        user: of.user,
        priority: Priority::default(),
        tenant_weight: weight,
        created_ms: record.snapshot.created_at.timestamp_millis(),
        not_before_ms: 0,
        next_attempt_no: 1,
    };
    api.control.add_ready(&[ready]).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_waits_is_told_by_model_with_whose_turn_it_is() {
    let api = Api::new().await;
    let (ada, bob) = (api.someone("pro").await, api.someone("pro").await);
    let admin = api.key(ada.user, &[Scope::Admin]).await;
    for _ in 0..2 {
        enqueue(&api, &ada, 1).await;
    }
    enqueue(&api, &bob, 3).await;
    let unseen = api.task(&bob).await;
    api.control.mark_ready(&"mock-fast".parse().unwrap()).await.unwrap();

    let look = async |query: &str| api.get(&format!("/admin/queue{query}"), &admin).await;
    let seen = look("").await.json();
    let models: Vec<_> = seen["items"].as_array().unwrap().iter().map(|queue| &queue["model"]).collect();
    assert_eq!(models, ["mock-fast", "mock-slow", "mock-pro"]);
    let fast = &seen["items"][0];
    assert_eq!((&fast["waiting"], &fast["ready"], &fast["complete"]), (&json!(4), &json!(3), &json!(true)));
    let mut tenants = fast["tenants"].as_array().unwrap().clone();
    tenants.sort_by_key(|tenant| tenant["weight"].as_u64());
    let expected = [
        json!({ "tenant_id": ada.tenant, "weight": 1, "ready": 2 }),
        json!({ "tenant_id": bob.tenant, "weight": 3, "ready": 1 }),
    ];
    assert_eq!((tenants.as_slice(), &fast["tenants_active"]), (&expected[..], &json!(2)));
    let pro = &seen["items"][2];
    assert_eq!((&pro["waiting"], &pro["oldest"], &pro["complete"]), (&json!(0), &json!(null), &json!(false)));

    // A task that runs waits no more, whoever else does.
    api.claim(unseen).await;
    let fewer = look("?limit=1").await.json();
    assert_eq!(fewer["items"][0]["waiting"], 3);
    assert_eq!(fewer["items"][0]["oldest"], fast["oldest"]);
    assert_eq!(fewer["items"][0]["tenants"].as_array().unwrap().len(), 1);
    assert_eq!(look("?limit=0").await.status, StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(api.get("/admin/queue", &ada.key).await.status, StatusCode::FORBIDDEN);
}
