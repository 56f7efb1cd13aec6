//! Tasks come to be: in the transaction of the submit that asked for them.

use chrono::{DateTime, TimeDelta, Utc};
use domain::{
    AccountId, Credits, ModelName, Priority, ProjectId, TaskId, TaskStatus, TenantId, UserId,
    task::{EventType, Inputs, Stage},
};
use ledger::Admission;
use outbox::{Envelope, NewEvent, Topic};
use pg::{PgConnection, PgError};
use sqlx::{Arguments as _, Encode, Postgres, Type, error::BoxDynError, postgres::PgArguments};

/// A task to be made. Its id is made before the transaction, so that a lost COMMIT answer can be looked up.
#[derive(Debug, Clone)]
pub struct NewTask {
    /// Its id.
    pub task: TaskId,
    /// Its tenant.
    pub tenant: TenantId,
    /// Its owner.
    pub user: UserId,
    /// The project it belongs to; the caller has checked the membership in this transaction.
    pub project: Option<ProjectId>,
    /// The account that holds the price.
    pub account: AccountId,
    /// The model.
    pub model: ModelName,
    /// The price.
    pub price: Credits,
    /// What was asked for.
    pub inputs: Inputs,
    /// Given up this long after its creation.
    pub deadline_seconds: u32,
    /// Higher goes first among one user's tasks.
    pub priority: Priority,
    /// W3C trace context of the request, carried to the scheduler.
    pub traceparent: Option<String>,
    /// The first instant of the day of whose quota it takes a unit; none without a quota.
    pub quota_day: Option<DateTime<Utc>>,
}

/// What a scheduler has to know of a task that was just made, to queue it without reading it again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewlyQueued {
    /// The task.
    pub task: TaskId,
    /// Its tenant.
    pub tenant: TenantId,
    /// Its owner.
    pub user: UserId,
    /// The model.
    pub model: ModelName,
    /// Higher goes first among one user's tasks.
    pub priority: Priority,
    /// When PostgreSQL says that it was made.
    pub created_at: DateTime<Utc>,
}

impl NewTask {
    /// The same task after the commit of a transaction of the instant `now`.
    #[must_use]
    pub fn queued(&self, now: DateTime<Utc>) -> NewlyQueued {
        let Self { task, tenant, user, ref model, priority, .. } = *self;
        NewlyQueued { task, tenant, user, model: model.clone(), priority, created_at: now }
    }
}

/// Makes the tasks with their holds, their inputs, their first event and their message to the scheduler, at the instant
/// `now` that the transaction has read. `admission` holds exactly what was decided for these tasks.
///
/// # Errors
/// When the statement fails; the transaction must then be given up.
pub async fn create(
    conn: &mut PgConnection,
    tasks: &[NewTask],
    admission: &Admission,
    now: DateTime<Utc>,
) -> Result<(), PgError> {
    if tasks.is_empty() {
        return Ok(());
    }
    let arguments = arguments(tasks, admission, now)?;
    sqlx::query_with(
        "SELECT task_state_create(
             $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24,
             $25, $26, $27, $28, $29, $30, $31, $32, $33, $34, $35, $36, $37, $38, $39, $40, $41)",
        arguments,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// As for [`create`]: the 41 arguments of the SQL function `task_state_create`, for whoever makes tasks in a statement of its
/// own. The function makes sure that it touches what it should.
///
/// # Errors
/// When an argument cannot be encoded.
pub fn arguments(
    tasks: &[NewTask],
    admission: &Admission,
    now: DateTime<Utc>,
) -> Result<PgArguments, PgError> {
    let messages: Vec<NewEvent> = tasks.iter().map(requested).collect();
    let outbox = outbox::Columns::of(&messages);
    let deadline = |t: &NewTask| now + TimeDelta::seconds(i64::from(t.deadline_seconds));
    let duration = |t: &NewTask| i32::try_from(t.inputs.duration_seconds).unwrap_or(i32::MAX);
    let add = |to: &mut PgArguments| {
        column(to, tasks, |t| t.task.as_uuid())?;
        column(to, tasks, |t| t.tenant.as_uuid())?;
        column(to, tasks, |t| t.user.as_uuid())?;
        column(to, tasks, |t| t.project.map(ProjectId::as_uuid))?;
        column(to, tasks, |t| t.account.as_uuid())?;
        column(to, tasks, |t| t.model.as_str())?;
        column(to, tasks, |t| t.price.get())?;
        column(to, tasks, deadline)?;
        column(to, tasks, |t| i16::from(t.priority.get()))?;
        column(to, tasks, |t| t.quota_day)?;
        column(to, tasks, |t| t.inputs.prompt.as_str())?;
        column(to, tasks, |t| t.inputs.negative_prompt.as_deref())?;
        column(to, tasks, duration)?;
        column(to, tasks, |t| t.inputs.resolution.as_str())?;
        column(to, tasks, |t| t.inputs.aspect_ratio.as_deref())?;
        column(to, tasks, |t| t.inputs.seed.map(i64::from))?;
        column(to, tasks, |t| serde_json::json!(t.inputs.tags).to_string())?;
        column(to, tasks, |t| t.traceparent.as_deref())?;
        to.add(TaskStatus::Queued.as_str())?;
        to.add(EventType::Created.as_str())?;
        to.add(Stage::Queued.as_str())?;
        to.add(now)?;
        to.add(&outbox.topics)?;
        to.add(&outbox.keys)?;
        to.add(&outbox.payloads)?;
        to.add(&outbox.shards)?;
        admission.columns().add_to(to)
    };
    let mut to = PgArguments::default();
    add(&mut to).map_err(|error| PgError::Statement(sqlx::Error::Encode(error)))?;
    Ok(to)
}

/// Adds one value of each task as an array.
fn column<'t, T>(
    to: &mut PgArguments,
    tasks: &'t [NewTask],
    value: impl Fn(&'t NewTask) -> T,
) -> Result<(), BoxDynError>
where
    Vec<T>: Encode<'t, Postgres> + Type<Postgres>,
{
    to.add(tasks.iter().map(value).collect::<Vec<T>>())
}

/// The nudge to the schedulers. It names the task and its version; the reader loads everything else again.
fn requested(task: &NewTask) -> NewEvent {
    let envelope = Envelope::new(task.task, 1, task.traceparent.clone());
    NewEvent::about(Topic::GenerationRequested, &envelope)
}
