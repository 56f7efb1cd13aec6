//! The ledger against a real PostgreSQL: races, repetition, and the audit that must notice tampering.
#![expect(clippy::unwrap_used, reason = "a failed step is a failed test")]

mod quota;

use domain::{AccountId, Credits, GrantId, TaskId, TenantId, UserId};
use ledger::{
    AccountOwner, Balance, Ended, GrantOutcome, Ledger, NewGrant, Settlement, SettlementKind, Subject,
    grant::GrantError, lock_admission, open_account, settle,
};
use pg::{PgError, PgPool};
use sqlx::postgres::PgArguments;
use testkit::TestDb;

fn credits(amount: i64) -> Credits {
    Credits::new(amount).unwrap()
}

fn new_grant(account: AccountId, amount: i64, priority: i32) -> NewGrant {
    let id = GrantId::generate();
    NewGrant {
        id,
        account,
        category: "test".to_owned(),
        priority,
        expires_at: None,
        source: id.to_string(),
        amount: credits(amount),
    }
}

async fn funded(pool: &PgPool, grants: &[(i64, i32)]) -> AccountId {
    let account = AccountId::generate();
    let grants: Vec<_> =
        grants.iter().map(|(amount, priority)| new_grant(account, *amount, *priority)).collect();
    pg::transact(pool, move |conn| {
        Box::pin(async move {
            open_account(conn, account, AccountOwner::User(UserId::generate())).await?;
            for new in &grants {
                ledger::grant(conn, new).await?;
            }
            Ok::<_, GrantError>(())
        })
    })
    .await
    .unwrap();
    account
}

/// Writes what was decided, as the owner of the tasks does in the statement that makes them.
pub(crate) async fn write_admission(
    conn: &mut pg::PgConnection,
    admission: &ledger::Admission,
) -> Result<(), PgError> {
    let to = admission.columns();
    let mut arguments = PgArguments::default();
    to.add_to(&mut arguments).unwrap();
    let statement = "SELECT ledger_write_admission($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11),
                            ledger_charge_days($12, $13, $14, $15)";
    let written: (Vec<i64>, i64) = sqlx::query_as_with(statement, arguments).fetch_one(conn).await?;
    let meant = [to.accounts.len(), to.grants.len(), to.kinds.len()].map(|rows| i64::try_from(rows).unwrap());
    assert_eq!(written, (meant.to_vec(), i64::try_from(to.days.len()).unwrap()));
    Ok(())
}

/// One hold in a transaction of its own; false when the credits do not suffice.
async fn hold(pool: &PgPool, account: AccountId, task: TaskId, amount: i64) -> bool {
    pg::transact(pool, move |conn| {
        Box::pin(async move {
            let mut admission = lock_admission(conn, &[account], &[], &[]).await?;
            let held = admission.funds.try_hold(account, task, credits(amount)).is_ok();
            write_admission(conn, &admission).await?;
            Ok::<_, PgError>(held)
        })
    })
    .await
    .unwrap()
}

async fn settle_one(
    pool: &PgPool,
    account: AccountId,
    task: TaskId,
    kind: SettlementKind,
) -> Result<(), PgError> {
    pg::transact(pool, move |conn| {
        Box::pin(async move { settle(conn, &[Settlement { task, account, kind }], &[]).await })
    })
    .await
}

async fn balance(pool: &PgPool, account: AccountId) -> Balance {
    Ledger::new(pool.clone()).balance(account).await.unwrap()
}

async fn violations(pool: &PgPool) -> Vec<&'static str> {
    pg::read_snapshot(pool, |conn| Box::pin(async move { ledger::audit(conn).await }))
        .await
        .unwrap()
        .into_iter()
        .map(|v| v.rule)
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_holds_at_once_of_thirty_credits_admit_three() {
    let db = TestDb::new().await;
    let account = funded(&db.pool, &[(30, 100)]).await;
    let holds = (0..50).map(|_| {
        let pool = db.pool.clone();
        tokio::spawn(async move { hold(&pool, account, TaskId::generate(), 10).await })
    });
    let admitted =
        futures::future::join_all(holds).await.into_iter().filter(|held| *held.as_ref().unwrap()).count();
    assert_eq!(admitted, 3);
    let after = balance(&db.pool, account).await;
    assert_eq!((after.available, after.held), (credits(0), credits(30)));
    assert!(violations(&db.pool).await.is_empty());
}

#[tokio::test]
async fn a_hold_burns_by_priority_and_a_release_returns_to_the_same_grants() {
    let db = TestDb::new().await;
    let account = funded(&db.pool, &[(100, 200), (5, 50)]).await;
    let task = TaskId::generate();
    assert!(hold(&db.pool, account, task, 8).await);
    let per_grant = || async {
        sqlx::query_as::<_, (i32, i64, i64)>(
            "SELECT priority, available, held FROM credit_grants WHERE account_id = $1 ORDER BY priority",
        )
        .bind(account.as_uuid())
        .fetch_all(&db.pool)
        .await
        .unwrap()
    };
    assert_eq!(per_grant().await, [(50, 0, 5), (200, 97, 3)]);
    settle_one(&db.pool, account, task, SettlementKind::Release).await.unwrap();
    assert_eq!(per_grant().await, [(50, 5, 0), (200, 100, 0)]);
    assert!(violations(&db.pool).await.is_empty());
}

