//! Claiming: a worker takes queued tasks in order to submit them.
//!
//! This is the last gate before money can be spent at a provider, and it relies on PostgreSQL alone: whatever Redis
//! believes about slots, no more attempts than an account's limit are ever live at once. One lock per provider
//! account makes counting and claiming one step across all schedulers.

use std::{collections::HashMap, sync::Arc, time::Duration};

use chrono::TimeDelta;
use domain::{
    ModelName, ProviderAccountId, TaskId, TaskStatus, WorkerId,
    task::{Attempt, Event, EventType, transition},
};
use pg::{PgConnection, PgError};
use uuid::Uuid;

use crate::{
    TaskState,
    advance::MoveError,
    apply::{self, Change, enter},
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
    let mut room = Room::count(conn, &accounts).await?;
    let count = i32::try_from(claims.len()).unwrap_or(i32::MAX);
    let mut tokens = sqlx::query_scalar!(
        "SELECT nextval('fencing_tokens') AS \"token!\" FROM generate_series(1, $1)",
        count
    )
    .fetch_all(&mut *conn)
    .await?
    .into_iter();

    let mut outcomes = Vec::with_capacity(claims.len());
    let mut changes = Vec::new();
    let mut opened = Vec::new();
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
                opened.push((wish, changes.len()));
                changes.push(Change::quiet(read_version, after, EventType::Scheduled, None));
            }
        }
    }
    open_attempts(conn, &opened, &changes).await?;
    apply::write(conn, &changes).await?;
    Ok(outcomes)
}

async fn open_attempts(
    conn: &mut PgConnection,
    opened: &[(&Claim, usize)],
    changes: &[Change],
) -> Result<(), PgError> {
    if opened.is_empty() {
        return Ok(());
    }
    let after = |index: usize| &changes[index].after;
    sqlx::query!(
        "INSERT INTO task_attempts (task_id, attempt_no, tenant_id, user_id, provider_account_id, model, worker_id,
                                    fencing_token, claimed_at, submit_until)
         SELECT task_id, attempt_no, tenant_id, user_id, account, model, worker_id, fencing_token, at, submit_until
         FROM unnest($1::uuid[], $2::int[], $3::uuid[], $4::uuid[], $5::text[], $6::text[], $7::text[], $8::bigint[],
                     $9::timestamptz[], $10::timestamptz[])
              AS a(task_id, attempt_no, tenant_id, user_id, account, model, worker_id, fencing_token, at, submit_until)",
        &opened.iter().map(|(c, _)| c.task.as_uuid()).collect::<Vec<_>>(),
        &opened.iter().map(|(c, _)| c.attempt_no).collect::<Vec<_>>(),
        &opened.iter().map(|(_, i)| after(*i).snapshot.tenant_id.as_uuid()).collect::<Vec<_>>(),
        &opened.iter().map(|(_, i)| after(*i).snapshot.user_id.as_uuid()).collect::<Vec<_>>(),
        &opened.iter().map(|(c, _)| c.account.to_string()).collect::<Vec<_>>(),
        &opened.iter().map(|(c, _)| c.provider_model.to_string()).collect::<Vec<_>>(),
        &opened.iter().map(|(c, _)| c.worker.to_string()).collect::<Vec<_>>(),
        &opened.iter().map(|(_, i)| after(*i).fencing_token).collect::<Vec<_>>(),
        &opened.iter().map(|(_, i)| after(*i).snapshot.updated_at).collect::<Vec<_>>(),
        &opened
            .iter()
            .map(|(c, i)| {
                after(*i).snapshot.updated_at + TimeDelta::from_std(c.submit_limit).unwrap_or(TimeDelta::zero())
            })
            .collect::<Vec<_>>()
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Live attempts per account and per model of an account.
struct Room {
    by_account: HashMap<String, u32>,
    by_model: HashMap<(String, String), u32>,
}

impl Room {
    async fn count(conn: &mut PgConnection, accounts: &[String]) -> Result<Self, PgError> {
        let rows = sqlx::query!(
            r#"SELECT provider_account_id, model, count(*) AS "live!" FROM task_attempts
               WHERE closed_at IS NULL AND through_at IS NULL AND provider_account_id = ANY($1)
               GROUP BY provider_account_id, model"#,
            accounts
        )
        .fetch_all(conn)
        .await?;
        let mut room = Self { by_account: HashMap::new(), by_model: HashMap::new() };
        for row in rows {
            let live = u32::try_from(row.live).unwrap_or(u32::MAX);
            *room.by_account.entry(row.provider_account_id.clone()).or_default() += live;
            room.by_model.insert((row.provider_account_id, row.model), live);
        }
        Ok(room)
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
