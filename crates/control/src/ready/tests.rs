//! The ready queue against a real server.

use std::collections::{BTreeMap, BTreeSet};

use domain::{Priority, TaskId, TenantId, UserId, WorkerId};
use proptest::prelude::*;

use super::*;
use crate::{
    Control,
    testing::{Corner, model},
};

const SOON: Duration = Duration::from_secs(5);

fn task(tenant: TenantId, user: UserId, created_ms: i64) -> ReadyTask {
    ReadyTask {
        task: TaskId::generate(),
        model: model(),
        tenant,
        user,
        priority: Priority::default(),
        tenant_weight: 1,
        created_ms,
        not_before_ms: 0,
        next_attempt_no: 1,
    }
}

fn tasks(count: i64, tenant: TenantId, user: UserId) -> Vec<ReadyTask> {
    (0..count).map(|i| task(tenant, user, 1_000 + i)).collect()
}

async fn add(control: &Control, tasks: &[ReadyTask]) {
    assert!(control.add_ready(tasks).await.unwrap().iter().all(|added| *added == Added::New));
}

/// Who has popped nothing yet.
fn somebody() -> WorkerId {
    format!("worker-{}", TaskId::generate()).parse().unwrap()
}

async fn pop(control: &Control, max: u32) -> Vec<ReadyTask> {
    control.pop_ready(&model(), max, &somebody(), 0).await.unwrap().tasks
}

/// Pops one by one and finishes each, as a scheduler with one free place at a time does.
async fn serve(control: &Control, count: usize) -> Vec<ReadyTask> {
    let mut served = Vec::new();
    while served.len() < count {
        let popped = pop(control, 1).await;
        if popped.is_empty() {
            break;
        }
        control.done_ready(&popped).await.unwrap();
        served.extend(popped);
    }
    served
}

#[tokio::test]
async fn a_pop_whose_answer_was_lost_is_told_again_and_takes_nothing_new() {
    let corner = Corner::new();
    let (tenant, user, worker) = (TenantId::generate(), UserId::generate(), somebody());
    let all = tasks(120, tenant, user);
    add(&corner.control, &all[..100]).await;
    let full = corner.control.add_ready(&all[100..]).await.unwrap();
    assert!(full.iter().all(|added| *added == Added::Full));
    let lost = corner.control.pop_ready(&model(), 60, &worker, 7).await.unwrap();
    assert_eq!((lost.tasks.len(), lost.refill.len()), (60, 1));
    let told = corner.control.pop_ready(&model(), 9, &worker, 7).await.unwrap();
    assert_eq!((&told.tasks, &told.refill), (&lost.tasks, &lost.refill));

    let others = corner.control.pop_ready(&model(), 9, &somebody(), 7).await.unwrap();
    assert_eq!(others.tasks, all[60..69], "another worker's pops are its own");
    let next = corner.control.pop_ready(&model(), 9, &worker, 8).await.unwrap();
    assert_eq!(next.tasks, all[69..78]);
    let old = corner.control.pop_ready(&model(), 9, &worker, 7).await.unwrap();
    assert_eq!(old.tasks, all[78..87], "only the last pop is remembered");
}

#[tokio::test]
async fn a_task_comes_back_whole_and_once() {
    let corner = Corner::new();
    let (tenant, user) = (TenantId::generate(), UserId::generate());
    let whole = ReadyTask {
        priority: Priority::new(7).unwrap(),
        tenant_weight: 3,
        not_before_ms: 1,
        next_attempt_no: 4,
        ..task(tenant, user, 1_790_000_000_123)
    };
    add(&corner.control, std::slice::from_ref(&whole)).await;
    assert_eq!(corner.control.add_ready(std::slice::from_ref(&whole)).await, Ok(vec![Added::Already]));
    assert_eq!(corner.control.queue_depths(&[model()]).await, Ok(vec![1]));
    assert_eq!(pop(&corner.control, 9).await, std::slice::from_ref(&whole));
    assert_eq!(
        corner.control.add_ready(std::slice::from_ref(&whole)).await,
        Ok(vec![Added::Already]),
        "it is claimed"
    );
    assert!(pop(&corner.other(), 9).await.is_empty());
    corner.control.done_ready(&[whole]).await.unwrap();
    assert_eq!(corner.control.queue_depths(&[model()]).await, Ok(vec![0]));
}

