//! Bringing videos home over a bad line.

use std::{path::Path, time::Duration};

use domain::{ErrorCode, TaskStatus};
use serde_json::{Value, json};

use crate::world::{Order, Setting, World};

fn html() -> Value {
    json!({"status": 200, "headers": {"content-type": "text/html"}, "body": "<!doctype html><p>Sorry</p>"})
}

#[tokio::test(flavor = "multi_thread")]
async fn half_a_file_and_an_error_page_are_fetched_again() {
    let world = World::new().await;
    let scheduler = world.scheduler("one");
    world
        .faults(json!([
            {"on": "output", "action": {"truncate_bytes": 400}, "times": 1},
            {"on": "output", "action": html(), "times": 1},
        ]))
        .await;
    let task = world.submit_one(Order::default()).await;
    world.nudge(&scheduler, &[task]).await;
    let record = world.until(task, TaskStatus::Succeeded).await;
    assert_eq!((record.snapshot.attempt_no, world.stat("outputs").await), (1, 3));
    world.quiet().await;
    world.audit().await;
    scheduler.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_link_that_has_expired_is_renewed() {
    let world = World::new().await;
    let scheduler = world.scheduler("one");
    world.faults(json!([{"on": "output", "action": {"status": 410}, "times": 1}])).await;
    let task = world.submit_one(Order::default()).await;
    world.nudge(&scheduler, &[task]).await;
    world.until(task, TaskStatus::Succeeded).await;
    scheduler.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_video_is_never_stored_and_never_charged() {
    let world = World::new().await;
    let scheduler = world.scheduler("one");
    world.faults(json!([{"on": "output", "action": html()}])).await;
    let task = world.submit_one(Order::default()).await;
    world.nudge(&scheduler, &[task]).await;
    let record = world.until(task, TaskStatus::Failed).await;
    assert_eq!(record.snapshot.error_code, Some(ErrorCode::BadOutput));
    assert_eq!(world.stat("outputs").await, 4);
    assert_eq!(files_below(world.storage()), 0);
    let balance = world.balance().await;
    assert_eq!((balance.held.get(), balance.captured.get()), (0, 0));
    world.quiet().await;
    world.audit().await;
    scheduler.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_slot_is_free_while_the_file_is_still_fetched() {
    let world = World::with(Setting { slots: 1, ..Setting::default() }).await;
    let scheduler = world.scheduler("one");
    world.faults(json!([{"on": "output", "action": {"delay_ms": 3_000}, "times": 1}])).await;
    let slow = world.submit_one(Order::default()).await;
    world.nudge(&scheduler, &[slow]).await;
    world.until(slow, TaskStatus::PostProcessing).await;
    let next = world.submit_one(Order::default()).await;
    world.nudge(&scheduler, &[next]).await;
    world.until(next, TaskStatus::Succeeded).await;
    assert_eq!(world.record(slow).await.snapshot.status, TaskStatus::PostProcessing);
    world.until(slow, TaskStatus::Succeeded).await;
    scheduler.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_new_is_submitted_while_outputs_wait_for_their_turn() {
    let mut setting = Setting { duration: Duration::from_millis(50), ..Setting::default() };
    setting.scheduler.outputs_max = 1;
    setting.scheduler.outputs_waiting_max = 2;
    let world = World::with(setting).await;
    let scheduler = world.scheduler("one");
    world.faults(json!([{"on": "output", "action": {"delay_ms": 1_500}, "times": 1}])).await;
    // One is being fetched and four wait: more than two.
    let first = world.submit(5, Order::default()).await;
    world.nudge(&scheduler, &first).await;
    for task in &first {
        world.until(*task, TaskStatus::PostProcessing).await;
    }
    let next = world.submit_one(Order::default()).await;
    world.nudge(&scheduler, &[next]).await;
    world.until(first[0], TaskStatus::Succeeded).await;
    world.ended(&first).await;
    world.until(next, TaskStatus::Succeeded).await;
    let began = world.task_state.events(next, 1).await.unwrap()[0].at;
    let mut ends = Vec::new();
    for task in first {
        ends.push(world.record(task).await.snapshot.ended_at.unwrap());
    }
    assert!(ends.iter().min().unwrap() < &began, "a new submit went before outputs that waited");
    scheduler.stop().await;
}

/// Files that a reader could find; what is under way lies elsewhere.
fn files_below(folder: &Path) -> usize {
    std::fs::read_dir(folder).map_or(0, |entries| {
        entries
            .flatten()
            .map(|entry| if entry.path().is_dir() { files_below(&entry.path()) } else { 1 })
            .sum()
    })
}
