//! Whose turn it is, with real places at a provider: floods, urgency, and a queue that was lost.

use std::time::Duration;

use catalogue::{IntentKind, NewIntent, Subject, clear_intent, set_intent};
use chrono::{DateTime, Utc};
use control::Promise;
use domain::{Priority, TaskId, TaskStatus, TenantId};
use serde_json::json;
use testkit::{PrivateRedis, wait_for, wait_until};

use crate::world::{Order, Owner, PATIENCE, Setting, World, account_id};

const PLACES: u32 = 10;

/// When a task's first attempt was claimed. Tasks of one batch are claimed at the same instant.
async fn claimed(world: &World, task: TaskId) -> Option<DateTime<Utc>> {
    sqlx::query_scalar("SELECT claimed_at FROM task_attempts WHERE task_id = $1 AND attempt_no = 1")
        .bind(task.as_uuid())
        .fetch_optional(&world.db.pool)
        .await
        .unwrap()
}

/// How many of a tenant's tasks were claimed after this task was accepted and before it was claimed itself.
async fn went_before(world: &World, tenant: TenantId, task: TaskId) -> i64 {
    let at = wait_for("the newcomer to be claimed", PATIENCE, || claimed(world, task)).await;
    sqlx::query_scalar(
        "SELECT count(*) FROM task_attempts WHERE tenant_id = $1 AND claimed_at < $2
         AND claimed_at > (SELECT created_at FROM generation_tasks WHERE id = $3)",
    )
    .bind(tenant.as_uuid())
    .bind(at)
    .bind(task.as_uuid())
    .fetch_one(&world.db.pool)
    .await
    .unwrap()
}

/// A flood of 5,000 tasks keeps every place that it may have; another tenant's one task starts within the next two places
/// that become free, or at once where the flood may have no more.
async fn a_newcomer_starts_next(users: usize, user_running: Option<u32>) {
    let setting =
        Setting { slots: PLACES, duration: Duration::from_secs(3), user_running, ..Setting::default() };
    let world = World::with(setting).await;
    let flood = world.another_tenant("enterprise", users).await;
    for owner in &flood {
        world.submit_of(*owner, 5_000 / users, Order::default()).await;
    }
    let newcomer = world.another_tenant("enterprise", 1).await[0];
    let scheduler = world.scheduler("one");
    let most = user_running.map_or(PLACES, |limit| limit.min(PLACES));
    wait_until("the flood to have its places", PATIENCE, async || {
        world.stat("running").await == u64::from(most)
    })
    .await;
    let task = world.submit_of(newcomer, 1, Order::default()).await[0];
    world.nudge(&scheduler, &[task]).await;
    let before = went_before(&world, flood[0].tenant, task).await;
    assert!(before <= i64::from(most == PLACES), "{before} of the flood started first");
    let together = u64::from(PLACES.min(most + 1));
    wait_until("every place to be used", PATIENCE, async || {
        world.stat("running").await >= together || world.record(task).await.snapshot.status.is_terminal()
    })
    .await;
    assert_eq!(world.stat("max_running").await, together, "no more and no less than there may be");
    scheduler.stop().await;
}

/// C21, the flood of one user.
#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_one_user_holds_up_nobody() {
    a_newcomer_starts_next(1, None).await;
}

/// C21, the flood of five hundred.
#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_five_hundred_users_holds_up_nobody() {
    a_newcomer_starts_next(500, None).await;
}

/// C21, the flood at its own limit.
#[tokio::test(flavor = "multi_thread")]
async fn a_flood_at_its_own_limit_leaves_the_other_places_free() {
    a_newcomer_starts_next(1, Some(6)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_urgent_task_starts_before_its_users_others() {
    let setting = Setting { slots: 1, duration: Duration::from_millis(500), ..Setting::default() };
    let world = World::with(setting).await;
    let scheduler = world.scheduler("one");
    let plain = world.submit(120, Order::default()).await;
    world.nudge(&scheduler, &plain).await;
    wait_until("one to run", PATIENCE, async || world.stat("running").await == 1).await;
    let urgent = world.submit_one(Order { priority: Priority::MAX, ..Order::default() }).await;
    world.nudge(&scheduler, &[urgent]).await;
    let before = went_before(&world, world.tenant, urgent).await;
    // One may have been on its way while it came.
    assert!(before <= 1, "{before} plain ones started first");
    scheduler.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flushed_queue_of_many_tenants_is_filled_again_and_loses_nobody() {
    let redis = PrivateRedis::start().await;
    let setting =
        Setting { redis_url: Some(redis.url()), duration: Duration::from_millis(20), ..Setting::default() };
    let world = World::with(setting).await;
    let subject = Subject::Account(account_id());
    let pause = NewIntent {
        subject: subject.clone(),
        kind: IntentKind::Pause,
        reason: "so that all of them wait".to_owned(),
        set_by: world.user.as_uuid(),
    };
    let mut conn = world.db.pool.acquire().await.unwrap();
    set_intent(&mut conn, &pause).await.unwrap();
    let mut tasks = Vec::new();
    for _ in 0..60 {
        let owners: Vec<Owner> = world.another_tenant("enterprise", 2).await;
        for owner in owners {
            tasks.extend(world.submit_of(owner, 4, Order::default()).await);
        }
    }
    let scheduler = world.scheduler("one");
    let model = ["mock-fast".parse().unwrap()];
    let all = u64::try_from(tasks.len()).unwrap();
    let filled = async || {
        let depths = world.control.queue_depths(&model).await;
        depths.is_ok_and(|depths| depths == [all])
            && world.control.ready_marker(&model[0]).await.is_ok_and(|marked| marked)
    };
    wait_until("the queue to be filled", PATIENCE, filled).await;
    redis.flush().await;
    wait_until("the queue to be filled again", PATIENCE, filled).await;
    clear_intent(&mut conn, &subject).await.unwrap();
    for record in world.ended(&tasks).await {
        assert_eq!(record.snapshot.status, TaskStatus::Succeeded);
    }
    assert_eq!(
        (world.stat("submits").await, world.stats().await["max_live_by_task"].clone()),
        (all, json!(1))
    );
    world.quiet().await;
    world.audit().await;
    scheduler.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn waits_are_reckoned_from_jobs_that_were_seen_and_what_was_told_is_compared() {
    let setting = Setting { slots: 1, duration: Duration::from_millis(1_200), ..Setting::default() };
    let world = World::with(setting).await;
    let scheduler = world.scheduler("one");
    let tasks = world.submit(2, Order::default()).await;
    let promise = Promise { from_ms: 0, to_ms: 1 };
    for task in &tasks {
        world.control.keep_promises(&[(*task, promise)], 0).await.unwrap();
    }
    world.nudge(&scheduler, &tasks).await;
    let records = world.ended(&tasks).await;
    let service = wait_for("how long jobs take to be known", PATIENCE, || async {
        world.control.service_times(&["mock-fast".parse().unwrap()]).await.unwrap().remove(0)
    })
    .await;
    assert!(service.mean >= Duration::from_millis(1_000), "{service:?}");
    // The second one waited for the first, so somebody may have been told when it would start.
    let last = records.iter().max_by_key(|record| record.snapshot.ended_at).unwrap().id();
    // Once the scheduler has stopped, everything that it had begun is over.
    scheduler.stop().await;
    assert_eq!(world.control.take_promises(&[last]).await, Ok(vec![None]));
}
