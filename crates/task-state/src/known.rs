//! The short way of moves whose mover knows the row.
//!
//! An owner has the task's last version in its hands, since nobody else moves an owned task but for a cancel, a deadline
//! or a take-over. So the move is judged by that version and written by one statement which counts only where version
//! and token still are the ones that were read: no lock and no look before it, and no transaction around it either. The
//! asset and the money of a task that ends are written by the same statement, whose last part they are: an account that is
//! locked for a settlement is an account whose admissions wait, and so they wait for PostgreSQL alone, not for this process. A
//! row that changed meanwhile is simply not among those that moved, and its move goes the long way (`apply`), which locks
//! and reads first.

use std::{collections::HashMap, sync::Arc, time::Duration};

use chrono::{DateTime, Utc};
use domain::{
    AssetId, TaskId,
    task::{Effect, Event, Stage, transition},
};
use ledger::SettlementKind;
use media::{AssetKind, Published};
use pg::{PgError, PgPool};
use uuid::Uuid;

use crate::{
    TaskStateConfig,
    advance::{Move, MoveOutcome},
    apply::{AttemptChange, Change, decide, fence_holds},
    attempts::AttemptOutcome,
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

/// Writes moves that end nothing, or, with their assets and their money, moves that all end their tasks. One outcome per
/// move, in order; none for a row that is not as it was known.
pub(crate) async fn write(pool: &PgPool, moves: &[Judged]) -> Result<Vec<Option<MoveOutcome>>, PgError> {
    let columns = Columns::of(moves);
    let rows = if moves.iter().any(Judged::ends) {
        write_ends(pool, &columns).await?
    } else {
        write_steps(pool, &columns).await?
    };
    // Tasks have no attempt of the number that they name only when somebody wrote past this crate.
    PgError::expect_rows("move: attempts", rows.len(), rows.iter().filter(|row| row.3).count() as u64)?;
    let moved: HashMap<TaskId, Now> = rows
        .into_iter()
        .map(|(id, at, deadline_at, _)| (TaskId::from_uuid(id), Now { at, deadline_at }))
        .collect();
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

/// The changes as the statements want them: one array per column, in key order, like every statement that locks several
/// rows.
struct Columns<'a> {
    ids: Vec<Uuid>,
    read_versions: Vec<i32>,
    tokens: Vec<i64>,
    attempt_nos: Vec<i32>,
    statuses: Vec<&'static str>,
    events: Vec<&'static str>,
    stages: Vec<&'static str>,
    jobs: Vec<Option<&'a str>>,
    outputs: Vec<Option<Uuid>>,
    credits: Vec<i64>,
    raise_ms: Vec<Option<i64>>,
    ends: Vec<bool>,
    through: Vec<bool>,
    closed: Vec<bool>,
    outcomes: Vec<Option<&'static str>>,
    settle: Vec<Option<&'static str>>,
    assets: Vec<Option<&'a Published>>,
}

impl<'a> Columns<'a> {
    fn of(moves: &'a [Judged]) -> Self {
        let mut sorted: Vec<&'a Judged> = moves.iter().collect();
        sorted.sort_unstable_by_key(|judged| judged.change.after.id());
        let changes: Vec<&'a Change> = sorted.iter().map(|judged| &judged.change).collect();
        let attempts: Vec<Option<&'a AttemptChange>> = changes.iter().map(|c| c.attempt.as_ref()).collect();
        let flags = |f: fn(&AttemptChange) -> bool| attempts.iter().map(|a| a.is_some_and(f)).collect();
        let raise = |judged: &&Judged| i64::try_from(judged.raise?.as_millis()).ok();
        Self {
            ids: changes.iter().map(|c| c.after.id().as_uuid()).collect(),
            read_versions: changes.iter().map(|c| c.read_version).collect(),
            tokens: changes.iter().map(|c| c.after.fencing_token).collect(),
            attempt_nos: changes.iter().map(|c| c.after.snapshot.attempt_no).collect(),
            statuses: changes.iter().map(|c| c.after.snapshot.status.as_str()).collect(),
            events: changes.iter().map(|c| c.event.as_str()).collect(),
            stages: changes.iter().map(|c| Stage::of(c.after.snapshot.status, false).as_str()).collect(),
            jobs: attempts.iter().map(|attempt| attempt.as_ref()?.job.as_deref()).collect(),
            outputs: changes.iter().map(|c| c.after.snapshot.output_asset_id.map(AssetId::as_uuid)).collect(),
            credits: changes.iter().map(|c| c.credits.get()).collect(),
            raise_ms: sorted.iter().map(raise).collect(),
            ends: sorted.iter().map(|judged| judged.ends()).collect(),
            through: flags(|attempt| attempt.through),
            closed: flags(|attempt| attempt.closed),
            outcomes: attempts
                .iter()
                .map(|attempt| attempt.as_ref()?.outcome.map(AttemptOutcome::as_str))
                .collect(),
            settle: changes.iter().map(|c| c.settle.map(SettlementKind::as_str)).collect(),
            assets: changes.iter().map(|c| c.asset.as_ref()).collect(),
        }
    }
}

/// `query!` over the rows of the moves, their history and their attempts, with the rest of the statement.
macro_rules! moved_rows {
    ($columns:expr, $rest:literal $(, $argument:expr)* $(,)?) => {
        sqlx::query!(
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
                 RETURNING t.id, t.version, t.updated_at, t.deadline_at, t.tenant_id, t.user_id, t.project_id, t.account_id),
               told AS (
                 INSERT INTO task_events (task_id, version, type, status, stage, attempt_no, at, credits)
                 SELECT moved.id, moved.version, d.type, d.status, d.stage, d.attempt_no, moved.updated_at, d.credits
                 FROM moved JOIN d USING (id)
                 RETURNING task_id),
               attempts AS (
                 UPDATE task_attempts a SET
                        provider_task_id = coalesce(a.provider_task_id, d.job),
                        submitted_at = CASE WHEN d.job IS NULL THEN a.submitted_at
                                            ELSE coalesce(a.submitted_at, moved.updated_at) END,
                        through_at = CASE WHEN d.through THEN coalesce(a.through_at, moved.updated_at) ELSE a.through_at END,
                        closed_at = CASE WHEN d.closed THEN coalesce(a.closed_at, moved.updated_at) ELSE a.closed_at END,
                        outcome = coalesce(d.outcome, a.outcome)
                 FROM moved JOIN d USING (id) WHERE a.task_id = d.id AND a.attempt_no = d.attempt_no
                 RETURNING a.task_id) "# + $rest,
            &$columns.ids,
            &$columns.read_versions,
            &$columns.tokens,
            &$columns.attempt_nos,
            &$columns.statuses as _,
            &$columns.events as _,
            &$columns.stages as _,
            &$columns.jobs as _,
            &$columns.outputs as _,
            &$columns.credits,
            &$columns.raise_ms as _,
            &$columns.ends,
            &$columns.through,
            &$columns.closed,
            &$columns.outcomes as _
            $(, $argument)*
        )
    };
}

