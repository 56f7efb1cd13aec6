//! Telling a worker what has come for its attempts.

use domain::{AttemptRef, TaskId, WorkerId};
use pg::PgError;

use super::{Called, IgnoredBecause};
use crate::TaskState;

impl TaskState {
    /// The attempts of this worker about which something has come, at most `limit` callbacks at a time; asked again, it
    /// says nothing twice. What came for attempts that have closed meanwhile is marked as ignored on the way. A worker
    /// that dies with the answer in hand loses nothing: whoever takes over looks anyway.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn tell(&self, worker: &WorkerId, limit: i64) -> Result<Vec<Called>, PgError> {
        let rows = sqlx::query!(
            r#"UPDATE provider_events e SET
                      outcome = CASE WHEN p.closed THEN 'ignored' ELSE 'told' END,
                      reason = CASE WHEN p.closed THEN $3 END
               FROM (SELECT e.provider_account_id, e.delivery_id, a.closed_at IS NOT NULL AS closed
                     FROM provider_events e
                          JOIN task_attempts a ON a.task_id = e.task_id AND a.attempt_no = e.attempt_no
                     WHERE e.outcome = 'pending' AND (a.worker_id = $1 OR a.closed_at IS NOT NULL)
                     ORDER BY e.received_at LIMIT $2 FOR UPDATE OF e SKIP LOCKED) p
               WHERE e.provider_account_id = p.provider_account_id AND e.delivery_id = p.delivery_id
               RETURNING e.task_id, e.attempt_no, e.says_ended, p.closed AS "closed!""#,
            worker.as_str(),
            limit,
            IgnoredBecause::AttemptClosed.as_str()
        )
        .fetch_all(&self.shared.pool)
        .await?;
        let open = rows.into_iter().filter(|row| !row.closed);
        Ok(open
            .map(|row| Called {
                attempt: AttemptRef { task: TaskId::from_uuid(row.task_id), attempt_no: row.attempt_no },
                says_ended: row.says_ended,
            })
            .collect())
    }
}
