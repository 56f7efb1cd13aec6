//! Room: limits, pauses, and Redis being away.

use std::time::Duration;

use catalogue::{IntentKind, NewIntent, Subject, clear_intent, set_intent};
use control::{Added, ReadyTask, SlotSet};
use domain::{
    Priority, TaskStatus,
    wait::{Wait, WaitReason},
};
use scheduler::SchedulerConfig;
use serde_json::json;
use testkit::{PrivateRedis, wait_for, wait_until};

use crate::world::{Order, PATIENCE, Setting, World, account_id, quick};

#[tokio::test(flavor = "multi_thread")]
async fn a_user_of_the_free_tier_has_one_job_at_a_time_and_is_told_so() {
    let setting = Setting { tier: "free", duration: Duration::from_millis(600), ..Setting::default() };
    let world = World::with(setting).await;
    let scheduler = world.scheduler("one");
    let tasks = world.submit(4, Order::default()).await;
    world.nudge(&scheduler, &tasks).await;
    let wait = wait_for("a note on why a task waits", PATIENCE, || async {
        world.control.get_waits(&tasks).await.unwrap().into_iter().flatten().next()
    })
    .await;
    let wait: Wait = serde_json::from_str(&wait).unwrap();
    assert_eq!(wait.reason, WaitReason::UserConcurrency);
    assert_eq!((wait.detail.used, wait.detail.limit), (Some(1), Some(1)));
    for record in world.ended(&tasks).await {
        assert_eq!(record.snapshot.status, TaskStatus::Succeeded);
    }
    assert_eq!(world.stat("max_running").await, 1);
    world.quiet().await;
    world.audit().await;
    scheduler.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_that_is_queued_anew_after_its_end_leaves_no_slot_behind() {
    // No reconciler comes round meanwhile.
    let scheduler = SchedulerConfig { pass_interval: Duration::from_secs(60), ..quick() };
    let world = World::with(Setting { scheduler, ..Setting::default() }).await;
    let scheduler = world.scheduler("one");
    let over = world.submit_one(Order::default()).await;
    world.nudge(&scheduler, &[over]).await;
    let records = world.ended(&[over]).await;
    // A page of queued tasks that was read before this one was claimed adds it after its end.
    let late = ReadyTask {
        task: over,
        model: records[0].snapshot.model.clone(),
        tenant: world.tenant,
        user: world.user,
        priority: Priority::default(),
        tenant_weight: 1,
        created_ms: records[0].snapshot.created_at.timestamp_millis(),
        not_before_ms: 0,
        next_attempt_no: 1,
    };
    assert_eq!(world.control.add_ready(&[late]).await.unwrap(), [Added::New]);
    // It is the older one, so it is popped no later than this.
    let next = world.submit_one(Order::default()).await;
    world.nudge(&scheduler, &[next]).await;
    world.ended(&[next]).await;
    let sets = [SlotSet::Account(account_id()), SlotSet::User(world.tenant, world.user)];
    wait_until("no slot is held", PATIENCE, async || {
        world.control.slot_members(&sets).await.unwrap().iter().all(Vec::is_empty)
    })
    .await;
    scheduler.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_accounts_slots_are_never_exceeded_and_all_are_used() {
    let setting = Setting { slots: 5, duration: Duration::from_millis(300), ..Setting::default() };
    let world = World::with(setting).await;
    let (one, two) = (world.scheduler("one"), world.scheduler("two"));
    let tasks = world.submit(40, Order::default()).await;
    world.ended(&tasks).await;
    assert_eq!(world.stat("max_running").await, 5);
    world.quiet().await;
    world.audit().await;
    one.stop().await;
    two.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn more_tasks_of_one_user_than_the_queue_holds_are_fetched_as_it_drains() {
    let world = World::with(Setting { duration: Duration::from_millis(50), ..Setting::default() }).await;
    let tasks = world.submit(450, Order::default()).await;
    let scheduler = world.scheduler("one");
    for record in world.ended(&tasks).await {
        assert_eq!(record.snapshot.status, TaskStatus::Succeeded);
    }
    assert_eq!(world.stat("max_live_by_task").await, 1);
    scheduler.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crowd_of_one_user_is_never_forgotten_without_the_reconciler() {
    let mut setting = Setting { slots: 1_000, duration: Duration::from_millis(50), ..Setting::default() };
    setting.scheduler.pass_interval = Duration::from_secs(3_600);
    setting.scheduler.ready_after = Duration::from_secs(3_600);
    let world = World::with(setting).await;
    let scheduler = world.scheduler("one");
    let mut tasks = Vec::new();
    // In crowds, so that most of each find no room among the heads and most of a page is out for dispatch.
    for _ in 0..6 {
        let crowd = world.submit(150, Order::default()).await;
        world.nudge(&scheduler, &crowd).await;
        tasks.extend(crowd);
    }
    for record in world.ended(&tasks).await {
        assert_eq!(record.snapshot.status, TaskStatus::Succeeded);
    }
    assert_eq!(world.stat("max_live_by_task").await, 1);
    scheduler.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_dead_scheduler_had_popped_does_not_hold_up_the_rest() {
    let mut setting = Setting { duration: Duration::from_millis(50), ..Setting::default() };
    // The reconciler alone would bring a hundred tasks of one user per pass.
    setting.scheduler.pass_interval = Duration::from_secs(2);
    let world = World::with(setting).await;
    let subject = Subject::Account(account_id());
    let mut conn = world.db.pool.acquire().await.unwrap();
    set_intent(&mut conn, &pause(&world, &subject)).await.unwrap();
    // It fills the queue and pops nothing, because the account is paused.
    let scheduler = world.scheduler("one");
    // Few enough to be done long before what is popped comes back, also on a busy machine; more than the queue holds.
    let tasks = world.submit(450, Order::default()).await;
    let mut out = Vec::new();
    while out.len() < 300 {
        let (model, somebody) = ("mock-fast".parse().unwrap(), "somebody".parse().unwrap());
        let popped = world.control.pop_ready(&model, 300, &somebody, out.len() as u64).await.unwrap();
        out.extend(popped.tasks);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let popped_at = std::time::Instant::now();
    clear_intent(&mut conn, &subject).await.unwrap();
    let out: Vec<_> = out.iter().map(|task| task.task).collect();
    let rest: Vec<_> = tasks.iter().copied().filter(|task| !out.contains(task)).collect();
    world.ended(&rest).await;
    assert!(popped_at.elapsed() < Duration::from_secs(9), "{:?}", popped_at.elapsed());
    // And what was popped in vain comes back by itself.
    for record in world.ended(&tasks).await {
        assert_eq!(record.snapshot.status, TaskStatus::Succeeded);
    }
    scheduler.stop().await;
}

fn pause(world: &World, subject: &Subject) -> NewIntent {
    NewIntent {
        subject: subject.clone(),
        kind: IntentKind::Pause,
        reason: "maintenance".to_owned(),
        set_by: world.user.as_uuid(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_account_gets_nothing_until_it_is_resumed() {
    let world = World::new().await;
    let subject = Subject::Account(account_id());
    let mut conn = world.db.pool.acquire().await.unwrap();
    set_intent(&mut conn, &pause(&world, &subject)).await.unwrap();
    let scheduler = world.scheduler("one");
    let task = world.submit_one(Order::default()).await;
    world.nudge(&scheduler, &[task]).await;
    passes(&scheduler.loops, "dispatch:mock-fast", 3).await;
    assert_eq!(world.stat("submits").await, 0);
    clear_intent(&mut conn, &subject).await.unwrap();
    world.until(task, TaskStatus::Succeeded).await;
    scheduler.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_redis_is_away_nothing_is_submitted_but_what_runs_is_followed() {
    let mut redis = PrivateRedis::start().await;
    let setting =
        Setting { redis_url: Some(redis.url()), duration: Duration::from_secs(3), ..Setting::default() };
    let world = World::with(setting).await;
    let scheduler = world.scheduler("one");
    let running = world.submit_one(Order::default()).await;
    world.until(running, TaskStatus::Running).await;
    redis.kill();
    let waiting = world.submit_one(Order::default()).await;
    // Longer than a lease: the owner goes on all the same.
    world.until(running, TaskStatus::Succeeded).await;
    assert_eq!(world.stat("submits").await, 1);
    assert_eq!(world.record(waiting).await.snapshot.status, TaskStatus::Queued);
    redis.start_again().await;
    world.until(waiting, TaskStatus::Succeeded).await;
    world.quiet().await;
    world.audit().await;
    scheduler.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_came_while_redis_took_no_writes_starts_as_soon_as_it_takes_them_again() {
    let redis = PrivateRedis::start().await;
    // The reconciler's walk would miss them only after an hour.
    let scheduler = SchedulerConfig { ready_after: Duration::from_secs(3_600), ..quick() };
    let setting = Setting { redis_url: Some(redis.url()), scheduler, ..Setting::default() };
    let world = World::with(setting).await;
    let scheduler = world.scheduler("one");
    let before = world.submit_one(Order::default()).await;
    world.until(before, TaskStatus::Succeeded).await;
    redis.command(&["CONFIG", "SET", "maxmemory", "1"]).await;
    let waiting = world.submit(5, Order::default()).await;
    world.nudge(&scheduler, &waiting).await;
    wait_until("their messages to be acknowledged all the same", PATIENCE, async || {
        let left = sqlx::query_scalar::<_, i64>("SELECT count(*) FROM outbox_events");
        left.fetch_one(&world.db.pool).await.unwrap() == 0
    })
    .await;
    assert_eq!(world.stat("submits").await, 1);
    redis.command(&["CONFIG", "SET", "maxmemory", "0"]).await;
    for record in world.ended(&waiting).await {
        assert_eq!(record.snapshot.status, TaskStatus::Succeeded);
    }
    world.quiet().await;
    world.audit().await;
    scheduler.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn fifty_jobs_that_hang_do_not_hold_up_the_others() {
    let world = World::with(Setting { duration: Duration::from_millis(500), ..Setting::default() }).await;
    let scheduler = world.scheduler("one");
    world
        .faults(json!([{"on": "poll", "match": {"prompt_contains": "stuck"}, "action": {"delay_ms": 5_000}}]))
        .await;
    let stuck = world.submit(50, Order { prompt: "stuck", ..Order::default() }).await;
    let well = world.submit(140, Order::default()).await;
    world.nudge(&scheduler, &stuck).await;
    world.nudge(&scheduler, &well).await;
    let started = std::time::Instant::now();
    let records = world.ended(&well).await;
    assert!(records.iter().all(|record| record.snapshot.status == TaskStatus::Succeeded));
    assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
    scheduler.stop().await;
}

/// Waits until a loop has come round so many times more.
async fn passes(loops: &scheduler::Loops, name: &str, more: u64) {
    let count = || {
        let report = loops.report();
        report.iter().find(|report| report.name == name).map_or(0, |report| report.passes)
    };
    let before = count();
    testkit::wait_until("a loop to come round", PATIENCE, || std::future::ready(count() >= before + more))
        .await;
}
