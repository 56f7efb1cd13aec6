//! Attempts beside their task: those that outlive it, and what is noted about them.
//!
//! A task that was canceled or failed by its deadline may still have a job at the provider. Its attempt stays open,
//! keeps its slot and an owner, and is closed when the provider is through with it or when its own limit is over.
//! Every write here names the token that its writer holds.

use chrono::{DateTime, Utc};
use domain::{
    AttemptRef, ModelName, ProviderAccountId, TaskId, TaskStatus, TenantId, UserId, WorkerId,
    task::{Event, JobHandle},
};
use pg::PgError;

use crate::TaskState;

/// An attempt and the token of whoever owns it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct AttemptKey {
    /// The attempt.
    pub attempt: AttemptRef,
    /// The token that its owner's writes carry.
    pub fencing_token: i64,
}

/// Whose an attempt is, seen by somebody who held a token of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ownership {
    /// It carries that token still, and is open.
    Ours,
    /// It was closed under that token: nobody took it, it ended.
    Ended,
    /// It carries another token.
    Taken,
}

/// How an attempt ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttemptOutcome {
    /// The provider did not accept it.
    Refused,
    /// Nothing was sent.
    NeverSent,
    /// A look-up proved that there is no job.
    Absent,
    /// The provider finished it.
    Finished,
    /// The provider failed it.
    Failed,
    /// The provider canceled it.
    Canceled,
    /// The provider forgot it.
    Lost,
    /// We stopped watching it; an operator has to look.
    GaveUp,
}

impl AttemptOutcome {
    /// The text in `task_attempts.outcome`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::NeverSent => "never_sent",
            Self::Absent => "absent",
            Self::Finished => "finished",
            Self::Failed => "failed",
            Self::Canceled => "canceled",
            Self::Lost => "lost",
            Self::GaveUp => "gave_up",
        }
    }

    /// What an event says about its attempt's end, if it says something.
    pub(crate) const fn of(event: &Event) -> Option<Self> {
        match event {
            Event::SubmitRefused { .. } => Some(Self::Refused),
            Event::NeverSent => Some(Self::NeverSent),
            Event::ProvedAbsent => Some(Self::Absent),
            Event::Observed { seen: domain::task::Seen::Finished, .. } => Some(Self::Finished),
            Event::ProviderFailed { .. } => Some(Self::Failed),
            Event::ProviderCanceled => Some(Self::Canceled),
            Event::ProviderLost => Some(Self::Lost),
            Event::Claimed { .. }
            | Event::SubmitUnknown
            | Event::Observed { .. }
            | Event::CancelRequested
            | Event::CancelExpired
            | Event::DeadlinePassed
            | Event::OutputPublished { .. }
            | Event::OutputFailed
            | Event::TakenOver { .. } => None,
        }
    }
}

/// An attempt that somebody has to own.
#[derive(Debug, Clone)]
pub struct OpenAttempt {
    /// The attempt and its present token.
    pub key: AttemptKey,
    /// Its tenant.
    pub tenant: TenantId,
    /// Its user.
    pub user: UserId,
    /// Where it went.
    pub account: ProviderAccountId,
    /// The model's name there.
    pub model: ModelName,
    /// Who owns it.
    pub worker: WorkerId,
    /// The provider's job, once known: from the answer to the submit or, where that was lost, from a signed callback.
    pub job: Option<JobHandle>,
    /// When it was claimed.
    pub claimed_at: DateTime<Utc>,
    /// The last moment at which its submit can have been on its way.
    pub submit_until: DateTime<Utc>,
    /// The provider is through with it (the file is still being fetched).
    pub through: bool,
    /// The provider was asked to cancel it.
    pub cancel_sent_at: Option<DateTime<Utc>>,
    /// The task's status, and whether this is still the task's present attempt.
    pub task_status: TaskStatus,
    /// Whether this is the task's present attempt.
    pub present: bool,
    /// Whether the task's owner wants out.
    pub cancel_requested: bool,
    /// When the task ended; the attempt lives on by itself since then.
    pub task_ended_at: Option<DateTime<Utc>>,
    /// PostgreSQL's instant when this was read.
    pub read_at: DateTime<Utc>,
}