#[tokio::test]
async fn a_flood_does_not_delay_another_tenant_however_it_is_spread() {
    for users in [1, 50] {
        let corner = Corner::new();
        let flood = TenantId::generate();
        for _ in 0..users {
            add(&corner.control, &tasks(100 / users, flood, UserId::generate())).await;
        }
        // Ten are running and some were popped and put back for want of room.
        assert_eq!(serve(&corner.control, 10).await.len(), 10);
        let out = pop(&corner.control, 40).await;
        let back: Vec<_> = out.into_iter().map(|task| (task, Park::Head)).collect();
        corner.control.put_back(&back).await.unwrap();
        let late = task(TenantId::generate(), UserId::generate(), 9_999_999);
        add(&corner.control, std::slice::from_ref(&late)).await;
        let next: Vec<_> = serve(&corner.control, 2).await.iter().map(|task| task.task).collect();
        assert!(next.contains(&late.task), "{users} users");
        assert_eq!(serve(&corner.control, 200).await.len(), 89, "the flood uses what nobody else wants");
    }
}

#[tokio::test]
async fn turns_held_by_another_worker_do_not_let_the_flood_run_ahead() {
    let corner = Corner::new();
    let flood = TenantId::generate();
    add(&corner.control, &tasks(100, flood, UserId::generate())).await;
    let out = pop(&corner.other(), 60).await;
    // The newcomer arrives while they are out; then all sixty return.
    let late = task(TenantId::generate(), UserId::generate(), 9_999_999);
    add(&corner.control, std::slice::from_ref(&late)).await;
    let back: Vec<_> = out.into_iter().map(|task| (task, Park::Head)).collect();
    corner.other().put_back(&back).await.unwrap();
    let next: Vec<_> = serve(&corner.control, 2).await.iter().map(|task| task.task).collect();
    assert!(next.contains(&late.task));
}

#[tokio::test]
async fn a_turn_is_not_lost_however_often_schedulers_take_it_in_vain() {
    let corner = Corner::new();
    // Of two whose turn it is, names decide.
    let mut tenants = [TenantId::generate(), TenantId::generate()];
    tenants.sort_unstable();
    let [newcomer, flood] = tenants;
    add(&corner.control, &tasks(100, flood, UserId::generate())).await;
    serve(&corner.control, 10).await;
    let late = task(newcomer, UserId::generate(), 9_999_999);
    add(&corner.control, std::slice::from_ref(&late)).await;
    let in_vain = async |control: &Control, count| {
        let popped = pop(control, count).await;
        popped.into_iter().map(|task| (task, Park::Head)).collect::<Vec<_>>()
    };
    for _ in 0..5 {
        let one = in_vain(&corner.control, 1).await;
        assert_eq!(one[0].0, late);
        let other = in_vain(&corner.other(), 5).await;
        corner.control.put_back(&one).await.unwrap();
        corner.other().put_back(&other).await.unwrap();
    }
    assert_eq!(serve(&corner.control, 1).await, [late]);
}

/// Of two tenants with equal tasks, what the first one's get of the next starts.
async fn next_starts(corner: &Corner, tenant: TenantId, count: usize) -> usize {
    serve(&corner.control, count).await.iter().filter(|task| task.tenant == tenant).count()
}

