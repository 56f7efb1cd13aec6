//! What moves write: one transaction, a fixed number of statements, however many tasks move.
//!
//! The rows are locked first, in key order. Under that lock each move is judged by the pure rule; then the new
//! rows, the history, the attempts and the money of all that were allowed are written, each with one statement.

use std::{collections::HashMap, sync::Arc};

use chrono::{DateTime, TimeDelta, Utc};
use domain::{
    Credits, ErrorCode, TaskId, WorkerId,
    task::{Effect, Event, EventType, Stage, Step, TaskCredits, TaskState as State, transition},
};
use ledger::{Ended, Settlement, SettlementKind};
use media::{AssetKind, NewAsset};
use pg::{PgConnection, PgError};
use uuid::Uuid;

use crate::{
    TaskStateConfig,
    advance::{Expect, Move, MoveOutcome},
    attempts::AttemptOutcome,
    record::{TaskRecord, task_rows},
};

/// Locks tasks in key order and reads them.
pub(crate) async fn lock(
    conn: &mut PgConnection,
    tasks: &[Uuid],
) -> Result<HashMap<TaskId, TaskRecord>, PgError> {
    let rows = task_rows!("WHERE t.id = ANY($1) ORDER BY t.id FOR NO KEY UPDATE OF t", tasks)
        .fetch_all(conn)
        .await?;
    rows.into_iter().map(|row| TaskRecord::try_from(row).map(|record| (record.id(), record))).collect()
}

/// One row's change, decided and not yet written.
pub(crate) struct Change {
    pub(crate) read_version: i32,
    pub(crate) after: TaskRecord,
    pub(crate) event: EventType,
    pub(crate) credits: Credits,
    pub(crate) attempt: Option<AttemptChange>,
    pub(crate) settle: Option<SettlementKind>,
    pub(crate) asset: Option<media::Published>,
}

/// What a move says about its attempt.
#[derive(Debug, Default)]
pub(crate) struct AttemptChange {
    pub(crate) job: Option<String>,
    pub(crate) through: bool,
    pub(crate) closed: bool,
    pub(crate) flag: bool,
    pub(crate) outcome: Option<AttemptOutcome>,
    pub(crate) failure_class: Option<&'static str>,
    pub(crate) provider_message: Option<String>,
    pub(crate) owner: Option<(WorkerId, i64)>,
}

/// Judges and writes the moves; one outcome per move, in order. No two moves may name the same task.
pub(crate) async fn apply(
    conn: &mut PgConnection,
    moves: &[Move],
    config: &TaskStateConfig,
) -> Result<Vec<MoveOutcome>, PgError> {
    let ids: Vec<Uuid> = moves.iter().map(|m| m.task.as_uuid()).collect();
    let mut locked = lock(conn, &ids).await?;
    let mut outcomes = Vec::with_capacity(moves.len());
    let mut changes = Vec::new();
    for wish in moves {
        let Some(record) = locked.remove(&wish.task) else {
            outcomes.push(MoveOutcome::Missing);
            continue;
        };
        if !fence_holds(&wish.expect, &record) {
            outcomes.push(MoveOutcome::Stale(Arc::new(record)));
            continue;
        }
        match transition(record.state.clone(), record.facts(config.max_tries), wish.event.clone()) {
            Err(refusal) => outcomes.push(MoveOutcome::Refused(refusal, Arc::new(record))),
            Ok(step) => {
                let change = decide(record, wish, &step, config);
                outcomes.push(MoveOutcome::Moved(Arc::new(change.after.clone())));
                changes.push(change);
            }
        }
    }
    write(conn, &changes).await?;
    Ok(outcomes)
}

pub(crate) fn fence_holds(expect: &Expect, record: &TaskRecord) -> bool {
    match expect {
        Expect::Owner(attempt) => {
            record.snapshot.attempt_no == attempt.no && record.fencing_token == attempt.fencing_token
        }
        Expect::AsRead { version } => record.snapshot.version == *version,
        Expect::AnyState => true,
    }
}

