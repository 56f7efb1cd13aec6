//! Daily quotas from a submit's point of view: exact at the boundary, by the tenant's own midnight, charged once, and given back
//! to the day that was charged.

use std::{collections::HashMap, sync::Arc, time::Duration};

use chrono::{DateTime, TimeDelta, Utc};
use domain::{
    Scopes, TaskId, TimeZone,
    limits::{LimitScope, Reset},
    task::Event,
};
use futures::future::join_all;
use task_state::{Expect, Move, MoveDetail, MoveOutcome};
use tenancy::Session;

use crate::{
    CancelOutcome, SubmitError,
    batch::{self, Element, Verdict},
    quote::Decision,
    tests_support::{Process, World},
};

fn at(text: &str) -> DateTime<Utc> {
    text.parse().unwrap()
}

/// A user of a new tenant in this zone, of the tier `daily`: 5 tasks a day, 8 of the tenant.
async fn user(world: &World, zone: &str) -> Arc<Session> {
    let tenant = world.tenant_in("daily", Some(zone)).await;
    world.user_of(tenant, 1_000, Scopes::default_of_keys()).await
}

async fn colleague(world: &World, of: &Session) -> Arc<Session> {
    world.user_of(of.principal.tenant, 1_000, Scopes::default_of_keys()).await
}

async fn accepted(process: &Process, session: &Arc<Session>) -> TaskId {
    process.submit(session, process.request("a cat", 1), None).await.unwrap().task
}

/// The refusal that comes now: its scope, and how long it says to wait.
async fn refused(process: &Process, session: &Arc<Session>) -> (LimitScope, Duration) {
    let refusal = process.submit(session, process.request("a cat", 1), None).await.unwrap_err();
    let wait = refusal.retry_after().unwrap();
    let SubmitError::QuotaExceeded { by, limits, .. } = refusal else { panic!("{refusal:?}") };
    assert_eq!((by.remaining, by.reset), (0, wait));
    assert!(limits.contains(&by), "{limits:?}");
    (by.scope, wait)
}

