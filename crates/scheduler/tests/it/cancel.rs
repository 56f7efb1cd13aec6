//! Cancels, in every state and while a submit is on its way.

use std::time::Duration;

use domain::{
    TaskId, TaskStatus,
    task::{EventType, Refusal},
};
use serde_json::{Value, json};
use testkit::wait_until;

use crate::world::{Order, PATIENCE, Setting, World};

/// The end that every canceled task must have: no hold, no charge, the provider through, nothing revived.
async fn check_canceled(world: &World, task: TaskId) {
    world.until(task, TaskStatus::Canceled).await;
    world.quiet().await;
    let events = world.events(task).await;
    assert_eq!(events.last(), Some(&EventType::Canceled));
    let balance = world.balance().await;
    assert_eq!((balance.held.get(), balance.captured.get()), (0, 0));
    assert_eq!(world.stat("running").await, 0, "the provider still works on it");
    assert!(world.stat("max_live_by_task").await <= 1);
    world.audit().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queued_task_ends_at_once_and_is_never_submitted() {
    let world = World::new().await;
    let task = world.submit_one(Order::default()).await;
    let record = world.cancel(task).await.unwrap();
    assert_eq!(record.snapshot.status, TaskStatus::Canceled);
    let scheduler = world.scheduler("one");
    let next = world.submit_one(Order::default()).await;
    world.until(next, TaskStatus::Succeeded).await;
    assert_eq!(world.stat("submits").await, 1);
    scheduler.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_task_is_canceled_at_the_provider() {
    let world = World::with(Setting { duration: Duration::from_secs(600), ..Setting::default() }).await;
    let scheduler = world.scheduler("one");
    let task = world.submit_one(Order::default()).await;
    world.nudge(&scheduler, &[task]).await;
    // Its first look comes after the poll interval, so RUNNING may not be seen before the cancel.
    world.until(task, TaskStatus::Running).await;
    world.cancel(task).await.unwrap();
    scheduler.nudge.cancel_requested(task);
    check_canceled(&world, task).await;
    assert_eq!(world.stat("cancels").await, 1);
    scheduler.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_that_nobody_nudged_is_found() {
    let world = World::with(Setting { duration: Duration::from_secs(600), ..Setting::default() }).await;
    let scheduler = world.scheduler("one");
    let task = world.submit_one(Order::default()).await;
    world.until(task, TaskStatus::Running).await;
    world.cancel(task).await.unwrap();
    check_canceled(&world, task).await;
    scheduler.stop().await;
}

/// Cancels while the submit is on its way, whose answer is given by a fault rule.
async fn cancel_during_submit(action: Value) -> (World, TaskId) {
    let setting = Setting { duration: Duration::from_secs(600), ..Setting::default() };
    let world = World::with(setting).await;
    let scheduler = world.scheduler("one");
    world.faults(json!([{"on": "submit", "action": action, "times": 1}])).await;
    let task = world.submit_one(Order::default()).await;
    world.nudge(&scheduler, &[task]).await;
    world.until(task, TaskStatus::Scheduling).await;
    let record = world.cancel(task).await.unwrap();
    assert_eq!(record.snapshot.status, TaskStatus::Scheduling, "an intent, not an end");
    scheduler.nudge.cancel_requested(task);
    check_canceled(&world, task).await;
    scheduler.stop().await;
    (world, task)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_submit_that_succeeds_after_the_cancel_is_canceled_upstream() {
    let (world, task) = cancel_during_submit(json!({"delay_ms": 1_000})).await;
    assert_eq!((world.stat("submits").await, world.stat("cancels").await), (1, 1));
    let handle: Option<String> =
        sqlx::query_scalar("SELECT provider_task_id FROM task_attempts WHERE task_id = $1")
            .bind(task.as_uuid())
            .fetch_one(&world.db.pool)
            .await
            .unwrap();
    assert!(handle.is_some(), "the handle is kept");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_submit_that_is_refused_after_the_cancel_ends_it() {
    let (world, _) = cancel_during_submit(json!({"delay_ms": 1_000, "status": 503,
        "body": {"error": {"code": "overloaded", "message": "later"}}}))
    .await;
    assert_eq!(world.stat("cancels").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_submit_whose_answer_never_comes_is_found_and_canceled_upstream() {
    let (world, task) = cancel_during_submit(json!({"hang": true})).await;
    assert_eq!((world.stat("submits").await, world.stat("cancels").await), (1, 1));
    assert!(world.events(task).await.contains(&EventType::Reconciling));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_provider_that_never_answers_the_cancel_does_not_hold_the_user_up() {
    let world = World::with(Setting { duration: Duration::from_secs(600), ..Setting::default() }).await;
    let scheduler = world.scheduler("one");
    world.faults(json!([{"on": "cancel", "action": {"status": 500}}])).await;
    let task = world.submit_one(Order::default()).await;
    world.nudge(&scheduler, &[task]).await;
    world.until(task, TaskStatus::Running).await;
    world.cancel(task).await.unwrap();
    let record = world.until(task, TaskStatus::Canceled).await;
    let waited = record.snapshot.ended_at.unwrap() - record.cancel_requested_at.unwrap();
    assert!((10..14).contains(&waited.num_seconds()), "{waited}");
    assert_eq!(world.balance().await.held.get(), 0);
    // The job lives, so its attempt keeps its slot, until the provider listens again.
    assert_eq!(world.task_state.open_attempts(None, 10).await.unwrap().len(), 1);
    assert_eq!(world.stat("running").await, 1);
    world.faults(json!([])).await;
    check_canceled(&world, task).await;
    scheduler.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_intent_recorded_before_the_success_wins_over_it() {
    let world = World::with(Setting { duration: Duration::from_secs(2), ..Setting::default() }).await;
    let scheduler = world.scheduler("one");
    world.faults(json!([{"on": "cancel", "action": {"status": 500}}])).await;
    let task = world.submit_one(Order::default()).await;
    world.nudge(&scheduler, &[task]).await;
    world.until(task, TaskStatus::Running).await;
    world.cancel(task).await.unwrap();
    scheduler.nudge.cancel_requested(task);
    wait_until("the job to finish all the same", PATIENCE, || async { world.stat("running").await == 0 })
        .await;
    world.faults(json!([])).await;
    check_canceled(&world, task).await;
    scheduler.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_the_file_is_fetched_it_is_too_late() {
    let world = World::new().await;
    let scheduler = world.scheduler("one");
    world.faults(json!([{"on": "output", "action": {"delay_ms": 1_000}, "times": 1}])).await;
    let task = world.submit_one(Order::default()).await;
    world.nudge(&scheduler, &[task]).await;
    world.until(task, TaskStatus::PostProcessing).await;
    assert_eq!(world.cancel(task).await.unwrap_err(), Refusal::TooLate);
    world.until(task, TaskStatus::Succeeded).await;
    world.quiet().await;
    world.audit().await;
    scheduler.stop().await;
}
