//! Minting a browser token: what a browser may hold instead of a key.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use domain::{Scope, Scopes, UserId, principal::Credential};
use pg::PgError;

use crate::{ActError, Session, Tenancy, rows::scope_texts, secret::mint_token};

const TTL_SECONDS_MAX: u32 = 900;
const ORIGINS_MAX: usize = 10;
const ORIGIN_CHARS_MAX: usize = 255;

/// A browser token to be minted.
#[derive(Debug, Clone, Default)]
pub struct NewToken {
    /// For whom, by id or the tenant's own name; the caller when none is given. Another needs `tenant:write`.
    pub user: Option<String>,
    /// For how long, from 1 to 900 seconds.
    pub ttl_seconds: u32,
    /// What it allows: at most `read` and `write`, and no more than the caller may. All of that when none is given.
    pub scopes: Option<Scopes>,
    /// The origins from which a browser may use it; any when empty.
    pub origins: Vec<String>,
}

/// A browser token at the one moment when its text is known.
#[derive(Clone)]
pub struct MintedToken {
    /// The whole text. It is stored nowhere.
    pub text: String,
    /// For whom.
    pub user: UserId,
    /// What it allows.
    pub scopes: Scopes,
    /// When it ends.
    pub expires_at: DateTime<Utc>,
}

impl std::fmt::Debug for MintedToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MintedToken")
            .field("user", &self.user)
            .field("expires_at", &self.expires_at)
            .finish_non_exhaustive()
    }
}

/// Why a token is not minted.
#[derive(Debug, thiserror::Error)]
pub enum MintError {
    /// A browser token mints nothing, and another user's token needs `tenant:write`.
    #[error("this credential may not mint such a token")]
    Forbidden,
    /// The tenant has no such user.
    #[error("the tenant has no such user")]
    UnknownUser,
    /// The lifetime is out of range.
    #[error("must be from 1 to {TTL_SECONDS_MAX}")]
    Ttl,
    /// A scope is more than a browser token can have, or more than the caller has; or there is none.
    #[error("must be among read and write, and among the scopes of the caller")]
    Scopes,
    /// An origin is not of the form `https://host[:port]`, or there are too many.
    #[error("must be at most {ORIGINS_MAX} of the form https://host[:port]")]
    Origins,
    /// PostgreSQL failed.
    #[error("the token cannot be stored now")]
    Unavailable(#[source] Arc<PgError>),
}

impl Tenancy {
    /// Mints a token that ends by itself, and with the key that minted it.
    ///
    /// # Errors
    /// [`MintError`].
    pub async fn mint_browser_token(
        &self,
        session: &Session,
        new: &NewToken,
    ) -> Result<MintedToken, MintError> {
        let Credential::Key(key) = &session.principal.credential else { return Err(MintError::Forbidden) };
        if !(1..=TTL_SECONDS_MAX).contains(&new.ttl_seconds) {
            return Err(MintError::Ttl);
        }
        if new.origins.len() > ORIGINS_MAX || !new.origins.iter().all(|origin| is_origin(origin)) {
            return Err(MintError::Origins);
        }
        let (user, available) = self.target(session, new.user.as_deref()).await?;
        let available = available.intersect(browser_scopes());
        let scopes = new.scopes.unwrap_or(available);
        if scopes == Scopes::default() || !scopes.is_within(available) {
            return Err(MintError::Scopes);
        }
        let (id, text, hash) = mint_token();
        let expires_at = sqlx::query_scalar!(
            "INSERT INTO browser_tokens (id, key_id, user_id, secret_sha256, scopes, origins, expires_at)
             VALUES ($1, $2, $3, $4, $5, $6, aiv_now() + make_interval(secs => $7)) RETURNING expires_at",
            id.as_uuid(),
            key.as_str(),
            user.as_uuid(),
            hash.0.as_slice(),
            &scope_texts(scopes),
            &new.origins,
            f64::from(new.ttl_seconds),
        )
        .fetch_one(&self.pool)
        .await
        .map_err(|error| MintError::Unavailable(Arc::new(error.into())))?;
        Ok(MintedToken { text, user, scopes, expires_at })
    }

    /// For whom the token is, and what the caller could give them.
    async fn target(&self, session: &Session, user_ref: Option<&str>) -> Result<(UserId, Scopes), MintError> {
        let caller = &session.principal;
        let (own_id, own_name) = (caller.user.to_string(), session.profile.external_id.as_deref());
        match user_ref {
            None => Ok((caller.user, caller.scopes)),
            Some(text) if text == own_id || Some(text) == own_name => Ok((caller.user, caller.scopes)),
            Some(text) => match self.act_for(session, text).await {
                Ok(acting) => Ok((acting.principal.user, acting.principal.scopes)),
                Err(ActError::Forbidden) => Err(MintError::Forbidden),
                Err(ActError::UnknownUser) => Err(MintError::UnknownUser),
                Err(ActError::Unavailable(error)) => Err(MintError::Unavailable(error)),
            },
        }
    }
}

fn browser_scopes() -> Scopes {
    [Scope::Read, Scope::Write].into_iter().collect()
}

/// Whether a text is an origin as browsers send it: scheme, host and perhaps a port, lower case, nothing after it.
fn is_origin(text: &str) -> bool {
    let Some(rest) = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://")) else {
        return false;
    };
    text.len() <= ORIGIN_CHARS_MAX
        && !rest.is_empty()
        && rest.bytes().all(|b| {
            b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'.' | b'-' | b':' | b'[' | b']')
        })
}

