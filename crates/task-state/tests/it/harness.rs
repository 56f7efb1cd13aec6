//! A tenant with a funded user, and the submit that generation would make.

use std::{sync::Arc, time::Duration};

use control::{Control, ControlConfig};
use domain::{
    AccountId, AttemptRef, Credits, GrantId, LocalDay, ModelName, Priority, ProviderAccountId, TaskId,
    TenantId, UserId, WorkerId,
    task::{Attempt, Event, Inputs, JobHandle, Seen},
};
use ledger::{AccountOwner, Balance, DailyQuota, Ledger, NewGrant, Subject, grant::GrantError};
use pg::{PgError, Violation};
use task_state::{
    Claim, ClaimOutcome, Move, MoveOutcome, NewTask, TaskRecord, TaskState, TaskStateConfig, create,
};
use testkit::{TestDb, TestRedis};

pub(crate) const PRICE: i64 = 10;

pub(crate) struct Harness {
    pub(crate) db: TestDb,
    pub(crate) state: TaskState,
    pub(crate) control: Control,
    pub(crate) tenant: TenantId,
    pub(crate) user: UserId,
    pub(crate) account: AccountId,
    _redis: TestRedis,
}

impl Harness {
    pub(crate) async fn new() -> Self {
        let (db, redis) = (TestDb::new().await, TestRedis::new());
        let config =
            ControlConfig { prefix: redis.prefix.clone(), ..ControlConfig::single(redis.url.clone()) };
        let control = Control::new(config).unwrap();
        let state = TaskState::new(db.pool.clone(), control.clone(), TaskStateConfig::default());
        let (tenant, user, account) = (TenantId::generate(), UserId::generate(), AccountId::generate());
        sqlx::query("INSERT INTO tenants (id, name, account_id) VALUES ($1, 't', gen_random_uuid())")
            .bind(tenant.as_uuid())
            .execute(&db.pool)
            .await
            .unwrap();
        sqlx::query("INSERT INTO users (id, tenant_id, name, account_id) VALUES ($1, $2, 'u', $3)")
            .bind(user.as_uuid())
            .bind(tenant.as_uuid())
            .bind(account.as_uuid())
            .execute(&db.pool)
            .await
            .unwrap();
        pg::transact(&db.pool, move |conn| {
            Box::pin(async move {
                ledger::open_account(conn, account, AccountOwner::User(user)).await?;
                let new = NewGrant {
                    id: GrantId::generate(),
                    account,
                    category: "test".to_owned(),
                    priority: 100,
                    expires_at: None,
                    source: "test".to_owned(),
                    amount: Credits::new(1_000_000).unwrap(),
                };
                ledger::grant(conn, &new).await?;
                Ok::<_, GrantError>(())
            })
        })
        .await
        .unwrap();
        Self { db, state, control, tenant, user, account, _redis: redis }
    }

    /// Tasks with their holds and open counts, in one transaction.
    pub(crate) async fn submit(&self, count: usize) -> Vec<TaskId> {
        self.submit_on(None, count).await
    }

    /// The same on a day of whose quota each task takes a unit.
    pub(crate) async fn submit_on(&self, day: Option<LocalDay>, count: usize) -> Vec<TaskId> {
        let (tenant, user, account) = (self.tenant, self.user, self.account);
        let quota = day.map(|day| DailyQuota { day, tenant: (tenant, Some(100)), user: (user, Some(10)) });
        let quota_day = day.map(|day| day.starts_at);
        let tasks: Vec<NewTask> =
            (0..count).map(|_| NewTask { quota_day, ..new_task(tenant, user, account) }).collect();
        let ids = tasks.iter().map(|t| t.task).collect();
        pg::transact(&self.db.pool, move |conn| {
            Box::pin(async move {
                let now = pg::now(conn).await?;
                let subjects = [Subject::Tenant(tenant), Subject::User(user)];
                let mut admission =
                    ledger::lock_admission(conn, &[account], &subjects, quota.as_slice()).await?;
                for task in &tasks {
                    admission.funds.try_hold(account, task.task, task.price).unwrap();
                    admission.open.try_add((tenant, u32::MAX), (user, u32::MAX)).unwrap();
                    if let Some(quota) = &quota {
                        admission.quota.check(quota).unwrap();
                        admission.quota.add(quota);
                    }
                }
                create(conn, &tasks, &admission, now).await
            })
        })
        .await
        .unwrap();
        ids
    }

