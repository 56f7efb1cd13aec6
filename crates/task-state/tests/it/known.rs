//! Moves by an owner that knows the row: the short way says and writes what the long one would, and what changed
//! meanwhile is never overlooked.

use domain::{
    AssetId, FailureClass, TaskStatus, TimeZone,
    task::{Event, EventType, Refusal, Seen, TaskState as State},
};
use media::{Published, StorageKey};
use task_state::{AttemptKey, Expect, Move, MoveDetail, MoveOutcome, TakenOver};

use crate::harness::{Harness, PRICE, attempt_ref, expect_moved, observed, worker};

fn published(asset: AssetId) -> Published {
    Published {
        asset,
        storage_key: StorageKey::parse(&format!("outputs/00/{asset}.mp4")).unwrap(),
        content_type: "video/mp4",
        size_bytes: 1,
        sha256: [0; 32],
    }
}

#[tokio::test]
async fn what_the_short_way_answers_is_what_lies_in_the_store() {
    let h = Harness::new().await;
    let task = h.submit_one().await;
    let (mut known, attempt) = h.claim(task, 1).await;
    let asset = AssetId::generate();
    for event in [observed(Seen::Accepted), observed(Seen::Finished), Event::OutputPublished { asset }] {
        let published = matches!(event, Event::OutputPublished { .. }).then(|| published(asset));
        let wish =
            Move::by_owner(task, attempt, event).with(MoveDetail { published, ..MoveDetail::default() });
        known = expect_moved(h.state.advance_known(wish, known).await.unwrap());
        let stored = h.state.records(&[task]).await.unwrap().pop().unwrap();
        assert_eq!((&known.snapshot, &known.state), (&stored.snapshot, &stored.state));
        assert_eq!((&known.job, known.fencing_token), (&stored.job, stored.fencing_token));
    }
    assert_eq!(known.state, State::Succeeded { output: asset });
    let types: Vec<_> = h.state.events(task, 0).await.unwrap().iter().map(|e| e.event_type).collect();
    let expected = [
        EventType::Created,
        EventType::Scheduled,
        EventType::Submitted,
        EventType::PostProcessing,
        EventType::Succeeded,
    ];
    assert_eq!(types, expected);
    assert_eq!(h.balance().await.captured.get(), PRICE);
    assert_eq!(h.violations().await, []);
}

#[tokio::test]
async fn a_success_keeps_its_unit_of_the_day_whichever_way_it_goes_and_a_failure_gives_it_back() {
    let h = Harness::new().await;
    let day = TimeZone::UTC.day_of(chrono::DateTime::UNIX_EPOCH);
    let tasks = h.submit_on(Some(day), 3).await;
    let used = async || {
        let used = sqlx::query_scalar::<_, i32>("SELECT used FROM quota_windows ORDER BY subject_kind");
        used.fetch_all(&h.db.pool).await.unwrap()
    };
    assert_eq!(used().await, [3, 3]);
    for (task, knows) in [(tasks[0], true), (tasks[1], false)] {
        let (mut known, attempt) = h.claim(task, 1).await;
        assert_eq!(known.quota_day, Some(day.starts_at));
        let asset = AssetId::generate();
        for event in [observed(Seen::Finished), Event::OutputPublished { asset }] {
            let published = matches!(event, Event::OutputPublished { .. }).then(|| published(asset));
            let wish =
                Move::by_owner(task, attempt, event).with(MoveDetail { published, ..MoveDetail::default() });
            let moved = match knows {
                true => h.state.advance_known(wish, known).await,
                false => h.state.advance(wish).await,
            };
            known = expect_moved(moved.unwrap());
        }
        assert_eq!(known.state, State::Succeeded { output: asset });
    }
    assert_eq!(used().await, [3, 3]);
    let (_, attempt) = h.claim(tasks[2], 1).await;
    let refused = Event::SubmitRefused { class: FailureClass::InvalidInput };
    let failed = expect_moved(h.by_owner(tasks[2], attempt, refused).await);
    assert_eq!((failed.snapshot.status, used().await), (TaskStatus::Failed, vec![2, 2]));
    assert_eq!(h.violations().await, []);
}

