//! Take-over: a new owner for attempts whose owner is gone.
//!
//! Whether the owner is gone is the reaper's judgement (its lease was missing in two looks). Here the write is
//! conditional on the token that the reaper has read, so an owner that came back, or another reaper that was
//! faster, wins by itself.

use std::sync::Arc;

use domain::{
    WorkerId,
    task::{Attempt, Event, EventType, transition},
};
use pg::{PgConnection, PgError};
use uuid::Uuid;

use crate::{
    TaskState,
    advance::MoveError,
    apply::{self, AttemptChange, Change, enter},
    attempts::AttemptKey,
    project,
    record::TaskRecord,
};

/// What became of one take-over.
#[derive(Debug, Clone)]
pub enum TakenOver {
    /// The task lives and is ours now; a SCHEDULING one has become RECONCILING.
    Task(Arc<TaskRecord>, Attempt),
    /// The task has ended, its attempt has not: it is ours to watch, under this token.
    Attempt(Arc<TaskRecord>, AttemptKey),
    /// Somebody else was faster, the owner is back, or the attempt was closed.
    Lost,
}

impl TaskState {
    /// Takes over attempts under new tokens, for the given worker; one outcome per key, in order.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn take_over(
        &self,
        worker: WorkerId,
        keys: Vec<AttemptKey>,
    ) -> Result<Vec<TakenOver>, MoveError> {
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let config = self.shared.config.clone();
        let outcomes = pg::transact(&self.shared.pool, move |conn| {
            Box::pin(
                async move { take_over(conn, &worker, &keys, config.max_tries, config.reconciling).await },
            )
        })
        .await?;
        let moved = outcomes.iter().filter_map(|outcome| match outcome {
            TakenOver::Task(record, _) => Some(record),
            _ => None,
        });
        project::records(&self.shared, moved).await;
        Ok(outcomes)
    }
}

async fn take_over(
    conn: &mut PgConnection,
    worker: &WorkerId,
    keys: &[AttemptKey],
    max_tries: u32,
    reconciling: std::time::Duration,
) -> Result<Vec<TakenOver>, PgError> {
    let ids: Vec<Uuid> = keys.iter().map(|k| k.attempt.task.as_uuid()).collect();
    let mut locked = apply::lock(conn, &ids).await?;
    // The attempts' own tokens decide for those whose task has ended.
    let open = sqlx::query!(
        "SELECT a.task_id, a.attempt_no, a.fencing_token FROM task_attempts a
         JOIN unnest($1::uuid[], $2::int[]) AS k(task_id, attempt_no) USING (task_id, attempt_no)
         WHERE a.closed_at IS NULL ORDER BY a.task_id, a.attempt_no FOR NO KEY UPDATE OF a",
        &ids,
        &keys.iter().map(|k| k.attempt.attempt_no).collect::<Vec<_>>()
    )
    .fetch_all(&mut *conn)
    .await?;
    let count = i32::try_from(keys.len()).unwrap_or(i32::MAX);
    let mut tokens = sqlx::query_scalar!(
        "SELECT nextval('fencing_tokens') AS \"token!\" FROM generate_series(1, $1)",
        count
    )
    .fetch_all(&mut *conn)
    .await?
    .into_iter();

    let mut outcomes = Vec::with_capacity(keys.len());
    let mut changes = Vec::new();
    let mut outlived = Vec::new();
    for key in keys {
        let still_theirs = open.iter().any(|row| {
            row.task_id == key.attempt.task.as_uuid()
                && row.attempt_no == key.attempt.attempt_no
                && row.fencing_token == key.fencing_token
        });
        let record = locked.remove(&key.attempt.task).filter(|_| still_theirs);
        let (Some(record), Some(fencing_token)) = (record, tokens.next()) else {
            outcomes.push(TakenOver::Lost);
            continue;
        };
        let owner = Some((worker.clone(), fencing_token));
        if record.snapshot.status.is_terminal() || record.snapshot.attempt_no != key.attempt.attempt_no {
            let taken = AttemptKey { attempt: key.attempt, fencing_token };
            outlived.push(taken);
            outcomes.push(TakenOver::Attempt(Arc::new(record), taken));
            continue;
        }
        match transition(record.state.clone(), record.facts(max_tries), Event::TakenOver { fencing_token }) {
            Err(_) => outcomes.push(TakenOver::Lost),
            Ok(step) => {
                let (read_version, now) = (record.snapshot.version, record.read_at);
                let doubtful = step.next.status() != record.snapshot.status;
                let mut after = enter(record, step.next, now);
                after.worker = Some(worker.clone());
                if doubtful {
                    let raised =
                        now + chrono::TimeDelta::from_std(reconciling).unwrap_or(chrono::TimeDelta::zero());
                    after.snapshot.deadline_at = after.snapshot.deadline_at.max(raised);
                }
                let attempt = Attempt { no: key.attempt.attempt_no, fencing_token };
                outcomes.push(TakenOver::Task(Arc::new(after.clone()), attempt));
                let event = EventType::TakenOver;
                let change = AttemptChange { owner, ..AttemptChange::default() };
                changes.push(Change::quiet(read_version, after, event, Some(change)));
            }
        }
    }
    apply::write(conn, &changes).await?;
    if !outlived.is_empty() {
        let updated = sqlx::query!(
            "UPDATE task_attempts a SET worker_id = $4, fencing_token = d.fencing_token
             FROM unnest($1::uuid[], $2::int[], $3::bigint[]) AS d(task_id, attempt_no, fencing_token)
             WHERE a.task_id = d.task_id AND a.attempt_no = d.attempt_no AND a.closed_at IS NULL",
            &outlived.iter().map(|k| k.attempt.task.as_uuid()).collect::<Vec<_>>(),
            &outlived.iter().map(|k| k.attempt.attempt_no).collect::<Vec<_>>(),
            &outlived.iter().map(|k| k.fencing_token).collect::<Vec<_>>(),
            worker.as_str()
        )
        .execute(conn)
        .await?;
        PgError::expect_rows("take over: attempts", outlived.len(), updated.rows_affected())?;
    }
    Ok(outcomes)
}
