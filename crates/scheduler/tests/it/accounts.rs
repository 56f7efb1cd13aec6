//! Several accounts that serve one model: shares, what one takes over from another, and who is asked about a job.

use std::time::Duration;

use catalogue::{IntentKind, NewIntent, Subject, clear_intent, set_intent};
use control::AccountBreaker;
use domain::{
    ProviderAccountId, TaskStatus,
    wait::{Wait, WaitReason},
};
use serde_json::json;
use testkit::{PrivateRedis, wait_for, wait_until};

use crate::world::{Order, PATIENCE, Setting, World, account_id, quick, second_id};

fn intent(world: &World, account: ProviderAccountId, kind: IntentKind) -> NewIntent {
    let (subject, set_by) = (Subject::Account(account), world.user.as_uuid());
    NewIntent { subject, kind, reason: "maintenance".to_owned(), set_by }
}

async fn succeed(world: &World, tasks: &[domain::TaskId]) {
    for record in world.ended(tasks).await {
        assert_eq!(record.snapshot.status, TaskStatus::Succeeded, "{:?}", record.snapshot.error_code);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn weights_are_shares_and_what_one_account_has_no_room_for_another_takes() {
    let world = World::with(Setting { second: Some(3), ..Setting::default() }).await;
    let scheduler = world.scheduler("one");
    let tasks = world.submit(80, Order::default()).await;
    world.nudge(&scheduler, &tasks).await;
    succeed(&world, &tasks).await;
    assert_eq!((world.stat("submits").await, world.stat_of_other("submits").await), (20, 60));
    world.quiet().await;
    world.audit().await;
    scheduler.stop().await;

    // A heavy first account with few places: the light one takes most.
    let setting =
        Setting { second: Some(1), slots: 4, duration: Duration::from_millis(1_500), ..Setting::default() };
    let world = World::with(setting).await;
    let scheduler = world.scheduler("one");
    let tasks = world.submit(8, Order::default()).await;
    world.nudge(&scheduler, &tasks).await;
    wait_until("both to be full", PATIENCE, async || {
        (world.stat("running").await, world.stat_of_other("running").await) == (4, 4)
    })
    .await;
    succeed(&world, &tasks).await;
    scheduler.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_provider_shuts_its_account_and_the_other_takes_its_tasks() {
    let mut setting = Setting { second: Some(1), ..Setting::default() };
    setting.scheduler.breaker.moment = Duration::from_millis(10);
    setting.scheduler.breaker.chance = 2;
    let world = World::with(setting).await;
    let scheduler = world.scheduler("one");
    world.faults(json!([{ "on": "submit", "action": { "status": 500 } }])).await;
    let breaker = async || world.control.account_breakers(&[account_id()]).await.unwrap()[0];
    let mut tasks = Vec::new();
    while !matches!(breaker().await, AccountBreaker::Open(_)) {
        let more = world.submit(2, Order::default()).await;
        world.nudge(&scheduler, &more).await;
        tasks.extend(more);
        tokio::time::sleep(Duration::from_millis(30)).await;
    }
    // Open: nothing goes there any more, and nothing waits for it.
    let asked = world.stat("submits").await;
    let more = world.submit(20, Order::default()).await;
    world.nudge(&scheduler, &more).await;
    succeed(&world, &more).await;
    assert!(world.stat("submits").await <= asked + 1, "a probe at most");
    // The provider is back: a probe finds out, and the account has its share again.
    world.faults(json!([])).await;
    wait_until("the breaker to close", PATIENCE, async || {
        let more = world.submit(1, Order::default()).await;
        world.nudge(&scheduler, &more).await;
        matches!(breaker().await, AccountBreaker::Closed { .. })
    })
    .await;
    world.ended(&tasks).await;
    world.quiet().await;
    world.audit().await;
    scheduler.stop().await;
}

/// C54: every call for a task goes to the account that made its job.
#[tokio::test(flavor = "multi_thread")]
async fn c54_an_account_that_takes_nothing_new_still_serves_what_it_has() {
    let setting = Setting { second: Some(1), duration: Duration::from_secs(2), ..Setting::default() };
    let world = World::with(setting).await;
    let scheduler = world.scheduler("one");
    let tasks = world.submit(50, Order::default()).await;
    world.nudge(&scheduler, &tasks).await;
    wait_until("all to be at their providers", PATIENCE, async || {
        (world.stat("running").await, world.stat_of_other("running").await) == (25, 25)
    })
    .await;
    let mut conn = world.db.pool.acquire().await.unwrap();
    set_intent(&mut conn, &intent(&world, account_id(), IntentKind::Drain)).await.unwrap();
    // Somebody else goes on with them, from what PostgreSQL has, and cancels some.
    scheduler.stop().await;
    let scheduler = world.scheduler("two");
    for task in &tasks[..10] {
        world.cancel(*task).await.unwrap();
    }
    let ended = world.ended(&tasks).await;
    let canceled = ended.iter().filter(|record| record.snapshot.status == TaskStatus::Canceled).count();
    let succeeded = ended.iter().filter(|record| record.snapshot.status == TaskStatus::Succeeded).count();
    assert_eq!((canceled, succeeded), (10, 40));
    assert_eq!(world.stat("cancels").await + world.stat_of_other("cancels").await, 10);
    // What is new goes to the other alone.
    let (first, second) = (world.stat("submits").await, world.stat_of_other("submits").await);
    let more = world.submit(6, Order::default()).await;
    world.nudge(&scheduler, &more).await;
    succeed(&world, &more).await;
    assert_eq!((world.stat("submits").await, world.stat_of_other("submits").await), (first, second + 6));
    world.quiet().await;
    world.audit().await;
    scheduler.stop().await;
}

/// C51: neither a flush nor a new process undoes what an operator wants.
#[tokio::test(flavor = "multi_thread")]
async fn c51_a_pause_outlives_a_flush_and_every_process() {
    let redis = PrivateRedis::start().await;
    let setting =
        Setting { redis_url: Some(redis.url()), second: Some(1), scheduler: quick(), ..Setting::default() };
    let world = World::with(setting).await;
    let mut conn = world.db.pool.acquire().await.unwrap();
    for account in [account_id(), second_id()] {
        set_intent(&mut conn, &intent(&world, account, IntentKind::Pause)).await.unwrap();
    }
    let scheduler = world.scheduler("one");
    let tasks = world.submit(20, Order::default()).await;
    world.nudge(&scheduler, &tasks).await;
    let passes = async |loops: &scheduler::Loops| {
        let report = loops.report().into_iter().find(|report| report.name == "dispatch:mock-fast");
        report.map_or(0, |report| report.passes)
    };
    wait_until("some passes", PATIENCE, async || passes(&scheduler.loops).await >= 3).await;
    scheduler.stop().await;
    redis.command(&["FLUSHALL"]).await;
    let scheduler = world.scheduler("two");
    world.nudge(&scheduler, &tasks).await;
    wait_until("some passes", PATIENCE, async || passes(&scheduler.loops).await >= 3).await;
    assert_eq!((world.stat("submits").await, world.stat_of_other("submits").await), (0, 0));

    clear_intent(&mut conn, &Subject::Account(second_id())).await.unwrap();
    succeed(&world, &tasks).await;
    assert_eq!((world.stat("submits").await, world.stat_of_other("submits").await), (0, 20));
    scheduler.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_account_is_given_more_jobs_in_a_day_than_it_may_whoever_asks() {
    let setting = Setting { second: Some(1), daily: Some(15), ..Setting::default() };
    let world = World::with(setting).await;
    let schedulers = [world.scheduler("one"), world.scheduler("two")];
    let tasks = world.submit(40, Order::default()).await;
    for scheduler in &schedulers {
        world.nudge(scheduler, &tasks).await;
    }
    wait_until("both to have had all their jobs", PATIENCE, async || {
        (world.stat("submits").await, world.stat_of_other("submits").await) == (15, 15)
    })
    .await;
    let ended = async || {
        let records = world.task_state.records(&tasks).await.unwrap();
        records.iter().filter(|record| record.snapshot.status == TaskStatus::Succeeded).count()
    };
    wait_until("those to be home", PATIENCE, async || ended().await == 30).await;
    let today = world.task_state.jobs_today(&account_id()).await.unwrap();
    assert_eq!(today.jobs, 15);
    assert!(today.until > today.read_at);
    // Also whoever comes later is told what everybody waits for.
    wait_for("what the others wait for", PATIENCE, || async {
        let note = world.control.model_wait(&"mock-fast".parse().unwrap()).await.unwrap()?;
        let wait: Wait = serde_json::from_str(&note).unwrap();
        (wait.reason == WaitReason::ProviderRate && wait.detail.limit == Some(15)).then_some(())
    })
    .await;

    // Those that wait go on with what a refused job leaves.
    let refused = "UPDATE task_attempts SET outcome = 'refused' WHERE provider_account_id = 'mock'";
    sqlx::query(refused).execute(&world.db.pool).await.unwrap();
    assert_eq!(world.task_state.jobs_today(&account_id()).await.unwrap().jobs, 0);
    for scheduler in schedulers {
        scheduler.stop().await;
    }
    let scheduler = world.scheduler("three");
    succeed(&world, &tasks).await;
    assert_eq!((world.stat("submits").await, world.stat_of_other("submits").await), (25, 15));
    scheduler.stop().await;
}
