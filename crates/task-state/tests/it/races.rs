//! Many real tasks at once, competing for the same word.

use std::collections::HashSet;

use domain::{
    FailureClass, TaskId,
    task::{Event, EventType, Seen},
};
use task_state::{ClaimOutcome, Expect, Move, MoveDetail, MoveOutcome};

use crate::harness::{Harness, claim, expect_moved, observed, worker};

/// C01 without callbacks: the user's cancel, the provider's failure and the deadline at the same instant.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_finishers_at_once_settle_once() {
    let h = Harness::new().await;
    for _ in 0..40 {
        let (task, attempt) = h.running().await;
        let anyhow = |event| Move { task, expect: Expect::AnyState, event, detail: MoveDetail::default() };
        let finishers = [
            anyhow(Event::CancelRequested),
            Move::by_owner(task, attempt, Event::ProviderFailed { class: FailureClass::ModeratedOutput }),
            anyhow(Event::DeadlinePassed),
        ];
        let asked = finishers.map(|wish| {
            let state = h.state.clone();
            tokio::spawn(async move { state.advance(wish).await.unwrap() })
        });
        futures::future::join_all(asked).await;
        let ends = h.state.events(task, 0).await.unwrap();
        let terminal = [EventType::Succeeded, EventType::Failed, EventType::Canceled];
        assert_eq!(ends.iter().filter(|e| terminal.contains(&e.event_type)).count(), 1);
    }
    assert_eq!(h.balance().await.available.get(), 1_000_000);
    assert_eq!(h.violations().await, []);
}

/// Four schedulers claim everything at once; the account has ten places.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_more_attempts_are_live_than_the_account_may_have() {
    let h = Harness::new().await;
    let tasks = h.submit(60).await;
    let schedulers = (0..4).map(|n| {
        let (state, tasks) = (h.state.clone(), tasks.clone());
        tokio::spawn(async move {
            let mut claimed: Vec<TaskId> = Vec::new();
            for chunk in tasks.chunks(7) {
                let claims = chunk
                    .iter()
                    .map(|t| task_state::Claim { worker: worker(&format!("w{n}")), ..claim(*t, 1, 10) });
                for (task, outcome) in chunk.iter().zip(state.claim(claims.collect()).await.unwrap()) {
                    if matches!(outcome, ClaimOutcome::Claimed(..)) {
                        claimed.push(*task);
                    }
                }
            }
            claimed
        })
    });
    let claimed: Vec<TaskId> =
        futures::future::join_all(schedulers).await.into_iter().flat_map(Result::unwrap).collect();
    assert_eq!(claimed.len(), 10);
    assert_eq!(claimed.iter().collect::<HashSet<_>>().len(), 10, "no task has two owners");
    assert_eq!(h.violations().await, []);
}

/// Moves of one task keep their order even when they are asked for in one breath.
#[tokio::test]
async fn moves_of_one_task_in_one_breath_happen_in_order() {
    let h = Harness::new().await;
    let task = h.submit_one().await;
    let (_, attempt) = h.claim(task, 1).await;
    let outcomes = futures::future::join_all(
        [Seen::Accepted, Seen::Running, Seen::Finished].map(|seen| h.by_owner(task, attempt, observed(seen))),
    )
    .await;
    let versions: Vec<_> = outcomes.into_iter().map(|o| expect_moved(o).snapshot.version).collect();
    assert_eq!(versions, [3, 4, 5]);
}

/// A hundred tasks move in shared commits, each with its own outcome.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_of_moves_shares_commits_and_each_gets_its_own_answer() {
    let h = Harness::new().await;
    let tasks = h.submit(100).await;
    let claims = tasks.iter().map(|t| claim(*t, 1, 200)).collect();
    let attempts: Vec<_> = h
        .state
        .claim(claims)
        .await
        .unwrap()
        .into_iter()
        .map(|outcome| match outcome {
            ClaimOutcome::Claimed(_, attempt) => attempt,
            other => panic!("{other:?}"),
        })
        .collect();
    let moves = tasks.iter().zip(&attempts).enumerate().map(|(n, (task, attempt))| {
        // Every tenth carries a token that was never handed out.
        let attempt =
            if n % 10 == 0 { domain::task::Attempt { fencing_token: -1, ..*attempt } } else { *attempt };
        h.by_owner(*task, attempt, observed(Seen::Running))
    });
    let outcomes = futures::future::join_all(moves).await;
    for (n, outcome) in outcomes.iter().enumerate() {
        match outcome {
            MoveOutcome::Stale(_) => assert_eq!(n % 10, 0),
            MoveOutcome::Moved(record) => {
                assert_ne!(n % 10, 0);
                assert_eq!(record.id(), tasks[n]);
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(h.violations().await, []);
}