#[tokio::test]
async fn a_cancel_that_the_mover_has_not_seen_wins_all_the_same() {
    let h = Harness::new().await;
    let task = h.submit_one().await;
    let (known, attempt) = h.claim(task, 1).await;
    let wish = Move::by_owner(task, attempt, observed(Seen::Accepted));
    let known = expect_moved(h.state.advance_known(wish, known).await.unwrap());
    let cancel =
        Move { task, expect: Expect::AnyState, event: Event::CancelRequested, detail: MoveDetail::default() };
    expect_moved(h.state.advance(cancel).await.unwrap());
    let wish = Move::by_owner(task, attempt, observed(Seen::Finished));
    let ended = expect_moved(h.state.advance_known(wish, known.clone()).await.unwrap());
    assert_eq!(ended.snapshot.status, TaskStatus::Canceled);
    // Asked again by what was known then, it is told what is so now.
    let wish = Move::by_owner(task, attempt, observed(Seen::Finished));
    let again = h.state.advance_known(wish, known).await.unwrap();
    assert!(matches!(again, MoveOutcome::Refused(Refusal::Ended, _)), "{again:?}");
    assert_eq!(h.balance().await.available.get(), 1_000_000);
    assert_eq!(h.violations().await, []);
}

#[tokio::test]
async fn a_mover_that_lost_the_task_is_fenced_out_whatever_it_knows() {
    let h = Harness::new().await;
    let task = h.submit_one().await;
    let (known, attempt) = h.claim(task, 1).await;
    let wish = Move::by_owner(task, attempt, observed(Seen::Running));
    let known = expect_moved(h.state.advance_known(wish.clone(), known.clone()).await.unwrap());
    let repeated = h.state.advance_known(wish, known.clone()).await.unwrap();
    assert!(matches!(repeated, MoveOutcome::Refused(Refusal::NoChange, _)), "{repeated:?}");
    let key = AttemptKey { attempt: attempt_ref(task, 1), fencing_token: attempt.fencing_token };
    let taken = h.state.take_over(worker("host:2:b"), vec![key]).await.unwrap().pop().unwrap();
    assert!(matches!(taken, TakenOver::Task(..)), "{taken:?}");
    let wish = Move::by_owner(task, attempt, observed(Seen::Finished));
    let late = h.state.advance_known(wish, known).await.unwrap();
    assert!(matches!(late, MoveOutcome::Stale(_)), "{late:?}");
    assert_eq!(h.violations().await, []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_moves_with_the_same_knowledge_one_happens() {
    let h = Harness::new().await;
    for _ in 0..20 {
        let task = h.submit_one().await;
        let (known, attempt) = h.claim(task, 1).await;
        let ask = |seen| {
            let (state, known) = (h.state.clone(), known.clone());
            let wish = Move::by_owner(task, attempt, observed(seen));
            tokio::spawn(async move { state.advance_known(wish, known).await.unwrap() })
        };
        let cancel = Move {
            task,
            expect: Expect::AnyState,
            event: Event::CancelRequested,
            detail: MoveDetail::default(),
        };
        let (accepted, state) = (ask(Seen::Accepted), h.state.clone());
        let canceled = tokio::spawn(async move { state.advance(cancel).await.unwrap() });
        expect_moved(accepted.await.unwrap());
        expect_moved(canceled.await.unwrap());
        let record = h.state.records(&[task]).await.unwrap().pop().unwrap();
        assert_eq!((record.snapshot.version, record.snapshot.cancel_requested), (4, true));
        assert_eq!(h.state.events(task, 0).await.unwrap().len(), 4, "each version has its event");
    }
}
