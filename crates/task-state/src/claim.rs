//! Claiming: a worker takes queued tasks in order to submit them.
//!
//! This is the last gate before money can be spent at a provider, and it relies on PostgreSQL alone: whatever Redis
//! believes about slots, no more attempts than an account's limit are ever live at once. One lock per provider
//! account makes counting and claiming one step across all schedulers.

use std::{collections::HashMap, sync::Arc, time::Duration};

use chrono::{DateTime, Utc};
use domain::{
    ModelName, ProviderAccountId, TaskId, TaskStatus, WorkerId,
    task::{Attempt, EventType, Stage},
};
use pg::{PgConnection, PgError};
use uuid::Uuid;

use crate::{
    TaskState,
    advance::MoveError,
    project,
    record::{TaskRecord, TaskRow, task_columns, task_rows},
};

/// A wish to claim one task.
#[derive(Debug, Clone)]
pub struct Claim {
    /// The task.
    pub task: TaskId,
    /// The number that its slots were reserved for: one more than its attempts so far.
    pub attempt_no: i32,
    /// Where it goes.
    pub account: ProviderAccountId,
    /// The model's name there.
    pub provider_model: ModelName,
    /// Who claims.
    pub worker: WorkerId,
    /// Live attempts that the account may have.
    pub account_limit: u32,
    /// Live attempts that this model may have there.
    pub model_limit: u32,
    /// Jobs that the account may be given in a day; none is unlimited.
    pub day_limit: Option<u32>,
    /// How long the submit may be on its way.
    pub submit_limit: Duration,
}

/// What became of a claim.
#[derive(Debug, Clone)]
pub enum ClaimOutcome {
    /// The worker owns the task now. The attempt is recorded.
    Claimed(Arc<TaskRecord>, Attempt),
    /// The account or the model has as many live attempts as allowed, or the account as many jobs today; give the slots
    /// back and ask later.
    NoRoom,
    /// The task is not to be claimed: it has another status or another attempt number than the claim assumed, or
    /// its pause is not over. Give the slots back; this is the task as it is.
    Gone(Arc<TaskRecord>),
    /// There is no such task.
    Missing,
}

impl TaskState {
    /// Claims tasks in one transaction, in the given order as far as there is room.
    ///
    /// # Errors
    /// When the store fails; nothing is claimed then, except after a lost COMMIT answer, when the claimed tasks are
    /// found by the reaper like those of a dead worker.
    pub async fn claim(&self, claims: Vec<Claim>) -> Result<Vec<ClaimOutcome>, MoveError> {
        if claims.is_empty() {
            return Ok(Vec::new());
        }
        let mut conn = self.shared.pool.acquire().await.map_err(PgError::from)?;
        let outcomes = claim(&mut conn, &claims).await?;
        drop(conn);
        let claimed = outcomes.iter().filter_map(|outcome| match outcome {
            ClaimOutcome::Claimed(record, _) => Some(record),
            _ => None,
        });
        project::records(&self.shared, claimed).await;
        Ok(outcomes)
    }
}

/// The jobs that an account was given on this day of UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JobsToday {
    /// How many.
    pub jobs: u64,
    /// When the next day begins.
    pub until: DateTime<Utc>,
    /// PostgreSQL's instant when this was read.
    pub read_at: DateTime<Utc>,
}

impl TaskState {
    /// How many jobs an account was given today, as its daily limit counts them.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn jobs_today(&self, account: &ProviderAccountId) -> Result<JobsToday, PgError> {
        let row = sqlx::query!(
            r#"SELECT task_state_jobs_today($1) AS "jobs!", aiv_now() AS "read_at!",
                      date_trunc('day', aiv_now(), 'UTC') + interval '1 day' AS "until!""#,
            account.as_str()
        )
        .fetch_one(&self.shared.pool)
        .await?;
        let jobs = u64::try_from(row.jobs).unwrap_or_default();
        Ok(JobsToday { jobs, until: row.until, read_at: row.read_at })
    }
}

/// One statement for all: the lock, the count, the claim, its history and its attempts.
pub(crate) async fn claim(conn: &mut PgConnection, claims: &[Claim]) -> Result<Vec<ClaimOutcome>, PgError> {
    let mut claimed = write(conn, claims).await?;
    let others: Vec<Uuid> = claims
        .iter()
        .filter(|wish| !claimed.contains_key(&wish.task))
        .map(|wish| wish.task.as_uuid())
        .collect();
    let mut seen: HashMap<TaskId, TaskRecord> = HashMap::new();
    if !others.is_empty() {
        for row in task_rows!("WHERE t.id = ANY($1)", &others).fetch_all(&mut *conn).await? {
            let record = TaskRecord::try_from(row)?;
            seen.insert(record.id(), record);
        }
    }
    Ok(claims
        .iter()
        .map(|wish| match (claimed.remove(&wish.task), seen.remove(&wish.task)) {
            (Some(record), _) => {
                let attempt = Attempt { no: wish.attempt_no, fencing_token: record.fencing_token };
                ClaimOutcome::Claimed(Arc::new(record), attempt)
            }
            (None, Some(record)) if is_claimable(wish, &record) => ClaimOutcome::NoRoom,
            (None, Some(record)) => ClaimOutcome::Gone(Arc::new(record)),
            (None, None) => ClaimOutcome::Missing,
        })
        .collect())
}

/// Whether the task is as the claim assumed, so that only room can have been missing.
fn is_claimable(wish: &Claim, record: &TaskRecord) -> bool {
    record.snapshot.status == TaskStatus::Queued
        && record.snapshot.attempt_no + 1 == wish.attempt_no
        && record.snapshot.not_before.is_none_or(|instant| instant <= record.read_at)
        && record.snapshot.deadline_at > record.read_at
}

/// Claims what is claimable and has room, and returns the tasks as they are then.
async fn write(conn: &mut PgConnection, claims: &[Claim]) -> Result<HashMap<TaskId, TaskRecord>, PgError> {
    let texts = |f: fn(&Claim) -> &str| claims.iter().map(f).collect::<Vec<_>>();
    let limits = |f: fn(&Claim) -> u32| claims.iter().map(|c| i64::from(f(c))).collect::<Vec<_>>();
    let submit_ms = |c: &Claim| i64::try_from(c.submit_limit.as_millis()).unwrap_or(i64::MAX);
    let rows: Vec<TaskRow> = sqlx::query_as(concat!(
        "SELECT ",
        task_columns!(),
        " FROM task_state_claim($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13) AS t
          JOIN generation_inputs i ON i.task_id = t.id"
    ))
    .bind(claims.iter().map(|c| c.task.as_uuid()).collect::<Vec<_>>())
    .bind(claims.iter().map(|c| c.attempt_no).collect::<Vec<_>>())
    .bind(texts(|c| c.account.as_str()))
    .bind(texts(|c| c.provider_model.as_str()))
    .bind(limits(|c| c.account_limit))
    .bind(limits(|c| c.model_limit))
    .bind(claims.iter().map(submit_ms).collect::<Vec<_>>())
    .bind(texts(|c| c.worker.as_str()))
    .bind(claims.iter().map(|c| c.day_limit.map(i64::from)).collect::<Vec<_>>())
    .bind(TaskStatus::Queued.as_str())
    .bind(TaskStatus::Scheduling.as_str())
    .bind(EventType::Scheduled.as_str())
    .bind(Stage::of(TaskStatus::Scheduling, false).as_str())
    .fetch_all(conn)
    .await?;
    rows.into_iter().map(|row| TaskRecord::try_from(row).map(|record| (record.id(), record))).collect()
}