struct OpenRow {
    task_id: uuid::Uuid,
    attempt_no: i32,
    tenant_id: uuid::Uuid,
    user_id: uuid::Uuid,
    provider_account_id: String,
    model: String,
    worker_id: String,
    fencing_token: i64,
    provider_task_id: Option<String>,
    claimed_at: DateTime<Utc>,
    submit_until: DateTime<Utc>,
    through: bool,
    cancel_sent_at: Option<DateTime<Utc>>,
    status: String,
    present: bool,
    cancel_requested: bool,
    task_ended_at: Option<DateTime<Utc>>,
    read_at: DateTime<Utc>,
}

/// `query_as!` over the columns of [`OpenRow`], with the given rest of the statement.
macro_rules! open_rows {
    ($rest:literal, $($argument:expr),* $(,)?) => {
        sqlx::query_as!(
            OpenRow,
            r#"SELECT a.task_id, a.attempt_no, a.tenant_id, a.user_id, a.provider_account_id, a.model, a.worker_id,
                      a.fencing_token,
                      coalesce(a.provider_task_id,
                               (SELECT e.job FROM provider_events e
                                WHERE e.task_id = a.task_id AND e.attempt_no = a.attempt_no AND e.job IS NOT NULL
                                ORDER BY e.received_at LIMIT 1)) AS provider_task_id,
                      a.claimed_at, a.submit_until,
                      a.through_at IS NOT NULL AS "through!", a.cancel_sent_at, t.status,
                      (t.attempt_no = a.attempt_no) AS "present!",
                      t.cancel_requested_at IS NOT NULL AS "cancel_requested!", t.ended_at AS task_ended_at,
                      aiv_now() AS "read_at!"
               FROM task_attempts a JOIN generation_tasks t ON t.id = a.task_id
               "# + $rest,
            $($argument),*
        )
    };
}

impl TryFrom<OpenRow> for OpenAttempt {
    type Error = PgError;

    fn try_from(row: OpenRow) -> Result<Self, PgError> {
        let attempt = AttemptRef { task: TaskId::from_uuid(row.task_id), attempt_no: row.attempt_no };
        let bad = |column| PgError::BadRow { table: "task_attempts", column, id: attempt.to_string() };
        Ok(Self {
            key: AttemptKey { attempt, fencing_token: row.fencing_token },
            tenant: TenantId::from_uuid(row.tenant_id),
            user: UserId::from_uuid(row.user_id),
            account: row.provider_account_id.parse().map_err(|_| bad("provider_account_id"))?,
            model: row.model.parse().map_err(|_| bad("model"))?,
            worker: row.worker_id.parse().map_err(|_| bad("worker_id"))?,
            job: row.provider_task_id.map(JobHandle::new),
            claimed_at: row.claimed_at,
            submit_until: row.submit_until,
            through: row.through,
            cancel_sent_at: row.cancel_sent_at,
            task_status: row.status.parse().map_err(|_| bad("status"))?,
            present: row.present,
            cancel_requested: row.cancel_requested,
            task_ended_at: row.task_ended_at,
            read_at: row.read_at,
        })
    }
}

