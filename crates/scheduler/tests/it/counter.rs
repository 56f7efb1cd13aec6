//! What a user may run at once, after tasks that ended in every bad way.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};

use async_trait::async_trait;
use control::SlotSet;
use domain::{AttemptRef, ProviderAccountId, TaskId, TaskStatus, task::JobHandle};
use fetch::SendGuard;
use provider_adapter::{
    CancelOutcome, Capabilities, LookUp, Observation, OutputError, OutputRef, OutputStream, Provider,
    SubmitJob, SubmitOutcome, Unclear, mock::MockProvider,
};
use serde_json::json;
use testkit::wait_until;

use crate::world::{Order, PATIENCE, Setting, World};

const USER_RUNNING: u32 = 4;
/// Longer than any test: such a job ends by a cancel.
const LASTING_MS: u64 = 600_000;

/// An adapter with a fault: its first submit of some prompts panics.
struct Panicking(MockProvider);

#[async_trait]
impl Provider for Panicking {
    fn account(&self) -> &ProviderAccountId {
        self.0.account()
    }

    fn capabilities(&self) -> &Capabilities {
        self.0.capabilities()
    }

    async fn submit(&self, job: &SubmitJob, guard: SendGuard) -> SubmitOutcome {
        assert!(job.prompt != "panics" || job.reference.attempt_no > 1, "a fault of an adapter");
        self.0.submit(job, guard).await
    }

    async fn observe(&self, job: &JobHandle) -> Result<Observation, Unclear> {
        self.0.observe(job).await
    }

    async fn look_up(&self, reference: AttemptRef) -> LookUp {
        self.0.look_up(reference).await
    }

    async fn cancel(&self, job: &JobHandle) -> CancelOutcome {
        self.0.cancel(job).await
    }

    async fn open_output(
        &self,
        job: &JobHandle,
        output: Option<&OutputRef>,
    ) -> Result<OutputStream, OutputError> {
        self.0.open_output(job, output).await
    }
}

fn order(prompt: &'static str) -> Order {
    Order { prompt, ..Order::default() }
}

/// The attempts that hold a slot by right, as PostgreSQL has it.
async fn live(world: &World) -> BTreeSet<AttemptRef> {
    world.task_state.all_live_slots().await.unwrap().into_iter().map(|slot| slot.attempt).collect()
}

/// The attempts that hold one of the user's slots in Redis.
async fn members(world: &World) -> BTreeSet<AttemptRef> {
    let members = world.control.slot_members(&[SlotSet::User(world.tenant, world.user)]).await.unwrap();
    members.into_iter().flatten().map(|member| member.attempt).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_ends_a_users_tasks_badly_the_user_can_run_as_many_as_before() {
    let setting = Setting {
        user_running: Some(USER_RUNNING),
        duration: Duration::from_millis(300),
        adapter: |adapter| Arc::new(Panicking(adapter)),
        ..Setting::default()
    };
    let world = World::with(setting).await;
    // However slow this machine is, what is to end badly does not end well before: "gone" has a job that lasts, and the
    // one of "killed" is said to run on until the fault rules are lifted.
    world.model("mock-slow", json!({"duration_ms": LASTING_MS})).await;
    world.model("mock-pro", json!({"duration_ms": 4_000})).await;
    world
        .faults(json!([
            {"on": "submit", "match": {"prompt_contains": "times out"}, "action": {"hang": true}, "times": 1},
            {"on": "submit", "match": {"prompt_contains": "gone"}, "action": {"delay_ms": 1_500}, "times": 1},
            {"on": "poll", "match": {"prompt_contains": "killed"},
                "action": {"body": {"id": "any", "status": "running", "progress": 50}}}
        ]))
        .await;
    let mut processes: BTreeMap<_, _> =
        ["host:1:a", "host:2:b", "host:3:c"].map(|name| (name, world.process(name))).into();

    // Four that end badly, once they hold all the places: at the provider, by their owner's going, by a fault of ours, by
    // the death of a process.
    let times_out = world.submit_one(order("times out")).await;
    let gone = world.submit_one(Order { model: "mock-slow", ..order("gone") }).await;
    let panics = world.submit_one(order("panics")).await;
    let killed = world.submit_one(Order { model: "mock-pro", ..order("killed") }).await;
    world.until(killed, TaskStatus::Running).await;
    wait_until("all four to have begun", PATIENCE, || async {
        let stats = world.stats().await;
        let submits = stats["submits_by_reference"].as_object().unwrap();
        let is_sent = |task: TaskId| submits.keys().any(|name| name.starts_with(&format!("{task}.")));
        is_sent(times_out) && is_sent(gone) && world.record(panics).await.snapshot.attempt_no > 0
    })
    .await;
    let trouble = async {
        let owner = world.record(killed).await.worker.unwrap();
        processes.remove(owner.as_str()).unwrap().kill();
        world.faults(json!([])).await;
        match world.cancel(gone).await {
            Ok(record) => record.snapshot.attempt_no,
            Err(refusal) => panic!("not canceled: {refusal:?}, {:?}", world.events(gone).await),
        }
    };
    // Others keep coming all the time, and none of them renews what the four leave behind.
    let flood = async {
        let mut every = tokio::time::interval(Duration::from_millis(100));
        let mut tasks = Vec::new();
        for _ in 0..60 {
            every.tick().await;
            tasks.push(world.submit_one(Order::default()).await);
        }
        tasks
    };
    let (canceled_attempt, flood) = tokio::join!(trouble, flood);
    for record in world.ended(&[&[times_out, panics, killed], &flood[..]].concat()).await {
        let (snapshot, task) = (&record.snapshot, record.id());
        assert_eq!(snapshot.status, TaskStatus::Succeeded, "{task}: {:?}", snapshot.error_code);
    }
    assert!(world.record(panics).await.snapshot.attempt_no > 1, "there was no fault");
    let last_attempt = world.until(gone, TaskStatus::Canceled).await.snapshot.attempt_no;
    assert_eq!(last_attempt, canceled_attempt, "it was tried again: {:?}", world.events(gone).await);
    world.quiet().await;
    assert_eq!(world.stat("running").await, 0, "the provider works for nobody");

    // Four run again, as Redis and PostgreSQL agree. None of them ends by itself, so this holds until they are canceled.
    world.model("mock-pro", json!({"duration_ms": LASTING_MS})).await;
    let more = world.submit(8, Order { model: "mock-pro", ..Order::default() }).await;
    let asked_at = Instant::now();
    let running = loop {
        let running = world.stat("running").await;
        if running >= u64::from(USER_RUNNING) || asked_at.elapsed() > PATIENCE {
            break running;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    let (live, members) = (live(&world).await, members(&world).await);
    assert!(
        running == u64::from(USER_RUNNING) && live == members,
        "{running} run at once instead of {USER_RUNNING}: {live:?} by PostgreSQL, {members:?} by Redis"
    );
    world.model("mock-pro", json!({"duration_ms": 300})).await;
    for attempt in live {
        world.cancel(attempt.task).await.unwrap();
    }
    let ends: Vec<_> = world.ended(&more).await.iter().map(|record| record.snapshot.status).collect();
    let canceled = ends.iter().filter(|status| **status == TaskStatus::Canceled).count();
    let succeeded = ends.iter().filter(|status| **status == TaskStatus::Succeeded).count();
    assert_eq!((canceled, succeeded), (4, 4), "{ends:?}");
    world.quiet().await;
    assert_eq!(world.stat("max_running").await, u64::from(USER_RUNNING), "over three processes");
    assert_eq!(world.stat("max_live_by_task").await, 1);
    world.audit().await;
    drop(processes);
}
