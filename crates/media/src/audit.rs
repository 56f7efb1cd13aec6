//! Proving that every asset's object lies where its row says.

use domain::AssetId;
use futures::{StreamExt, stream};
use pg::{PgConnection, PgError, Violation};
use uuid::Uuid;

use crate::{Media, StorageKey};

/// Rows per page.
const PAGE: i64 = 1_000;

/// Objects looked at at once.
const LOOKS: usize = 16;

struct Row {
    id: Uuid,
    storage_key: String,
    size_bytes: i64,
}

impl Media {
    /// Looks for the object of every asset that is not deleted, page by page on the caller's snapshot.
    ///
    /// # Errors
    /// [`PgError`]. That the storage cannot be asked is itself a violation: nobody can say that the objects exist.
    pub async fn audit(&self, conn: &mut PgConnection) -> Result<Vec<Violation>, PgError> {
        let mut found = Vec::new();
        let mut after = Uuid::nil();
        loop {
            let page = sqlx::query_as!(
                Row,
                "SELECT id, storage_key, size_bytes FROM assets
                 WHERE id > $1 AND deleted_at IS NULL ORDER BY id LIMIT $2",
                after,
                PAGE
            )
            .fetch_all(&mut *conn)
            .await?;
            let Some(last) = page.last() else { return Ok(found) };
            after = last.id;
            let looks = stream::iter(page).map(|row| self.audit_one(row)).buffer_unordered(LOOKS);
            found.extend(looks.filter_map(std::future::ready).collect::<Vec<_>>().await);
        }
    }

    async fn audit_one(&self, row: Row) -> Option<Violation> {
        let detail = match StorageKey::parse(&row.storage_key) {
            Err(_) => format!("{:?} is no storage key", row.storage_key),
            Ok(key) => match self.storage().head(&key).await {
                Ok(Some(object)) if i64::try_from(object.size) == Ok(row.size_bytes) => return None,
                Ok(Some(object)) => format!("{key} has {} bytes instead of {}", object.size, row.size_bytes),
                Ok(None) => format!("{key} is missing"),
                Err(error) => format!("{key} cannot be looked for: {}", error.source),
            },
        };
        Some(Violation {
            rule: "asset_object_exists",
            subject: AssetId::from_uuid(row.id).to_string(),
            detail,
        })
    }
}
