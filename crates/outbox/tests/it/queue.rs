//! Appending and the table as a queue.

use std::{collections::HashSet, time::Duration};

use testkit::TestDb;

use super::*;

#[tokio::test]
async fn a_message_exists_exactly_when_its_fact_does() {
    let db = TestDb::new().await;
    let refused = pg::transact(&db.pool, |conn| {
        Box::pin(async move {
            outbox::append(conn, &[event(), event()]).await?;
            Err::<(), _>(Refused::OnPurpose)
        })
    })
    .await;
    assert!(matches!(refused, Err(Refused::OnPurpose)), "{refused:?}");
    assert_eq!(depth(&db.pool).await, 0);

    append(&db.pool, vec![event(), event(), event()]).await;
    assert_eq!(depth(&db.pool).await, 3);
}

#[tokio::test]
async fn appending_nothing_is_no_statement() {
    let db = TestDb::new().await;
    let mut conn = db.pool.acquire().await.unwrap();
    outbox::append(&mut conn, &[]).await.unwrap();
    assert_eq!(outbox::oldest_age(&mut conn).await.unwrap(), None);
}

#[tokio::test]
async fn a_claimed_message_is_invisible_until_it_is_given_back_or_gone_when_acknowledged() {
    let db = TestDb::new().await;
    let sent = event();
    append(&db.pool, vec![sent.clone()]).await;

    let claimed = outbox::claim(&db.pool, TOPIC, 10, LONG).await.unwrap();
    let [message] = claimed.as_slice() else { panic!("{claimed:?}") };
    assert_eq!((message.key, &message.payload, message.deliveries), (sent.key, &sent.payload, 1));
    assert_eq!(outbox::claim(&db.pool, TOPIC, 10, LONG).await.unwrap(), []);
    assert_eq!(outbox::claim(&db.pool, Topic::TaskChanged, 10, LONG).await.unwrap(), []);

    outbox::release(&db.pool, &[message.id], Duration::ZERO).await.unwrap();
    let again = outbox::claim(&db.pool, TOPIC, 10, LONG).await.unwrap();
    assert_eq!(again.iter().map(|m| (m.id, m.deliveries)).collect::<Vec<_>>(), [(message.id, 2)]);

    outbox::ack(&db.pool, &[message.id, -1]).await.unwrap();
    outbox::ack(&db.pool, &[message.id]).await.unwrap();
    assert_eq!(depth(&db.pool).await, 0);
}

#[tokio::test]
async fn a_claim_that_runs_out_comes_back_by_itself_unless_it_is_extended() {
    let db = TestDb::new().await;
    append(&db.pool, vec![event(), event()]).await;
    let start: chrono::DateTime<chrono::Utc> = "2026-05-01T12:00:00Z".parse().unwrap();
    let at = |seconds| db.pool_at(start + chrono::TimeDelta::seconds(seconds));
    sqlx::query("UPDATE outbox_events SET visible_at = $1").bind(start).execute(&db.pool).await.unwrap();

    let claimed = outbox::claim(&at(0), TOPIC, 10, Duration::from_secs(30)).await.unwrap();
    assert_eq!(claimed.len(), 2);
    outbox::extend(&at(20), &[claimed[0].id], Duration::from_secs(30)).await.unwrap();
    assert_eq!(outbox::claim(&at(29), TOPIC, 10, LONG).await.unwrap(), []);
    let back = outbox::claim(&at(30), TOPIC, 10, LONG).await.unwrap();
    assert_eq!(back.iter().map(|m| m.id).collect::<Vec<_>>(), [claimed[1].id]);
    let back = outbox::claim(&at(50), TOPIC, 10, LONG).await.unwrap();
    assert_eq!(back.iter().map(|m| m.id).collect::<Vec<_>>(), [claimed[0].id]);
}

#[tokio::test]
async fn consumers_at_the_same_time_never_hold_the_same_message() {
    let db = TestDb::new().await;
    append(&db.pool, (0..400).map(|_| event()).collect()).await;
    let consume = || async {
        let mut ids = Vec::new();
        loop {
            let claimed = outbox::claim(&db.pool, TOPIC, 7, LONG).await.unwrap();
            if claimed.is_empty() {
                return ids;
            }
            let batch: Vec<i64> = claimed.iter().map(|m| m.id).collect();
            assert!(batch.is_sorted(), "oldest first");
            outbox::ack(&db.pool, &batch).await.unwrap();
            ids.extend(batch);
        }
    };
    let (a, b, c) = tokio::join!(consume(), consume(), consume());
    let all: Vec<i64> = a.into_iter().chain(b).chain(c).collect();
    assert_eq!(all.len(), 400, "each once");
    assert_eq!(all.iter().collect::<HashSet<_>>().len(), 400, "and all of them");
    assert_eq!(depth(&db.pool).await, 0);
}

#[tokio::test]
async fn claiming_leaves_the_sessions_durability_alone() {
    let db = TestDb::new().await;
    append(&db.pool, vec![event()]).await;
    let mut only = sqlx::postgres::PgPoolOptions::new().max_connections(1);
    only = only.min_connections(1);
    let pool = only.connect(&db.url).await.unwrap();
    let setting = || sqlx::query_scalar::<_, String>("SHOW synchronous_commit").fetch_one(&pool);
    let before = setting().await.unwrap();
    let claimed = outbox::claim(&pool, TOPIC, 1, LONG).await.unwrap();
    outbox::ack(&pool, &[claimed[0].id]).await.unwrap();
    assert_eq!(setting().await.unwrap(), before);
}

#[tokio::test]
async fn the_audit_names_a_queue_that_nobody_empties() {
    let db = TestDb::new().await;
    append(&db.pool, vec![event()]).await;
    let later = db.pool_at("2099-01-01T00:00:00Z".parse().unwrap());
    let bound = Duration::from_secs(3_600);
    let mut now = db.pool.acquire().await.unwrap();
    assert_eq!(outbox::audit(&mut now, bound).await.unwrap(), []);
    let found = outbox::audit(&mut later.acquire().await.unwrap(), bound).await.unwrap();
    assert_eq!(found.iter().map(|violation| violation.rule).collect::<Vec<_>>(), ["outbox_age"]);
}
