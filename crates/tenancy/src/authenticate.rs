//! Who a bearer text speaks for.
//!
//! Remembered for at most five seconds, so a revoked key, a changed scope or a lost membership counts everywhere
//! within that time. The memory is keyed by the SHA-256 of the whole text, so it answers only to the very text that
//! was verified. Refusals are remembered for a second, and only so many of them.
//!
//! While PostgreSQL cannot be asked, whoever it vouched for within the last minute may go on reading until it answers again:
//! caches tell them what they hold. Whoever writes waits for PostgreSQL's word.

use std::{
    pin::pin,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use domain::{Principal, Scopes, UserId, principal::Credential};
use pg::PgError;
use sha2::{Digest as _, Sha256};

use tokio::time::timeout;

use crate::{
    Tenancy,
    dated::{Dated, Memory},
    limit_rules::RuleBook,
    rows::parse_scopes,
    secret::Bearer,
    session::{Profile, Session},
};

/// How long a look-up waits for those before it.
const TURN_LIMIT: Duration = Duration::from_secs(3);
/// How long a session may be used after PostgreSQL last vouched for it, while it cannot be asked.
const OUTLIVE_MAX: Duration = Duration::from_secs(60);
/// How long whoever writes waits for an answer; longer than it takes where every trip takes half a second.
const WAIT_MAX: Duration = Duration::from_secs(5);
/// How long an answer may take before such a session is used.
const ANSWER_MAX: Duration = Duration::from_millis(500);
/// For how long PostgreSQL is taken for away after it was; meanwhile nobody with such a session waits for it.
const AWAY: Duration = Duration::from_secs(1);

/// Why a bearer text is not accepted. All but the last are the caller's fault and answer alike.
#[derive(Debug, Clone, thiserror::Error)]
pub enum AuthError {
    /// No such key or token.
    #[error("the key or token is not known")]
    Unknown,
    /// The key, or the key that minted the token, was revoked.
    #[error("the key was revoked")]
    Revoked,
    /// The token's time is over.
    #[error("the token has expired")]
    Expired,
    /// It cannot be looked up now.
    #[error("keys cannot be checked now")]
    Unavailable(#[source] Arc<PgError>),
}

/// A verified credential.
#[derive(Debug)]
pub(crate) struct Verified {
    credential: Credential,
    user: UserId,
    scopes: Scopes,
    origins: Arc<[String]>,
    /// When a token's time is over, by this process's monotonic clock; counted from PostgreSQL's answer.
    valid_until: Option<Instant>,
}

impl Verified {
    fn is_over(&self) -> bool {
        self.valid_until.is_some_and(|until| Instant::now() >= until)
    }
}

/// What PostgreSQL has vouched for.
type Outliving = (Arc<Verified>, Arc<Session>);

/// Sessions that PostgreSQL has vouched for, by the SHA-256 of the bearer text, and whether it is away.
#[derive(Debug)]
pub(crate) struct Vouched {
    sessions: Memory<[u8; 32], Outliving>,
    away: Mutex<Option<Instant>>,
}

impl Vouched {
    pub(crate) fn new() -> Self {
        Self { sessions: Memory::new(100_000, OUTLIVE_MAX), away: Mutex::default() }
    }

    async fn session(&self, fingerprint: &[u8; 32]) -> Option<Arc<Session>> {
        let (verified, session) = self.sessions.get(fingerprint).await?.value;
        (!verified.is_over()).then_some(session)
    }

    /// Forgets whoever is refused, so that an earlier answer which comes home later does not bring them back.
    async fn heed(&self, fingerprint: &[u8; 32], answer: &Result<Arc<Session>, AuthError>) {
        let is_over = match answer {
            Err(AuthError::Revoked | AuthError::Expired) => true,
            // Whoever never was good takes up no place here, however many texts they try.
            Err(AuthError::Unknown) => self.sessions.get(fingerprint).await.is_some(),
            Err(AuthError::Unavailable(_)) | Ok(_) => false,
        };
        if is_over {
            self.sessions.forget(fingerprint).await;
        }
    }

    fn note_away(&self) {
        *self.away.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    fn is_away(&self) -> bool {
        self.away.lock().unwrap_or_else(PoisonError::into_inner).is_some_and(|noted| noted.elapsed() < AWAY)
    }
}

/// A refusal that may be remembered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    Unknown,
    Revoked,
    Expired,
}

impl From<Refused> for AuthError {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Unknown => Self::Unknown,
            Refused::Revoked => Self::Revoked,
            Refused::Expired => Self::Expired,
        }
    }
}

