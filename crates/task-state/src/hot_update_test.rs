//! Every transition but the last must be a HOT update: it touches one page of `generation_tasks` and none of its
//! indexes. An index (or an index predicate) on a column that transitions change would break this silently.

use std::time::Duration;

use domain::{
    AccountId, Credits, ModelName, Priority, ProviderAccountId, TaskId, TenantId, UserId, WorkerId,
    task::{Attempt, Event, Inputs, JobHandle, Seen},
};
use ledger::Subject;
use pg::{PgConnection, PgError};
use testkit::TestDb;

use crate::{
    Claim, ClaimOutcome, Expect, Move, MoveDetail, MoveOutcome, NewTask, TaskStateConfig, apply::apply,
    claim, create,
};

async fn updates(conn: &mut PgConnection, table: &str) -> (i64, i64) {
    sqlx::query_as(
        "SELECT pg_stat_get_xact_tuples_updated(c), pg_stat_get_xact_tuples_hot_updated(c) FROM (SELECT $1::regclass) t(c)",
    )
    .bind(table)
    .fetch_one(conn)
    .await
    .unwrap()
}

async fn step(conn: &mut PgConnection, task: TaskId, expect: Expect, event: Event) {
    let wish = Move { task, expect, event, detail: MoveDetail::default() };
    let outcome = apply(conn, &[wish], &TaskStateConfig::default()).await.unwrap().pop().unwrap();
    assert!(matches!(outcome, MoveOutcome::Moved(_)), "{outcome:?}");
}

async fn claimed(conn: &mut PgConnection, task: TaskId, attempt_no: i32) -> Attempt {
    let wish = Claim {
        task,
        attempt_no,
        account: "mock".parse::<ProviderAccountId>().unwrap(),
        provider_model: "m".parse::<ModelName>().unwrap(),
        worker: "w".parse::<WorkerId>().unwrap(),
        account_limit: 10,
        model_limit: 10,
        day_limit: None,
        submit_limit: Duration::from_secs(5),
    };
    match claim::claim(conn, &[wish]).await.unwrap().pop().unwrap() {
        ClaimOutcome::Claimed(_, attempt) => attempt,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn all_transitions_but_the_last_are_hot_updates() {
    let db = TestDb::new().await;
    pg::transact(&db.pool, |conn| {
        Box::pin(async move {
            let (tenant, user, task) = (TenantId::generate(), UserId::generate(), TaskId::generate());
            let new = NewTask {
                task,
                tenant,
                user,
                project: None,
                account: AccountId::generate(),
                model: "m".parse().unwrap(),
                price: Credits::ZERO,
                inputs: Inputs {
                    prompt: "p".to_owned(),
                    negative_prompt: None,
                    duration_seconds: 1,
                    resolution: "720p".to_owned(),
                    aspect_ratio: None,
                    seed: None,
                    tags: Vec::new(),
                },
                deadline_seconds: 60,
                priority: Priority::default(),
                traceparent: None,
                quota_day: None,
            };
            let now = pg::now(conn).await?;
            let subjects = [Subject::Tenant(tenant), Subject::User(user)];
            let mut admission = ledger::lock_admission(conn, &[], &subjects, &[]).await?;
            admission.open.try_add((tenant, 1), (user, 1)).unwrap();
            create(conn, &[new], &admission, now).await?;

            let first = claimed(conn, task, 1).await;
            step(conn, task, Expect::Owner(first), Event::SubmitUnknown).await;
            step(conn, task, Expect::Owner(first), Event::ProvedAbsent).await;
            let second = claimed(conn, task, 2).await;
            for seen in [Seen::Accepted, Seen::Running] {
                let event = Event::Observed { job: JobHandle::new("j"), seen };
                step(conn, task, Expect::Owner(second), event).await;
            }
            step(conn, task, Expect::AnyState, Event::TakenOver { fencing_token: 1_000 }).await;
            step(conn, task, Expect::AnyState, Event::CancelRequested).await;
            let (updated, hot) = updates(conn, "generation_tasks").await;
            assert_eq!((updated, hot), (8, 8), "a transition before the last touched an index");

            step(conn, task, Expect::AnyState, Event::CancelExpired).await;
            let (updated, hot) = updates(conn, "generation_tasks").await;
            assert_eq!((updated, hot), (9, 8), "the last one leaves the partial indexes of live tasks");
            Ok::<_, PgError>(())
        })
    })
    .await
    .unwrap();
}