/// What the statements say of one task that moved: its id, when, its deadline since, and whether its attempt was noted.
type Row = (Uuid, DateTime<Utc>, DateTime<Utc>, bool);

async fn write_steps(pool: &PgPool, columns: &Columns<'_>) -> Result<Vec<Row>, PgError> {
    let rows = moved_rows!(
        columns,
        r#"SELECT moved.id AS "id!", moved.updated_at AS "at!", moved.deadline_at AS "deadline_at!",
                  attempts.task_id IS NOT NULL AS "noted!"
           FROM moved LEFT JOIN attempts ON attempts.task_id = moved.id"#
    )
    .fetch_all(pool)
    .await?;
    Ok(rows.into_iter().map(|row| (row.id, row.at, row.deadline_at, row.noted)).collect())
}

async fn write_ends(pool: &PgPool, columns: &Columns<'_>) -> Result<Vec<Row>, PgError> {
    let assets = &columns.assets;
    let row = moved_rows!(
        columns,
        r#", last AS MATERIALIZED (
             SELECT * FROM unnest($1::uuid[], $16::text[], $17::uuid[], $18::text[], $19::text[], $20::bigint[],
                                  $21::bytea[]) AS l(id, settle, asset, key, content_type, size, hash))
           SELECT coalesce(array_agg(moved.id), '{}') AS "ids!",
                  coalesce(array_agg(moved.updated_at), '{}') AS "at!",
                  coalesce(array_agg(moved.deadline_at), '{}') AS "deadlines!",
                  coalesce(array_agg(attempts.task_id IS NOT NULL), '{}') AS "noted!",
                  media_record(
                      array_agg(last.asset) FILTER (WHERE last.asset IS NOT NULL),
                      array_agg(moved.tenant_id) FILTER (WHERE last.asset IS NOT NULL),
                      array_agg(moved.user_id) FILTER (WHERE last.asset IS NOT NULL),
                      array_agg(moved.project_id) FILTER (WHERE last.asset IS NOT NULL),
                      array_agg(moved.id) FILTER (WHERE last.asset IS NOT NULL),
                      array_agg($22::text) FILTER (WHERE last.asset IS NOT NULL),
                      array_agg(last.key) FILTER (WHERE last.asset IS NOT NULL),
                      array_agg(last.content_type) FILTER (WHERE last.asset IS NOT NULL),
                      array_agg(last.size) FILTER (WHERE last.asset IS NOT NULL),
                      array_agg(last.hash) FILTER (WHERE last.asset IS NOT NULL)) AS "assets!",
                  ledger_settle_ended(array_agg(moved.id), array_agg(last.settle), array_agg(moved.account_id),
                                      array_agg(moved.tenant_id), array_agg(moved.user_id)) AS "settled!"
           FROM moved JOIN last USING (id) LEFT JOIN attempts ON attempts.task_id = moved.id
           -- Locks of the ledger come last: the history is written by then.
           WHERE (SELECT count(*) FROM told) >= 0"#,
        &columns.settle as _,
        &assets.iter().map(|a| a.map(|a| a.asset.as_uuid())).collect::<Vec<_>>() as _,
        &assets.iter().map(|a| a.map(|a| a.storage_key.as_str())).collect::<Vec<_>>() as _,
        &assets.iter().map(|a| a.map(|a| a.content_type)).collect::<Vec<_>>() as _,
        &assets.iter().map(|a| a.and_then(|a| i64::try_from(a.size_bytes).ok())).collect::<Vec<_>>() as _,
        &assets.iter().map(|a| a.map(|a| a.sha256.as_slice())).collect::<Vec<_>>() as _,
        AssetKind::Output.as_str()
    )
    .fetch_one(pool)
    .await?;
    let rows = row.ids.into_iter().zip(row.at).zip(row.deadlines).zip(row.noted);
    Ok(rows.map(|(((id, at), deadline_at), noted)| (id, at, deadline_at, noted)).collect())
}
