//! Schedulers that die between two steps of a hand-off: popped, slots taken, claimed, leased, sent, accepted.
//!
//! Each death happens at an exact step: a proxy holds back the request of that step (or its answer), and the process
//! is killed while it waits. What it held then is a ghost, which must hold up nobody for ever.

use std::{collections::HashSet, time::Duration};

use control::SlotSet;
use domain::{AttemptRef, TaskId, TaskStatus};
use scheduler::SchedulerConfig;

use crate::world::{Detour, Order, PATIENCE, Setting, World, quick};

const USER_RUNNING: u32 = 2;
/// Enough that the last death still finds one to begin with.
const TASKS: usize = 14;
const ROUNDS: usize = 5;

/// Where a scheduler dies.
#[derive(Debug, Clone, Copy)]
enum Gap {
    /// The task is out of the queue and has no slot.
    Popped,
    /// The slots are taken, but nobody has heard of it.
    SlotsTaken,
    /// The scheduler knows that it has the slots, and PostgreSQL knows nothing.
    BeforeClaim,
    /// PostgreSQL has the attempt; the queue still has the task, and nobody vouches for an owner.
    BeforeLease,
    /// All is ready, and nothing was sent.
    BeforeSubmit,
    /// The provider has the job, and nobody here knows.
    Accepted,
}

impl Gap {
    fn set(self, detour: &Detour, tasks: &[TaskId]) {
        let attempts: Vec<String> = tasks.iter().map(|task| format!("{task}.")).collect();
        let attempts: Vec<&str> = attempts.iter().map(String::as_str).collect();
        let leases: Vec<String> = tasks.iter().map(|task| format!("lease:{{a:mock}}:task:{task}")).collect();
        let leases: Vec<&str> = leases.iter().map(String::as_str).collect();
        match self {
            Self::Popped => detour.redis.freeze_before(&attempts),
            Self::SlotsTaken => detour.redis.freeze_after(&attempts),
            Self::BeforeClaim => detour.database.freeze_before(&["task_state_claim"]),
            Self::BeforeLease => detour.redis.freeze_before(&leases),
            Self::BeforeSubmit => detour.provider.freeze_before(&["POST /v1/jobs"]),
            Self::Accepted => detour.provider.freeze_after(&["POST /v1/jobs"]),
        }
    }

    async fn reached(self, detour: &Detour) {
        match self {
            Self::Popped | Self::SlotsTaken | Self::BeforeLease => detour.redis.frozen().await,
            Self::BeforeClaim => detour.database.frozen().await,
            Self::BeforeSubmit | Self::Accepted => detour.provider.frozen().await,
        }
    }
}

/// Starts a scheduler and kills it in the gap.
async fn die(world: &World, gap: Gap, queued: &[TaskId], name: &str) {
    let detour = world.detour().await;
    gap.set(&detour, queued);
    let doomed = world.process_by(&detour, name);
    let reached = tokio::time::timeout(PATIENCE, gap.reached(&detour)).await;
    assert!(reached.is_ok(), "{gap:?}, {name}: no task came that far");
    doomed.kill();
}

/// Every attempt that PostgreSQL calls live has its slot, whatever else Redis remembers.
async fn assert_live_attempts_have_slots(world: &World) {
    let live: HashSet<AttemptRef> =
        world.task_state.all_live_slots().await.unwrap().into_iter().map(|slot| slot.attempt).collect();
    let set = SlotSet::User(world.tenant, world.user);
    let members = world.control.slot_members(&[set]).await.unwrap();
    let members: HashSet<AttemptRef> = members.into_iter().flatten().map(|member| member.attempt).collect();
    let without: Vec<_> = live.difference(&members).collect();
    assert!(without.is_empty(), "without a slot: {without:?}");
}

async fn die_again_and_again(gap: Gap) {
    let setting = Setting {
        user_running: Some(USER_RUNNING),
        submit_limit: Duration::from_millis(500),
        scheduler: SchedulerConfig {
            lease: Duration::from_millis(1_500),
            heartbeat: Duration::from_millis(400),
            pass_interval: Duration::from_millis(200),
            // One each, so that two die of every round.
            dispatch_batch_max: 1,
            ..quick()
        },
        ..Setting::default()
    };
    let world = World::with(setting).await;
    let tasks = world.submit(TASKS, Order::default()).await;
    for round in 0..ROUNDS {
        let records = world.task_state.records(&tasks).await.unwrap();
        let queued = records.iter().filter(|record| record.snapshot.status == TaskStatus::Queued);
        let queued: Vec<TaskId> = queued.map(|record| record.id()).collect();
        let names = [format!("host:{round}:a"), format!("host:{round}:b")];
        tokio::join!(die(&world, gap, &queued, &names[0]), die(&world, gap, &queued, &names[1]));
        assert_live_attempts_have_slots(&world).await;
    }
    let last = world.process("host:99:x");
    for record in world.ended(&tasks).await {
        assert_eq!(record.snapshot.status, TaskStatus::Succeeded, "{gap:?}");
    }
    world.quiet().await;
    let stats = world.stats().await;
    assert!(stats["max_running"].as_u64().unwrap() <= u64::from(USER_RUNNING), "{gap:?}: {stats}");
    assert_eq!(stats["max_live_by_task"], 1, "{gap:?}: {stats}");
    let twice = stats["submits_by_reference"].as_object().unwrap().iter().find(|(_, count)| **count != 1);
    assert_eq!(twice, None, "{gap:?}");
    world.audit().await;
    drop(last);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hand_off_that_breaks_off_between_queue_and_claim_leaks_no_slot_and_loses_no_task() {
    let gaps = [Gap::Popped, Gap::SlotsTaken, Gap::BeforeClaim].map(die_again_and_again);
    futures::future::join_all(gaps).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hand_off_that_breaks_off_between_claim_and_record_leaks_no_slot_and_submits_nothing_twice() {
    let gaps = [Gap::BeforeLease, Gap::BeforeSubmit, Gap::Accepted].map(die_again_and_again);
    futures::future::join_all(gaps).await;
}
