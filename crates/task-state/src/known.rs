//! The short way of moves whose mover knows the row.
//!
//! An owner has the task's last version in its hands, since nobody else moves an owned task but for a cancel, a deadline
//! or a take-over. So the move is judged by that version and written by one statement which counts only where version
//! and token still are the ones that were read: no lock and no look before it, and for a move that ends nothing no
//! transaction around it either. A row that changed meanwhile is simply not among those that moved, and its move goes
//! the long way (`apply`), which locks and reads first.

use std::{collections::HashMap, sync::Arc, time::Duration};

use chrono::{DateTime, Utc};
use domain::{
    TaskId,
    task::{Effect, Event, Stage, transition},
};
use pg::{PgConnection, PgError};
use sqlx::PgExecutor;
use uuid::Uuid;

use crate::{
    TaskStateConfig,
    advance::{Move, MoveOutcome},
    apply::{Change, decide, fence_holds, write_ends},
    record::TaskRecord,
};

/// A move that was judged by the version that its mover knows.
pub(crate) struct Judged {
    change: Change,
    /// The deadline is raised to this long after the move.
    raise: Option<Duration>,
}

impl Judged {
    /// Whether the move is the task's last.
    pub(crate) fn ends(&self) -> bool {
        self.change.after.snapshot.status.is_terminal()
    }
}

/// Judges a move by what its mover knows. None when it has to go the long way: nothing is known, the rule says no
/// (which only the row itself may say), or more is to be written than the short way writes.
pub(crate) fn judge(wish: &Move, known: &TaskRecord, config: &TaskStateConfig) -> Option<Judged> {
    if !matches!(wish.event, Event::Observed { .. } | Event::OutputPublished { .. })
        || known.id() != wish.task
        || known.snapshot.cancel_requested
        || !fence_holds(&wish.expect, known)
    {
        return None;
    }
    let step = transition(known.state.clone(), known.facts(config.max_tries), wish.event.clone()).ok()?;
    let plain = step.effects.iter().all(|effect| {
        matches!(
            effect,
            Effect::Emit(_)
                | Effect::Capture
                | Effect::ProviderThrough
                | Effect::CloseAttempt
                | Effect::RaiseDeadline
        )
    });
    let raise = step.effects.contains(&Effect::RaiseDeadline).then_some(config.post_processing);
    plain.then(|| Judged { change: decide(known.clone(), wish, &step, config), raise })
}

/// Writes moves that end nothing. One outcome per move, in order; none for a row that is not as it was known.
pub(crate) async fn write(
    conn: impl PgExecutor<'_>,
    moves: &[Judged],
) -> Result<Vec<Option<MoveOutcome>>, PgError> {
    let moved = write_rows(conn, moves).await?;
    Ok(moves
        .iter()
        .map(|judged| moved.get(&judged.change.after.id()).map(|now| outcome(judged, now)))
        .collect())
}

/// Writes moves that end their tasks, with the assets and the money of those that did; as [`write()`], in the caller's
/// transaction.
pub(crate) async fn write_last(
    conn: &mut PgConnection,
    moves: &[Judged],
) -> Result<Vec<Option<MoveOutcome>>, PgError> {
    let moved = write_rows(&mut *conn, moves).await?;
    let ended =
        moves.iter().map(|judged| &judged.change).filter(|change| moved.contains_key(&change.after.id()));
    write_ends(conn, &ended.collect::<Vec<_>>()).await?;
    Ok(moves
        .iter()
        .map(|judged| moved.get(&judged.change.after.id()).map(|now| outcome(judged, now)))
        .collect())
}

/// What PostgreSQL decided about a row that moved.
struct Now {
    at: DateTime<Utc>,
    deadline_at: DateTime<Utc>,
}

fn outcome(judged: &Judged, now: &Now) -> MoveOutcome {
    let mut after: TaskRecord = judged.change.after.clone();
    after.read_at = now.at;
    after.snapshot.updated_at = now.at;
    after.snapshot.deadline_at = now.deadline_at;
    after.snapshot.ended_at = judged.ends().then_some(now.at);
    MoveOutcome::Moved(Arc::new(after))
}

