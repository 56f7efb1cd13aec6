//! The inbox: late, early, repeated, reordered and misdirected callbacks, and whom they are told to.

use bytes::Bytes;
use chrono::TimeDelta;
use domain::{
    FailureClass, TaskId,
    callback::CallbackNews,
    task::{Event, JobHandle, Seen},
};
use task_state::{
    AttemptKey, BODY_BYTES_KEPT, Called, IgnoredBecause, NewProviderEvent, Received, TakenOver, retire_events,
};

use crate::harness::{Harness, attempt_ref, expect_moved, observed, provider, worker};

fn event(task: TaskId, attempt_no: i32, delivery: &str, job: Option<&str>) -> NewProviderEvent {
    NewProviderEvent {
        account: provider(),
        attempt: attempt_ref(task, attempt_no),
        news: CallbackNews { delivery: delivery.to_owned(), kind: "running".to_owned(), says_ended: false },
        job: job.map(JobHandle::new),
        body: Bytes::from_static(b"{}"),
    }
}

fn ignored(because: IgnoredBecause) -> Received {
    Received::Ignored(because)
}

fn pending(owner: &str) -> Received {
    Received::Pending { owner: worker(owner) }
}

/// What the rows say, oldest delivery id first.
async fn outcomes(h: &Harness) -> Vec<(String, String, Option<String>)> {
    sqlx::query_as("SELECT delivery_id, outcome, reason FROM provider_events ORDER BY delivery_id")
        .fetch_all(&h.db.pool)
        .await
        .unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_delivery_counts_once_however_often_it_comes_at_the_same_time() {
    let h = Harness::new().await;
    let (task, _) = h.running().await;
    let deliveries = (0..50).map(|n| {
        let state = h.state.clone();
        // Half of them side by side in one batch, half from further processes with writers of their own.
        let other = task_state::TaskState::new(
            h.db.pool.clone(),
            h.control.clone(),
            task_state::TaskStateConfig::default(),
        );
        let state = if n % 2 == 0 { state } else { other };
        tokio::spawn(async move { state.receive(event(task, 1, "d1", Some("job-1"))).await.unwrap() })
    });
    let received: Vec<Received> =
        futures::future::join_all(deliveries).await.into_iter().map(Result::unwrap).collect();
    assert_eq!(received.iter().filter(|one| **one == pending("host:1:a")).count(), 1);
    assert_eq!(received.iter().filter(|one| **one == ignored(IgnoredBecause::Repeated)).count(), 49);
    assert_eq!(outcomes(&h).await, [("d1".to_owned(), "pending".to_owned(), None)]);
}

#[tokio::test]
async fn an_owner_is_told_once_and_nobody_else_is() {
    let h = Harness::new().await;
    let task = h.submit_one().await;
    let (_, attempt) = h.claim(task, 1).await;
    // Early: the answer to the submit is not stored yet.
    let mut ended = event(task, 1, "d2", Some("job-1"));
    ended.news.says_ended = true;
    for early in [event(task, 1, "d1", Some("job-1")), ended] {
        assert_eq!(h.state.receive(early).await.unwrap(), pending("host:1:a"));
    }
    assert_eq!(h.state.tell(&worker("host:2:b"), 10).await.unwrap(), []);
    let called = |says_ended| Called { attempt: attempt_ref(task, 1), says_ended };
    assert_eq!(h.state.tell(&worker("host:1:a"), 1).await.unwrap(), [called(false)]);
    assert_eq!(h.state.tell(&worker("host:1:a"), 10).await.unwrap(), [called(true)]);
    assert_eq!(h.state.tell(&worker("host:1:a"), 10).await.unwrap(), []);

    // What came while the owner was dying is told to the next one.
    assert_eq!(h.state.receive(event(task, 1, "d3", None)).await.unwrap(), pending("host:1:a"));
    let key = AttemptKey { attempt: attempt_ref(task, 1), fencing_token: attempt.fencing_token };
    let taken = h.state.take_over(worker("host:2:b"), vec![key]).await.unwrap().pop().unwrap();
    assert!(matches!(taken, TakenOver::Task(..)), "{taken:?}");
    assert_eq!(h.state.tell(&worker("host:1:a"), 10).await.unwrap(), []);
    assert_eq!(h.state.tell(&worker("host:2:b"), 10).await.unwrap(), [called(false)]);
    assert_eq!(h.violations().await, []);
}

#[tokio::test]
async fn a_job_whose_submit_was_never_answered_is_known_by_its_signed_callback() {
    let h = Harness::new().await;
    let task = h.submit_one().await;
    let (_, attempt) = h.claim(task, 1).await;
    expect_moved(h.by_owner(task, attempt, Event::SubmitUnknown).await);
    let job = async || h.state.open_attempt(attempt_ref(task, 1)).await.unwrap().unwrap().job;
    h.state.receive(event(task, 1, "hint", None)).await.unwrap();
    assert_eq!(job().await, None, "a hint names no job");
    h.state.receive(event(task, 1, "signed", Some("job-7"))).await.unwrap();
    assert_eq!(job().await, Some(JobHandle::new("job-7")));
    let adopted = Event::Observed { job: JobHandle::new("job-7"), seen: Seen::Running };
    expect_moved(h.by_owner(task, attempt, adopted).await);
    // A second job with our reference, by a fault of the provider, does not take the place of the first.
    let second = h.state.receive(event(task, 1, "second", Some("job-8"))).await.unwrap();
    assert_eq!(second, ignored(IgnoredBecause::OtherJob));
    assert_eq!(job().await, Some(JobHandle::new("job-7")));
    assert_eq!(h.violations().await, []);
}

#[tokio::test]
async fn what_concerns_nobody_any_more_is_stored_and_says_why() {
    let h = Harness::new().await;
    let task = h.submit_one().await;
    let (_, first) = h.claim(task, 1).await;
    expect_moved(h.by_owner(task, first, observed(Seen::Accepted)).await);
    // It waits to be told while its attempt ends.
    h.state.receive(event(task, 1, "d0", Some("job-1"))).await.unwrap();
    let failed = Event::ProviderFailed { class: FailureClass::ProviderInternal };
    expect_moved(h.by_owner(task, first, failed).await);
    let receive = async |delivery: &str, attempt_no, job| {
        h.state.receive(event(task, attempt_no, delivery, Some(job))).await.unwrap()
    };
    assert_eq!(receive("d1", 1, "job-1").await, ignored(IgnoredBecause::AttemptClosed));
    sqlx::query("UPDATE generation_tasks SET not_before = NULL").execute(&h.db.pool).await.unwrap();
    let (_, second) = h.claim(task, 2).await;
    assert_eq!(receive("d2", 1, "job-1").await, ignored(IgnoredBecause::OlderAttempt));
    let accepted = Event::Observed { job: JobHandle::new("job-2"), seen: Seen::Accepted };
    expect_moved(h.by_owner(task, second, accepted).await);
    assert_eq!(receive("d3", 2, "job-1").await, ignored(IgnoredBecause::OtherJob));
    assert_eq!(receive("d4", 3, "job-3").await, ignored(IgnoredBecause::UnknownAttempt));
    let finished = Event::Observed { job: JobHandle::new("job-2"), seen: Seen::Finished };
    expect_moved(h.by_owner(task, second, finished).await);
    assert_eq!(receive("d5", 2, "job-2").await, ignored(IgnoredBecause::ProviderThrough));
    expect_moved(h.by_owner(task, second, Event::OutputFailed).await);
    assert_eq!(receive("d6", 2, "job-2").await, ignored(IgnoredBecause::TaskEnded));
    let mut elsewhere = event(task, 2, "d7", Some("job-2"));
    elsewhere.account = "another".parse().unwrap();
    assert_eq!(h.state.receive(elsewhere).await.unwrap(), ignored(IgnoredBecause::UnknownAttempt));
    assert_eq!(receive("d6", 2, "job-2").await, ignored(IgnoredBecause::Repeated));

    // Any worker clears what waits for attempts that are over.
    assert_eq!(h.state.tell(&worker("host:9:z"), 10).await.unwrap(), []);
    let reasons: Vec<_> =
        outcomes(&h).await.into_iter().map(|(_, outcome, reason)| (outcome, reason)).collect();
    let expected = [
        "attempt_closed",
        "attempt_closed",
        "older_attempt",
        "other_job",
        "unknown_attempt",
        "provider_through",
        "task_ended",
        "unknown_attempt",
    ];
    assert_eq!(reasons, expected.map(|reason| ("ignored".to_owned(), Some(reason.to_owned()))));
    assert_eq!(h.violations().await, []);
}

#[tokio::test]
async fn bodies_are_kept_within_a_bound_and_rows_for_thirty_days() {
    let h = Harness::new().await;
    let (task, _) = h.running().await;
    let mut large = event(task, 1, "d1", None);
    large.body = vec![0; BODY_BYTES_KEPT + 1].into();
    h.state.receive(large).await.unwrap();
    let kept: (i32, i32) = sqlx::query_as("SELECT length(body), body_bytes FROM provider_events")
        .fetch_one(&h.db.pool)
        .await
        .unwrap();
    assert_eq!(kept, (65_536, 65_537));
    let now = pg::now(&mut h.db.pool.acquire().await.unwrap()).await.unwrap();
    let mut within = h.db.pool_at(now + TimeDelta::days(30) - TimeDelta::minutes(1)).acquire().await.unwrap();
    assert_eq!(retire_events(&mut within, 10).await.unwrap(), 0);
    let mut after = h.db.pool_at(now + TimeDelta::days(30) + TimeDelta::minutes(1)).acquire().await.unwrap();
    assert_eq!(retire_events(&mut after, 10).await.unwrap(), 1);
}
