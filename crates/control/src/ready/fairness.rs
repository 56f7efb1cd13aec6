//! Fairness as tenants feel it: ten places, floods, limits and weights, over a queue that forgets all but the heads.
//!
//! The test plays the scheduler: it takes places, parks who is at a limit, gives places back and fetches what the queue
//! asks for from a backlog that stands for PostgreSQL.

use std::collections::{BTreeMap, VecDeque};

use domain::{Priority, TaskId, TenantId, UserId, WorkerId};

use super::*;
use crate::testing::{Corner, model};

const PLACES: usize = 10;
const PARKED: Duration = Duration::from_secs(600);

/// A scheduler with a few places, whose tasks end when the test says so.
struct Scheduler {
    corner: Corner,
    worker: WorkerId,
    pops: u64,
    /// By user, in the order of their turn.
    backlog: BTreeMap<(TenantId, UserId), VecDeque<ReadyTask>>,
    /// Places that one tenant may have.
    limits: BTreeMap<TenantId, usize>,
    running: VecDeque<ReadyTask>,
    started: Vec<ReadyTask>,
}

impl Scheduler {
    fn new() -> Self {
        Self {
            corner: Corner::new(),
            worker: "one".parse().unwrap(),
            pops: 0,
            backlog: BTreeMap::new(),
            limits: BTreeMap::new(),
            running: VecDeque::new(),
            started: Vec::new(),
        }
    }

    /// Tasks of a tenant, spread evenly over so many users.
    async fn submit(&mut self, tenant: TenantId, users: usize, tasks: usize, tenant_weight: u32) {
        for _ in 0..users {
            let user = UserId::generate();
            let tasks: Vec<ReadyTask> = (0..tasks / users)
                .map(|place| ReadyTask {
                    task: TaskId::generate(),
                    model: model(),
                    tenant,
                    user,
                    priority: Priority::default(),
                    tenant_weight,
                    created_ms: i64::try_from(place).unwrap(),
                    not_before_ms: 0,
                    next_attempt_no: 1,
                })
                .collect();
            self.corner.control.add_ready(&tasks).await.unwrap();
            self.backlog.insert((tenant, user), tasks.into());
        }
    }

    fn running_of(&self, tenant: TenantId) -> usize {
        self.running.iter().filter(|task| task.tenant == tenant).count()
    }

    fn is_at_limit(&self, tenant: TenantId) -> bool {
        self.limits.get(&tenant).is_some_and(|limit| self.running_of(tenant) >= *limit)
    }

    /// Fills the places. None stays empty while somebody who is not at a limit has a task.
    async fn fill(&mut self) {
        while self.running.len() < PLACES {
            self.pops += 1;
            let control = &self.corner.control;
            let popped = control.pop_ready(&model(), 1, &self.worker, self.pops).await.unwrap();
            for QueuedUser { tenant, user } in popped.refill {
                let out: Vec<_> = popped.tasks.iter().map(|task| task.task).collect();
                let waiting = self.backlog[&(tenant, user)].iter().filter(|task| !out.contains(&task.task));
                let next: Vec<_> = waiting.take(150).cloned().collect();
                control.add_ready(&next).await.unwrap();
            }
            let Some(task) = popped.tasks.into_iter().next() else { break };
            if self.is_at_limit(task.tenant) {
                let park = Park::Tenant { for_at_most: PARKED };
                control.put_back(&[(task, park)]).await.unwrap();
                continue;
            }
            control.done_ready(std::slice::from_ref(&task)).await.unwrap();
            let of_user = self.backlog.get_mut(&(task.tenant, task.user)).unwrap();
            of_user.retain(|waiting| waiting.task != task.task);
            self.started.push(task.clone());
            self.running.push_back(task);
        }
        let admissible = self
            .backlog
            .iter()
            .any(|((tenant, _), waiting)| !waiting.is_empty() && !self.is_at_limit(*tenant));
        assert!(self.running.len() == PLACES || !admissible, "a place is empty while somebody could have it");
    }

    /// Pops so many tasks, finds no room for them, and puts them back.
    async fn look_in_vain(&mut self, count: u32) {
        self.pops += 1;
        let control = &self.corner.control;
        let popped = control.pop_ready(&model(), count, &self.worker, self.pops).await.unwrap().tasks;
        let back: Vec<_> = popped.into_iter().map(|task| (task, Park::Head)).collect();
        control.put_back(&back).await.unwrap();
    }

    /// The longest-running task ends, and its place is given to whoever is next.
    async fn end_one(&mut self) {
        let ended = self.running.pop_front().unwrap();
        let wake = Wake { model: model(), tenant: ended.tenant, user: ended.user };
        self.corner.control.wake(&[wake]).await.unwrap();
        self.fill().await;
    }

    async fn end(&mut self, count: usize) {
        for _ in 0..count {
            self.end_one().await;
        }
    }
}