#[tokio::test]
async fn a_start_uses_its_turn_though_its_claim_ran_out_and_what_is_canceled_does_not() {
    let corner = Corner::new();
    let (slow, other) = (TenantId::generate(), TenantId::generate());
    for tenant in [slow, other] {
        add(&corner.control, &tasks(90, tenant, UserId::generate())).await;
    }
    let claimed = format!("{}claimed", corner.keys().ready(&model()));
    // Both have popped ten. One's are started when their claims are long over, the other's at once.
    let popped = pop(&corner.control, 20).await;
    let (late, started): (Vec<_>, Vec<_>) = popped.into_iter().partition(|task| task.tenant == slow);
    assert_eq!((late.len(), started.len()), (10, 10));
    corner.control.done_ready(&started).await.unwrap();
    for task in &late {
        corner.raw::<()>(&["ZADD", &claimed, "1", &task.task.to_string()]).await;
    }
    assert_eq!(pop(&corner.control, 0).await, []);
    corner.control.done_ready(&late).await.unwrap();
    assert_eq!(next_starts(&corner, slow, 20).await, 10);

    // Ten of one's are canceled while they are out: it is its turn ten times more often.
    let popped = pop(&corner.control, 20).await;
    let (canceled, started): (Vec<_>, Vec<_>) = popped.into_iter().partition(|task| task.tenant == slow);
    corner.control.done_ready(&started).await.unwrap();
    corner.control.remove_ready(&canceled).await.unwrap();
    assert_eq!(next_starts(&corner, slow, 10).await, 10);
    assert_eq!(next_starts(&corner, slow, 20).await, 10);
}

#[tokio::test]
async fn turns_that_were_lost_are_forgotten_once_nothing_can_be_out_any_more() {
    let corner = Corner::new();
    let (unlucky, other) = (TenantId::generate(), TenantId::generate());
    let own = tasks(2, unlucky, UserId::generate());
    add(&corner.control, &own[..1]).await;
    assert_eq!(pop(&corner.control, 9).await, own[..1]);
    // Half of what the queue knew of it evaporates, and the others go on.
    let prefix = corner.keys().ready(&model());
    corner.raw::<()>(&["DEL", &format!("{prefix}k:{}", own[0].task), &format!("{prefix}claimed")]).await;
    let tenant = format!("{prefix}t:{unlucky}");
    assert_eq!(corner.raw::<i64>(&["HGET", &tenant, "out"]).await, 10_000);
    corner.raw::<()>(&["HSET", &tenant, "until", "1"]).await;
    add(&corner.control, &tasks(90, other, UserId::generate())).await;
    serve(&corner.control, 30).await;
    // It begins where the others are, and has nothing saved up.
    add(&corner.control, &own[1..]).await;
    let (vt, out): (i64, i64) = corner.raw(&["HMGET", &tenant, "vt", "out"]).await;
    assert!(vt >= 290_000 && out == 0, "{vt} {out}");
}

#[tokio::test]
async fn one_after_the_other_is_no_way_past_a_backlog() {
    let corner = Corner::new();
    let (patient, sly) = (TenantId::generate(), TenantId::generate());
    add(&corner.control, &tasks(100, patient, UserId::generate())).await;
    let user = UserId::generate();
    let mut served: BTreeMap<TenantId, usize> = BTreeMap::new();
    for i in 0..40 {
        // Always exactly one waiting, under a new user each second time.
        let user = if i % 2 == 0 { user } else { UserId::generate() };
        corner.control.add_ready(&[task(sly, user, i)]).await.unwrap();
        for task in serve(&corner.control, 1).await {
            *served.entry(task.tenant).or_default() += 1;
        }
    }
    assert!((19..=21).contains(&served[&patient]), "{served:?}");
}

#[tokio::test]
async fn shares_follow_the_weights_and_users_share_their_tenants_alike() {
    let corner = Corner::new();
    let (light, heavy) = (TenantId::generate(), TenantId::generate());
    let users: Vec<_> = (0..3).map(|_| UserId::generate()).collect();
    for user in &users {
        add(&corner.control, &tasks(90, light, *user)).await;
    }
    let user = UserId::generate();
    let weighty: Vec<_> =
        tasks(100, heavy, user).into_iter().map(|t| ReadyTask { tenant_weight: 3, ..t }).collect();
    add(&corner.control, &weighty).await;
    let served = serve(&corner.control, 120).await;
    let of = |tenant| served.iter().filter(|task| task.tenant == tenant).count();
    assert!((89..=91).contains(&of(heavy)), "{}", of(heavy));
    for user in users {
        let count = served.iter().filter(|task| task.user == user).count();
        assert!((9..=11).contains(&count), "{count}");
    }
}

