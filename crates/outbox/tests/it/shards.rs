//! Relays' sessions: who holds what, and what they read.

use outbox::{NewEvent, SHARDS, ShardSession, Topic, shard_of};
use testkit::TestDb;
use uuid::Uuid;

async fn session(db: &TestDb) -> ShardSession {
    ShardSession::open(&db.pool.connect_options()).await.unwrap()
}

#[tokio::test]
async fn sessions_share_the_shards_and_leave_them_to_each_other() {
    let db = TestDb::new().await;
    let (mut one, mut other) = (session(&db).await, session(&db).await);
    one.balance().await.unwrap();
    other.balance().await.unwrap();
    assert_eq!((one.held().len(), other.held().len()), (6, 6));
    assert!(one.held().is_disjoint(other.held()));
    other.close().await;
    // The server ends a session a moment after its client.
    let all = usize::from(SHARDS.unsigned_abs());
    for _ in 0..1_000 {
        one.balance().await.unwrap();
        if one.held().len() == all {
            break;
        }
    }
    assert_eq!(one.held().len(), all);
    let mut late = session(&db).await;
    late.balance().await.unwrap();
    assert!(late.held().is_empty(), "they are all held");
    one.balance().await.unwrap();
    late.balance().await.unwrap();
    assert_eq!((one.held().len(), late.held().len()), (6, 6));
}

#[tokio::test]
async fn a_session_reads_its_own_shards_in_order_and_leaves_what_it_does_not_know() {
    let db = TestDb::new().await;
    let (mut one, mut other) = (session(&db).await, session(&db).await);
    one.balance().await.unwrap();
    other.balance().await.unwrap();
    let events: Vec<_> = (0..50)
        .map(|count| NewEvent { topic: Topic::KeyAccess, key: Uuid::now_v7(), payload: count.to_string() })
        .collect();
    let appended = events.clone();
    pg::transact(&db.pool, move |conn| Box::pin(async move { outbox::append(conn, &appended).await }))
        .await
        .unwrap();
    sqlx::query("UPDATE outbox_events SET topic = 'of a later version' WHERE payload = '7'")
        .execute(&db.pool)
        .await
        .unwrap();
    let mut left = 0;
    for session in [&mut one, &mut other] {
        let held = session.held().clone();
        let expected: Vec<_> = events
            .iter()
            .filter(|event| held.contains(&shard_of(event.key)) && event.payload != "7")
            .map(|event| event.payload.clone())
            .collect();
        let found = session.next(100).await.unwrap();
        assert_eq!(found.iter().map(|event| event.payload.clone()).collect::<Vec<_>>(), expected);
        assert!(found.is_sorted_by_key(|event| event.id));
        assert_eq!(session.next(2).await.unwrap(), found[..2]);
        let ids: Vec<_> = found.iter().map(|event| event.id).collect();
        session.sent(&ids).await.unwrap();
        assert_eq!(session.next(100).await.unwrap(), []);
        left += found.len();
    }
    assert_eq!(left, 49);
}
