//! Listing and revoking API keys.

use chrono::{DateTime, Utc};
use domain::{KeyId, Scopes, UserId};
use pg::{PgConnection, PgError};
use uuid::Uuid;

use crate::rows::parse_scopes;

/// What is known of a key after it was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyInfo {
    /// The public part.
    pub id: KeyId,
    /// The user.
    pub user: UserId,
    /// What it allows.
    pub scopes: Scopes,
    /// When it was made.
    pub created_at: DateTime<Utc>,
    /// When it was revoked.
    pub revoked_at: Option<DateTime<Utc>>,
}

/// Revokes a key, and with it every browser token that it minted. Other processes notice within five seconds.
/// Revoking it again changes nothing. None when there is no such key.
///
/// # Errors
/// When the statement fails.
pub async fn revoke_key(conn: &mut PgConnection, key: &KeyId) -> Result<Option<KeyInfo>, PgError> {
    let row = sqlx::query_as!(
        Row,
        "UPDATE api_keys SET revoked_at = coalesce(revoked_at, aiv_now()) WHERE id = $1
         RETURNING id, user_id, scopes, created_at, revoked_at",
        key.as_str()
    )
    .fetch_optional(conn)
    .await?;
    row.map(TryInto::try_into).transpose()
}

/// The keys of a user, oldest first, revoked ones included; the newest 100 of them.
///
/// # Errors
/// When the statement fails.
pub async fn list_keys(conn: &mut PgConnection, user: UserId) -> Result<Vec<KeyInfo>, PgError> {
    let rows = sqlx::query_as!(
        Row,
        "SELECT id, user_id, scopes, created_at, revoked_at FROM
             (SELECT * FROM api_keys WHERE user_id = $1 ORDER BY created_at DESC, id LIMIT 100) AS newest
         ORDER BY created_at, id",
        user.as_uuid()
    )
    .fetch_all(conn)
    .await?;
    rows.into_iter().map(TryInto::try_into).collect()
}

struct Row {
    id: String,
    user_id: Uuid,
    scopes: Vec<String>,
    created_at: DateTime<Utc>,
    revoked_at: Option<DateTime<Utc>>,
}

impl TryFrom<Row> for KeyInfo {
    type Error = PgError;

    fn try_from(row: Row) -> Result<Self, PgError> {
        let bad = |_| PgError::BadRow { table: "api_keys", column: "id", id: row.id.clone() };
        Ok(Self {
            id: row.id.parse().map_err(bad)?,
            user: UserId::from_uuid(row.user_id),
            scopes: parse_scopes("api_keys", &row.id, &row.scopes)?,
            created_at: row.created_at,
            revoked_at: row.revoked_at,
        })
    }
}

#[cfg(test)]
mod tests {
    use testkit::TestDb;

    use super::*;
    use crate::tests_support::Seed;

    #[tokio::test]
    async fn a_key_is_revoked_once_and_stays_in_the_list() {
        let db = TestDb::new().await;
        let seed = Seed::new(&db.pool).await;
        let mut conn = db.pool.acquire().await.unwrap();
        let first = revoke_key(&mut conn, &seed.key.id).await.unwrap().unwrap();
        let again = revoke_key(&mut conn, &seed.key.id).await.unwrap().unwrap();
        assert!(first.revoked_at.is_some());
        assert_eq!(first, again);
        assert_eq!(list_keys(&mut conn, seed.user).await.unwrap(), [first]);
        assert_eq!(revoke_key(&mut conn, &"x".repeat(12).parse().unwrap()).await.unwrap(), None);
    }
}
