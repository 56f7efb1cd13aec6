//! One task at a time, through every path of its life.

use std::time::Duration;

use domain::{
    Credits, ErrorCode, FailureClass, TaskStatus,
    task::{Event, EventType, Refusal, Seen, TaskState as State},
};
use task_state::{
    AttemptKey, AttemptOutcome, ClaimOutcome, Move, MoveDetail, MoveOutcome, Ownership, TakenOver,
};

use crate::harness::{Harness, PRICE, attempt_ref, claim, expect_moved, observed, worker};

#[tokio::test]
async fn a_failed_task_gives_its_credits_back_and_its_history_has_no_gap() {
    let h = Harness::new().await;
    let (task, attempt) = h.running().await;
    let event = Event::ProviderFailed { class: FailureClass::ModeratedOutput };
    let record = expect_moved(h.by_owner(task, attempt, event).await);
    assert_eq!(record.state, State::Failed { code: ErrorCode::ModeratedOutput });
    assert_eq!(record.snapshot.credits.released.get(), PRICE);
    let types: Vec<_> = h.state.events(task, 0).await.unwrap().iter().map(|e| e.event_type).collect();
    assert_eq!(
        types,
        [
            EventType::Created,
            EventType::Scheduled,
            EventType::Submitted,
            EventType::Running,
            EventType::Failed
        ]
    );
    let balance = h.balance().await;
    assert_eq!((balance.held, balance.captured), (Credits::ZERO, Credits::ZERO));
    assert_eq!(h.violations().await, []);
}

#[tokio::test]
async fn what_was_asked_for_comes_back_unchanged() {
    let h = Harness::new().await;
    let task = h.submit_one().await;
    let record = h.state.record(task).await.unwrap().unwrap();
    assert_eq!(record.snapshot.inputs.tags, ["a", "{\"b\", é}"]);
    assert_eq!(record.snapshot.inputs.seed, Some(u32::MAX));
    assert_eq!(record.snapshot.version, 1);
    assert_eq!(h.violations().await, []);
}

#[tokio::test]
async fn a_refused_try_waits_for_its_pause_and_the_next_has_another_number_and_token() {
    let h = Harness::new().await;
    let task = h.submit_one().await;
    let (_, first) = h.claim(task, 1).await;
    let refused = Move::by_owner(task, first, Event::SubmitRefused { class: FailureClass::Overloaded })
        .with(MoveDetail { pause: Some(Duration::from_secs(60)), ..MoveDetail::default() });
    let record = expect_moved(h.state.advance(refused).await.unwrap());
    assert_eq!((record.snapshot.status, record.snapshot.tries), (TaskStatus::Queued, 1));
    let early = h.state.claim(vec![claim(task, 2, 200)]).await.unwrap().pop().unwrap();
    assert!(matches!(early, ClaimOutcome::Gone(_)), "the pause is not over");
    sqlx::query("UPDATE generation_tasks SET not_before = now()").execute(&h.db.pool).await.unwrap();
    let (_, second) = h.claim(task, 2).await;
    assert!(second.fencing_token > first.fencing_token);
    // The first attempt's late answer changes nothing.
    assert!(matches!(h.by_owner(task, first, observed(Seen::Accepted)).await, MoveOutcome::Stale(_)));
    assert_eq!(h.violations().await, []);
}

#[tokio::test]
async fn a_queued_task_is_canceled_at_once_and_again_without_effect() {
    let h = Harness::new().await;
    let task = h.submit_one().await;
    let cancel = || Move {
        task,
        expect: task_state::Expect::AnyState,
        event: Event::CancelRequested,
        detail: MoveDetail::default(),
    };
    let record = expect_moved(h.state.advance(cancel()).await.unwrap());
    assert_eq!(record.state, State::Canceled);
    assert!(matches!(h.state.advance(cancel()).await.unwrap(), MoveOutcome::Refused(Refusal::Ended, _)));
    assert_eq!(h.balance().await.available.get(), 1_000_000);
    assert_eq!(h.violations().await, []);
}

#[tokio::test]
async fn the_lost_owner_is_fenced_out_after_a_take_over() {
    let h = Harness::new().await;
    let (task, old) = h.running().await;
    let key = AttemptKey { attempt: attempt_ref(task, 1), fencing_token: old.fencing_token };
    let taken = h.state.take_over(worker("host:2:b"), vec![key]).await.unwrap().pop().unwrap();
    let TakenOver::Task(record, new) = taken else { panic!("not taken over: {taken:?}") };
    assert_eq!((record.snapshot.status, new.no), (TaskStatus::Running, 1), "same attempt, same job");
    assert!(matches!(h.by_owner(task, old, observed(Seen::Finished)).await, MoveOutcome::Stale(_)));
    // A second reaper with the same stale picture comes too late.
    let again = h.state.take_over(worker("host:3:c"), vec![key]).await.unwrap().pop().unwrap();
    assert!(matches!(again, TakenOver::Lost));
    expect_moved(h.by_owner(task, new, observed(Seen::Finished)).await);
    assert_eq!(h.violations().await, []);
}