impl TaskState {
    /// Open attempts, a page at a time in key order, for the reaper and the slot reconciler.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn open_attempts(
        &self,
        after: Option<AttemptRef>,
        limit: i64,
    ) -> Result<Vec<OpenAttempt>, PgError> {
        let (task, number) = after.map_or((uuid::Uuid::nil(), 0), |a| (a.task.as_uuid(), a.attempt_no));
        let rows = open_rows!(
            r#"WHERE a.closed_at IS NULL AND (a.task_id, a.attempt_no) > ($1, $2)
               ORDER BY a.task_id, a.attempt_no LIMIT $3"#,
            task,
            number,
            limit
        )
        .fetch_all(&self.shared.pool)
        .await?;
        rows.into_iter().map(OpenAttempt::try_from).collect()
    }

    /// One open attempt, if it is still open.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn open_attempt(&self, attempt: AttemptRef) -> Result<Option<OpenAttempt>, PgError> {
        let row = open_rows!(
            r#"WHERE a.closed_at IS NULL AND a.task_id = $1 AND a.attempt_no = $2"#,
            attempt.task.as_uuid(),
            attempt.attempt_no
        )
        .fetch_optional(&self.shared.pool)
        .await?;
        row.map(OpenAttempt::try_from).transpose()
    }

    /// Whose these attempts are, in their order, with one look.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn ownership(&self, keys: &[AttemptKey]) -> Result<Vec<Ownership>, PgError> {
        let tasks: Vec<_> = keys.iter().map(|key| key.attempt.task.as_uuid()).collect();
        let numbers: Vec<_> = keys.iter().map(|key| key.attempt.attempt_no).collect();
        let tokens: Vec<_> = keys.iter().map(|key| key.fencing_token).collect();
        let rows = sqlx::query!(
            r#"SELECT a.closed_at IS NOT NULL AS "closed?", a.fencing_token = k.token AS "same?"
               FROM unnest($1::uuid[], $2::int[], $3::bigint[]) WITH ORDINALITY AS k (task, number, token, place)
               LEFT JOIN task_attempts a ON a.task_id = k.task AND a.attempt_no = k.number
               ORDER BY k.place"#,
            &tasks,
            &numbers,
            &tokens
        )
        .fetch_all(&self.shared.pool)
        .await?;
        let ownership = |closed, same| match (closed, same) {
            (Some(false), Some(true)) => Ownership::Ours,
            (Some(true), Some(true)) => Ownership::Ended,
            _ => Ownership::Taken,
        };
        Ok(rows.into_iter().map(|row| ownership(row.closed, row.same)).collect())
    }

    /// Notes the handle in the answer to a lost owner's submit. It needs no token: that the provider knows this
    /// attempt by this handle is a fact whoever brings it, and whoever owns the attempt now has to find it there.
    /// Returns whether the attempt had no handle before.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn note_late_handle(&self, attempt: AttemptRef, job: &JobHandle) -> Result<bool, PgError> {
        let updated = sqlx::query!(
            "UPDATE task_attempts SET provider_task_id = $3, submitted_at = coalesce(submitted_at, aiv_now())
             WHERE task_id = $1 AND attempt_no = $2 AND provider_task_id IS NULL",
            attempt.task.as_uuid(),
            attempt.attempt_no,
            job.as_str()
        )
        .execute(&self.shared.pool)
        .await?;
        Ok(updated.rows_affected() == 1)
    }

    /// Notes that the provider was asked to cancel.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn note_cancel_sent(&self, key: AttemptKey) -> Result<bool, PgError> {
        let updated = sqlx::query!(
            "UPDATE task_attempts SET cancel_sent_at = coalesce(cancel_sent_at, aiv_now())
             WHERE task_id = $1 AND attempt_no = $2 AND fencing_token = $3 AND closed_at IS NULL",
            key.attempt.task.as_uuid(),
            key.attempt.attempt_no,
            key.fencing_token
        )
        .execute(&self.shared.pool)
        .await?;
        Ok(updated.rows_affected() == 1)
    }

    /// Closes an attempt that has outlived its task: the provider is through with it, or we give up and put it
    /// before the operator. Returns false when it is not ours any more or its task still lives.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn close_attempt(&self, key: AttemptKey, outcome: AttemptOutcome) -> Result<bool, PgError> {
        let flag = outcome == AttemptOutcome::GaveUp;
        let updated = sqlx::query!(
            "UPDATE task_attempts a SET through_at = coalesce(a.through_at, aiv_now()), closed_at = aiv_now(),
                    outcome = $4,
                    flagged_at = CASE WHEN $5 THEN coalesce(a.flagged_at, aiv_now()) ELSE a.flagged_at END
             FROM generation_tasks t
             WHERE a.task_id = $1 AND a.attempt_no = $2 AND a.fencing_token = $3 AND a.closed_at IS NULL
               AND t.id = a.task_id AND (t.ended_at IS NOT NULL OR t.attempt_no <> a.attempt_no)",
            key.attempt.task.as_uuid(),
            key.attempt.attempt_no,
            key.fencing_token,
            outcome.as_str(),
            flag
        )
        .execute(&self.shared.pool)
        .await?;
        Ok(updated.rows_affected() == 1)
    }
}