#[tokio::test]
async fn priority_goes_first_within_a_user_but_age_overtakes_it() {
    let corner = Corner::new();
    let (tenant, user) = (TenantId::generate(), UserId::generate());
    let now = 1_790_000_000_000;
    let plain = task(tenant, user, now);
    let older = task(tenant, user, now - 1_000);
    let urgent = ReadyTask { priority: Priority::new(5).unwrap(), ..task(tenant, user, now) };
    let ancient = task(tenant, user, now - 6 * 60_000);
    add(&corner.control, &[plain.clone(), older.clone(), urgent.clone(), ancient.clone()]).await;
    assert_eq!(serve(&corner.control, 9).await, [ancient, urgent, older, plain]);
}

#[tokio::test]
async fn only_heads_are_kept_better_ones_displace_and_a_refill_is_asked_for_once() {
    let corner = Corner::new();
    let (tenant, user) = (TenantId::generate(), UserId::generate());
    let many = tasks(130, tenant, user);
    let added = corner.control.add_ready(&many).await.unwrap();
    assert_eq!(added.iter().filter(|added| **added == Added::Full).count(), 30);
    let best = task(tenant, user, 1);
    assert_eq!(corner.control.add_ready(std::slice::from_ref(&best)).await, Ok(vec![Added::New]));
    assert_eq!(corner.control.queue_depths(&[model()]).await, Ok(vec![100]));

    let popped = corner.control.pop_ready(&model(), 49, &somebody(), 0).await.unwrap();
    assert_eq!(popped.tasks[0], best);
    assert_eq!(popped.refill, []);
    corner.control.done_ready(&popped.tasks).await.unwrap();
    let popped = corner.control.pop_ready(&model(), 1, &somebody(), 0).await.unwrap();
    assert_eq!(popped.refill, [QueuedUser { tenant, user }]);
    let popped = corner.control.pop_ready(&model(), 1, &somebody(), 0).await.unwrap();
    assert_eq!(popped.refill, []);
    let added = corner.control.add_ready(&many[99..]).await.unwrap();
    assert!(added.iter().all(|added| *added == Added::New), "the displaced one too");
}

#[tokio::test]
async fn who_is_parked_stands_aside_until_woken() {
    let corner = Corner::new();
    let (tenant, other) = (TenantId::generate(), TenantId::generate());
    let (user, colleague, stranger) = (UserId::generate(), UserId::generate(), UserId::generate());
    let own = tasks(2, tenant, user);
    let of_colleague = tasks(2, tenant, colleague);
    let of_stranger = tasks(1, other, stranger);
    let long = Duration::from_secs(600);
    add(&corner.control, &own).await;
    let first = pop(&corner.control, 1).await.remove(0);
    corner.control.put_back(&[(first.clone(), Park::User { for_at_most: long })]).await.unwrap();
    assert!(pop(&corner.control, 9).await.is_empty());

    // Others of the tenant go on, also when they come later; the parked user's new tasks wait too.
    add(&corner.control, &of_colleague).await;
    let more = task(tenant, user, 0);
    add(&corner.control, std::slice::from_ref(&more)).await;
    let popped = pop(&corner.control, 1).await;
    assert_eq!(popped, of_colleague[..1]);
    corner.control.put_back(&[(popped[0].clone(), Park::Tenant { for_at_most: long })]).await.unwrap();
    add(&corner.control, &of_stranger).await;
    assert_eq!(serve(&corner.control, 9).await, of_stranger);
    let due = corner.control.pop_ready(&model(), 9, &somebody(), 0).await.unwrap().next_due_ms.unwrap();
    assert!((500_000..=600_000).contains(&due), "{due}");

    // A release wakes the tenant; the user too, since it is named.
    let wake = |user| Wake { model: model(), tenant, user };
    corner.control.wake(&[wake(colleague)]).await.unwrap();
    assert_eq!(serve(&corner.control, 9).await, of_colleague);
    corner.control.wake(&[wake(user)]).await.unwrap();
    assert_eq!(serve(&corner.control, 9).await, [vec![more], own].concat());
    assert_eq!(corner.control.queue_depths(&[model()]).await, Ok(vec![0]));
}

