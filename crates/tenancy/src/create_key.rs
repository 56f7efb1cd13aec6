//! Making an API key.

use domain::{KeyId, Scopes, UserId};
use pg::{PgConnection, PgError};

use crate::{rows::scope_texts, secret::mint_key};

/// A key at the one moment when its text is known.
#[derive(Clone)]
pub struct MintedKey {
    /// The public part.
    pub id: KeyId,
    /// The whole text. It is stored nowhere.
    pub text: String,
}

impl std::fmt::Debug for MintedKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "MintedKey({})", self.id)
    }
}

/// Why a key is not made.
#[derive(Debug, thiserror::Error)]
pub enum CreateKeyError {
    /// There is no such user.
    #[error("there is no such user")]
    UnknownUser,
    /// A key without scopes opens nothing.
    #[error("a key needs at least one scope")]
    NoScopes,
    /// PostgreSQL failed.
    #[error(transparent)]
    Pg(PgError),
}

impl From<PgError> for CreateKeyError {
    fn from(error: PgError) -> Self {
        match error.constraint() {
            Some("api_keys_user_exists") => Self::UnknownUser,
            _ => Self::Pg(error),
        }
    }
}

/// Makes a key for a user. The caller has decided that these scopes may be given.
///
/// # Errors
/// [`CreateKeyError`]; after any of them the transaction must be given up.
pub async fn create_key(
    conn: &mut PgConnection,
    user: UserId,
    scopes: Scopes,
) -> Result<MintedKey, CreateKeyError> {
    if scopes == Scopes::default() {
        return Err(CreateKeyError::NoScopes);
    }
    let (id, text, hash) = mint_key();
    sqlx::query!(
        "INSERT INTO api_keys (id, user_id, secret_sha256, scopes) VALUES ($1, $2, $3, $4)",
        id.as_str(),
        user.as_uuid(),
        hash.0.as_slice(),
        &scope_texts(scopes),
    )
    .execute(conn)
    .await
    .map_err(PgError::from)?;
    Ok(MintedKey { id, text })
}

#[cfg(test)]
mod tests {
    use testkit::TestDb;

    use super::*;
    use crate::tests_support::Seed;

    #[tokio::test]
    async fn the_text_of_a_key_is_nowhere_in_the_database() {
        let db = TestDb::new().await;
        let seed = Seed::new(&db.pool).await;
        let row: String =
            sqlx::query_scalar("SELECT api_keys::text FROM api_keys").fetch_one(&db.pool).await.unwrap();
        let (_, secret) = seed.key.text.rsplit_once('_').unwrap();
        assert!(row.contains(seed.key.id.as_str()) && !row.contains(secret), "{row}");
        assert!(!format!("{:?}", seed.key).contains(secret));
    }

    #[tokio::test]
    async fn a_key_needs_a_user_and_a_scope() {
        let db = TestDb::new().await;
        let mut conn = db.pool.acquire().await.unwrap();
        let nobody = create_key(&mut conn, UserId::generate(), Scopes::default_of_keys()).await;
        assert!(matches!(nobody, Err(CreateKeyError::UnknownUser)));
        let nothing = create_key(&mut conn, UserId::generate(), Scopes::default()).await;
        assert!(matches!(nothing, Err(CreateKeyError::NoScopes)));
    }
}
