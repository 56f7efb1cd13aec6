//! Burying, listing, replaying and retiring.

use outbox::{Buried, DeadLetterId, NewDeadLetter, PARTITION_OF_OUTBOX, ReplayOutcome};
use testkit::TestDb;
use uuid::Uuid;

use super::*;

fn letter(offset: i64, key: &[u8], payload: &[u8]) -> NewDeadLetter {
    NewDeadLetter {
        topic: TOPIC,
        partition: PARTITION_OF_OUTBOX,
        offset,
        key: Some(key.to_vec()),
        payload: payload.to_vec(),
        reason: "the handler said\0no".to_owned(),
    }
}

async fn bury(pool: &PgPool, letters: Vec<NewDeadLetter>) -> Buried {
    pg::transact(pool, move |conn| Box::pin(async move { outbox::bury(conn, &letters).await })).await.unwrap()
}

async fn replay(pool: &PgPool, id: DeadLetterId) -> ReplayOutcome {
    pg::transact(pool, move |conn| Box::pin(async move { outbox::replay(conn, id).await })).await.unwrap()
}

async fn list(pool: &PgPool) -> Vec<outbox::DeadLetter> {
    outbox::dead_letters(&mut pool.acquire().await.unwrap(), None, None, 100).await.unwrap()
}

#[tokio::test]
async fn a_letter_keeps_its_bytes_and_is_buried_once_per_place() {
    let db = TestDb::new().await;
    let bytes = [0xff, 0x00, b'{'];
    let letters = vec![letter(8, b"k", b"b"), letter(7, b"k", &bytes)];
    assert_eq!(bury(&db.pool, letters.clone()).await, Buried { new: 2 });
    assert_eq!(bury(&db.pool, letters).await, Buried { new: 0 });
    let kafka = NewDeadLetter { partition: 0, ..letter(7, b"k", b"other") };
    assert_eq!(bury(&db.pool, vec![kafka]).await, Buried { new: 1 });

    let listed = list(&db.pool).await;
    assert_eq!(
        listed.iter().map(|l| (l.partition, l.offset)).collect::<Vec<_>>(),
        [(0, 7), (-1, 8), (-1, 7)]
    );
    assert_eq!(listed[2].payload, bytes);
    assert_eq!(listed[2].reason, "the handler said\u{fffd}no");

    let mut conn = db.pool.acquire().await.unwrap();
    let older = outbox::dead_letters(&mut conn, Some(TOPIC), Some(listed[1].id), 1).await.unwrap();
    assert_eq!(older, listed[2..]);
    assert_eq!(outbox::dead_letters(&mut conn, Some(Topic::KeyAccess), None, 9).await.unwrap(), []);
}

#[tokio::test]
async fn a_replay_appends_once_however_many_ask() {
    let db = TestDb::new().await;
    let sent = event();
    bury(&db.pool, vec![letter(1, sent.key.as_bytes(), sent.payload.as_bytes())]).await;
    let id = list(&db.pool).await[0].id;

    let outcomes = futures::future::join_all((0..8).map(|_| replay(&db.pool, id))).await;
    assert_eq!(outcomes.iter().filter(|o| **o == ReplayOutcome::Replayed).count(), 1, "{outcomes:?}");
    assert!(matches!(replay(&db.pool, id).await, ReplayOutcome::Already { .. }));

    let claimed = outbox::claim(&db.pool, TOPIC, 10, LONG).await.unwrap();
    assert_eq!(claimed.iter().map(|m| (m.key, &m.payload)).collect::<Vec<_>>(), [(sent.key, &sent.payload)]);
}

#[tokio::test]
async fn a_replay_that_rolls_back_can_be_tried_again() {
    let db = TestDb::new().await;
    bury(&db.pool, vec![letter(1, Uuid::now_v7().to_string().as_bytes(), b"{}")]).await;
    let id = list(&db.pool).await[0].id;
    let refused = pg::transact(&db.pool, move |conn| {
        Box::pin(async move {
            assert_eq!(outbox::replay(conn, id).await?, ReplayOutcome::Replayed);
            Err::<(), _>(Refused::OnPurpose)
        })
    })
    .await;
    assert!(matches!(refused, Err(Refused::OnPurpose)));
    assert_eq!((depth(&db.pool).await, list(&db.pool).await[0].replayed_at), (0, None));
    assert_eq!(replay(&db.pool, id).await, ReplayOutcome::Replayed);
}

#[tokio::test]
async fn what_the_outbox_cannot_carry_stays_where_it_is() {
    let db = TestDb::new().await;
    let key = Uuid::now_v7();
    bury(
        &db.pool,
        vec![
            letter(1, b"not an id", b"{}"),
            letter(2, key.as_bytes(), b"\xff"),
            letter(3, key.as_bytes(), b"a\0"),
        ],
    )
    .await;
    for unfit in list(&db.pool).await {
        let outcome = replay(&db.pool, unfit.id).await;
        assert!(matches!(outcome, ReplayOutcome::Unfit { .. }), "{outcome:?}");
    }
    assert_eq!(replay(&db.pool, DeadLetterId(-1)).await, ReplayOutcome::Missing);
    assert_eq!(depth(&db.pool).await, 0);
}

#[tokio::test]
async fn letters_are_forgotten_after_a_month_and_not_before() {
    let db = TestDb::new().await;
    bury(&db.pool, (0..5).map(|offset| letter(offset, b"k", b"{}")).collect()).await;
    sqlx::query(
        r#"UPDATE dead_letters SET created_at = now() - CASE WHEN "offset" < 3 THEN interval '31 days' ELSE interval '29 days' END"#,
    )
    .execute(&db.pool)
    .await
    .unwrap();
    let mut conn = db.pool.acquire().await.unwrap();
    assert_eq!(outbox::retire(&mut conn, 2).await.unwrap(), 2);
    assert_eq!(outbox::retire(&mut conn, 2).await.unwrap(), 1);
    drop(conn);
    assert_eq!(list(&db.pool).await.iter().map(|l| l.offset).collect::<Vec<_>>(), [4, 3]);
}