#[tokio::test]
async fn timers_bring_back_the_parked_and_those_that_were_not_due() {
    let corner = Corner::new();
    let (tenant, user) = (TenantId::generate(), UserId::generate());
    let now = corner.control.now_ms().await.unwrap();
    let later = ReadyTask { not_before_ms: now + 400, ..task(tenant, user, 1) };
    add(&corner.control, std::slice::from_ref(&later)).await;
    let popped = corner.control.pop_ready(&model(), 9, &somebody(), 0).await.unwrap();
    assert_eq!(popped.tasks, []);
    assert!((1..=400).contains(&popped.next_due_ms.unwrap()));
    assert_eq!(corner.control.queue_depths(&[model()]).await, Ok(vec![1]));
    testkit::wait_until("the instant", SOON, async || {
        pop(&corner.control, 9).await == std::slice::from_ref(&later)
    })
    .await;
    assert!(corner.control.now_ms().await.unwrap() >= now + 400);

    for park in [
        Park::User { for_at_most: Duration::from_millis(50) },
        Park::Tenant { for_at_most: Duration::from_millis(50) },
        Park::Task { until_ms: corner.control.now_ms().await.unwrap() + 500 },
    ] {
        corner.control.put_back(&[(later.clone(), park)]).await.unwrap();
        assert!(pop(&corner.control, 9).await.is_empty(), "{park:?}");
        testkit::wait_until("the timer", SOON, async || {
            pop(&corner.control, 9).await == std::slice::from_ref(&later)
        })
        .await;
    }
}

#[tokio::test]
async fn a_claim_that_nobody_finishes_comes_back() {
    let corner = Corner::new();
    let lost = task(TenantId::generate(), UserId::generate(), 1);
    add(&corner.control, std::slice::from_ref(&lost)).await;
    assert_eq!(pop(&corner.control, 1).await, std::slice::from_ref(&lost));
    let claimed = format!("{}claimed", corner.keys().ready(&model()));
    let until: i64 = corner.raw(&["ZSCORE", &claimed, &lost.task.to_string()]).await;
    let now = corner.control.now_ms().await.unwrap();
    assert!((9_000..=10_000).contains(&(until - now)));
    corner.raw::<()>(&["ZADD", &claimed, "1", &lost.task.to_string()]).await;
    assert_eq!(pop(&corner.control, 1).await, std::slice::from_ref(&lost));
    // Whoever held the first claim still: a late put_back of a finished task adds nothing.
    corner.control.done_ready(std::slice::from_ref(&lost)).await.unwrap();
    corner.control.put_back(&[(lost, Park::Head)]).await.unwrap();
    assert!(pop(&corner.control, 9).await.is_empty());
}

#[tokio::test]
async fn a_task_that_went_back_is_added_although_its_claim_was_never_ended() {
    let corner = Corner::new();
    let popped = task(TenantId::generate(), UserId::generate(), 1);
    add(&corner.control, std::slice::from_ref(&popped)).await;
    assert_eq!(pop(&corner.control, 1).await, std::slice::from_ref(&popped));
    let again = ReadyTask { next_attempt_no: popped.next_attempt_no + 1, ..popped.clone() };
    add(&corner.control, std::slice::from_ref(&again)).await;
    assert_eq!(corner.control.queue_depths(&[model()]).await, Ok(vec![1]));
    // Somebody who read the task before that comes too late.
    assert_eq!(corner.control.add_ready(&[popped]).await, Ok(vec![Added::Already]));
    let third = ReadyTask { next_attempt_no: again.next_attempt_no + 1, ..again.clone() };
    add(&corner.control, std::slice::from_ref(&third)).await;
    assert_eq!(corner.control.queue_depths(&[model()]).await, Ok(vec![1]), "it waits once, as it is now");
    assert_eq!(pop(&corner.control, 9).await, std::slice::from_ref(&third));
    // A late word about the attempt before says nothing of the one that is claimed now.
    corner.control.put_back(&[(again.clone(), Park::Head)]).await.unwrap();
    corner.control.done_ready(std::slice::from_ref(&again)).await.unwrap();
    corner.control.remove_ready(&[again]).await.unwrap();
    assert!(pop(&corner.control, 9).await.is_empty());
    corner.control.put_back(&[(third.clone(), Park::Head)]).await.unwrap();
    assert_eq!(pop(&corner.control, 9).await, [third]);
}