enum LoadError {
    Refused(Refused),
    Pg(Arc<PgError>),
}

impl From<sqlx::Error> for LoadError {
    fn from(error: sqlx::Error) -> Self {
        Self::Pg(Arc::new(error.into()))
    }
}

impl From<PgError> for LoadError {
    fn from(error: PgError) -> Self {
        Self::Pg(Arc::new(error))
    }
}

impl Tenancy {
    /// The session of whoever holds this bearer text, as of at most five seconds ago.
    ///
    /// # Errors
    /// [`AuthError`]; only [`AuthError::Unavailable`] is not the caller's fault.
    pub async fn authenticate(&self, bearer: &str) -> Result<Arc<Session>, AuthError> {
        let Some(parsed) = Bearer::parse(bearer) else { return Err(AuthError::Unknown) };
        let fingerprint: [u8; 32] = Sha256::digest(bearer.as_bytes()).into();
        let answer = timeout(WAIT_MAX, pin!(self.ask(fingerprint, parsed))).await;
        let answer = answer.unwrap_or_else(|_| {
            Err(AuthError::Unavailable(Arc::new(PgError::from(sqlx::Error::PoolTimedOut))))
        });
        self.caches.vouched.heed(&fingerprint, &answer).await;
        answer
    }

    /// The same, enough to read by and not to write: while PostgreSQL is away or slow, whoever it vouched for within the
    /// last minute is taken for the same.
    ///
    /// # Errors
    /// [`AuthError`]; only [`AuthError::Unavailable`] is not the caller's fault.
    pub async fn authenticate_to_read(&self, bearer: &str) -> Result<Arc<Session>, AuthError> {
        let Some(parsed) = Bearer::parse(bearer) else { return Err(AuthError::Unknown) };
        let fingerprint: [u8; 32] = Sha256::digest(bearer.as_bytes()).into();
        let vouched = &self.caches.vouched;
        if vouched.is_away()
            && let Some(session) = vouched.session(&fingerprint).await
        {
            return Ok(session);
        }
        let mut asked = pin!(self.ask(fingerprint, parsed));
        let answer = match timeout(ANSWER_MAX, &mut asked).await {
            Ok(answer) => answer,
            Err(_) => match vouched.session(&fingerprint).await {
                Some(session) => {
                    vouched.note_away();
                    return Ok(session);
                }
                None => asked.await,
            },
        };
        if let Err(AuthError::Unavailable(_)) = answer
            && let Some(session) = vouched.session(&fingerprint).await
        {
            vouched.note_away();
            return Ok(session);
        }
        vouched.heed(&fingerprint, &answer).await;
        answer
    }

    /// The session by what is remembered, or else by what PostgreSQL says. What asks PostgreSQL is boxed where it begins: each
    /// request carries this future about, and nearly none of them asks.
    async fn ask(&self, fingerprint: [u8; 32], bearer: Bearer) -> Result<Arc<Session>, AuthError> {
        let remembered = self.caches.credentials.get(&fingerprint).await;
        let is_news = remembered.is_none();
        let Dated { value: verified, asked_at } = match remembered {
            Some(verified) => verified,
            None => Box::pin(self.verify(fingerprint, bearer)).await?,
        };
        if verified.is_over() {
            return Err(AuthError::Expired);
        }
        let profile =
            self.profile(verified.user).await.map_err(AuthError::Unavailable)?.ok_or(AuthError::Unknown)?;
        let book = self.rules.get().await.map_err(AuthError::Unavailable)?;
        let (credential, origins) = (verified.credential.clone(), &verified.origins);
        let session = Arc::new(self.session(&profile, verified.scopes, credential, origins, &book));
        if is_news {
            let vouched = Dated { value: (verified, Arc::clone(&session)), asked_at };
            Box::pin(self.caches.vouched.sessions.learn(fingerprint, vouched)).await;
        }
        Ok(session)
    }

