//! A task as its row says it, turned into the domain's types or into an error that names the column.

use chrono::{DateTime, Utc};
use domain::{
    AccountId, AssetId, AttemptRef, Credits, ErrorCode, ModelName, Priority, ProjectId, ProviderAccountId,
    TaskId, TaskStatus, TenantId, UserId, WorkerId,
    task::{Attempt, Facts, Inputs, JobHandle, TaskCredits, TaskSnapshot, TaskState},
};
use pg::PgError;
use uuid::Uuid;

/// One version of a task with everything that its followers need.
#[derive(Debug, Clone)]
pub struct TaskRecord {
    /// The facts that readers see.
    pub snapshot: TaskSnapshot,
    /// The state with its data.
    pub state: TaskState,
    /// The credit account that holds the price.
    pub account: AccountId,
    /// Who follows it.
    pub worker: Option<WorkerId>,
    /// The token of who follows it.
    pub fencing_token: i64,
    /// The provider's job of the present attempt.
    pub job: Option<JobHandle>,
    /// When the owner asked for a cancel.
    pub cancel_requested_at: Option<DateTime<Utc>>,
    /// The W3C trace context of the request that made the task.
    pub traceparent: Option<String>,
    /// The first instant of the day of whose quota it took a unit.
    pub quota_day: Option<DateTime<Utc>>,
    /// PostgreSQL's instant when this was read.
    pub read_at: DateTime<Utc>,
}

impl TaskRecord {
    /// The task.
    #[must_use]
    pub const fn id(&self) -> TaskId {
        self.snapshot.task_id
    }

    /// The present attempt's name outside; none before the first claim.
    #[must_use]
    pub const fn attempt_ref(&self) -> Option<AttemptRef> {
        if self.snapshot.attempt_no == 0 {
            None
        } else {
            Some(AttemptRef { task: self.snapshot.task_id, attempt_no: self.snapshot.attempt_no })
        }
    }

    pub(crate) const fn facts(&self, max_tries: u32) -> Facts {
        Facts {
            tries: self.snapshot.tries.unsigned_abs(),
            max_tries,
            cancel_requested: self.snapshot.cancel_requested,
        }
    }
}

/// The row as it lies in the tables `generation_tasks` and `generation_inputs`.
#[derive(sqlx::FromRow)]
pub(crate) struct TaskRow {
    pub(crate) id: Uuid,
    pub(crate) tenant_id: Uuid,
    pub(crate) user_id: Uuid,
    pub(crate) project_id: Option<Uuid>,
    pub(crate) account_id: Uuid,
    pub(crate) model: String,
    pub(crate) price: i64,
    pub(crate) priority: i16,
    pub(crate) status: String,
    pub(crate) version: i32,
    pub(crate) attempt_no: i32,
    pub(crate) tries: i32,
    pub(crate) worker_id: Option<String>,
    pub(crate) fencing_token: i64,
    pub(crate) provider_account_id: Option<String>,
    pub(crate) provider_task_id: Option<String>,
    pub(crate) created_at: DateTime<Utc>,
    pub(crate) updated_at: DateTime<Utc>,
    pub(crate) deadline_at: DateTime<Utc>,
    pub(crate) not_before: Option<DateTime<Utc>>,
    pub(crate) cancel_requested_at: Option<DateTime<Utc>>,
    pub(crate) ended_at: Option<DateTime<Utc>>,
    pub(crate) error_code: Option<String>,
    pub(crate) error_message: Option<String>,
    pub(crate) output_asset_id: Option<Uuid>,
    pub(crate) quota_day: Option<DateTime<Utc>>,
    pub(crate) prompt: String,
    pub(crate) negative_prompt: Option<String>,
    pub(crate) duration_seconds: i32,
    pub(crate) resolution: String,
    pub(crate) aspect_ratio: Option<String>,
    pub(crate) seed: Option<i64>,
    pub(crate) tags: Vec<String>,
    pub(crate) traceparent: Option<String>,
    pub(crate) read_at: DateTime<Utc>,
}

/// The columns of [`TaskRow`] for a statement that is put together when it runs, of the tasks `t` and their inputs `i`.
macro_rules! task_columns {
    () => {
        "t.id, t.tenant_id, t.user_id, t.project_id, t.account_id, t.model, t.price, t.priority, t.status, t.version,
         t.attempt_no, t.tries, t.worker_id, t.fencing_token, t.provider_account_id, t.provider_task_id, t.created_at,
         t.updated_at, t.deadline_at, t.not_before, t.cancel_requested_at, t.ended_at, t.error_code, t.error_message,
         t.output_asset_id, t.quota_day, i.prompt, i.negative_prompt, i.duration_seconds, i.resolution, i.aspect_ratio, i.seed, i.tags,
         i.traceparent, aiv_now() AS read_at"
    };
}
pub(crate) use task_columns;

