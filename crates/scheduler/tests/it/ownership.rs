//! Owners that die, stand still or are replaced.

use std::time::Duration;

use domain::{
    ErrorCode, TaskStatus,
    task::EventType::{Requeued, TakenOver},
};
use serde_json::json;
use testkit::{PrivateRedis, wait_until};

use crate::world::{Order, PATIENCE, Setting, World};

#[tokio::test(flavor = "multi_thread")]
async fn what_a_killed_worker_left_is_finished_by_the_next_without_a_second_job() {
    let world = World::with(Setting { duration: Duration::from_secs(2), ..Setting::default() }).await;
    let first = world.process("host:1:a");
    let tasks = world.submit(40, Order::default()).await;
    wait_until("half of them to be at the provider", PATIENCE, || async {
        world.stat("submits").await >= 20
    })
    .await;
    first.kill();
    let second = world.process("host:2:b");
    for record in world.ended(&tasks).await {
        assert_eq!(record.snapshot.status, TaskStatus::Succeeded);
        assert!(record.snapshot.attempt_no <= 2);
    }
    world.quiet().await;
    // An attempt that the first had claimed and not sent is proved absent and made anew; none is made twice.
    assert_eq!((world.stat("submits").await, world.stat("max_live_by_task").await), (40, 1));
    world.audit().await;
    drop(second);
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_that_die_again_and_again_leak_no_slot_and_lose_no_task() {
    let setting = Setting { tier: "pro", slots: 2, ..Setting::default() };
    let world = World::with(setting).await;
    let tasks = world.submit(10, Order::default()).await;
    // At each of the gaps between popping, taking slots, claiming, leasing and sending, as it happens.
    for life in 0..12 {
        let worker = world.process(&format!("host:{life}:x"));
        let before = world.stat("submits").await;
        let time = Duration::from_millis(60 + 23 * life);
        let _ = tokio::time::timeout(time, async {
            while world.stat("submits").await == before {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        })
        .await;
        worker.kill();
    }
    let last = world.process("host:99:x");
    for record in world.ended(&tasks).await {
        assert_eq!(record.snapshot.status, TaskStatus::Succeeded);
    }
    world.quiet().await;
    assert!(world.stat("max_running").await <= 2);
    assert_eq!(world.stat("max_live_by_task").await, 1);
    world.audit().await;
    drop(last);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_workers_survive_the_death_of_one_and_a_flush_in_the_middle() {
    let redis = PrivateRedis::start().await;
    let setting = Setting {
        duration: Duration::from_secs(2),
        redis_url: Some(redis.url()),
        slots: 30,
        ..Setting::default()
    };
    let world = World::with(setting).await;
    let (first, second) = (world.process("host:1:a"), world.process("host:2:b"));
    let tasks = world.submit(80, Order::default()).await;
    wait_until("the slots to be full", PATIENCE, || async { world.stat("running").await >= 25 }).await;
    redis.flush().await;
    wait_until("the first to be through", PATIENCE, || async { world.stat("submits").await >= 45 }).await;
    first.kill();
    redis.flush().await;
    for record in world.ended(&tasks).await {
        assert_eq!(record.snapshot.status, TaskStatus::Succeeded);
    }
    world.quiet().await;
    assert_eq!((world.stat("submits").await, world.stat("max_live_by_task").await), (80, 1));
    assert!(world.stat("max_running").await <= 30, "over-admitted: {}", world.stats().await);
    world.audit().await;
    drop(second);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_owner_that_stood_still_stops_when_it_wakes_up() {
    let world = World::with(Setting { duration: Duration::from_secs(12), ..Setting::default() }).await;
    let first = world.process("host:1:a");
    let task = world.submit_one(Order::default()).await;
    world.until(task, TaskStatus::Running).await;
    let second = world.process("host:2:b");
    // Longer than the lease: the other takes over, and this one wakes up believing that it owns the task.
    first.stall(Duration::from_secs(8));
    wait_until("the take-over", PATIENCE, || async { world.events(task).await.contains(&TakenOver) }).await;
    assert_eq!(world.record(task).await.worker.unwrap().as_str(), "host:2:b");
    let record = world.until(task, TaskStatus::Succeeded).await;
    assert_eq!((record.snapshot.attempt_no, record.worker.unwrap().as_str()), (1, "host:2:b"));
    assert_eq!(world.events(task).await.iter().filter(|event| **event == TakenOver).count(), 1);
    world.quiet().await;
    assert_eq!(world.stat("submits").await, 1);
    world.audit().await;
    drop((first, second));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_submit_that_outlives_its_workers_standstill_is_one_submit() {
    let setting = Setting { submit_limit: Duration::from_secs(5), ..Setting::default() };
    let world = World::with(setting).await;
    world.faults(json!([{"on": "submit", "action": {"delay_ms": 3_000}, "times": 1}])).await;
    let (first, task) = (world.process("host:1:a"), world.submit_one(Order::default()).await);
    wait_until("the submit to be there", PATIENCE, || async { world.stat("submits").await == 1 }).await;
    let second = world.process("host:2:b");
    first.stall(Duration::from_secs(6));
    let record = world.until(task, TaskStatus::Succeeded).await;
    assert_eq!(record.snapshot.attempt_no, 1);
    world.quiet().await;
    assert_eq!(world.stat("submits").await, 1);
    world.audit().await;
    drop((first, second));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_shuts_down_hands_back_what_it_followed() {
    let world = World::with(Setting { duration: Duration::from_secs(4), ..Setting::default() }).await;
    let first = world.scheduler("host:1:a");
    let tasks = world.submit(10, Order::default()).await;
    for task in &tasks {
        world.until(*task, TaskStatus::Running).await;
    }
    first.stop().await;
    let second = world.scheduler("host:2:b");
    for record in world.ended(&tasks).await {
        assert_eq!(record.snapshot.status, TaskStatus::Succeeded);
        let events = world.events(record.id()).await;
        assert!(events.contains(&TakenOver) && !events.contains(&Requeued));
    }
    world.quiet().await;
    assert_eq!((world.stat("submits").await, world.stat("max_live_by_task").await), (10, 1));
    world.audit().await;
    second.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_submit_under_way_at_shutdown_is_waited_for() {
    let world = World::with(Setting { submit_limit: Duration::from_secs(5), ..Setting::default() }).await;
    let first = world.scheduler("host:1:a");
    world.faults(json!([{"on": "submit", "action": {"delay_ms": 1_500}}])).await;
    let task = world.submit_one(Order::default()).await;
    world.nudge(&first, &[task]).await;
    world.until(task, TaskStatus::Scheduling).await;
    wait_until("the submit to be there", PATIENCE, || async { world.stat("submits").await == 1 }).await;
    first.stop().await;
    assert_eq!(world.record(task).await.snapshot.status, TaskStatus::ProviderSubmitted);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_provider_that_never_ends_meets_the_deadline_also_after_its_worker_died() {
    let world = World::with(Setting { duration: Duration::from_secs(600), ..Setting::default() }).await;
    let first = world.process("host:1:a");
    let task = world.submit_one(Order { deadline_seconds: 5, ..Order::default() }).await;
    world.until(task, TaskStatus::Running).await;
    first.kill();
    let second = world.process("host:2:b");
    let record = world.until(task, TaskStatus::Failed).await;
    assert_eq!(record.snapshot.error_code, Some(ErrorCode::DeadlineExceeded));
    let late = record.snapshot.ended_at.unwrap() - record.snapshot.deadline_at;
    assert!(late.num_milliseconds() < 3_000, "{late}");
    let balance = world.balance().await;
    assert_eq!((balance.held.get(), balance.captured.get()), (0, 0));
    world.quiet().await;
    assert_eq!((world.stat("cancels").await, world.stat("running").await), (1, 0));
    world.audit().await;
    drop(second);
}