#[cfg(test)]
mod tests {
    use testkit::TestDb;

    use super::*;
    use crate::{AuthError, revoke_key, tests_support::Seed};

    fn minute() -> NewToken {
        NewToken { ttl_seconds: 60, ..NewToken::default() }
    }

    #[tokio::test]
    async fn a_token_does_what_its_key_may_and_mints_nothing() {
        let db = TestDb::new().await;
        let seed = Seed::new(&db.pool).await;
        let key = seed.tenancy.authenticate(&seed.key.text).await.unwrap();
        let origins = vec!["https://app.example:8443".to_owned()];
        let minted = seed
            .tenancy
            .mint_browser_token(&key, &NewToken { origins: origins.clone(), ..minute() })
            .await
            .unwrap();
        assert_eq!(minted.user, seed.user);
        let browser = seed.tenancy.authenticate(&minted.text).await.unwrap();
        assert_eq!(browser.principal.user, seed.user);
        assert_eq!(*browser.origins, *origins);
        let refused = seed.tenancy.mint_browser_token(&browser, &minute()).await;
        assert!(matches!(refused, Err(MintError::Forbidden)));
    }

    #[tokio::test]
    async fn a_token_ends_with_its_time_and_with_its_key() {
        let db = TestDb::new().await;
        let seed = Seed::new(&db.pool).await;
        let key = seed.tenancy.authenticate(&seed.key.text).await.unwrap();
        let minted = seed.tenancy.mint_browser_token(&key, &minute()).await.unwrap();
        let later = db.pool_at(minted.expires_at);
        let expired = seed.fresh(&later).authenticate(&minted.text).await;
        assert!(matches!(expired, Err(AuthError::Expired)), "{expired:?}");
        let before = db.pool_at(minted.expires_at - chrono::TimeDelta::milliseconds(500));
        let nearly = seed.fresh(&before);
        nearly.authenticate(&minted.text).await.unwrap();
        testkit::wait_until("the end of a remembered token", std::time::Duration::from_secs(5), async || {
            matches!(nearly.authenticate(&minted.text).await, Err(AuthError::Expired))
        })
        .await;

        let mut conn = db.pool.acquire().await.unwrap();
        revoke_key(&mut conn, &seed.key.id).await.unwrap();
        let revoked = seed.fresh(&db.pool).authenticate(&minted.text).await;
        assert!(matches!(revoked, Err(AuthError::Revoked)), "{revoked:?}");
    }

    #[tokio::test]
    async fn no_token_has_more_than_its_minter_or_than_a_browser_may_have() {
        let db = TestDb::new().await;
        let seed = Seed::new(&db.pool).await;
        let reader = seed.key_with(&db.pool, seed.user, &[Scope::Read]).await;
        let reader = seed.tenancy.authenticate(&reader.text).await.unwrap();
        for scope in [Scope::Write, Scope::TenantRead, Scope::Admin] {
            let wish = NewToken { scopes: Some([scope].into_iter().collect()), ..minute() };
            let refused = seed.tenancy.mint_browser_token(&reader, &wish).await;
            assert!(matches!(refused, Err(MintError::Scopes)), "{scope}");
        }
        let minted = seed.tenancy.mint_browser_token(&reader, &minute()).await.unwrap();
        assert_eq!(minted.scopes, [Scope::Read].into_iter().collect());

        let other = seed.another_user(&db.pool, seed.tenant, Some("bob")).await;
        let for_bob = NewToken { user: Some("bob".to_owned()), ..minute() };
        let refused = seed.tenancy.mint_browser_token(&reader, &for_bob).await;
        assert!(matches!(refused, Err(MintError::Forbidden)));
        let server = seed.key_with(&db.pool, seed.user, &[Scope::TenantWrite]).await;
        let server = seed.tenancy.authenticate(&server.text).await.unwrap();
        let minted = seed.tenancy.mint_browser_token(&server, &for_bob).await.unwrap();
        assert_eq!((minted.user, minted.scopes), (other, browser_scopes()));
        let for_nobody = NewToken { user: Some("nobody".to_owned()), ..minute() };
        let refused = seed.tenancy.mint_browser_token(&server, &for_nobody).await;
        assert!(matches!(refused, Err(MintError::UnknownUser)));
    }

    #[tokio::test]
    async fn figures_and_origins_have_their_ranges() {
        let db = TestDb::new().await;
        let seed = Seed::new(&db.pool).await;
        let key = seed.tenancy.authenticate(&seed.key.text).await.unwrap();
        for ttl_seconds in [0, 901] {
            let refused =
                seed.tenancy.mint_browser_token(&key, &NewToken { ttl_seconds, ..NewToken::default() }).await;
            assert!(matches!(refused, Err(MintError::Ttl)));
        }
        for origin in ["*", "https://", "https://a/b", "ftp://a", "https://A", "https://a b", "null"] {
            let wish = NewToken { origins: vec![origin.to_owned()], ..minute() };
            let refused = seed.tenancy.mint_browser_token(&key, &wish).await;
            assert!(matches!(refused, Err(MintError::Origins)), "{origin}");
        }
    }
}
