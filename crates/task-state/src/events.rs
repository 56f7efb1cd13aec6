//! A task's history.

use domain::{Credits, TaskId, task::TaskEventRow};
use pg::PgError;

use crate::TaskState;

impl TaskState {
    /// The events of a task after the given version, in order. At most 1,000: a history never gets near that.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn events(&self, task: TaskId, after_version: i32) -> Result<Vec<TaskEventRow>, PgError> {
        let rows = sqlx::query!(
            "SELECT version, type, status, stage, attempt_no, at, credits, error_code FROM task_events
             WHERE task_id = $1 AND version > $2 ORDER BY version LIMIT 1000",
            task.as_uuid(),
            after_version
        )
        .fetch_all(&self.shared.pool)
        .await?;
        rows.into_iter()
            .map(|row| {
                let bad = |column| PgError::BadRow { table: "task_events", column, id: task.to_string() };
                Ok(TaskEventRow {
                    task_id: task,
                    version: row.version,
                    event_type: row.r#type.parse().map_err(|_| bad("type"))?,
                    status: row.status.parse().map_err(|_| bad("status"))?,
                    stage: row.stage.parse().map_err(|_| bad("stage"))?,
                    attempt_no: row.attempt_no,
                    at: row.at,
                    credits: Credits::new(row.credits).map_err(|_| bad("credits"))?,
                    error_code: row
                        .error_code
                        .as_deref()
                        .map(str::parse)
                        .transpose()
                        .map_err(|_| bad("error_code"))?,
                })
            })
            .collect()
    }
}