/// The rows, their history and their attempts, by one statement.
async fn write_rows(conn: impl PgExecutor<'_>, moves: &[Judged]) -> Result<HashMap<TaskId, Now>, PgError> {
    // In key order, like every statement that locks several rows.
    let mut changes: Vec<&Judged> = moves.iter().collect();
    changes.sort_unstable_by_key(|judged| judged.change.after.id());
    let attempt = |judged: &Judged, f: fn(&crate::apply::AttemptChange) -> bool| {
        judged.change.attempt.as_ref().is_some_and(f)
    };
    let raise_ms = |judged: &Judged| judged.raise.and_then(|raise| i64::try_from(raise.as_millis()).ok());
    let rows = sqlx::query!(
        r#"WITH d AS MATERIALIZED (
             SELECT * FROM unnest($1::uuid[], $2::int[], $3::bigint[], $4::int[], $5::text[], $6::text[], $7::text[],
                                  $8::text[], $9::uuid[], $10::bigint[], $11::bigint[], $12::bool[], $13::bool[],
                                  $14::bool[], $15::text[])
                  AS d(id, read_version, read_token, attempt_no, status, type, stage, job, output, credits, raise_ms,
                       ends, through, closed, outcome)),
           moved AS (
             UPDATE generation_tasks t SET status = d.status, version = t.version + 1,
                    provider_task_id = coalesce(d.job, t.provider_task_id), updated_at = aiv_now(),
                    deadline_at = greatest(t.deadline_at, aiv_now() + d.raise_ms * interval '1 ms'),
                    ended_at = CASE WHEN d.ends THEN aiv_now() END,
                    not_before = CASE WHEN d.ends THEN NULL ELSE t.not_before END,
                    output_asset_id = coalesce(d.output, t.output_asset_id)
             FROM d WHERE t.id = d.id AND t.version = d.read_version AND t.fencing_token = d.read_token
             RETURNING t.id, t.version, t.updated_at, t.deadline_at),
           told AS (
             INSERT INTO task_events (task_id, version, type, status, stage, attempt_no, at, credits)
             SELECT moved.id, moved.version, d.type, d.status, d.stage, d.attempt_no, moved.updated_at, d.credits
             FROM moved JOIN d USING (id)),
           attempts AS (
             UPDATE task_attempts a SET
                    provider_task_id = coalesce(a.provider_task_id, d.job),
                    submitted_at = CASE WHEN d.job IS NULL THEN a.submitted_at
                                        ELSE coalesce(a.submitted_at, moved.updated_at) END,
                    through_at = CASE WHEN d.through THEN coalesce(a.through_at, moved.updated_at) ELSE a.through_at END,
                    closed_at = CASE WHEN d.closed THEN coalesce(a.closed_at, moved.updated_at) ELSE a.closed_at END,
                    outcome = coalesce(d.outcome, a.outcome)
             FROM moved JOIN d USING (id) WHERE a.task_id = d.id AND a.attempt_no = d.attempt_no
             RETURNING a.task_id)
           SELECT moved.id AS "id!", moved.updated_at AS "at!", moved.deadline_at AS "deadline_at!",
                  attempts.task_id IS NOT NULL AS "noted!"
           FROM moved LEFT JOIN attempts ON attempts.task_id = moved.id"#,
        &changes.iter().map(|j| j.change.after.id().as_uuid()).collect::<Vec<_>>(),
        &changes.iter().map(|j| j.change.read_version).collect::<Vec<_>>(),
        &changes.iter().map(|j| j.change.after.fencing_token).collect::<Vec<_>>(),
        &changes.iter().map(|j| j.change.after.snapshot.attempt_no).collect::<Vec<_>>(),
        &changes.iter().map(|j| j.change.after.snapshot.status.as_str()).collect::<Vec<_>>() as _,
        &changes.iter().map(|j| j.change.event.as_str()).collect::<Vec<_>>() as _,
        &changes.iter().map(|j| Stage::of(j.change.after.snapshot.status, false).as_str()).collect::<Vec<_>>() as _,
        &changes
            .iter()
            .map(|j| j.change.attempt.as_ref().and_then(|attempt| attempt.job.as_deref()))
            .collect::<Vec<_>>() as _,
        &changes
            .iter()
            .map(|j| j.change.after.snapshot.output_asset_id.map(domain::AssetId::as_uuid))
            .collect::<Vec<Option<Uuid>>>() as _,
        &changes.iter().map(|j| j.change.credits.get()).collect::<Vec<_>>(),
        &changes.iter().map(|j| raise_ms(j)).collect::<Vec<_>>() as _,
        &changes.iter().map(|j| j.ends()).collect::<Vec<_>>(),
        &changes.iter().map(|j| attempt(j, |a| a.through)).collect::<Vec<_>>(),
        &changes.iter().map(|j| attempt(j, |a| a.closed)).collect::<Vec<_>>(),
        &changes
            .iter()
            .map(|j| j.change.attempt.as_ref().and_then(|a| a.outcome).map(|outcome| outcome.as_str()))
            .collect::<Vec<_>>() as _
    )
    .fetch_all(conn)
    .await?;
    // Tasks have no attempt of the number that they name only when somebody wrote past this crate.
    PgError::expect_rows("move: attempts", rows.len(), rows.iter().filter(|row| row.noted).count() as u64)?;
    Ok(rows
        .into_iter()
        .map(|row| (TaskId::from_uuid(row.id), Now { at: row.at, deadline_at: row.deadline_at }))
        .collect())
}
