//! Claiming: a worker takes queued tasks in order to submit them.
//!
//! This is the last gate before money can be spent at a provider, and it relies on PostgreSQL alone: whatever Redis
//! believes about slots, no more attempts than an account's limit are ever live at once. One lock per provider
//! account makes counting and claiming one step across all schedulers.

use std::{collections::HashMap, sync::Arc, time::Duration};

use domain::{
    ModelName, ProviderAccountId, TaskId, TaskStatus, WorkerId,
    task::{Attempt, Event, EventType, Stage, transition},
};
use pg::{PgConnection, PgError};
use uuid::Uuid;

use crate::{
    TaskState,
    advance::MoveError,
    apply::{self, enter},
    project,
    record::TaskRecord,
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
    /// How long the submit may be on its way.
    pub submit_limit: Duration,
}

/// What became of a claim.
#[derive(Debug, Clone)]
pub enum ClaimOutcome {
    /// The worker owns the task now. The attempt is recorded.
    Claimed(Arc<TaskRecord>, Attempt),
    /// The account or the model has as many live attempts as allowed; give the slots back and ask later.
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
        let max_tries = self.shared.config.max_tries;
        let outcomes = pg::transact(&self.shared.pool, move |conn| {
            Box::pin(async move { claim(conn, &claims, max_tries).await })
        })
        .await?;
        let claimed = outcomes.iter().filter_map(|outcome| match outcome {
            ClaimOutcome::Claimed(record, _) => Some(record),
            _ => None,
        });
        project::records(&self.shared, claimed).await;
        Ok(outcomes)
    }
}

pub(crate) async fn claim(
    conn: &mut PgConnection,
    claims: &[Claim],
    max_tries: u32,
) -> Result<Vec<ClaimOutcome>, PgError> {
    let mut accounts: Vec<String> = claims.iter().map(|c| c.account.to_string()).collect();
    accounts.sort_unstable();
    accounts.dedup();
    // A statement of its own, before any row lock: whoever waits here holds nothing that others need.
    sqlx::query!(
        "SELECT pg_advisory_xact_lock(hashtextextended('claim:' || account, 0)) FROM unnest($1::text[]) AS a(account)",
        &accounts
    )
    .fetch_all(&mut *conn)
    .await?;
    let ids: Vec<Uuid> = claims.iter().map(|c| c.task.as_uuid()).collect();
    let mut locked = apply::lock(conn, &ids).await?;
    let (mut room, tokens) = Room::count(conn, &accounts, claims.len()).await?;
    let mut tokens = tokens.into_iter();

    let mut outcomes = Vec::with_capacity(claims.len());
    let mut claimed = Vec::new();
    for wish in claims {
        let Some(record) = locked.remove(&wish.task) else {
            outcomes.push(ClaimOutcome::Missing);
            continue;
        };
        let expected = record.snapshot.status == TaskStatus::Queued
            && record.snapshot.attempt_no + 1 == wish.attempt_no
            && record.snapshot.not_before.is_none_or(|instant| instant <= record.read_at)
            && record.snapshot.deadline_at > record.read_at;
        let Some(fencing_token) = tokens.next().filter(|_| expected) else {
            outcomes.push(ClaimOutcome::Gone(Arc::new(record)));
            continue;
        };
        if !room.take(wish) {
            outcomes.push(ClaimOutcome::NoRoom);
            continue;
        }
        let attempt = Attempt { no: wish.attempt_no, fencing_token };
        match transition(record.state.clone(), record.facts(max_tries), Event::Claimed { attempt }) {
            Err(_) => outcomes.push(ClaimOutcome::Gone(Arc::new(record))),
            Ok(step) => {
                let (read_version, now) = (record.snapshot.version, record.read_at);
                let mut after = enter(record, step.next, now);
                after.worker = Some(wish.worker.clone());
                after.snapshot.provider = Some(wish.account.clone());
                after.snapshot.not_before = None;
                outcomes.push(ClaimOutcome::Claimed(Arc::new(after.clone()), attempt));
                claimed.push(Claimed { wish, read_version, after });
            }
        }
    }
    write(conn, &claimed).await?;
    Ok(outcomes)
}

/// A claim that was granted and is not yet written.
struct Claimed<'a> {
    wish: &'a Claim,
    read_version: i32,
    after: TaskRecord,
}