    pub(crate) async fn submit_one(&self) -> TaskId {
        self.submit(1).await[0]
    }

    pub(crate) async fn claim(&self, task: TaskId, attempt_no: i32) -> (Arc<TaskRecord>, Attempt) {
        let outcome = self.state.claim(vec![claim(task, attempt_no, 200)]).await.unwrap().pop().unwrap();
        match outcome {
            ClaimOutcome::Claimed(record, attempt) => (record, attempt),
            other => panic!("not claimed: {other:?}"),
        }
    }

    pub(crate) async fn by_owner(&self, task: TaskId, attempt: Attempt, event: Event) -> MoveOutcome {
        self.state.advance(Move::by_owner(task, attempt, event)).await.unwrap()
    }

    /// A task that the provider generates.
    pub(crate) async fn running(&self) -> (TaskId, Attempt) {
        let task = self.submit_one().await;
        let (_, attempt) = self.claim(task, 1).await;
        expect_moved(self.by_owner(task, attempt, observed(Seen::Accepted)).await);
        expect_moved(self.by_owner(task, attempt, observed(Seen::Running)).await);
        (task, attempt)
    }

    pub(crate) async fn balance(&self) -> Balance {
        Ledger::new(self.db.pool.clone()).balance(self.account).await.unwrap()
    }

    pub(crate) async fn violations(&self) -> Vec<Violation> {
        pg::read_snapshot(&self.db.pool, |conn| {
            Box::pin(async move {
                let mut found = ledger::audit(conn).await?;
                found.extend(task_state::audit::audit(conn, Duration::from_secs(2)).await?);
                Ok::<_, PgError>(found)
            })
        })
        .await
        .unwrap()
    }
}

pub(crate) fn worker(name: &str) -> WorkerId {
    name.parse().unwrap()
}

pub(crate) fn claim(task: TaskId, attempt_no: i32, limit: u32) -> Claim {
    Claim {
        task,
        attempt_no,
        account: provider(),
        provider_model: model(),
        worker: worker("host:1:a"),
        account_limit: limit,
        model_limit: limit,
        day_limit: None,
        submit_limit: Duration::from_secs(5),
    }
}

pub(crate) fn provider() -> ProviderAccountId {
    "mock".parse().unwrap()
}

pub(crate) fn model() -> ModelName {
    "mock-fast".parse().unwrap()
}

pub(crate) fn observed(seen: Seen) -> Event {
    Event::Observed { job: JobHandle::new("job-1"), seen }
}

pub(crate) fn expect_moved(outcome: MoveOutcome) -> Arc<TaskRecord> {
    match outcome {
        MoveOutcome::Moved(record) => record,
        other => panic!("not moved: {other:?}"),
    }
}

pub(crate) fn attempt_ref(task: TaskId, attempt_no: i32) -> AttemptRef {
    AttemptRef { task, attempt_no }
}

fn new_task(tenant: TenantId, user: UserId, account: AccountId) -> NewTask {
    NewTask {
        task: TaskId::generate(),
        tenant,
        user,
        project: None,
        account,
        model: model(),
        price: Credits::new(PRICE).unwrap(),
        inputs: Inputs {
            prompt: "a paper boat".to_owned(),
            negative_prompt: None,
            duration_seconds: 5,
            resolution: "720p".to_owned(),
            aspect_ratio: Some("16:9".to_owned()),
            seed: Some(u32::MAX),
            tags: vec!["a".to_owned(), "{\"b\", é}".to_owned()],
        },
        deadline_seconds: 1_800,
        priority: Priority::default(),
        traceparent: None,
        quota_day: None,
    }
}
