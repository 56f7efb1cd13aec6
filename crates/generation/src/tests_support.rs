//! What the tests of this crate stand on: a tenant with credits on real servers, and processes that admit for it.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use catalogue::{Catalogue, CatalogueConfig};
use chrono::{DateTime, Utc};
use control::{Control, ControlConfig};
use domain::{
    AccountId, Credits, GrantId, Scope, Scopes, TaskId, TenantId, UserId,
    limits::{SubjectLimits, Tier},
};
use ledger::{AccountOwner, Balance, Ledger, NewGrant};
use pg::{PgConfig, PgPool};
use task_state::{TaskState, TaskStateConfig};
use tenancy::{
    NewTenant, NewUser, Payer, Session, Tenancy, TenancyConfig, create_key, create_tenant, create_user,
    idempotency::IdempotencyKey,
};
use testkit::{TestDb, TestRedis};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

use crate::{
    Generation, GenerationConfig, GenerationParts, GenerationRequest, Submission, SubmitError, Submitted,
};

/// A database, a Redis corner and a first tenant of the tier `wide`, which has no rates and no other narrow limit.
pub(crate) struct World {
    pub(crate) db: TestDb,
    redis: TestRedis,
    pub(crate) tenant: TenantId,
}

/// One process that admits.
pub(crate) struct Process {
    pub(crate) generation: Generation,
    pub(crate) tenancy: Tenancy,
    pub(crate) task_state: TaskState,
    pub(crate) catalogue: Catalogue,
    /// The tasks that its scheduler was told of.
    pub(crate) told: Arc<Mutex<Vec<TaskId>>>,
}

pub(crate) fn tiers() -> TenancyConfig {
    let limits = SubjectLimits { submit: None, running: 1_000, queued: 100_000, daily: None };
    let wide = Tier {
        name: "wide".to_owned(),
        user: limits,
        tenant: limits,
        expensive: None,
        reads: None,
        weight: 1,
    };
    let daily = Tier {
        name: "daily".to_owned(),
        user: SubjectLimits { daily: Some(5), ..limits },
        tenant: SubjectLimits { daily: Some(8), ..limits },
        ..wide.clone()
    };
    TenancyConfig { tiers: [Tier::defaults(), vec![wide, daily]].concat(), ..TenancyConfig::default() }
}

impl World {
    pub(crate) async fn new() -> Self {
        let db = TestDb::new().await;
        let mut world = Self { db, redis: TestRedis::new(), tenant: TenantId::generate() };
        world.tenant = world.another_tenant("wide").await;
        world
    }

    pub(crate) async fn another_tenant(&self, tier: &str) -> TenantId {
        self.tenant_in(tier, None).await
    }

    pub(crate) async fn tenant_in(&self, tier: &str, time_zone: Option<&str>) -> TenantId {
        let tenancy = Tenancy::new(self.db.pool.clone(), tiers()).unwrap();
        let new = NewTenant {
            id: TenantId::generate(),
            name: "Acme".to_owned(),
            tier: Some(tier.to_owned()),
            time_zone: time_zone.map(ToOwned::to_owned),
            payer: Payer::User,
        };
        let mut conn = self.db.pool.acquire().await.unwrap();
        create_tenant(&mut conn, tenancy.tiers(), &new).await.unwrap().id
    }

    /// A process with everything at its default.
    pub(crate) async fn process(&self) -> Process {
        self.process_with(&self.db.url, GenerationConfig::default()).await
    }

    pub(crate) async fn process_with(&self, url: &str, config: GenerationConfig) -> Process {
        let pool = pg::connect(&PgConfig { max_connections: 16, ..PgConfig::new(url) }).await.unwrap();
        self.process_on(pool, config)
    }

    /// A process for which PostgreSQL stands at this instant.
    pub(crate) fn process_at(&self, instant: DateTime<Utc>) -> Process {
        self.process_on(self.db.pool_at(instant), GenerationConfig::default())
    }

    /// A process on another Redis than the others of this world.
    pub(crate) fn process_with_redis(&self, url: &str) -> Process {
        Self::assemble(self.db.pool.clone(), GenerationConfig::default(), ControlConfig::single(url))
    }

    /// A process that finds no Redis.
    pub(crate) async fn process_without_redis(&self) -> Process {
        self.process_without_redis_as(GenerationConfig::default())
    }

    pub(crate) fn process_without_redis_as(&self, config: GenerationConfig) -> Process {
        Self::assemble(self.db.pool.clone(), config, ControlConfig::single("redis://127.0.0.1:1"))
    }