#[tokio::test]
async fn cancelled_tasks_are_gone_wherever_they_were() {
    let corner = Corner::new();
    let (tenant, user) = (TenantId::generate(), UserId::generate());
    let now = corner.control.now_ms().await.unwrap();
    let (claimed, waiting) = (task(tenant, user, 1), task(tenant, user, 2));
    let later = ReadyTask { not_before_ms: now + 60_000, ..task(tenant, user, 3) };
    let all = [claimed.clone(), waiting, later];
    add(&corner.control, &all).await;
    assert_eq!(pop(&corner.control, 1).await, [claimed]);
    corner.control.remove_ready(&all).await.unwrap();
    assert_eq!(corner.control.queue_depths(&[model()]).await, Ok(vec![0]));
    let popped = corner.control.pop_ready(&model(), 9, &somebody(), 0).await.unwrap();
    assert_eq!((popped.tasks, popped.next_due_ms), (vec![], None));
    add(&corner.control, &all).await;
}

#[tokio::test]
async fn positions_are_turns() {
    let corner = Corner::new();
    let (a, b) = (TenantId::generate(), TenantId::generate());
    let (user, colleague, stranger) = (UserId::generate(), UserId::generate(), UserId::generate());
    let own = tasks(10, a, user);
    add(&corner.control, &own).await;
    add(&corner.control, &tasks(3, a, colleague)).await;
    add(&corner.control, &tasks(2, b, stranger)).await;
    let of = |task: &ReadyTask| (model(), task.tenant, task.user, task.task);
    let asked: Vec<_> = own.iter().map(of).collect();
    let said: Vec<_> =
        corner.control.positions(&asked).await.unwrap().into_iter().map(|place| place.unwrap()).collect();
    // Against what happens.
    let order: Vec<_> = serve(&corner.control, 99).await.iter().map(|task| task.task).collect();
    for (place, (task, said)) in own.iter().zip(said).enumerate() {
        assert_eq!(said.of_user, u64::try_from(place).unwrap() + 1);
        assert!(said.of_user <= said.of_tenant && said.of_tenant <= said.of_model, "{said:?}");
        let said = said.of_model;
        let real = u64::try_from(order.iter().position(|served| *served == task.task).unwrap()).unwrap() + 1;
        assert!(said.abs_diff(real) <= 2, "said {said}, was {real}");
    }
    assert_eq!(corner.control.positions(&asked[..1]).await, Ok(vec![None]));
}

#[tokio::test]
async fn a_lost_queue_says_so_and_adding_again_mends_it() {
    let corner = Corner::new();
    let all = tasks(5, TenantId::generate(), UserId::generate());
    add(&corner.control, &all).await;
    assert!(!corner.control.pop_ready(&model(), 0, &somebody(), 0).await.unwrap().marked);
    corner.control.mark_ready(&model()).await.unwrap();
    assert!(corner.control.pop_ready(&model(), 0, &somebody(), 0).await.unwrap().marked);
    // Half of it evaporates: everything but the tasks' own records.
    for (key, _) in corner.all_keys().await {
        if !key.contains(":k:") {
            corner.raw::<()>(&["DEL", &key]).await;
        }
    }
    assert_eq!(corner.control.ready_marker(&model()).await, Ok(false));
    assert!(pop(&corner.control, 9).await.is_empty());
    corner.control.add_ready(&all).await.unwrap();
    assert_eq!(serve(&corner.control, 9).await, all);
}

