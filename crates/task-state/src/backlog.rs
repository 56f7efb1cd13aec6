//! What PostgreSQL knows and the reconcilers compare Redis with.

use std::collections::HashSet;

use chrono::{DateTime, Utc};
use domain::{AttemptRef, ModelName, ProviderAccountId, TaskId, TenantId, UserId};
use pg::PgError;
use uuid::Uuid;

use crate::{
    TaskState,
    record::{TaskRecord, task_rows},
};

/// A provider job (or a submit under way) that takes a slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveSlot {
    /// The attempt.
    pub attempt: AttemptRef,
    /// Where it goes.
    pub account: ProviderAccountId,
    /// The model's name there.
    pub model: ModelName,
    /// Its tenant.
    pub tenant: TenantId,
    /// Its user.
    pub user: UserId,
}

/// Where a queued task stands among its user's of one model: what goes first is less.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Turn {
    at_ms: i64,
    task: TaskId,
}

impl Turn {
    /// Where this task stands.
    #[must_use]
    pub const fn of(record: &TaskRecord) -> Self {
        let snapshot = &record.snapshot;
        Self { at_ms: snapshot.priority.turn(snapshot.created_at.timestamp_millis()), task: snapshot.task_id }
    }
}

/// What waits for a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiting {
    /// The model.
    pub model: ModelName,
    /// Queued tasks.
    pub tasks: u64,
    /// When the oldest of them was made.
    pub oldest: DateTime<Utc>,
}