    async fn verify(&self, fingerprint: [u8; 32], bearer: Bearer) -> Result<Dated<Arc<Verified>>, AuthError> {
        if let Some(refused) = self.caches.refused.get(&fingerprint).await {
            return Err(refused.into());
        }
        let load = async || self.load(&bearer).await.map(Arc::new);
        match self.caches.credentials.get_or_read(&fingerprint, load).await {
            Ok(verified) => Ok(verified),
            Err(error) => match &*error {
                LoadError::Refused(refused) => {
                    self.caches.refused.insert(fingerprint, *refused).await;
                    Err((*refused).into())
                }
                LoadError::Pg(error) => Err(AuthError::Unavailable(Arc::clone(error))),
            },
        }
    }

    async fn load(&self, bearer: &Bearer) -> Result<Verified, LoadError> {
        // However many unknown keys are tried, they never take every connection.
        let turn = tokio::time::timeout(TURN_LIMIT, self.caches.gate.acquire()).await;
        let Ok(Ok(_turn)) = turn else { return Err(sqlx::Error::PoolTimedOut.into()) };
        match bearer {
            Bearer::Key(id, secret) => {
                let row = sqlx::query!(
                    "SELECT secret_sha256, user_id, scopes, revoked_at IS NOT NULL AS \"revoked!\"
                     FROM api_keys WHERE id = $1",
                    id.as_str()
                )
                .fetch_optional(&self.pool)
                .await?
                .filter(|row| secret.matches(&row.secret_sha256))
                .ok_or(LoadError::Refused(Refused::Unknown))?;
                if row.revoked {
                    return Err(LoadError::Refused(Refused::Revoked));
                }
                Ok(Verified {
                    scopes: parse_scopes("api_keys", id, &row.scopes)?,
                    credential: Credential::Key(id.clone()),
                    user: UserId::from_uuid(row.user_id),
                    origins: Arc::default(),
                    valid_until: None,
                })
            }
            Bearer::Token(id, secret) => {
                let asked_at = Instant::now();
                let row = sqlx::query!(
                    "SELECT t.secret_sha256, t.user_id, t.scopes, t.origins,
                            k.revoked_at IS NOT NULL AS \"revoked!\",
                            (extract(epoch FROM t.expires_at - aiv_now()) * 1000)::bigint AS \"left_ms!\"
                     FROM browser_tokens t JOIN api_keys k ON k.id = t.key_id WHERE t.id = $1",
                    id.as_uuid()
                )
                .fetch_optional(&self.pool)
                .await?
                .filter(|row| secret.matches(&row.secret_sha256))
                .ok_or(LoadError::Refused(Refused::Unknown))?;
                if row.revoked {
                    return Err(LoadError::Refused(Refused::Revoked));
                }
                let left = u64::try_from(row.left_ms).ok().filter(|left| *left > 0);
                let left = left.ok_or(LoadError::Refused(Refused::Expired))?;
                Ok(Verified {
                    scopes: parse_scopes("browser_tokens", id, &row.scopes)?,
                    credential: Credential::BrowserToken(*id),
                    user: UserId::from_uuid(row.user_id),
                    origins: row.origins.into(),
                    valid_until: Some(asked_at + Duration::from_millis(left)),
                })
            }
        }
    }

    /// The session of a user with the given scopes.
    pub(crate) fn session(
        &self,
        profile: &Arc<Profile>,
        scopes: Scopes,
        credential: Credential,
        origins: &Arc<[String]>,
        book: &RuleBook,
    ) -> Session {
        let key = match &credential {
            Credential::Key(key) => Some(key),
            Credential::BrowserToken(_) => None,
        };
        let tier = self.tiers.of_tenant(&profile.tier);
        let (tier, rules) = book.of(&self.tiers, tier, profile.tenant, key);
        Session {
            principal: Principal {
                tenant: profile.tenant,
                user: profile.user,
                account: profile.account,
                scopes,
                credential,
                memberships: Arc::clone(&profile.memberships),
            },
            tier,
            rules,
            profile: Arc::clone(profile),
            origins: Arc::clone(origins),
        }
    }
}