#[tokio::test]
async fn a_submit_whose_owner_is_lost_is_in_doubt_and_gets_time_of_its_own() {
    let h = Harness::new().await;
    let task = h.submit_one().await;
    let (_, attempt) = h.claim(task, 1).await;
    let key = AttemptKey { attempt: attempt_ref(task, 1), fencing_token: attempt.fencing_token };
    assert_eq!(h.state.ownership(&[key]).await.unwrap(), [Ownership::Ours]);
    let taken = h.state.take_over(worker("host:2:b"), vec![key]).await.unwrap().pop().unwrap();
    let TakenOver::Task(record, new) = taken else { panic!("not taken over: {taken:?}") };
    assert_eq!(record.snapshot.status, TaskStatus::Reconciling);
    let back = expect_moved(h.by_owner(task, new, Event::ProvedAbsent).await);
    assert_eq!((back.snapshot.status, back.snapshot.tries), (TaskStatus::Queued, 0));
    let of_new = AttemptKey { fencing_token: new.fencing_token, ..key };
    assert_eq!(h.state.ownership(&[key, of_new]).await.unwrap(), [Ownership::Taken, Ownership::Ended]);
    h.claim(task, 2).await;
    assert_eq!(h.violations().await, []);
}

#[tokio::test]
async fn an_attempt_outlives_its_task_and_is_closed_by_whoever_watches_it() {
    let h = Harness::new().await;
    let (task, attempt) = h.running().await;
    let cancel = Move {
        task,
        expect: task_state::Expect::AnyState,
        event: Event::CancelRequested,
        detail: MoveDetail::default(),
    };
    expect_moved(h.state.advance(cancel).await.unwrap());
    let ended = expect_moved(h.by_owner(task, attempt, Event::CancelExpired).await);
    assert_eq!(ended.state, State::Canceled);
    assert_eq!(
        h.state.all_live_slots().await.unwrap().len(),
        1,
        "the job may still run: its slot stays taken"
    );
    let key = AttemptKey { attempt: attempt_ref(task, 1), fencing_token: attempt.fencing_token };
    let taken = h.state.take_over(worker("host:2:b"), vec![key]).await.unwrap().pop().unwrap();
    let TakenOver::Attempt(_, ours) = taken else { panic!("not taken over: {taken:?}") };
    assert!(!h.state.close_attempt(key, AttemptOutcome::Canceled).await.unwrap(), "the old token is void");
    assert!(h.state.close_attempt(ours, AttemptOutcome::Canceled).await.unwrap());
    assert!(h.state.all_live_slots().await.unwrap().is_empty());
    assert_eq!(h.violations().await, []);
}

#[tokio::test]
async fn the_attempt_of_a_live_task_cannot_be_closed_beside_it() {
    let h = Harness::new().await;
    let (task, attempt) = h.running().await;
    let key = AttemptKey { attempt: attempt_ref(task, 1), fencing_token: attempt.fencing_token };
    assert!(!h.state.close_attempt(key, AttemptOutcome::GaveUp).await.unwrap());
}

#[tokio::test]
async fn a_deadline_ends_a_task_without_its_owner_and_the_sweeper_finds_it() {
    let h = Harness::new().await;
    let (task, attempt) = h.running().await;
    sqlx::query("UPDATE generation_tasks SET submit_deadline_at = now(), deadline_at = now()")
        .execute(&h.db.pool)
        .await
        .unwrap();
    let overdue = h.state.overdue(Duration::from_secs(10), 100).await.unwrap();
    assert_eq!(overdue.iter().map(task_state::TaskRecord::id).collect::<Vec<_>>(), [task]);
    let ended =
        expect_moved(h.state.advance(Move::as_read(&overdue[0], Event::DeadlinePassed)).await.unwrap());
    assert_eq!(ended.state, State::Failed { code: ErrorCode::DeadlineExceeded });
    // The owner finishes in the gap: too late, and nothing is charged.
    assert!(matches!(
        h.by_owner(task, attempt, observed(Seen::Finished)).await,
        MoveOutcome::Refused(Refusal::Ended, _)
    ));
    assert_eq!(h.violations().await, []);
}