/// What the windows say was used, by kind and day.
async fn used(world: &World) -> HashMap<(String, DateTime<Utc>), i32> {
    let rows: Vec<(String, DateTime<Utc>, i32)> =
        sqlx::query_as("SELECT subject_kind, starts_at, used FROM quota_windows")
            .fetch_all(&world.db.pool)
            .await
            .unwrap();
    rows.into_iter().map(|(kind, day, used)| ((kind, day), used)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_submits_at_once_exactly_as_many_pass_as_are_left() {
    let world = World::new().await;
    let noon = at("2026-06-15T12:00:00Z");
    let processes = [world.process_at(noon), world.process_at(noon)];
    let ada = user(&world, "UTC").await;
    accepted(&processes[0], &ada).await;
    let submits = (0..40).map(|n| {
        let (process, ada) = (processes[n % 2].generation.clone(), Arc::clone(&ada));
        let request = processes[0].request("a cat", 1);
        tokio::spawn(
            async move { process.submit(crate::tests_support::submission(&ada, request, None)).await },
        )
    });
    let outcomes: Vec<_> = join_all(submits).await.into_iter().map(Result::unwrap).collect();
    assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 4);
    for refusal in outcomes.into_iter().filter_map(Result::err) {
        assert!(matches!(refusal, SubmitError::QuotaExceeded { .. }), "{refusal:?}");
    }
    assert_eq!(world.count("generation_tasks").await, 5);
    world.assert_sound_but_for_deadlines().await;
}

#[tokio::test]
async fn the_users_and_the_tenants_quota_are_told_and_kept() {
    let world = World::new().await;
    let (process, ada) = (world.process_at(at("2026-06-15T22:30:00Z")), user(&world, "UTC").await);
    let bob = colleague(&world, &ada).await;
    for left in [4, 3, 2, 1, 0] {
        let done = process.submit(&ada, process.request("a cat", 1), None).await.unwrap();
        let told: Vec<_> = done.limits.iter().map(|l| (l.policy, l.limit, l.remaining, l.reset)).collect();
        let reset = Duration::from_secs(5_400);
        assert_eq!(told, [("daily-user", 5, left, reset), ("daily-tenant", 8, left + 3, reset)]);
        assert!(done.limits.iter().all(|limit| limit.window == Duration::from_secs(86_400)));
    }
    assert_eq!(refused(&process, &ada).await, (LimitScope::User, Duration::from_secs(5_400)));
    for _ in 0..3 {
        accepted(&process, &bob).await;
    }
    assert_eq!(refused(&process, &bob).await.0, LimitScope::Tenant);
    // Another tenant's day is its own.
    accepted(&process, &user(&world, "UTC").await).await;
    world.assert_sound_but_for_deadlines().await;
}

#[tokio::test]
async fn what_failed_or_was_canceled_gives_its_unit_back_once() {
    let world = World::new().await;
    let noon = at("2026-06-15T12:00:00Z");
    let (process, ada) = (world.process_at(noon), user(&world, "UTC").await);
    let mut tasks = Vec::new();
    for _ in 0..5 {
        tasks.push(accepted(&process, &ada).await);
    }
    refused(&process, &ada).await;
    let canceled = process.generation.cancel(&ada, tasks[0]).await.unwrap();
    assert!(matches!(canceled, CancelOutcome::Canceled(_)), "{canceled:?}");
    let again = process.generation.cancel(&ada, tasks[0]).await.unwrap();
    assert!(matches!(again, CancelOutcome::Already(_)), "{again:?}");
    accepted(&process, &ada).await;
    refused(&process, &ada).await;

    // A deadline that many see at once ends a task once.
    let later = world.process_at(noon + TimeDelta::hours(1));
    let failed = join_all((0..8).map(|_| {
        let wish = Move {
            task: tasks[1],
            expect: Expect::AnyState,
            event: Event::DeadlinePassed,
            detail: MoveDetail::default(),
        };
        later.task_state.advance(wish)
    }))
    .await;
    let moved = failed.into_iter().filter(|outcome| matches!(outcome, Ok(MoveOutcome::Moved(_)))).count();
    assert_eq!(moved, 1);
    accepted(&process, &ada).await;
    refused(&process, &ada).await;
    assert_eq!(used(&world).await.into_values().collect::<Vec<_>>(), [5, 5]);
    world.assert_sound_but_for_deadlines().await;
}

#[tokio::test]
async fn a_unit_goes_back_to_the_day_that_was_charged() {
    let world = World::new().await;
    let ada = user(&world, "UTC").await;
    let midnight = at("2026-06-16T00:00:00Z");
    let yesterday = world.process_at(midnight - TimeDelta::seconds(1));
    let today = world.process_at(midnight);
    let mut tasks = Vec::new();
    for _ in 0..5 {
        tasks.push(accepted(&yesterday, &ada).await);
    }
    assert_eq!(refused(&yesterday, &ada).await.1, Duration::from_secs(1));
    for _ in 0..5 {
        accepted(&today, &ada).await;
    }
    assert_eq!(refused(&today, &ada).await.1, Duration::from_secs(86_400));
    today.generation.cancel(&ada, tasks[0]).await.unwrap();
    refused(&today, &ada).await;
    let of_user = |day| ("user".to_owned(), day);
    let used = used(&world).await;
    assert_eq!((used[&of_user(midnight - TimeDelta::days(1))], used[&of_user(midnight)]), (4, 5));
    accepted(&yesterday, &ada).await;
    world.assert_sound_but_for_deadlines().await;
}

#[tokio::test]
async fn days_on_which_the_clock_is_changed_end_when_they_end() {
    let world = World::new().await;
    for (first, length) in [("2026-03-08T05:00:00Z", 23), ("2026-11-01T04:00:00Z", 25)] {
        let ada = user(&world, "America/New_York").await;
        let (begins, day) = (world.process_at(at(first)), TimeDelta::hours(length));
        let ends = world.process_at(at(first) + day - TimeDelta::milliseconds(1));
        for process in [&begins, &begins, &ends, &ends, &ends] {
            accepted(process, &ada).await;
        }
        let whole = day.to_std().unwrap();
        assert_eq!(refused(&begins, &ada).await, (LimitScope::User, whole), "{first}");
        assert_eq!(refused(&ends, &ada).await, (LimitScope::User, Duration::from_millis(1)), "{first}");
        let next = world.process_at(at(first) + day);
        let done = next.submit(&ada, next.request("a cat", 1), None).await.unwrap();
        assert_eq!((done.limits[0].remaining, done.limits[0].window), (4, Duration::from_secs(86_400)));
    }
    world.assert_sound_but_for_deadlines().await;
}

#[tokio::test]
async fn a_day_is_the_tenants_own() {
    let world = World::new().await;
    let (ahead, here) = (user(&world, "Pacific/Kiritimati").await, user(&world, "UTC").await);
    let before = world.process_at(at("2026-06-15T09:59:59Z"));
    let after = world.process_at(at("2026-06-15T10:00:00Z"));
    for session in [&ahead, &here] {
        for _ in 0..5 {
            accepted(&before, session).await;
        }
    }
    assert_eq!(refused(&before, &ahead).await.1, Duration::from_secs(1));
    accepted(&after, &ahead).await;
    assert_eq!(refused(&after, &here).await.1, Duration::from_secs(14 * 3_600));
    world.assert_sound_but_for_deadlines().await;
}

#[tokio::test]
async fn the_elements_of_one_batch_are_decided_one_after_the_other() {
    let world = World::new().await;
    let (process, ada) = (world.process_at(at("2026-06-15T12:00:00Z")), user(&world, "UTC").await);
    let (bob, far) = (colleague(&world, &ada).await, user(&world, "Asia/Tokyo").await);
    let poor = world.user_of(ada.principal.tenant, 0, Scopes::default_of_keys()).await;
    let [a, b, p, f] = [&ada, &bob, &poor, &far];
    // The one without credits takes nothing of the tenant's eight.
    let order = [a, a, p, b, a, a, f, a, a, b, p, b, b, f];
    let elements: Vec<_> = order
        .iter()
        .map(|session| Arc::new(Element::new(session, process.request("a cat", 1), None, None)))
        .collect();
    let verdicts = pg::transact(&world.db.pool, move |conn| {
        Box::pin(async move { batch::write(conn, &elements, at("2026-06-15T12:00:00Z")).await })
    })
    .await
    .unwrap()
    .verdicts;
    let passed: Vec<_> = verdicts.iter().map(|v| matches!(v, Verdict::Accepted { .. })).collect();
    let (yes, no) = (true, false);
    assert_eq!(passed, [yes, yes, no, yes, yes, yes, yes, yes, no, yes, no, yes, no, yes]);
    let scope = |place: usize| match &verdicts[place] {
        Verdict::Refused(SubmitError::QuotaExceeded { by, .. }) => Some(by.scope),
        _ => None,
    };
    assert_eq!((scope(8), scope(12)), (Some(LimitScope::User), Some(LimitScope::Tenant)));
    world.assert_sound_but_for_deadlines().await;
}

#[tokio::test]
async fn a_repetition_under_its_key_is_charged_once() {
    let world = World::new().await;
    let noon = at("2026-06-15T12:00:00Z");
    let processes = [world.process_at(noon), world.process_at(noon)];
    let ada = user(&world, "UTC").await;
    let twins = (0..10).map(|n| {
        let process = &processes[n % 2];
        process.submit(&ada, process.request("a cat", 1), Some("K"))
    });
    let outcomes = join_all(twins).await;
    assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
    assert_eq!(used(&world).await.into_values().collect::<Vec<_>>(), [1, 1]);
    for _ in 0..4 {
        accepted(&processes[0], &ada).await;
    }
    let replay = processes[0].submit(&ada, processes[0].request("a cat", 1), Some("K")).await.unwrap();
    assert!(replay.replayed && replay.limits.is_empty(), "{replay:?}");
    // A refusal does not consume its key: after midnight the same request is accepted.
    let refusal = processes[0].submit(&ada, processes[0].request("a dog", 1), Some("L")).await;
    assert!(matches!(refusal, Err(SubmitError::QuotaExceeded { .. })), "{refusal:?}");
    let tomorrow = world.process_at(noon + TimeDelta::hours(12));
    assert!(!tomorrow.submit(&ada, tomorrow.request("a dog", 1), Some("L")).await.unwrap().replayed);
    world.assert_sound_but_for_deadlines().await;
}

#[tokio::test]
async fn a_quote_foresees_it_and_takes_nothing() {
    let world = World::new().await;
    let noon = at("2026-06-15T12:00:00Z");
    let (process, ada) = (world.process_at(noon), user(&world, "Asia/Tokyo").await);
    let quote = async || process.generation.quote(&ada, process.request("a cat", 1)).await.unwrap();
    for _ in 0..7 {
        assert_eq!(quote().await.problem, None);
    }
    assert_eq!(world.count("quota_windows").await, 0);
    for _ in 0..5 {
        accepted(&process, &ada).await;
    }
    let refused = quote().await;
    assert_eq!(refused.decision, Decision::Refused);
    let limit = refused.binding_limit.unwrap();
    let midnight = Reset::At("Asia/Tokyo".parse::<TimeZone>().unwrap().day_of(noon).ends_at);
    assert_eq!(
        (limit.scope, limit.policy, limit.limit, limit.remaining, limit.reset),
        (LimitScope::User, "daily-user", 5, 0, Some(midnight))
    );
    world.assert_sound_but_for_deadlines().await;
}

#[tokio::test]
async fn who_has_no_quota_leaves_no_trace_of_one() {
    let world = World::new().await;
    let (process, ada) = (world.process().await, world.user(100).await);
    let done = process.submit(&ada, process.request("a cat", 1), None).await.unwrap();
    assert_eq!(done.limits, []);
    process.generation.cancel(&ada, done.task).await.unwrap();
    accepted(&process, &ada).await;
    assert_eq!(world.count("quota_windows").await, 0);
    assert_eq!(world.count("generation_tasks WHERE quota_day IS NOT NULL").await, 0);
}

#[tokio::test]
async fn the_audit_notices_a_unit_that_came_or_went_by_itself() {
    let world = World::new().await;
    let (process, ada) = (world.process().await, user(&world, "UTC").await);
    accepted(&process, &ada).await;
    let canceled = accepted(&process, &ada).await;
    process.generation.cancel(&ada, canceled).await.unwrap();
    world.assert_sound().await;
    for tampering in [
        "UPDATE quota_windows SET used = used + 1 WHERE subject_kind = 'user'",
        "UPDATE quota_windows SET used = used - 1 WHERE subject_kind = 'tenant'",
        "DELETE FROM quota_windows",
        "UPDATE generation_tasks SET quota_day = NULL",
    ] {
        let mut conn = world.db.pool.acquire().await.unwrap();
        sqlx::query("BEGIN").execute(&mut *conn).await.unwrap();
        sqlx::query(tampering).execute(&mut *conn).await.unwrap();
        let found = task_state::audit::audit(&mut conn, Duration::from_secs(5)).await.unwrap();
        sqlx::query("ROLLBACK").execute(&mut *conn).await.unwrap();
        assert!(
            !found.is_empty() && found.iter().all(|found| found.rule == "quota_used_is_counted"),
            "{tampering}: {found:?}"
        );
    }
}
