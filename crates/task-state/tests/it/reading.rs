//! Reads through the caches, lists, and the audit that notices what was tampered with.

use domain::{
    TaskStatus,
    task::{Event, Seen},
};
use task_state::{Expect, ListFilter, ListScope, Move, MoveDetail};

use crate::harness::{Harness, expect_moved, observed};

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