/// Turns an allowed step into the row after it.
pub(crate) fn decide(before: TaskRecord, wish: &Move, step: &Step, config: &TaskStateConfig) -> Change {
    let read_version = before.snapshot.version;
    let now = before.read_at;
    let mut after = enter(before, step.next.clone(), now);
    if wish.event == Event::CancelRequested && !after.snapshot.status.is_terminal() {
        after.cancel_requested_at = Some(now);
        after.snapshot.cancel_requested = true;
    }
    if step.next == State::Queued {
        after.snapshot.not_before =
            wish.detail.pause.and_then(|p| TimeDelta::from_std(p).ok()).map(|p| now + p);
    }
    let mut change = Change {
        read_version,
        event: EventType::Created,
        credits: Credits::ZERO,
        attempt: None,
        settle: None,
        asset: wish.detail.published.clone(),
        after,
    };
    let mut attempt = AttemptChange {
        job: match &wish.event {
            Event::Observed { job, .. } => Some(job.as_str().to_owned()),
            _ => None,
        },
        outcome: AttemptOutcome::of(&wish.event),
        failure_class: match &wish.event {
            Event::SubmitRefused { class } | Event::ProviderFailed { class } => Some(class.as_str()),
            _ => None,
        },
        provider_message: wish.detail.provider_message.clone(),
        ..AttemptChange::default()
    };
    for effect in &step.effects {
        match effect {
            Effect::Emit(event) => change.event = *event,
            Effect::Capture => change.settle = Some(SettlementKind::Capture),
            Effect::Release => change.settle = Some(SettlementKind::Release),
            Effect::CountTry => change.after.snapshot.tries += 1,
            Effect::RaiseDeadline => raise_deadline(&mut change.after, now, config),
            Effect::ProviderThrough => attempt.through = true,
            Effect::CloseAttempt => attempt.closed = true,
            Effect::Flag => attempt.flag = true,
            // Claims write their attempt themselves: they know the account and the worker.
            Effect::OpenAttempt => {}
        }
    }
    if change.settle.is_some() {
        change.credits = change.after.snapshot.credits.quoted;
    }
    let says_something = attempt.job.is_some()
        || attempt.through
        || attempt.closed
        || attempt.flag
        || attempt.outcome.is_some();
    change.attempt = says_something.then_some(attempt);
    change
}

/// The record in its next state, one version on.
pub(crate) fn enter(mut record: TaskRecord, next: State, now: DateTime<Utc>) -> TaskRecord {
    let status = next.status();
    if let Some(attempt) = next.attempt() {
        record.snapshot.attempt_no = attempt.no;
        record.fencing_token = attempt.fencing_token;
    }
    if let Some(job) = next.job() {
        record.job = Some(job.clone());
    }
    match &next {
        State::Queued => {
            // Nothing of the closed try belongs to the task any more; the attempt's row keeps it.
            record.job = None;
            record.worker = None;
            record.snapshot.provider = None;
        }
        State::Succeeded { output } => record.snapshot.output_asset_id = Some(*output),
        State::Failed { code } => set_error(&mut record, *code),
        _ => {}
    }
    if status.is_terminal() {
        record.snapshot.ended_at = Some(now);
        record.snapshot.not_before = None;
    }
    record.snapshot.version += 1;
    record.snapshot.status = status;
    record.snapshot.credits = TaskCredits::of(record.snapshot.credits.quoted, status);
    record.snapshot.updated_at = now;
    record.state = next;
    record
}

fn set_error(record: &mut TaskRecord, code: ErrorCode) {
    record.snapshot.error_code = Some(code);
    record.snapshot.error_message = Some(code.sentence().to_owned());
}

fn raise_deadline(after: &mut TaskRecord, now: DateTime<Utc>, config: &TaskStateConfig) {
    let allowed = match after.state {
        State::Reconciling { .. } => config.reconciling,
        _ => config.post_processing,
    };
    let raised = now + TimeDelta::from_std(allowed).unwrap_or(TimeDelta::zero());
    after.snapshot.deadline_at = after.snapshot.deadline_at.max(raised);
}

/// Writes the changes of rows that this transaction has locked.
pub(crate) async fn write(conn: &mut PgConnection, changes: &[Change]) -> Result<(), PgError> {
    if changes.is_empty() {
        return Ok(());
    }
    write_tasks(conn, changes).await?;
    write_history(conn, changes).await?;
    write_attempts(conn, changes).await?;
    write_ends(conn, changes).await
}

