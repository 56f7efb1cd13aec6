//! Who stands behind a slot, for operators who look at one.

use chrono::{DateTime, Utc};
use domain::{AttemptRef, ModelName, ProviderAccountId, TaskId, TenantId, UserId, WorkerId};
use pg::PgError;

use crate::TaskState;

/// An attempt, as far as its slot is concerned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// The attempt.
    pub attempt: AttemptRef,
    /// Where it went.
    pub account: ProviderAccountId,
    /// The model's name there.
    pub model: ModelName,
    /// Its tenant.
    pub tenant: TenantId,
    /// Its user.
    pub user: UserId,
    /// Who owns it.
    pub worker: WorkerId,
    /// When it was claimed.
    pub claimed_at: DateTime<Utc>,
    /// Whether it holds its slots by right: the provider isn't known to be through with it.
    pub live: bool,
}

impl TaskState {
    /// What is known of these attempts, in key order. One that is not there was never claimed.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn holders(&self, attempts: &[AttemptRef]) -> Result<Vec<Holder>, PgError> {
        let rows = sqlx::query!(
            r#"SELECT a.task_id, a.attempt_no, a.provider_account_id, a.model, a.tenant_id, a.user_id, a.worker_id,
                      a.claimed_at, a.closed_at IS NULL AND a.through_at IS NULL AS "live!"
               FROM unnest($1::uuid[], $2::int[]) AS d (task_id, attempt_no)
               JOIN task_attempts a ON a.task_id = d.task_id AND a.attempt_no = d.attempt_no
               ORDER BY a.task_id, a.attempt_no"#,
            &attempts.iter().map(|attempt| attempt.task.as_uuid()).collect::<Vec<_>>(),
            &attempts.iter().map(|attempt| attempt.attempt_no).collect::<Vec<_>>()
        )
        .fetch_all(&self.shared.pool)
        .await?;
        rows.into_iter()
            .map(|row| {
                let attempt = AttemptRef { task: TaskId::from_uuid(row.task_id), attempt_no: row.attempt_no };
                let bad =
                    |column| PgError::BadRow { table: "task_attempts", column, id: attempt.to_string() };
                Ok(Holder {
                    attempt,
                    account: row.provider_account_id.parse().map_err(|_| bad("provider_account_id"))?,
                    model: row.model.parse().map_err(|_| bad("model"))?,
                    tenant: TenantId::from_uuid(row.tenant_id),
                    user: UserId::from_uuid(row.user_id),
                    worker: row.worker_id.parse().map_err(|_| bad("worker_id"))?,
                    claimed_at: row.claimed_at,
                    live: row.live,
                })
            })
            .collect()
    }
}