/// A flood of one tenant; another one's single task starts within the next two places that become free.
async fn a_newcomer_passes_a_flood(users: usize, limit: Option<usize>) {
    let (flood, newcomer) = (TenantId::generate(), TenantId::generate());
    let mut scheduler = Scheduler::new();
    scheduler.limits.extend(limit.map(|limit| (flood, limit)));
    scheduler.submit(flood, users, 5_000, 1).await;
    scheduler.fill().await;
    let most = limit.unwrap_or(PLACES);
    assert_eq!(scheduler.running_of(flood), most, "the flood has all that it may");
    scheduler.end(150).await;
    assert_eq!(scheduler.running_of(flood), most);

    scheduler.submit(newcomer, 1, 1, 1).await;
    let before = scheduler.started.len();
    scheduler.end(2).await;
    let next = scheduler.started[before..].iter().position(|task| task.tenant == newcomer);
    assert!(next.is_some_and(|place| place < 2), "{users} users, {limit:?}: {next:?}");
    scheduler.end(PLACES).await;
    assert_eq!(scheduler.running_of(flood), most, "and all again once the other one has nothing");
}

/// C21, the flood of one user.
#[tokio::test]
async fn one_users_flood_holds_up_nobody() {
    a_newcomer_passes_a_flood(1, None).await;
}

/// C21, the flood of five hundred.
#[tokio::test]
async fn a_flood_spread_over_many_users_holds_up_nobody_either() {
    a_newcomer_passes_a_flood(500, None).await;
}

/// C21, the flood at its own limit: what may not go is in nobody's way.
#[tokio::test]
async fn a_flood_at_its_own_limit_leaves_the_other_places_free() {
    a_newcomer_passes_a_flood(1, Some(6)).await;
    a_newcomer_passes_a_flood(500, Some(6)).await;
}

/// While everything is full, whoever looks for room pops and puts back.
#[tokio::test]
async fn a_single_task_that_is_popped_in_vain_keeps_its_turn() {
    let mut tenants = [TenantId::generate(), TenantId::generate()];
    // Names decide between equals, so both of them play both parts.
    for _ in 0..2 {
        tenants.reverse();
        let [flood, newcomer] = tenants;
        for users in [1, 50] {
            let mut scheduler = Scheduler::new();
            scheduler.submit(flood, users, 100, 1).await;
            scheduler.fill().await;
            scheduler.submit(newcomer, 1, 1, 1).await;
            let before = scheduler.started.len();
            for _ in 0..3 {
                scheduler.look_in_vain(1).await;
                scheduler.look_in_vain(2).await;
                scheduler.end_one().await;
                scheduler.look_in_vain(3).await;
                scheduler.look_in_vain(1).await;
            }
            let next = scheduler.started[before..].iter().position(|task| task.tenant == newcomer);
            assert!(next.is_some_and(|place| place < 2), "{users} users: {next:?}");
        }
    }
}

#[tokio::test]
async fn over_a_thousand_starts_tenants_get_what_they_weigh_and_users_alike() {
    let (light, heavy) = (TenantId::generate(), TenantId::generate());
    let mut scheduler = Scheduler::new();
    // More users gain nothing, and neither does having asked first.
    scheduler.submit(light, 20, 2_000, 1).await;
    scheduler.submit(heavy, 2, 2_000, 3).await;
    scheduler.fill().await;
    scheduler.end(1_000 - PLACES).await;
    let shares = |of: &dyn Fn(&ReadyTask) -> bool| scheduler.started.iter().filter(|task| of(task)).count();
    let (of_light, of_heavy) = (shares(&|task| task.tenant == light), shares(&|task| task.tenant == heavy));
    assert_eq!(of_light + of_heavy, 1_000);
    assert!((225..=275).contains(&of_light), "{of_light} of 1,000 instead of 250");
    for (tenant, user) in scheduler.backlog.keys() {
        let (got, fair) = (shares(&|task| task.user == *user), if *tenant == light { 12 } else { 375 });
        assert!(got.abs_diff(fair) <= 1 + fair / 10, "{got} instead of {fair}");
    }
}

#[tokio::test]
async fn an_urgent_stream_holds_up_its_users_plain_tasks_for_no_longer_than_its_head_start() {
    let corner = Corner::new();
    let (tenant, user, minute) = (TenantId::generate(), UserId::generate(), 60_000);
    let task = |priority: u8, created_ms: i64| ReadyTask {
        task: TaskId::generate(),
        model: model(),
        tenant,
        user,
        priority: Priority::new(priority).unwrap(),
        tenant_weight: 1,
        created_ms,
        not_before_ms: 0,
        next_attempt_no: 1,
    };
    let plain = task(0, 0);
    corner.control.add_ready(std::slice::from_ref(&plain)).await.unwrap();
    // Every minute one more comes and one starts; each is ahead by three minutes.
    let mut started_at = None;
    for now in 0..10 {
        corner.control.add_ready(&[task(3, now * minute)]).await.unwrap();
        let worker = "one".parse().unwrap();
        let popped = corner.control.pop_ready(&model(), 1, &worker, now.unsigned_abs()).await.unwrap();
        corner.control.done_ready(&popped.tasks).await.unwrap();
        if popped.tasks == std::slice::from_ref(&plain) {
            started_at = Some(now);
        }
    }
    assert!(started_at.is_some_and(|minute| (3..=4).contains(&minute)), "{started_at:?}");
}
