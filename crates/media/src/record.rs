//! Noting a published object as an asset: part of the transaction that ends its task.

use domain::{TaskId, principal::Owner};
use pg::{PgConnection, PgError};
use uuid::Uuid;

use crate::Published;

/// What an asset is to its task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AssetKind {
    /// The result.
    Output,
}

impl AssetKind {
    /// The text in the database.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Output => "output",
        }
    }
}

/// An asset to note.
#[derive(Debug, Clone)]
pub struct NewAsset {
    /// The object.
    pub published: Published,
    /// Whose it is.
    pub owner: Owner,
    /// The task that made it.
    pub task: TaskId,
    /// What it is to that task.
    pub kind: AssetKind,
}

/// Notes assets in the caller's transaction. One statement, however many there are.
///
/// # Errors
/// [`PgError::Constraint`] with `assets_one_per_task_and_kind` when a task has one of that kind already, which the
/// caller's condition on the task's state should have ruled out.
pub async fn record(conn: &mut PgConnection, assets: &[NewAsset]) -> Result<(), PgError> {
    if assets.is_empty() {
        return Ok(());
    }
    let ids: Vec<Uuid> = assets.iter().map(|asset| asset.published.asset.as_uuid()).collect();
    let tenants: Vec<Uuid> = assets.iter().map(|asset| asset.owner.tenant.as_uuid()).collect();
    let users: Vec<Uuid> = assets.iter().map(|asset| asset.owner.user.as_uuid()).collect();
    let projects: Vec<Option<Uuid>> =
        assets.iter().map(|asset| asset.owner.project.map(domain::ProjectId::as_uuid)).collect();
    let tasks: Vec<Uuid> = assets.iter().map(|asset| asset.task.as_uuid()).collect();
    let kinds: Vec<&str> = assets.iter().map(|asset| asset.kind.as_str()).collect();
    let keys: Vec<&str> = assets.iter().map(|asset| asset.published.storage_key.as_str()).collect();
    let types: Vec<&str> = assets.iter().map(|asset| asset.published.content_type).collect();
    let sizes: Vec<i64> =
        assets.iter().map(|asset| i64::try_from(asset.published.size_bytes).unwrap_or(i64::MAX)).collect();
    let hashes: Vec<&[u8]> = assets.iter().map(|asset| asset.published.sha256.as_slice()).collect();
    let done = sqlx::query!(
        "INSERT INTO assets (id, tenant_id, user_id, project_id, task_id, kind, storage_key, content_type,
                             size_bytes, sha256, created_at)
         SELECT asset.*, (SELECT aiv_now())
         FROM unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::uuid[], $5::uuid[], $6::text[], $7::text[],
                     $8::text[], $9::bigint[], $10::bytea[]) AS asset",
        &ids,
        &tenants,
        &users,
        projects as _,
        &tasks,
        kinds as _,
        keys as _,
        types as _,
        &sizes,
        hashes as _,
    )
    .execute(conn)
    .await?;
    PgError::expect_rows("record assets", assets.len(), done.rows_affected())
}