#[cfg(test)]
mod tests {
    use domain::Scope;
    use testkit::TestDb;

    use super::*;
    use crate::{TenancyConfig, revoke_key, tests_support::Seed};

    async fn refusal(tenancy: &Tenancy, bearer: &str) -> Refused {
        match tenancy.authenticate(bearer).await.unwrap_err() {
            AuthError::Unknown => Refused::Unknown,
            AuthError::Revoked => Refused::Revoked,
            AuthError::Expired => Refused::Expired,
            AuthError::Unavailable(error) => panic!("{error}"),
        }
    }

    #[tokio::test]
    async fn a_key_speaks_for_its_user() {
        let db = TestDb::new().await;
        let seed = Seed::new(&db.pool).await;
        let session = seed.tenancy.authenticate(&seed.key.text).await.unwrap();
        assert_eq!((session.principal.user, session.principal.tenant), (seed.user, seed.tenant));
        assert_eq!(session.principal.account, seed.user_account);
        assert!(
            session.principal.scopes.has(Scope::Write) && !session.principal.scopes.has(Scope::TenantRead)
        );
        assert_eq!(session.tier.name, "free");
    }

    #[tokio::test]
    async fn another_secret_and_another_id_are_unknown_alike() {
        let db = TestDb::new().await;
        let seed = Seed::new(&db.pool).await;
        let (id, _) = seed.key.text.rsplit_once('_').unwrap();
        let wrong_secret = format!("{id}_{}", "x".repeat(43));
        let wrong_id = format!("avk_{}_{}", "x".repeat(12), "x".repeat(43));
        for text in [wrong_secret.as_str(), &wrong_id, "", "avk_", "Bearer"] {
            assert_eq!(refusal(&seed.tenancy, text).await, Refused::Unknown, "{text}");
            assert_eq!(refusal(&seed.tenancy, text).await, Refused::Unknown, "{text}, remembered");
        }
        assert!(seed.tenancy.authenticate(&seed.key.text).await.is_ok(), "the right one still works");
    }

    #[tokio::test]
    async fn a_revoked_key_ends_within_the_time_that_it_is_remembered() {
        let db = TestDb::new().await;
        let seed = Seed::new(&db.pool).await;
        let config = TenancyConfig { cache_ms: 50, ..TenancyConfig::default() };
        let quick = Tenancy::new(db.pool.clone(), config).unwrap();
        quick.authenticate(&seed.key.text).await.unwrap();
        let mut conn = db.pool.acquire().await.unwrap();
        assert!(revoke_key(&mut conn, &seed.key.id).await.unwrap().is_some());
        testkit::wait_until("the revocation", Duration::from_secs(5), async || {
            matches!(quick.authenticate(&seed.key.text).await, Err(AuthError::Revoked))
        })
        .await;
        assert_eq!(refusal(&seed.fresh(&db.pool), &seed.key.text).await, Refused::Revoked);
    }

    /// C43: whatever each process remembers, and though a look-up that began before comes home after.
    #[tokio::test]
    async fn a_revoked_key_is_not_brought_back_by_a_slow_look_up() {
        const AGE: Duration = Duration::from_secs(2);
        let db = TestDb::new().await;
        let seed = Seed::new(&db.pool).await;
        let config = TenancyConfig { cache_ms: 2_000, ..TenancyConfig::default() };
        let proxy = testkit::Proxy::before(&db.url).await;
        let slow = pg::connect(&pg::PgConfig::new(proxy.url(&db.url))).await.unwrap();
        let [one, two, slow] =
            [db.pool.clone(), db.pool.clone(), slow].map(|pool| Tenancy::new(pool, config.clone()).unwrap());
        one.authenticate(&seed.key.text).await.unwrap();
        two.authenticate(&seed.key.text).await.unwrap();
        // PostgreSQL has said that the key is good, and the word is on its way.
        proxy.freeze_after(&[seed.key.id.as_str()]);
        let looking = tokio::spawn({
            let (slow, key) = (slow.clone(), seed.key.text.clone());
            async move { slow.authenticate(&key).await.map(drop) }
        });
        proxy.frozen().await;
        let said = "SELECT count(*) FROM pg_stat_activity
                    WHERE datname = current_database() AND state = 'idle' AND query LIKE 'SELECT secret_sha256%FROM api_keys%'";
        testkit::wait_until("the word to be said", Duration::from_secs(5), async || {
            sqlx::query_scalar::<_, i64>(said).fetch_one(&db.pool).await.unwrap() == 1
        })
        .await;
        let revoked_at = Instant::now();
        revoke_key(&mut db.pool.acquire().await.unwrap(), &seed.key.id).await.unwrap().unwrap();
        tokio::time::sleep(AGE / 2).await;
        proxy.thaw();
        looking.await.unwrap().unwrap();
        // A second look-up at the slow process's, while the others forget.
        tokio::time::sleep_until((revoked_at + AGE).into()).await;
        for (name, process) in [("one", &one), ("two", &two), ("slow", &slow)] {
            assert_eq!(refusal(process, &seed.key.text).await, Refused::Revoked, "{name}");
        }
    }

