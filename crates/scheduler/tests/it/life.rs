//! The usual way, and the ways in which a provider says no.

use domain::{
    ErrorCode, TaskStatus,
    task::EventType::{self, Created, PostProcessing, Requeued, Running, Scheduled, Submitted, Succeeded},
};
use serde_json::json;

use crate::world::{Order, PRICE, World};

#[tokio::test(flavor = "multi_thread")]
async fn a_task_becomes_a_stored_video_and_is_paid_for() {
    let world = World::new().await;
    let scheduler = world.scheduler("one");
    let task = world.submit_one(Order::default()).await;
    world.nudge(&scheduler, &[task]).await;
    let record = world.until(task, TaskStatus::Succeeded).await;

    let asset = world.media.asset(record.snapshot.output_asset_id.unwrap()).await.unwrap().unwrap();
    assert_eq!(asset.content_type, "video/mp4");
    assert!(asset.size_bytes > 0);
    world.quiet().await;
    let events = world.events(task).await;
    assert_eq!(
        events.iter().filter(|e| **e != Running).collect::<Vec<_>>(),
        [&Created, &Scheduled, &Submitted, &PostProcessing, &Succeeded]
    );
    let balance = world.balance().await;
    assert_eq!((balance.captured.get(), balance.held.get()), (PRICE, 0));
    assert_eq!((world.stat("submits").await, world.stat("max_live_by_task").await), (1, 1));
    world.audit().await;
    scheduler.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_any_nudge_the_message_brings_the_task_in_and_many_finish_side_by_side() {
    let world = World::new().await;
    let scheduler = world.scheduler("one");
    let tasks = world.submit(150, Order::default()).await;
    let records = world.ended(&tasks).await;
    assert!(records.iter().all(|r| r.snapshot.status == TaskStatus::Succeeded));
    world.quiet().await;
    assert_eq!((world.stat("submits").await, world.stat("max_live_by_task").await), (150, 1));
    assert!(world.stat("max_running").await > 20, "they did not run side by side");
    world.audit().await;
    assert!(scheduler.loops.report().iter().all(|report| report.last_error.is_none()));
    scheduler.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_that_may_pass_is_retried_after_the_pause_that_was_asked_for() {
    let world = World::new().await;
    let scheduler = world.scheduler("one");
    world
        .faults(json!([{"on": "submit", "times": 1,
            "action": {"status": 429, "headers": {"retry-after": "2"}}}]))
        .await;
    let started = std::time::Instant::now();
    let task = world.submit_one(Order::default()).await;
    world.nudge(&scheduler, &[task]).await;
    let record = world.until(task, TaskStatus::Succeeded).await;
    assert!(started.elapsed().as_millis() >= 2_000, "{:?}", started.elapsed());
    assert_eq!((record.snapshot.attempt_no, record.snapshot.tries), (2, 1));
    assert_eq!(requeues(&world.events(task).await), 1);
    world.quiet().await;
    world.audit().await;
    scheduler.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_can_never_succeed_fails_at_once_and_gives_the_credits_back() {
    let world = World::new().await;
    let scheduler = world.scheduler("one");
    world
        .faults(json!([{"on": "submit", "action": {"status": 400,
            "body": {"error": {"code": "moderated_input", "message": "no"}}}}]))
        .await;
    let task = world.submit_one(Order::default()).await;
    world.nudge(&scheduler, &[task]).await;
    let record = world.until(task, TaskStatus::Failed).await;
    assert_eq!(record.snapshot.error_code, Some(ErrorCode::ModeratedInput));
    assert_eq!(world.stat("submits").await, 1);
    world.quiet().await;
    let balance = world.balance().await;
    assert_eq!((balance.captured.get(), balance.held.get()), (0, 0));
    world.audit().await;
    scheduler.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_fails_is_tried_three_times() {
    let world = World::new().await;
    let scheduler = world.scheduler("one");
    world.model("mock-fast", json!({"fail_rate": 1.0})).await;
    let task = world.submit_one(Order::default()).await;
    world.nudge(&scheduler, &[task]).await;
    let record = world.until(task, TaskStatus::Failed).await;
    assert_eq!(record.snapshot.error_code, Some(ErrorCode::ProviderInternal));
    assert_eq!((record.snapshot.attempt_no, record.snapshot.tries), (3, 3));
    world.quiet().await;
    assert_eq!((world.stat("submits").await, world.stat("max_live_by_task").await), (3, 1));
    world.audit().await;
    scheduler.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_provider_that_stumbles_while_it_is_polled_loses_nothing() {
    let world = World::new().await;
    let scheduler = world.scheduler("one");
    world.faults(json!([{"on": "poll", "action": {"status": 503}, "times": 3}])).await;
    let task = world.submit_one(Order::default()).await;
    world.nudge(&scheduler, &[task]).await;
    let record = world.until(task, TaskStatus::Succeeded).await;
    assert_eq!(record.snapshot.tries, 0);
    world.quiet().await;
    world.audit().await;
    scheduler.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_is_lost_only_when_the_provider_says_so_twice() {
    let world = World::new().await;
    let scheduler = world.scheduler("one");
    // Once is a lagging replica.
    world.faults(json!([{"on": "poll", "action": {"status": 404}, "times": 1}])).await;
    let task = world.submit_one(Order::default()).await;
    world.nudge(&scheduler, &[task]).await;
    world.until(task, TaskStatus::Succeeded).await;

    world.faults(json!([{"on": "poll", "action": {"status": 404}}])).await;
    let task = world.submit_one(Order::default()).await;
    world.nudge(&scheduler, &[task]).await;
    let record = world.until(task, TaskStatus::Failed).await;
    assert_eq!(record.snapshot.error_code, Some(ErrorCode::ProviderLost));
    world.quiet().await;
    world.audit().await;
    scheduler.stop().await;
}

fn requeues(events: &[EventType]) -> usize {
    events.iter().filter(|event| **event == Requeued).count()
}
