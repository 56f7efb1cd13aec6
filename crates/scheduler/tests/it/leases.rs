//! Work that takes longer than the lease of whoever does it.

use std::time::Duration;

use domain::{
    TaskStatus,
    task::{Event, EventType::TakenOver},
};
use scheduler::{SchedulerConfig, SchedulerConfigError};
use serde_json::json;
use task_state::{Move, MoveOutcome};
use testkit::wait_until;

use crate::world::{Order, PATIENCE, Setting, World, quick};

fn short_lease() -> SchedulerConfig {
    SchedulerConfig { lease: Duration::from_secs(2), heartbeat: Duration::from_millis(500), ..quick() }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_submit_five_leases_long_with_a_standstill_in_the_middle_is_one_submit_of_one_owner() {
    let setting =
        Setting { submit_limit: Duration::from_secs(14), scheduler: short_lease(), ..Setting::default() };
    let world = World::with(setting).await;
    world.faults(json!([{"on": "submit", "action": {"delay_ms": 10_000}, "times": 1}])).await;
    let first = world.process("host:1:a");
    let task = world.submit_one(Order::default()).await;
    wait_until("the submit to be there", PATIENCE, || async { world.stat("submits").await == 1 }).await;
    let second = world.process("host:2:b");
    // Its lease runs out meanwhile; its submit may still be on its way, so nobody may judge it.
    tokio::time::sleep(Duration::from_secs(3)).await;
    first.stall(Duration::from_secs(3));
    let record = world.until(task, TaskStatus::Succeeded).await;
    assert_eq!((record.snapshot.attempt_no, record.snapshot.tries), (1, 0));
    assert!(!world.events(task).await.contains(&TakenOver), "{:?}", world.events(task).await);
    world.quiet().await;
    assert_eq!((world.stat("submits").await, world.stat("max_live_by_task").await), (1, 1));
    world.audit().await;
    drop((first, second));
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_lost_the_task_during_a_standstill_writes_nothing_more_to_it() {
    let setting = Setting {
        submit_limit: Duration::from_secs(3),
        duration: Duration::from_secs(12),
        scheduler: short_lease(),
        ..Setting::default()
    };
    let world = World::with(setting).await;
    world.faults(json!([{"on": "submit", "action": {"delay_ms": 2_500}, "times": 1}])).await;
    let first = world.process("host:1:a");
    let task = world.submit_one(Order::default()).await;
    wait_until("the submit to be there", PATIENCE, || async { world.stat("submits").await == 1 }).await;
    let old = world.record(task).await.state.attempt().unwrap();
    let second = world.process("host:2:b");
    // The answer comes while it stands still: it will wake up with an acceptance in its hands and no right to it.
    first.stall(Duration::from_secs(9));
    wait_until("the take-over", PATIENCE, || async { world.events(task).await.contains(&TakenOver) }).await;
    world.until(task, TaskStatus::Running).await;
    let before = world.record(task).await;
    for event in [Event::SubmitUnknown, Event::NeverSent, Event::ProviderCanceled] {
        let late = Move::by_owner(task, old, event.clone());
        let outcome = world.task_state.advance(late).await.unwrap();
        assert!(matches!(outcome, MoveOutcome::Stale(_)), "{event:?}: {outcome:?}");
    }
    let after = world.record(task).await;
    assert_eq!((after.snapshot.version, &after.state), (before.snapshot.version, &before.state));
    let record = world.until(task, TaskStatus::Succeeded).await;
    assert_eq!((record.snapshot.attempt_no, record.worker.unwrap().as_str()), (1, "host:2:b"));
    world.quiet().await;
    assert_eq!(world.stat("submits").await, 1);
    world.audit().await;
    drop((first, second));
}

#[test]
fn a_lease_that_its_renewals_do_not_cover_is_refused_at_the_start() {
    assert_eq!(short_lease().check(), Ok(()));
    let config = SchedulerConfig { heartbeat: Duration::from_millis(700), ..short_lease() };
    assert!(matches!(config.check(), Err(SchedulerConfigError::LeaseTooShort { .. })));
}