    fn process_on(&self, pool: PgPool, config: GenerationConfig) -> Process {
        let control = ControlConfig {
            prefix: self.redis.prefix.clone(),
            ..ControlConfig::single(self.redis.url.clone())
        };
        Self::assemble(pool, config, control)
    }

    fn assemble(pool: PgPool, config: GenerationConfig, control: ControlConfig) -> Process {
        let control = Control::new(control).unwrap();
        let tenancy = Tenancy::new(pool.clone(), tiers()).unwrap();
        let catalogue = Catalogue::new(CatalogueConfig::default(), pool.clone()).unwrap();
        let task_state = TaskState::new(pool.clone(), control.clone(), TaskStateConfig::default());
        let told = Arc::new(Mutex::new(Vec::new()));
        let ear = Arc::clone(&told);
        let generation = Generation::new(GenerationParts {
            pool,
            control,
            tenancy: tenancy.clone(),
            catalogue: catalogue.clone(),
            task_state: task_state.clone(),
            config,
            accepted: Arc::new(move |tasks, _| {
                ear.lock().unwrap().extend(tasks.iter().map(|task| task.task))
            }),
            canceling: Arc::new(|_| {}),
        })
        .unwrap();
        Process { generation, tenancy, task_state, catalogue, told }
    }

    /// A user of the first tenant with so many credits, and a session of theirs.
    pub(crate) async fn user(&self, credits: i64) -> Arc<Session> {
        self.user_of(self.tenant, credits, Scopes::default_of_keys()).await
    }

    pub(crate) async fn user_of(&self, tenant: TenantId, credits: i64, scopes: Scopes) -> Arc<Session> {
        let mut conn = self.db.pool.acquire().await.unwrap();
        let new = NewUser { id: UserId::generate(), tenant, name: "Ada".to_owned(), external_id: None };
        let user = create_user(&mut conn, &new).await.unwrap();
        ledger::open_account(&mut conn, user.account, AccountOwner::User(user.id)).await.unwrap();
        let key = create_key(&mut conn, user.id, scopes).await.unwrap();
        drop(conn);
        if credits > 0 {
            self.grant(user.account, credits).await;
        }
        self.session(&key.text).await
    }

    /// A session as a process that has just started knows it.
    pub(crate) async fn session(&self, key: &str) -> Arc<Session> {
        let tenancy = Tenancy::new(self.db.pool.clone(), tiers()).unwrap();
        tenancy.authenticate(key).await.unwrap()
    }

    /// The same user by a key with other scopes.
    pub(crate) async fn rekeyed(&self, session: &Session, scopes: &[Scope]) -> Arc<Session> {
        let mut conn = self.db.pool.acquire().await.unwrap();
        let scopes = scopes.iter().copied().collect();
        let key = create_key(&mut conn, session.principal.user, scopes).await.unwrap();
        self.session(&key.text).await
    }

    pub(crate) async fn grant(&self, account: AccountId, credits: i64) {
        let mut conn = self.db.pool.acquire().await.unwrap();
        let id = GrantId::generate();
        let new = NewGrant {
            id,
            account,
            category: "test".to_owned(),
            priority: 100,
            expires_at: None,
            source: id.to_string(),
            amount: Credits::new(credits).unwrap(),
        };
        ledger::grant(&mut conn, &new).await.unwrap();
    }

    pub(crate) async fn balance(&self, session: &Session) -> Balance {
        Ledger::new(self.db.pool.clone()).balance(session.principal.account).await.unwrap()
    }

    /// How many rows a table has.
    pub(crate) async fn count(&self, table: &'static str) -> i64 {
        let statement = format!("SELECT count(*) FROM {table}");
        sqlx::query_scalar(sqlx::AssertSqlSafe(statement)).fetch_one(&self.db.pool).await.unwrap()
    }

    /// What must hold at any moment, and holds.
    pub(crate) async fn assert_sound(&self) {
        self.assert_sound_but_for("").await;
    }

    /// As [`assert_sound`](Self::assert_sound), for tests whose tasks were made long before the present.
    pub(crate) async fn assert_sound_but_for_deadlines(&self) {
        self.assert_sound_but_for("task_ends_by_its_deadline").await;
    }

