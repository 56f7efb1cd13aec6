//! Tasks come to be: in the transaction of the submit that asked for them.

use chrono::{DateTime, TimeDelta, Utc};
use domain::{
    AccountId, Credits, ModelName, Priority, ProjectId, TaskId, TaskStatus, TenantId, UserId,
    task::{EventType, Inputs, Stage},
};
use ledger::Admission;
use outbox::{Envelope, NewEvent, Topic};
use pg::{PgConnection, PgError};

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
    let ids: Vec<_> = tasks.iter().map(|t| t.task.as_uuid()).collect();
    let prices: Vec<_> = tasks.iter().map(|t| t.price.get()).collect();
    let deadlines: Vec<_> =
        tasks.iter().map(|t| now + TimeDelta::seconds(i64::from(t.deadline_seconds))).collect();
    // One statement for three tables, the ledger and the outbox: an admission is paid for by its round trips.
    let messages: Vec<NewEvent> = tasks.iter().map(requested).collect();
    let outbox = outbox::Columns::of(&messages);
    let hold = admission.columns();
    let written = sqlx::query!(
        r#"WITH inputs AS (
             INSERT INTO generation_inputs
                 (task_id, prompt, negative_prompt, duration_seconds, resolution, aspect_ratio, seed, traceparent, tags)
             SELECT id, prompt, negative_prompt, duration_seconds, resolution, aspect_ratio, seed, traceparent,
                    CASE WHEN tags = '[]' THEN '{}' ELSE ARRAY(SELECT jsonb_array_elements_text(tags::jsonb)) END
             FROM unnest($1::uuid[], $10::text[], $11::text[], $12::int[], $13::text[], $14::text[], $15::bigint[],
                         $16::text[], $21::text[])
                  AS i(id, prompt, negative_prompt, duration_seconds, resolution, aspect_ratio, seed, tags, traceparent)),
         history AS (
             INSERT INTO task_events (task_id, version, type, status, stage, attempt_no, at, credits)
             SELECT id, 1, $18, $17, $19, 0, $20, price FROM unnest($1::uuid[], $7::bigint[]) AS e(id, price)),
         task AS (
             INSERT INTO generation_tasks (id, tenant_id, user_id, project_id, account_id, model, price,
                                           submit_deadline_at, deadline_at, priority, status, version, created_at,
                                           updated_at, quota_day)
             SELECT id, tenant_id, user_id, project_id, account_id, model, price, deadline_at, deadline_at, priority, $17,
                    1, $20, $20, quota_day
             FROM unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::uuid[], $5::uuid[], $6::text[], $7::bigint[],
                         $8::timestamptz[], $9::smallint[], $37::timestamptz[])
                  AS t(id, tenant_id, user_id, project_id, account_id, model, price, deadline_at, priority, quota_day))
         SELECT outbox_append($22::text[], $23, $24::text[], $25) AS "appended!",
                ledger_write_admission($26, $27, $28, $29, $30, $31, $32, $33, $34, $35, $36) AS "changed!",
                ledger_charge_days($38, $39, $40, $41) AS "charged!""#,
        &ids,
        &tasks.iter().map(|t| t.tenant.as_uuid()).collect::<Vec<_>>(),
        &tasks.iter().map(|t| t.user.as_uuid()).collect::<Vec<_>>(),
        &tasks.iter().map(|t| t.project.map(ProjectId::as_uuid)).collect::<Vec<_>>() as _,
        &tasks.iter().map(|t| t.account.as_uuid()).collect::<Vec<_>>(),
        &tasks.iter().map(|t| t.model.as_str().to_owned()).collect::<Vec<_>>(),
        &prices,
        &deadlines,
        &tasks.iter().map(|t| i16::from(t.priority.get())).collect::<Vec<_>>(),
        &tasks.iter().map(|t| t.inputs.prompt.clone()).collect::<Vec<_>>(),
        &tasks.iter().map(|t| t.inputs.negative_prompt.clone()).collect::<Vec<_>>() as _,
        &tasks.iter().map(|t| i32::try_from(t.inputs.duration_seconds).unwrap_or(i32::MAX)).collect::<Vec<_>>(),
        &tasks.iter().map(|t| t.inputs.resolution.clone()).collect::<Vec<_>>(),
        &tasks.iter().map(|t| t.inputs.aspect_ratio.clone()).collect::<Vec<_>>() as _,
        &tasks.iter().map(|t| t.inputs.seed.map(i64::from)).collect::<Vec<_>>() as _,
        &tasks.iter().map(|t| serde_json::json!(t.inputs.tags).to_string()).collect::<Vec<_>>(),
        TaskStatus::Queued.as_str(),
        EventType::Created.as_str(),
        Stage::Queued.as_str(),
        now,
        &tasks.iter().map(|t| t.traceparent.clone()).collect::<Vec<_>>() as _,
        outbox.topics as _,
        &outbox.keys,
        outbox.payloads as _,
        &outbox.shards,
        &hold.accounts,
        &hold.account_sums,
        &hold.grants,
        &hold.grant_sums,
        &hold.moved_accounts,
        &hold.moved_grants,
        &hold.moved_tasks,
        &hold.moved_amounts,
        &hold.kinds,
        &hold.subjects,
        &hold.added,
        &tasks.iter().map(|t| t.quota_day).collect::<Vec<_>>() as _,
        &hold.day_kinds,
        &hold.day_subjects,
        &hold.days,
        &hold.day_added
    )
    .fetch_one(conn)
    .await?;
    PgError::expect_rows("create: messages", tasks.len(), written.appended.unsigned_abs())?;
    hold.check(&written.changed, written.charged)
}

/// The nudge to the schedulers. It names the task and its version; the reader loads everything else again.
fn requested(task: &NewTask) -> NewEvent {
    let envelope = Envelope::new(task.task, 1, task.traceparent.clone());
    NewEvent::about(Topic::GenerationRequested, &envelope)
}