/// What a scheduler may do.
#[derive(Debug, Clone)]
enum Step {
    Add { tenant: usize, user: usize, priority: u8 },
    AddAgain,
    Pop { max: u32 },
    Done,
    Back { how: u8 },
    Cancel,
    Wake { tenant: usize, user: usize },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..3_usize, 0..3_usize, 0..3_u8).prop_map(|(tenant, user, priority)| Step::Add { tenant, user, priority }),
        1 => Just(Step::AddAgain),
        3 => (1..4_u32).prop_map(|max| Step::Pop { max }),
        2 => Just(Step::Done),
        2 => (0..3_u8).prop_map(|how| Step::Back { how }),
        1 => Just(Step::Cancel),
        2 => (0..3_usize, 0..3_usize).prop_map(|(tenant, user)| Step::Wake { tenant, user }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// Whatever the order of steps: no task is lost, none is out twice, and when nobody is parked, all can be popped.
    #[test]
    fn nothing_is_lost_and_nothing_is_out_twice(steps in prop::collection::vec(step(), 1..60)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let corner = Corner::new();
            let tenants: Vec<_> = (0..3).map(|_| TenantId::generate()).collect();
            let users: Vec<_> = (0..3).map(|_| UserId::generate()).collect();
            let long = Duration::from_secs(600);
            let (mut open, mut out): (BTreeMap<TaskId, ReadyTask>, Vec<ReadyTask>) = Default::default();
            let mut clock = 0;
            for step in steps {
                match step {
                    Step::Add { tenant, user, priority } => {
                        clock += 1;
                        let priority = Priority::new(priority).unwrap();
                        let task = ReadyTask { priority, ..task(tenants[tenant], users[user], clock) };
                        add(&corner.control, std::slice::from_ref(&task)).await;
                        open.insert(task.task, task);
                    }
                    Step::AddAgain => {
                        let all: Vec<_> = open.values().cloned().collect();
                        let added = corner.control.add_ready(&all).await.unwrap();
                        assert!(added.iter().all(|added| *added == Added::Already));
                    }
                    Step::Pop { max } => {
                        for task in pop(&corner.control, max).await {
                            assert_eq!(open.get(&task.task), Some(&task), "popped what is not open");
                            assert!(!out.contains(&task), "popped twice");
                            out.push(task);
                        }
                    }
                    Step::Done => {
                        if let Some(task) = out.pop() {
                            open.remove(&task.task);
                            corner.control.done_ready(&[task]).await.unwrap();
                        }
                    }
                    Step::Back { how } => {
                        if let Some(task) = out.pop() {
                            let park = match how {
                                0 => Park::Head,
                                1 => Park::User { for_at_most: long },
                                _ => Park::Tenant { for_at_most: long },
                            };
                            corner.control.put_back(&[(task, park)]).await.unwrap();
                        }
                    }
                    Step::Cancel => {
                        if let Some((_, task)) = open.pop_first() {
                            out.retain(|held| held.task != task.task);
                            corner.control.remove_ready(&[task]).await.unwrap();
                        }
                    }
                    Step::Wake { tenant, user } => {
                        let wake = Wake { model: model(), tenant: tenants[tenant], user: users[user] };
                        corner.control.wake(&[wake]).await.unwrap();
                    }
                }
                let waiting = open.len() - out.len();
                let depth = corner.control.queue_depths(&[model()]).await.unwrap()[0];
                assert_eq!(depth, u64::try_from(waiting).unwrap(), "the count of what waits");
            }
            let everybody = tenants.iter().flat_map(|tenant| {
                users.iter().map(|user| Wake { model: model(), tenant: *tenant, user: *user })
            });
            corner.control.wake(&everybody.collect::<Vec<_>>()).await.unwrap();
            let rest: BTreeSet<_> = pop(&corner.control, 200).await.iter().map(|task| task.task).collect();
            let held: BTreeSet<_> = out.iter().map(|task| task.task).collect();
            let all: BTreeSet<_> = open.keys().copied().collect();
            assert_eq!(&rest | &held, all, "lost");
            assert!(rest.is_disjoint(&held));
        });
    }
}