    async fn assert_sound_but_for(&self, rule: &str) {
        let mut conn = self.db.pool.acquire().await.unwrap();
        let mut found = ledger::audit(&mut conn).await.unwrap();
        found.extend(task_state::audit::audit(&mut conn, Duration::from_secs(5)).await.unwrap());
        found.extend(tenancy::audit(&mut conn).await.unwrap());
        found.retain(|violation| violation.rule != rule);
        assert!(found.is_empty(), "{found:?}");
        let orphans: i64 = sqlx::query_scalar(
            "SELECT count(*) FROM idempotency_keys k WHERE NOT EXISTS
                 (SELECT FROM generation_tasks t WHERE k.subject = 'task_' || replace(t.id::text, '-', ''))",
        )
        .fetch_one(&mut *conn)
        .await
        .unwrap();
        assert_eq!(orphans, 0, "a key exists only together with its task");
    }
}

impl Process {
    /// A request of `mock-fast`, which costs 2 credits a second.
    pub(crate) fn request(&self, prompt: &str, seconds: u32) -> GenerationRequest {
        let body = serde_json::json!({"model": "mock-fast", "prompt": prompt, "duration_seconds": seconds});
        self.parse(&body.to_string())
    }

    pub(crate) fn parse(&self, body: &str) -> GenerationRequest {
        GenerationRequest::parse(body.as_bytes(), &self.catalogue).unwrap()
    }

    pub(crate) async fn submit(
        &self,
        session: &Arc<Session>,
        request: GenerationRequest,
        key: Option<&str>,
    ) -> Result<Submitted, SubmitError> {
        self.generation.submit(submission(session, request, key)).await
    }
}

pub(crate) fn submission(
    session: &Arc<Session>,
    request: GenerationRequest,
    key: Option<&str>,
) -> Submission {
    Submission {
        session: Arc::clone(session),
        request,
        idempotency_key: key.map(|key| IdempotencyKey::parse(key.as_bytes()).unwrap()),
        ip: None,
        traceparent: None,
    }
}

/// Stands between a process and PostgreSQL and can lose the answer to a COMMIT, or the COMMIT itself.
pub(crate) struct Wire {
    pub(crate) url: String,
    lose: Arc<Lose>,
}

#[derive(Default)]
struct Lose {
    answer: AtomicBool,
    request: AtomicBool,
    everything: AtomicBool,
}

impl Wire {
    pub(crate) async fn new(world: &World) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (authority, rest) = world.db.url.split_once("://").unwrap().1.split_once('/').unwrap();
        let (login, server) = authority.rsplit_once('@').unwrap();
        let (url, server) = (format!("postgres://{login}@127.0.0.1:{port}/{rest}"), server.to_owned());
        let lose = Arc::new(Lose::default());
        let faults = Arc::clone(&lose);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                if faults.everything.load(Ordering::SeqCst) {
                    continue;
                }
                let Ok(upstream) = TcpStream::connect(&server).await else { continue };
                tokio::spawn(carry(client, upstream, Arc::clone(&faults)));
            }
        });
        Self { url, lose }
    }

    /// The next COMMIT arrives, but its answer does not.
    pub(crate) fn lose_next_answer(&self) {
        self.lose.answer.store(true, Ordering::SeqCst);
    }

    /// The next COMMIT does not arrive.
    pub(crate) fn lose_next_commit(&self) {
        self.lose.request.store(true, Ordering::SeqCst);
    }

    /// New connections are closed at once; old ones end with their next statement.
    pub(crate) fn cut(&self, cut: bool) {
        self.lose.everything.store(cut, Ordering::SeqCst);
    }

    /// Whether everything that was to be lost is lost.
    pub(crate) fn is_done(&self) -> bool {
        !self.lose.answer.load(Ordering::SeqCst) && !self.lose.request.load(Ordering::SeqCst)
    }
}

async fn carry(mut client: TcpStream, mut server: TcpStream, lose: Arc<Lose>) {
    let (mut from_client, mut from_server) = (vec![0; 64 * 1_024], vec![0; 64 * 1_024]);
    loop {
        tokio::select! {
            read = client.read(&mut from_client) => {
                let Ok(length @ 1..) = read else { return };
                let sent = &from_client[..length];
                if lose.everything.load(Ordering::SeqCst) {
                    return;
                }
                let commits = sent.windows(6).any(|window| window == b"COMMIT");
                if commits && lose.request.swap(false, Ordering::SeqCst) {
                    return;
                }
                if server.write_all(sent).await.is_err() {
                    return;
                }
                if commits && lose.answer.swap(false, Ordering::SeqCst) {
                    // The server's answer proves that it has committed; nobody else hears of it.
                    let _ = server.read(&mut from_server).await;
                    return;
                }
            }
            read = server.read(&mut from_server) => {
                let Ok(length @ 1..) = read else { return };
                if client.write_all(&from_server[..length]).await.is_err() {
                    return;
                }
            }
        }
    }
}
