//! What a user may run at once, after tasks that ended in every bad way.

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use control::SlotSet;
use domain::{AttemptRef, ProviderAccountId, TaskStatus, task::JobHandle};
use fetch::SendGuard;
use provider_adapter::{
    CancelOutcome, Capabilities, LookUp, Observation, OutputError, OutputRef, OutputStream, Provider,
    SubmitJob, SubmitOutcome, Unclear, mock::MockProvider,
};
use serde_json::json;
use testkit::wait_until;

use crate::world::{Order, PATIENCE, Setting, World};

const USER_RUNNING: u32 = 4;

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

#[tokio::test(flavor = "multi_thread")]
async fn whatever_ends_a_users_tasks_badly_the_user_can_run_as_many_as_before() {
    let setting = Setting {
        user_running: Some(USER_RUNNING),
        duration: Duration::from_millis(300),
        adapter: |adapter| Arc::new(Panicking(adapter)),
        ..Setting::default()
    };
    let world = World::with(setting).await;
    world
        .faults(json!([
            {"on": "submit", "match": {"prompt_contains": "times out"}, "action": {"hang": true}, "times": 1},
            {"on": "submit", "match": {"prompt_contains": "gone"}, "action": {"delay_ms": 1_500}, "times": 1}
        ]))
        .await;
    world.model("mock-pro", json!({"duration_ms": 4_000})).await;
    let mut processes: BTreeMap<_, _> =
        ["host:1:a", "host:2:b", "host:3:c"].map(|name| (name, world.process(name))).into();

    // Four that end badly: at the provider, by their owner's going, by a fault of ours, by the death of a process.
    let times_out = world.submit_one(order("times out")).await;
    let gone = world.submit_one(order("gone")).await;
    let panics = world.submit_one(order("panics")).await;
    let killed = world.submit_one(Order { model: "mock-pro", ..Order::default() }).await;
    let mut all = vec![times_out, panics, killed];
    let trouble = async {
        world.until(killed, TaskStatus::Running).await;
        let owner = world.record(killed).await.worker.unwrap();
        processes.remove(owner.as_str()).unwrap().kill();
        if let Err(refusal) = world.cancel(gone).await {
            panic!("too late to cancel: {refusal:?}");
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
    let ((), flood) = tokio::join!(trouble, flood);
    all.extend(flood);
    for record in world.ended(&all).await {
        assert_eq!(record.snapshot.status, TaskStatus::Succeeded, "{}", record.id());
    }
    assert_eq!(world.until(gone, TaskStatus::Canceled).await.snapshot.attempt_no, 1);
    world.quiet().await;

    // Four run again, as Redis and PostgreSQL agree.
    let more = world.submit(8, Order { model: "mock-pro", ..Order::default() }).await;
    wait_until("four jobs at once", PATIENCE, || async {
        world.stat("running").await == u64::from(USER_RUNNING)
    })
    .await;
    let live: HashSet<AttemptRef> =
        world.task_state.all_live_slots().await.unwrap().into_iter().map(|slot| slot.attempt).collect();
    let members = world.control.slot_members(&[SlotSet::User(world.tenant, world.user)]).await.unwrap();
    let members: HashSet<AttemptRef> = members.into_iter().flatten().map(|member| member.attempt).collect();
    assert_eq!(live, members);
    world.ended(&more).await;
    world.quiet().await;
    assert_eq!(world.stat("max_running").await, u64::from(USER_RUNNING), "over three processes");
    assert_eq!(world.stat("max_live_by_task").await, 1);
    world.audit().await;
    drop(processes);
}
