//! Reads through the caches, lists, and the audit that notices what was tampered with.

use std::time::Duration;

use domain::{
    TaskStatus,
    task::{Event, Seen},
};
use task_state::{Expect, ListFilter, ListScope, Move, MoveDetail, TaskRecord, Turn};

use crate::harness::{Harness, expect_moved, model, observed};

#[tokio::test]
async fn a_reader_that_names_a_version_never_gets_an_older_one() {
    let h = Harness::new().await;
    let (task, attempt) = h.running().await;
    let first = h.state.snapshot(task, None).await.unwrap().unwrap();
    let moved = expect_moved(h.by_owner(task, attempt, observed(Seen::Finished)).await);
    let second = h.state.snapshot(task, Some(moved.snapshot.version)).await.unwrap().unwrap();
    assert!(second.version > first.version);
    assert_eq!(second.status, TaskStatus::PostProcessing);
}

#[tokio::test]
async fn a_writer_reads_its_own_write() {
    let h = Harness::new().await;
    for _ in 0..20 {
        let task = h.submit_one().await;
        assert_eq!(h.state.snapshot(task, None).await.unwrap().unwrap().status, TaskStatus::Queued);
        let cancel = Move {
            task,
            expect: Expect::AnyState,
            event: Event::CancelRequested,
            detail: MoveDetail::default(),
        };
        expect_moved(h.state.advance(cancel).await.unwrap());
        assert_eq!(h.state.snapshot(task, None).await.unwrap().unwrap().status, TaskStatus::Canceled);
    }
}

#[tokio::test]
async fn what_redis_was_not_told_yet_is_read_here_all_the_same() {
    let h = Harness::new().await;
    for task in h.submit(5).await {
        let before = h.state.record(task).await.unwrap().unwrap().snapshot;
        let json = serde_json::to_string(&before).unwrap();
        let known = [(task, before.version, json, Duration::from_secs(30))];
        assert_eq!(h.control.set_snapshots(&known).await.unwrap(), [true]);
        // A claim waits a moment for the submit before Redis is told of both.
        let (claimed, _) = h.claim(task, 1).await;
        let read = h.state.snapshot(task, None).await.unwrap().unwrap();
        assert_eq!((read.version, read.status), (claimed.snapshot.version, TaskStatus::Scheduling));
    }
}

#[tokio::test]
async fn a_users_queued_tasks_come_in_the_order_of_their_turn_page_by_page() {
    let h = Harness::new().await;
    let tasks = h.submit(60).await;
    // Made over ten minutes, the later the more urgent, or not.
    sqlx::query(
        "UPDATE generation_tasks t SET priority = ($2::int[])[o.place],
                created_at = t.created_at + (o.place || ' seconds')::interval * 10.0005
         FROM unnest($1::uuid[]) WITH ORDINALITY AS o (id, place) WHERE t.id = o.id",
    )
    .bind(tasks.iter().map(|task| task.as_uuid()).collect::<Vec<_>>())
    .bind((0..60).map(|place| place * 7 % 10).collect::<Vec<i32>>())
    .execute(&h.db.pool)
    .await
    .unwrap();
    let mut expected = h.state.records(&tasks).await.unwrap();
    let turn =
        |record: &TaskRecord| record.snapshot.priority.turn(record.snapshot.created_at.timestamp_millis());
    expected.sort_by_key(|record| (turn(record), record.id()));
    let expected: Vec<_> = expected.iter().map(TaskRecord::id).collect();

    let (mut read, mut after) = (Vec::new(), None);
    loop {
        let page = h.state.queued_of_user(h.tenant, h.user, &model(), after, 25).await.unwrap();
        let Some(last) = page.last() else { break };
        after = Some(Turn::of(last));
        read.extend(page.iter().map(TaskRecord::id));
    }
    assert_eq!(read, expected);
}

#[tokio::test]
async fn an_unknown_task_is_absent_and_stays_so() {
    let h = Harness::new().await;
    let unknown = domain::TaskId::generate();
    for _ in 0..3 {
        assert!(h.state.snapshot(unknown, None).await.unwrap().is_none());
    }
}

#[tokio::test]
async fn a_list_pages_newest_first_and_ends() {
    let h = Harness::new().await;
    let mut tasks = h.submit(7).await;
    tasks.sort_unstable();
    tasks.reverse();
    let scope = ListScope::User { user: h.user, projects: Vec::new() };
    let (mut seen, mut cursor) = (Vec::new(), None);
    loop {
        let page = h.state.list(&scope, &ListFilter::default(), cursor, 3).await.unwrap();
        seen.extend(page.items.iter().map(task_state::TaskRecord::id));
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(seen, tasks);
    let other = ListScope::User { user: domain::UserId::generate(), projects: Vec::new() };
    assert!(h.state.list(&other, &ListFilter::default(), None, 10).await.unwrap().items.is_empty());
    let tagged = ListFilter { tag: Some("a".to_owned()), ids: vec![tasks[0]], ..ListFilter::default() };
    assert_eq!(h.state.list(&scope, &tagged, None, 10).await.unwrap().items.len(), 1);
}

#[tokio::test]
async fn the_audit_notices_each_kind_of_tampering() {
    for (tampering, rule) in [
        ("DELETE FROM task_events WHERE version = 2", "history_matches_the_task"),
        ("UPDATE open_counts SET open = open + 1", "open_count_is_counted"),
        ("UPDATE generation_tasks SET price = price + 1", "task_is_settled_as_it_ended"),
        (
            "UPDATE generation_tasks SET deadline_at = now() - interval '1 minute'",
            "task_ends_by_its_deadline",
        ),
        ("UPDATE task_attempts SET fencing_token = 0", "live_task_has_its_open_attempt"),
        ("DELETE FROM generation_inputs", "task_reference_exists"),
    ] {
        let h = Harness::new().await;
        h.running().await;
        assert_eq!(h.violations().await, []);
        sqlx::query(tampering).execute(&h.db.pool).await.unwrap();
        assert!(h.violations().await.iter().any(|v| v.rule == rule), "{rule}");
    }
}