impl TaskState {
    /// What waits for each model for which something does. For operators: it reads every live task.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn waiting(&self) -> Result<Vec<Waiting>, PgError> {
        let rows = sqlx::query!(
            r#"SELECT model, count(*) AS "tasks!", min(created_at) AS "oldest!" FROM generation_tasks
               WHERE ended_at IS NULL AND status = 'QUEUED' GROUP BY model"#
        )
        .fetch_all(&self.shared.pool)
        .await?;
        rows.into_iter()
            .map(|row| {
                let bad =
                    || PgError::BadRow { table: "generation_tasks", column: "model", id: row.model.clone() };
                let model = row.model.parse().map_err(|_| bad())?;
                Ok(Waiting { model, tasks: row.tasks.unsigned_abs(), oldest: row.oldest })
            })
            .collect()
    }

    /// Queued tasks that were accepted before `created_before_ms` ago, a page at a time in key order: what the ready
    /// queue should hold. With a `model`, only that model's.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn queued(
        &self,
        model: Option<&ModelName>,
        older_than: std::time::Duration,
        after: Option<TaskId>,
        limit: i64,
    ) -> Result<Vec<TaskRecord>, PgError> {
        let after = after.map_or(Uuid::nil(), TaskId::as_uuid);
        let rows = task_rows!(
            "WHERE t.ended_at IS NULL AND t.status = 'QUEUED' AND t.id > $1 AND ($2::text IS NULL OR t.model = $2)
               AND t.updated_at <= aiv_now() - make_interval(secs => $3) ORDER BY t.id LIMIT $4",
            after,
            model.map(ModelName::as_str),
            older_than.as_secs_f64(),
            limit
        )
        .fetch_all(&self.shared.pool)
        .await?;
        rows.into_iter().map(TaskRecord::try_from).collect()
    }

    /// One user's queued tasks of a model in the order of their turn, a page at a time: what fills up their heads in the
    /// ready queue. An urgent task's turn is earlier, so the page holds the same tasks as the heads would.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn queued_of_user(
        &self,
        tenant: TenantId,
        user: UserId,
        model: &ModelName,
        after: Option<Turn>,
        limit: i64,
    ) -> Result<Vec<TaskRecord>, PgError> {
        let after = after.map_or((i64::MIN, Uuid::nil()), |turn| (turn.at_ms, turn.task.as_uuid()));
        let rows = task_rows!(
            "WHERE t.ended_at IS NULL AND t.status = 'QUEUED' AND t.tenant_id = $1 AND t.user_id = $2 AND t.model = $3
               AND (task_state_turn(t.created_at, t.priority), t.id) > ($4, $5)
             ORDER BY task_state_turn(t.created_at, t.priority), t.id LIMIT $6",
            tenant.as_uuid(),
            user.as_uuid(),
            model.as_str(),
            after.0,
            after.1,
            limit
        )
        .fetch_all(&self.shared.pool)
        .await?;
        rows.into_iter().map(TaskRecord::try_from).collect()
    }

    /// Live tasks whose deadline is over, or whose cancel has waited for `cancel_limit`: what the sweeper ends.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn overdue(
        &self,
        cancel_limit: std::time::Duration,
        limit: i64,
    ) -> Result<Vec<TaskRecord>, PgError> {
        let mut found = Vec::new();
        // By the deadline given at submit, which is indexed and only a lower bound, then by the real one.
        let rows = task_rows!(
            "WHERE t.ended_at IS NULL AND t.submit_deadline_at <= aiv_now() AND t.deadline_at <= aiv_now()
             ORDER BY t.submit_deadline_at LIMIT $1",
            limit
        )
        .fetch_all(&self.shared.pool)
        .await?;
        for row in rows {
            found.push(TaskRecord::try_from(row)?);
        }
        // A cancel that waits belongs to an open attempt, and those are few and indexed.
        let rows = task_rows!(
            "JOIN task_attempts a ON a.task_id = t.id AND a.attempt_no = t.attempt_no
             WHERE a.closed_at IS NULL AND t.ended_at IS NULL AND t.cancel_requested_at IS NOT NULL
               AND t.status IN ('SCHEDULING', 'PROVIDER_SUBMITTED', 'RUNNING')
               AND t.cancel_requested_at <= aiv_now() - make_interval(secs => $1) ORDER BY t.id LIMIT $2",
            cancel_limit.as_secs_f64(),
            limit
        )
        .fetch_all(&self.shared.pool)
        .await?;
        for row in rows {
            found.push(TaskRecord::try_from(row)?);
        }
        Ok(found)
    }

    /// Every attempt that takes a slot of the given account.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn live_slots_of_account(&self, account: &ProviderAccountId) -> Result<Vec<LiveSlot>, PgError> {
        self.live_slots(Some(account.as_str()), None).await
    }

    /// Every attempt that takes a slot of the given tenant.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn live_slots_of_tenant(&self, tenant: TenantId) -> Result<Vec<LiveSlot>, PgError> {
        self.live_slots(None, Some(tenant.as_uuid())).await
    }

    /// Every attempt that takes a slot.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn all_live_slots(&self) -> Result<Vec<LiveSlot>, PgError> {
        self.live_slots(None, None).await
    }

    /// Which of these attempts hold their slots by right.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn live_among(&self, attempts: &[AttemptRef]) -> Result<HashSet<AttemptRef>, PgError> {
        let rows = sqlx::query!(
            "SELECT a.task_id, a.attempt_no FROM unnest($1::uuid[], $2::int[]) AS d(task_id, attempt_no)
             JOIN task_attempts a ON a.task_id = d.task_id AND a.attempt_no = d.attempt_no
             WHERE a.closed_at IS NULL AND a.through_at IS NULL",
            &attempts.iter().map(|attempt| attempt.task.as_uuid()).collect::<Vec<_>>(),
            &attempts.iter().map(|attempt| attempt.attempt_no).collect::<Vec<_>>()
        )
        .fetch_all(&self.shared.pool)
        .await?;
        let attempt = |task, attempt_no| AttemptRef { task: TaskId::from_uuid(task), attempt_no };
        Ok(rows.into_iter().map(|row| attempt(row.task_id, row.attempt_no)).collect())
    }

    async fn live_slots(
        &self,
        account: Option<&str>,
        tenant: Option<Uuid>,
    ) -> Result<Vec<LiveSlot>, PgError> {
        let rows = sqlx::query!(
            "SELECT task_id, attempt_no, provider_account_id, model, tenant_id, user_id FROM task_attempts
             WHERE closed_at IS NULL AND through_at IS NULL
               AND ($1::text IS NULL OR provider_account_id = $1) AND ($2::uuid IS NULL OR tenant_id = $2)",
            account,
            tenant
        )
        .fetch_all(&self.shared.pool)
        .await?;
        rows.into_iter()
            .map(|row| {
                let attempt = AttemptRef { task: TaskId::from_uuid(row.task_id), attempt_no: row.attempt_no };
                let bad =
                    |column| PgError::BadRow { table: "task_attempts", column, id: attempt.to_string() };
                Ok(LiveSlot {
                    attempt,
                    account: row.provider_account_id.parse().map_err(|_| bad("provider_account_id"))?,
                    model: row.model.parse().map_err(|_| bad("model"))?,
                    tenant: TenantId::from_uuid(row.tenant_id),
                    user: UserId::from_uuid(row.user_id),
                })
            })
            .collect()
    }
}