/// The tasks, their history and their new attempts, by one statement: dispatch is as quick as its round trips.
async fn write(conn: &mut PgConnection, claimed: &[Claimed<'_>]) -> Result<(), PgError> {
    if claimed.is_empty() {
        return Ok(());
    }
    let limits = |c: &Claimed<'_>| i64::try_from(c.wish.submit_limit.as_millis()).unwrap_or(i64::MAX);
    let written = sqlx::query_scalar!(
        r#"WITH d AS MATERIALIZED (
             SELECT * FROM unnest($1::uuid[], $2::int[], $3::int[], $4::bigint[], $5::text[], $6::text[], $7::text[],
                                  $8::timestamptz[], $9::bigint[])
                  AS d(id, read_version, attempt_no, token, account, model, worker, at, limit_ms)),
           moved AS (
             UPDATE generation_tasks t SET status = $10, version = t.version + 1, attempt_no = d.attempt_no,
                    worker_id = d.worker, fencing_token = d.token, provider_account_id = d.account, not_before = NULL,
                    updated_at = d.at
             FROM d WHERE t.id = d.id AND t.version = d.read_version
             RETURNING t.id, t.version, t.tenant_id, t.user_id),
           told AS (
             INSERT INTO task_events (task_id, version, type, status, stage, attempt_no, at, credits)
             SELECT moved.id, moved.version, $11, $10, $12, d.attempt_no, d.at, 0 FROM moved JOIN d USING (id)),
           opened AS (
             INSERT INTO task_attempts (task_id, attempt_no, tenant_id, user_id, provider_account_id, model, worker_id,
                                        fencing_token, claimed_at, submit_until)
             SELECT moved.id, d.attempt_no, moved.tenant_id, moved.user_id, d.account, d.model, d.worker, d.token, d.at,
                    d.at + d.limit_ms * interval '1 ms'
             FROM moved JOIN d USING (id))
           SELECT count(*) AS "count!" FROM moved"#,
        &claimed.iter().map(|c| c.wish.task.as_uuid()).collect::<Vec<_>>(),
        &claimed.iter().map(|c| c.read_version).collect::<Vec<_>>(),
        &claimed.iter().map(|c| c.wish.attempt_no).collect::<Vec<_>>(),
        &claimed.iter().map(|c| c.after.fencing_token).collect::<Vec<_>>(),
        &claimed.iter().map(|c| c.wish.account.as_str()).collect::<Vec<_>>() as _,
        &claimed.iter().map(|c| c.wish.provider_model.as_str()).collect::<Vec<_>>() as _,
        &claimed.iter().map(|c| c.wish.worker.as_str()).collect::<Vec<_>>() as _,
        &claimed.iter().map(|c| c.after.snapshot.updated_at).collect::<Vec<_>>(),
        &claimed.iter().map(limits).collect::<Vec<_>>(),
        TaskStatus::Scheduling.as_str(),
        EventType::Scheduled.as_str(),
        Stage::of(TaskStatus::Scheduling, false).as_str()
    )
    .fetch_one(conn)
    .await?;
    // The rows are locked and were read under that lock, so nothing can have come between.
    PgError::expect_rows("claim", claimed.len(), written.unsigned_abs())
}

/// Live attempts per account and per model of an account.
struct Room {
    by_account: HashMap<String, u32>,
    by_model: HashMap<(String, String), u32>,
}

impl Room {
    /// Counts what lives, and draws as many fencing tokens as there are claims.
    async fn count(
        conn: &mut PgConnection,
        accounts: &[String],
        claims: usize,
    ) -> Result<(Self, Vec<i64>), PgError> {
        let counted = sqlx::query!(
            r#"SELECT ARRAY(SELECT nextval('fencing_tokens') FROM generate_series(1, $2)) AS "tokens!",
                      coalesce(array_agg(account), '{}') AS "accounts!", coalesce(array_agg(model), '{}') AS "models!",
                      coalesce(array_agg(live), '{}') AS "live!"
               FROM (SELECT provider_account_id AS account, model, count(*) AS live FROM task_attempts
                     WHERE closed_at IS NULL AND through_at IS NULL AND provider_account_id = ANY($1)
                     GROUP BY provider_account_id, model) AS r"#,
            accounts,
            i32::try_from(claims).unwrap_or(i32::MAX)
        )
        .fetch_one(conn)
        .await?;
        let mut room = Self { by_account: HashMap::new(), by_model: HashMap::new() };
        for ((account, model), live) in counted.accounts.into_iter().zip(counted.models).zip(counted.live) {
            let live = u32::try_from(live).unwrap_or(u32::MAX);
            *room.by_account.entry(account.clone()).or_default() += live;
            room.by_model.insert((account, model), live);
        }
        Ok((room, counted.tokens))
    }

    /// Takes a place if both limits leave one.
    fn take(&mut self, wish: &Claim) -> bool {
        let account = self.by_account.entry(wish.account.to_string()).or_default();
        let model =
            self.by_model.entry((wish.account.to_string(), wish.provider_model.to_string())).or_default();
        let fits = *account < wish.account_limit && *model < wish.model_limit;
        if fits {
            *account += 1;
            *model += 1;
        }
        fits
    }
}