/// `query_as!` over the columns of [`TaskRow`], with the given rest of the statement.
macro_rules! task_rows {
    ($rest:literal $(, $argument:expr)* $(,)?) => {
        sqlx::query_as!(
            $crate::record::TaskRow,
            r#"SELECT t.id, t.tenant_id, t.user_id, t.project_id, t.account_id, t.model, t.price, t.priority, t.status,
                      t.version, t.attempt_no, t.tries, t.worker_id, t.fencing_token, t.provider_account_id,
                      t.provider_task_id, t.created_at, t.updated_at, t.deadline_at, t.not_before,
                      t.cancel_requested_at, t.ended_at, t.error_code, t.error_message, t.output_asset_id,
                      t.quota_day, i.prompt, i.negative_prompt, i.duration_seconds, i.resolution, i.aspect_ratio, i.seed, i.tags,
                      i.traceparent,
                      aiv_now() AS "read_at!"
               FROM generation_tasks t JOIN generation_inputs i ON i.task_id = t.id "# + $rest
            $(, $argument)*
        )
    };
}
pub(crate) use task_rows;

impl TaskRow {
    fn bad(&self, column: &'static str) -> PgError {
        PgError::BadRow { table: "generation_tasks", column, id: TaskId::from_uuid(self.id).to_string() }
    }

    fn state(&self, status: TaskStatus, error_code: Option<ErrorCode>) -> Result<TaskState, PgError> {
        let attempt = Attempt { no: self.attempt_no, fencing_token: self.fencing_token };
        let job =
            || self.provider_task_id.clone().map(JobHandle::new).ok_or_else(|| self.bad("provider_task_id"));
        Ok(match status {
            TaskStatus::Queued => TaskState::Queued,
            TaskStatus::Scheduling => TaskState::Scheduling { attempt },
            TaskStatus::Reconciling => TaskState::Reconciling { attempt },
            TaskStatus::ProviderSubmitted => TaskState::ProviderSubmitted { attempt, job: job()? },
            TaskStatus::Running => TaskState::Running { attempt, job: job()? },
            TaskStatus::PostProcessing => TaskState::PostProcessing { attempt, job: job()? },
            TaskStatus::Succeeded => {
                let output = self.output_asset_id.ok_or_else(|| self.bad("output_asset_id"))?;
                TaskState::Succeeded { output: AssetId::from_uuid(output) }
            }
            TaskStatus::Failed => {
                TaskState::Failed { code: error_code.ok_or_else(|| self.bad("error_code"))? }
            }
            TaskStatus::Canceled => TaskState::Canceled,
        })
    }
}

impl TryFrom<TaskRow> for TaskRecord {
    type Error = PgError;

    fn try_from(row: TaskRow) -> Result<Self, PgError> {
        let status: TaskStatus = row.status.parse().map_err(|_| row.bad("status"))?;
        let error_code: Option<ErrorCode> =
            row.error_code.as_deref().map(str::parse).transpose().map_err(|_| row.bad("error_code"))?;
        let model: ModelName = row.model.parse().map_err(|_| row.bad("model"))?;
        let provider: Option<ProviderAccountId> = row
            .provider_account_id
            .as_deref()
            .map(str::parse)
            .transpose()
            .map_err(|_| row.bad("provider_account_id"))?;
        let worker: Option<WorkerId> =
            row.worker_id.as_deref().map(str::parse).transpose().map_err(|_| row.bad("worker_id"))?;
        let priority = Priority::try_from(row.priority).map_err(|_| row.bad("priority"))?;
        let price = Credits::new(row.price).map_err(|_| row.bad("price"))?;
        let duration_seconds =
            u32::try_from(row.duration_seconds).map_err(|_| row.bad("duration_seconds"))?;
        let seed = row.seed.map(u32::try_from).transpose().map_err(|_| row.bad("seed"))?;
        let state = row.state(status, error_code)?;
        Ok(Self {
            state,
            account: AccountId::from_uuid(row.account_id),
            worker,
            fencing_token: row.fencing_token,
            job: row.provider_task_id.map(JobHandle::new),
            cancel_requested_at: row.cancel_requested_at,
            traceparent: row.traceparent,
            quota_day: row.quota_day,
            read_at: row.read_at,
            snapshot: TaskSnapshot {
                task_id: TaskId::from_uuid(row.id),
                tenant_id: TenantId::from_uuid(row.tenant_id),
                user_id: UserId::from_uuid(row.user_id),
                project_id: row.project_id.map(ProjectId::from_uuid),
                version: row.version,
                status,
                cancel_requested: row.cancel_requested_at.is_some(),
                model,
                provider,
                attempt_no: row.attempt_no,
                tries: row.tries,
                error_code,
                error_message: row.error_message,
                output_asset_id: row.output_asset_id.map(AssetId::from_uuid),
                inputs: Inputs {
                    prompt: row.prompt,
                    negative_prompt: row.negative_prompt,
                    duration_seconds,
                    resolution: row.resolution,
                    aspect_ratio: row.aspect_ratio,
                    seed,
                    tags: row.tags,
                },
                priority,
                credits: TaskCredits::of(price, status),
                deadline_at: row.deadline_at,
                not_before: row.not_before,
                created_at: row.created_at,
                updated_at: row.updated_at,
                ended_at: row.ended_at,
            },
        })
    }
}