async fn write_tasks(conn: &mut PgConnection, changes: &[Change]) -> Result<(), PgError> {
    let rows = |f: fn(&TaskRecord) -> Option<String>| changes.iter().map(|c| f(&c.after)).collect::<Vec<_>>();
    let times =
        |f: fn(&TaskRecord) -> Option<DateTime<Utc>>| changes.iter().map(|c| f(&c.after)).collect::<Vec<_>>();
    let numbers = |f: fn(&TaskRecord) -> i32| changes.iter().map(|c| f(&c.after)).collect::<Vec<_>>();
    let updated = sqlx::query!(
        "UPDATE generation_tasks t SET status = d.status, version = t.version + 1, attempt_no = d.attempt_no,
                tries = d.tries, worker_id = d.worker_id, fencing_token = d.fencing_token,
                provider_account_id = d.provider_account_id, provider_task_id = d.provider_task_id,
                updated_at = d.updated_at, deadline_at = d.deadline_at, not_before = d.not_before,
                cancel_requested_at = d.cancel_requested_at, ended_at = d.ended_at, error_code = d.error_code,
                error_message = d.error_message, output_asset_id = d.output_asset_id
         FROM unnest($1::uuid[], $2::int[], $3::text[], $4::int[], $5::int[], $6::text[], $7::bigint[], $8::text[],
                     $9::text[], $10::timestamptz[], $11::timestamptz[], $12::timestamptz[], $13::timestamptz[],
                     $14::timestamptz[], $15::text[], $16::text[], $17::uuid[])
              AS d(id, read_version, status, attempt_no, tries, worker_id, fencing_token, provider_account_id,
                   provider_task_id, updated_at, deadline_at, not_before, cancel_requested_at, ended_at, error_code,
                   error_message, output_asset_id)
         WHERE t.id = d.id AND t.version = d.read_version",
        &changes.iter().map(|c| c.after.id().as_uuid()).collect::<Vec<_>>(),
        &changes.iter().map(|c| c.read_version).collect::<Vec<_>>(),
        &changes.iter().map(|c| c.after.snapshot.status.as_str().to_owned()).collect::<Vec<_>>(),
        &numbers(|r| r.snapshot.attempt_no),
        &numbers(|r| r.snapshot.tries),
        &rows(|r| r.worker.as_ref().map(ToString::to_string)) as _,
        &changes.iter().map(|c| c.after.fencing_token).collect::<Vec<_>>(),
        &rows(|r| r.snapshot.provider.as_ref().map(ToString::to_string)) as _,
        &rows(|r| r.job.as_ref().map(|job| job.as_str().to_owned())) as _,
        &times(|r| Some(r.snapshot.updated_at)) as _,
        &times(|r| Some(r.snapshot.deadline_at)) as _,
        &times(|r| r.snapshot.not_before) as _,
        &times(|r| r.cancel_requested_at) as _,
        &times(|r| r.snapshot.ended_at) as _,
        &rows(|r| r.snapshot.error_code.map(|code| code.as_str().to_owned())) as _,
        &rows(|r| r.snapshot.error_message.clone()) as _,
        &changes.iter().map(|c| c.after.snapshot.output_asset_id.map(domain::AssetId::as_uuid)).collect::<Vec<_>>() as _
    )
    .execute(conn)
    .await?;
    // The rows are locked and were read under that lock, so nothing can have come between.
    PgError::expect_rows("move: tasks", changes.len(), updated.rows_affected())
}

async fn write_history(conn: &mut PgConnection, changes: &[Change]) -> Result<(), PgError> {
    let texts = |f: fn(&Change) -> &'static str| changes.iter().map(|c| f(c).to_owned()).collect::<Vec<_>>();
    sqlx::query!(
        "INSERT INTO task_events (task_id, version, type, status, stage, attempt_no, at, credits, error_code)
         SELECT * FROM unnest($1::uuid[], $2::int[], $3::text[], $4::text[], $5::text[], $6::int[], $7::timestamptz[],
                              $8::bigint[], $9::text[])",
        &changes.iter().map(|c| c.after.id().as_uuid()).collect::<Vec<_>>(),
        &changes.iter().map(|c| c.after.snapshot.version).collect::<Vec<_>>(),
        &texts(|c| c.event.as_str()),
        &texts(|c| c.after.snapshot.status.as_str()),
        &texts(|c| Stage::of(c.after.snapshot.status, c.after.snapshot.cancel_requested).as_str()),
        &changes.iter().map(|c| c.after.snapshot.attempt_no).collect::<Vec<_>>(),
        &changes.iter().map(|c| c.after.snapshot.updated_at).collect::<Vec<_>>(),
        &changes.iter().map(|c| c.credits.get()).collect::<Vec<_>>(),
        &changes
            .iter()
            .map(|c| c.after.snapshot.error_code.map(|code| code.as_str().to_owned()))
            .collect::<Vec<_>>() as _
    )
    .execute(conn)
    .await?;
    Ok(())
}

