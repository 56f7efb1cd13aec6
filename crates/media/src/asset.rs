//! Reading what was noted.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use domain::{AssetId, ProjectId, TaskId, TenantId, UserId, principal::Owner};
use pg::{PgConnection, PgError};
use uuid::Uuid;

use crate::{AssetKind, Media, StorageKey};

/// A stored file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asset {
    /// Its id.
    pub id: AssetId,
    /// Whose it is; decides who may read it.
    pub owner: Owner,
    /// The task that made it.
    pub task: Option<TaskId>,
    /// Where its object lies.
    pub storage_key: StorageKey,
    /// What it is served as.
    pub content_type: String,
    /// Its length.
    pub size_bytes: u64,
    /// The hash of its content; as hex it makes a strong ETag.
    pub sha256: [u8; 32],
    /// When it was noted.
    pub created_at: DateTime<Utc>,
}

impl Media {
    /// The asset of that id, unless there is none or it was deleted.
    ///
    /// # Errors
    /// [`PgError`].
    pub async fn asset(&self, id: AssetId) -> Result<Option<Asset>, PgError> {
        let row = sqlx::query_as!(
            Row,
            "SELECT id, tenant_id, user_id, project_id, task_id, storage_key, content_type, size_bytes, sha256,
                    created_at
             FROM assets WHERE id = $1 AND deleted_at IS NULL",
            id.as_uuid()
        )
        .fetch_optional(&self.shared.pool)
        .await?;
        row.map(Asset::try_from).transpose()
    }
}

/// The output of each of these tasks that has one, deleted ones included, whose objects may be gone.
///
/// # Errors
/// [`PgError`].
pub async fn outputs_of(
    conn: &mut PgConnection,
    tasks: &[TaskId],
) -> Result<HashMap<TaskId, AssetId>, PgError> {
    let ids: Vec<Uuid> = tasks.iter().map(|task| task.as_uuid()).collect();
    let rows = sqlx::query!(
        r#"SELECT task_id AS "task_id!", id FROM assets WHERE task_id = ANY($1) AND kind = $2"#,
        &ids,
        AssetKind::Output.as_str()
    )
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(|row| (TaskId::from_uuid(row.task_id), AssetId::from_uuid(row.id))).collect())
}

pub(crate) struct Row {
    pub(crate) id: Uuid,
    pub(crate) tenant_id: Uuid,
    pub(crate) user_id: Uuid,
    pub(crate) project_id: Option<Uuid>,
    pub(crate) task_id: Option<Uuid>,
    pub(crate) storage_key: String,
    pub(crate) content_type: String,
    pub(crate) size_bytes: i64,
    pub(crate) sha256: Vec<u8>,
    pub(crate) created_at: DateTime<Utc>,
}

impl TryFrom<Row> for Asset {
    type Error = PgError;

    fn try_from(row: Row) -> Result<Self, PgError> {
        let id = AssetId::from_uuid(row.id);
        let bad = |column| PgError::BadRow { table: "assets", column, id: id.to_string() };
        Ok(Self {
            id,
            owner: Owner {
                tenant: TenantId::from_uuid(row.tenant_id),
                user: UserId::from_uuid(row.user_id),
                project: row.project_id.map(ProjectId::from_uuid),
            },
            task: row.task_id.map(TaskId::from_uuid),
            storage_key: StorageKey::parse(&row.storage_key).map_err(|_| bad("storage_key"))?,
            content_type: row.content_type,
            size_bytes: u64::try_from(row.size_bytes).map_err(|_| bad("size_bytes"))?,
            sha256: row.sha256.try_into().map_err(|_| bad("sha256"))?,
            created_at: row.created_at,
        })
    }
}