    #[tokio::test]
    async fn a_key_that_is_made_after_it_was_asked_for_in_vain_works_soon() {
        let db = TestDb::new().await;
        let seed = Seed::new(&db.pool).await;
        let run = async |sql: &'static str| sqlx::raw_sql(sql).execute(&db.pool).await.map(drop).unwrap();
        run("CREATE TABLE later AS SELECT * FROM api_keys; DELETE FROM api_keys").await;
        assert_eq!(refusal(&seed.tenancy, &seed.key.text).await, Refused::Unknown);
        run("INSERT INTO api_keys SELECT * FROM later").await;
        testkit::wait_until("the new key to be known", Duration::from_secs(5), async || {
            seed.tenancy.authenticate(&seed.key.text).await.is_ok()
        })
        .await;
    }

    #[tokio::test]
    async fn who_was_known_is_known_while_postgresql_is_away_and_asked_about_again_when_it_is_back() {
        let db = TestDb::new().await;
        let seed = Seed::new(&db.pool).await;
        let proxy = testkit::Proxy::before(&db.url).await;
        let pool = pg::connect(&pg::PgConfig::new(proxy.url(&db.url))).await.unwrap();
        let config = TenancyConfig { cache_ms: 50, ..TenancyConfig::default() };
        let behind = Tenancy::new(pool, config).unwrap();
        let other = seed.key_with(&db.pool, seed.user, &[Scope::Read]).await;
        let known = async || behind.authenticate_to_read(&seed.key.text).await;
        known().await.unwrap();
        let forgotten = async || behind.caches.credentials.is_empty().await;

        // It does not answer.
        proxy.freeze();
        testkit::wait_until("the memory to be over", Duration::from_secs(5), forgotten).await;
        let outliving = known().await.unwrap();
        assert_eq!(outliving.principal.user, seed.user);
        assert!(behind.caches.vouched.is_away());
        // Whoever writes waits for the answer, and is told it.
        let writing = behind.authenticate(&seed.key.text);
        let thawing = async { proxy.thaw() };
        assert_eq!(tokio::join!(writing, thawing).0.unwrap().principal.user, seed.user);

        // It is not there.
        proxy.refuse(true);
        proxy.cut();
        testkit::wait_until("the memory to be over", Duration::from_secs(5), forgotten).await;
        assert_eq!(known().await.unwrap().principal.user, seed.user);
        assert!(matches!(behind.authenticate(&seed.key.text).await, Err(AuthError::Unavailable(_))));
        let unknown = behind.authenticate_to_read(&other.text).await;
        assert!(
            matches!(unknown, Err(AuthError::Unavailable(_))),
            "it never vouched for this one: {unknown:?}"
        );

        // It is back, and has something else to say.
        let mut conn = db.pool.acquire().await.unwrap();
        revoke_key(&mut conn, &seed.key.id).await.unwrap();
        proxy.refuse(false);
        testkit::wait_until("the revocation", Duration::from_secs(10), async || {
            matches!(known().await, Err(AuthError::Revoked))
        })
        .await;
        proxy.refuse(true);
        proxy.cut();
        assert!(known().await.is_err(), "who was revoked is not taken for known again");
    }
}