async fn write_attempts(conn: &mut PgConnection, changes: &[Change]) -> Result<(), PgError> {
    let touched: Vec<_> =
        changes.iter().filter_map(|c| c.attempt.as_ref().map(|attempt| (&c.after, attempt))).collect();
    if touched.is_empty() {
        return Ok(());
    }
    let flags = |f: fn(&AttemptChange) -> bool| touched.iter().map(|(_, a)| f(a)).collect::<Vec<_>>();
    let texts =
        |f: fn(&AttemptChange) -> Option<String>| touched.iter().map(|(_, a)| f(a)).collect::<Vec<_>>();
    let updated = sqlx::query!(
        "UPDATE task_attempts a SET
                provider_task_id = coalesce(a.provider_task_id, d.job),
                submitted_at = CASE WHEN d.job IS NULL THEN a.submitted_at ELSE coalesce(a.submitted_at, d.at) END,
                through_at = CASE WHEN d.through THEN coalesce(a.through_at, d.at) ELSE a.through_at END,
                closed_at = CASE WHEN d.closed THEN coalesce(a.closed_at, d.at) ELSE a.closed_at END,
                flagged_at = CASE WHEN d.flag THEN coalesce(a.flagged_at, d.at) ELSE a.flagged_at END,
                outcome = coalesce(d.outcome, a.outcome),
                failure_class = coalesce(d.failure_class, a.failure_class),
                provider_message = coalesce(d.provider_message, a.provider_message),
                worker_id = coalesce(d.worker_id, a.worker_id),
                fencing_token = coalesce(d.fencing_token, a.fencing_token)
         FROM unnest($1::uuid[], $2::int[], $3::timestamptz[], $4::text[], $5::bool[], $6::bool[], $7::bool[],
                     $8::text[], $9::text[], $10::text[], $11::text[], $12::bigint[])
              AS d(task_id, attempt_no, at, job, through, closed, flag, outcome, failure_class, provider_message,
                   worker_id, fencing_token)
         WHERE a.task_id = d.task_id AND a.attempt_no = d.attempt_no",
        &touched.iter().map(|(r, _)| r.id().as_uuid()).collect::<Vec<_>>(),
        &touched.iter().map(|(r, _)| r.snapshot.attempt_no).collect::<Vec<_>>(),
        &touched.iter().map(|(r, _)| r.snapshot.updated_at).collect::<Vec<_>>(),
        &texts(|a| a.job.clone()) as _,
        &flags(|a| a.through),
        &flags(|a| a.closed),
        &flags(|a| a.flag),
        &texts(|a| a.outcome.map(|outcome| outcome.as_str().to_owned())) as _,
        &texts(|a| a.failure_class.map(ToOwned::to_owned)) as _,
        &texts(|a| a.provider_message.clone()) as _,
        &texts(|a| a.owner.as_ref().map(|(worker, _)| worker.to_string())) as _,
        &touched.iter().map(|(_, a)| a.owner.as_ref().map(|(_, token)| *token)).collect::<Vec<_>>() as _
    )
    .execute(conn)
    .await?;
    PgError::expect_rows("move: attempts", touched.len(), updated.rows_affected())
}

/// What belongs to the last move of a task: the asset, the money, the open counts, the unit of its day.
async fn write_ends(conn: &mut PgConnection, changes: &[Change]) -> Result<(), PgError> {
    let assets: Vec<NewAsset> = changes
        .iter()
        .filter(|c| matches!(c.after.state, State::Succeeded { .. }))
        .filter_map(|c| {
            c.asset.clone().map(|published| NewAsset {
                published,
                owner: c.after.snapshot.owner(),
                task: c.after.id(),
                kind: AssetKind::Output,
            })
        })
        .collect();
    media::record(conn, &assets).await?;
    let settlements: Vec<Settlement> = changes
        .iter()
        .filter_map(|c| {
            c.settle.map(|kind| Settlement { task: c.after.id(), account: c.after.account, kind })
        })
        .collect();
    let ended: Vec<_> = changes
        .iter()
        .filter(|c| c.after.snapshot.status.is_terminal())
        .map(|c| Ended {
            tenant: c.after.snapshot.tenant_id,
            user: c.after.snapshot.user_id,
            gives_back: c.after.quota_day.filter(|_| !matches!(c.after.state, State::Succeeded { .. })),
        })
        .collect();
    ledger::settle(conn, &settlements, &ended).await
}

impl Change {
    /// A change that moves no credits and ends nothing: a claim or a take-over.
    pub(crate) fn quiet(
        read_version: i32,
        after: TaskRecord,
        event: EventType,
        attempt: Option<AttemptChange>,
    ) -> Self {
        Self { read_version, after, event, credits: Credits::ZERO, attempt, settle: None, asset: None }
    }
}
