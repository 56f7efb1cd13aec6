//! Submits whose answer nobody saw.

use std::time::Duration;

use domain::{
    ErrorCode, TaskStatus,
    task::EventType::{Reconciling, Requeued},
};
use serde_json::json;

use crate::world::{Order, Setting, World};

#[tokio::test(flavor = "multi_thread")]
async fn a_job_whose_answer_got_lost_is_adopted_and_never_made_twice() {
    let world = World::new().await;
    let scheduler = world.scheduler("one");
    world.faults(json!([{"on": "submit", "action": {"drop": "after_accept"}, "times": 20}])).await;
    let tasks = world.submit(20, Order::default()).await;
    world.nudge(&scheduler, &tasks).await;
    let records = world.ended(&tasks).await;
    for record in &records {
        assert_eq!((record.snapshot.status, record.snapshot.attempt_no), (TaskStatus::Succeeded, 1));
    }
    assert_eq!((world.stat("submits").await, world.stat("max_live_by_task").await), (20, 1));
    assert!(world.events(tasks[0]).await.contains(&Reconciling));
    world.quiet().await;
    world.audit().await;
    scheduler.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_submit_that_never_arrived_is_proved_absent_and_retried_once() {
    let world = World::new().await;
    let scheduler = world.scheduler("one");
    world.faults(json!([{"on": "submit", "action": {"drop": "before_accept"}, "times": 3}])).await;
    let tasks = world.submit(3, Order::default()).await;
    world.nudge(&scheduler, &tasks).await;
    for record in world.ended(&tasks).await {
        assert_eq!((record.snapshot.status, record.snapshot.attempt_no), (TaskStatus::Succeeded, 2));
        assert_eq!(record.snapshot.tries, 0, "nothing was refused");
        let events = world.events(record.id()).await;
        assert_eq!(events.iter().filter(|event| **event == Requeued).count(), 1);
    }
    assert_eq!((world.stat("submits").await, world.stat("max_live_by_task").await), (3, 1));
    world.quiet().await;
    world.audit().await;
    scheduler.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_page_of_a_proxy_is_no_refusal() {
    // 502 and a bare 500 may come from something in between, behind which the job was made; the mock makes none, so
    // both are proved absent and retried.
    let world = World::new().await;
    let scheduler = world.scheduler("one");
    for status in [500, 502] {
        world
            .faults(json!([{"on": "submit", "action": {"status": status, "body": "oops"}, "times": 1}]))
            .await;
        let task = world.submit_one(Order::default()).await;
        world.nudge(&scheduler, &[task]).await;
        let record = world.until(task, TaskStatus::Succeeded).await;
        assert!(world.events(task).await.contains(&Reconciling), "{status}");
        assert_eq!((record.snapshot.attempt_no, record.snapshot.tries), (2, 0), "{status}");
    }
    assert_eq!(world.stat("max_live_by_task").await, 1);
    scheduler.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_comes_too_late_is_in_doubt_and_its_job_adopted() {
    let world = World::with(Setting { submit_limit: Duration::from_millis(500), ..Setting::default() }).await;
    let scheduler = world.scheduler("one");
    world.faults(json!([{"on": "submit", "action": {"delay_ms": 1_500}, "times": 1}])).await;
    let task = world.submit_one(Order::default()).await;
    world.nudge(&scheduler, &[task]).await;
    let record = world.until(task, TaskStatus::Succeeded).await;
    assert_eq!(record.snapshot.attempt_no, 1);
    assert_eq!((world.stat("submits").await, world.stat("max_live_by_task").await), (1, 1));
    scheduler.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_look_up_the_deadline_decides_and_the_operator_is_told() {
    let setting = Setting { look_up: false, reconciling: Duration::from_secs(2), ..Setting::default() };
    let world = World::with(setting).await;
    let scheduler = world.scheduler("one");
    world.faults(json!([{"on": "submit", "action": {"drop": "after_accept"}}])).await;
    let task = world.submit_one(Order { deadline_seconds: 1, ..Order::default() }).await;
    world.nudge(&scheduler, &[task]).await;
    world.until(task, TaskStatus::Reconciling).await;
    let record = world.until(task, TaskStatus::Failed).await;
    assert_eq!(record.snapshot.error_code, Some(ErrorCode::Unconfirmed));
    assert_eq!(world.stat("submits").await, 1);
    let flagged: bool =
        sqlx::query_scalar("SELECT flagged_at IS NOT NULL FROM task_attempts WHERE task_id = $1")
            .bind(task.as_uuid())
            .fetch_one(&world.db.pool)
            .await
            .unwrap();
    assert!(flagged);
    assert_eq!(world.balance().await.held.get(), 0);
    // The attempt outlives its task: nobody knows whether the provider is through, so it keeps its slot.
    assert_eq!(world.task_state.open_attempts(None, 10).await.unwrap().len(), 1);
    world.audit().await;
    scheduler.stop().await;
}