#[tokio::test]
async fn a_hold_is_settled_once_whatever_is_tried_again() {
    let db = TestDb::new().await;
    let account = funded(&db.pool, &[(30, 100)]).await;
    let task = TaskId::generate();
    assert!(hold(&db.pool, account, task, 10).await);
    settle_one(&db.pool, account, task, SettlementKind::Capture).await.unwrap();
    let again = settle_one(&db.pool, account, task, SettlementKind::Capture).await.unwrap_err();
    // Either guard may speak first: nothing is held any more, or the effect exists.
    assert!(again.constraint().is_some(), "{again:?}");
    settle_one(&db.pool, account, task, SettlementKind::Release).await.unwrap_err();
    let after = balance(&db.pool, account).await;
    assert_eq!((after.available, after.held, after.captured), (credits(20), credits(0), credits(10)));
    assert!(violations(&db.pool).await.is_empty());
}

#[tokio::test]
async fn a_second_hold_for_one_task_is_refused_whole() {
    let db = TestDb::new().await;
    let account = funded(&db.pool, &[(30, 100)]).await;
    let task = TaskId::generate();
    assert!(hold(&db.pool, account, task, 10).await);
    let again = pg::transact(&db.pool, move |conn| {
        Box::pin(async move {
            let mut admission = lock_admission(conn, &[account], &[], &[]).await?;
            admission.funds.try_hold(account, task, credits(10)).unwrap();
            write_admission(conn, &admission).await
        })
    })
    .await
    .unwrap_err();
    assert_eq!(again.constraint(), Some("credit_ledger_effect_once"));
    assert_eq!(balance(&db.pool, account).await.held, credits(10));
}

#[tokio::test]
async fn a_grant_with_the_same_source_grants_once() {
    let db = TestDb::new().await;
    let account = funded(&db.pool, &[]).await;
    let mut outcomes = Vec::new();
    let first = NewGrant { source: "payment:1".to_owned(), ..new_grant(account, 100, 100) };
    let second = NewGrant { id: GrantId::generate(), ..first.clone() };
    for new in [first.clone(), second] {
        let outcome =
            pg::transact(&db.pool, move |conn| Box::pin(async move { ledger::grant(conn, &new).await }));
        outcomes.push(outcome.await.unwrap());
    }
    assert_eq!(outcomes, [GrantOutcome::Granted, GrantOutcome::Repeated { existing: first.id }]);
    assert_eq!(balance(&db.pool, account).await.granted, credits(100));
    assert!(violations(&db.pool).await.is_empty());
}

#[tokio::test]
async fn open_counts_are_exact_under_races_and_never_negative() {
    let db = TestDb::new().await;
    let (tenant, user) = (TenantId::generate(), UserId::generate());
    let submits = (0..40).map(|_| {
        let pool = db.pool.clone();
        tokio::spawn(async move {
            pg::transact(&pool, move |conn| {
                Box::pin(async move {
                    let subjects = [Subject::Tenant(tenant), Subject::User(user)];
                    let mut admission = lock_admission(conn, &[], &subjects, &[]).await?;
                    let fits = admission.open.try_add((tenant, 100), (user, 6)).is_ok();
                    write_admission(conn, &admission).await?;
                    Ok::<_, PgError>(fits)
                })
            })
            .await
            .unwrap()
        })
    });
    let admitted =
        futures::future::join_all(submits).await.into_iter().filter(|fits| *fits.as_ref().unwrap()).count();
    assert_eq!(admitted, 6);
    let end = |times: usize| {
        pg::transact(&db.pool, move |conn| {
            let ended = Ended { tenant, user, gives_back: None };
            Box::pin(async move { settle(conn, &[], &vec![ended; times]).await })
        })
    };
    end(6).await.unwrap();
    let below: PgError = end(1).await.unwrap_err();
    assert_eq!(below.constraint(), Some("open_counts_not_negative"));
}

#[tokio::test]
async fn the_audit_notices_a_credit_that_moved_without_a_ledger_row() {
    let db = TestDb::new().await;
    let account = funded(&db.pool, &[(30, 100)]).await;
    for table in [
        "credit_accounts SET available = available - 1, captured = captured + 1 WHERE id = $1",
        "credit_grants SET available = available - 1, captured = captured + 1 WHERE account_id = $1",
    ] {
        sqlx::query(sqlx::AssertSqlSafe(format!("UPDATE {table}")))
            .bind(account.as_uuid())
            .execute(&db.pool)
            .await
            .unwrap();
        assert!(!violations(&db.pool).await.is_empty());
    }
    assert!(violations(&db.pool).await.iter().all(|rule| *rule == "grant_is_sum_of_ledger"));
}
