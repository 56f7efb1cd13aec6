//! An API of its own for each test, and a few words to speak with it.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use api::{ApiConfig, ApiParts, ApiState, HealthSource, health::AlwaysWell};
use axum::{Router, body::Body, extract::ConnectInfo};
use catalogue::{Catalogue, CatalogueConfig};
use chrono::{DateTime, Utc};
use control::{Control, ControlConfig};
use domain::{
    Credits, Scope, TaskId, TenantId, UserId, WorkerId,
    clock::{SharedClock, SystemClock},
    task::{Attempt, Event, JobHandle, Seen},
};
use generation::{Generation, GenerationConfig, GenerationParts};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use ledger::Ledger;
use media::{LinkKeys, Media, MediaConfig, MediaLimits};
use operator::{Actor, Done, NewGrant, NewKey, NewTenant, NewUser, Operator};
use serde_json::{Value, json};
use task_state::{Claim, ClaimOutcome, Move, MoveOutcome, TaskState, TaskStateConfig};
use tenancy::{Tenancy, TenancyConfig};
use testkit::{TestDb, TestRedis};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;
use url::Url;

use crate::callbacks::SignedByHand;

/// A playable clip, as the mock provider serves it.
const CLIP: &[u8] = include_bytes!("../../../mock-provider/assets/clip.mp4");

/// What a test may choose.
pub(crate) struct Setup {
    pub(crate) config: ApiConfig,
    pub(crate) clock: SharedClock,
    /// Where PostgreSQL stands in time; at the present unless given.
    pub(crate) now: Option<DateTime<Utc>>,
    pub(crate) demo_key: bool,
    pub(crate) health: Arc<dyn HealthSource>,
    /// False: nothing listens where Redis should be.
    pub(crate) redis: bool,
    /// The size of the pool, where that matters.
    pub(crate) connections: Option<u32>,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            config: ApiConfig::default(),
            clock: Arc::new(SystemClock),
            now: None,
            demo_key: false,
            health: Arc::new(AlwaysWell),
            redis: true,
            connections: None,
        }
    }
}

/// One API with its own database, Redis prefix and storage.
pub(crate) struct Api {
    pub(crate) router: Router,
    pub(crate) admin: Router,
    pub(crate) task_state: TaskState,
    pub(crate) control: Control,
    pub(crate) media: Media,
    pub(crate) operator: Operator,
    pub(crate) shutdown: CancellationToken,
    /// The workers that were told of callbacks.
    pub(crate) called: Arc<Mutex<Vec<WorkerId>>>,
    _storage: tempfile::TempDir,
    pub(crate) db: TestDb,
    _redis: TestRedis,
}

/// A user with a key that may read and write.
#[derive(Debug, Clone)]
pub(crate) struct Someone {
    pub(crate) tenant: TenantId,
    pub(crate) user: UserId,
    pub(crate) key: String,
}

/// An answer, read to its end.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) bytes: Vec<u8>,
}

impl Answer {
    /// The body as JSON.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.bytes)
            .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&self.bytes)))
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    /// The problem's code.
    pub(crate) fn code(&self) -> String {
        self.json()["code"].as_str().unwrap_or("no code").to_owned()
    }

    /// The body with what differs from request to request taken out.
    pub(crate) fn without_request_id(&self) -> Value {
        let mut body = self.json();
        if let Some(members) = body.as_object_mut() {
            members.remove("request_id");
        }
        body
    }
}

impl Api {
    pub(crate) async fn new() -> Self {
        Self::with(Setup::default()).await
    }

    pub(crate) async fn with(setup: Setup) -> Self {
        let (db, redis) = (TestDb::new().await, TestRedis::new());
        let storage = tempfile::tempdir().unwrap();
        let pool = match (setup.connections, setup.now) {
            (Some(most), _) => small_pool(&db, most).await,
            (None, Some(instant)) => db.pool_at(instant),
            (None, None) => db.pool.clone(),
        };
        let redis_url = if setup.redis { redis.url.clone() } else { "redis://127.0.0.1:1".to_owned() };
        // A busy machine may be slow to answer; where nothing answers at all, there is nothing to wait for.
        let limit = Duration::from_millis(if setup.redis { 1_000 } else { 20 });
        let control = Control::new(ControlConfig {
            prefix: redis.prefix.clone(),
            response_limit: limit,
            connect_limit: limit,
            ..ControlConfig::single(redis_url)
        })
        .unwrap();
        let tenancy =
            Tenancy::new(pool.clone(), TenancyConfig { cache_ms: 50, ..TenancyConfig::default() }).unwrap();
        let catalogue = Catalogue::new(CatalogueConfig::default(), pool.clone()).unwrap();
        let task_state = TaskState::new(pool.clone(), control.clone(), TaskStateConfig::default());
        let media = Media::new(
            MediaConfig {
                storage_url: Url::from_directory_path(storage.path()).unwrap(),
                public_url: None,
                link_keys: LinkKeys { current: [7; 32], previous: None },
                limits: MediaLimits::default(),
            },
            pool.clone(),
        )
        .unwrap();
        let generation = Generation::new(GenerationParts {
            pool: pool.clone(),
            control: control.clone(),
            tenancy: tenancy.clone(),
            catalogue: catalogue.clone(),
            task_state: task_state.clone(),
            config: GenerationConfig::default(),
            accepted: Arc::new(|_, _| {}),
            canceling: Arc::new(|_| {}),
        })
        .unwrap();
        let operator = Operator::new(pool.clone(), tenancy.clone());
        let shutdown = CancellationToken::new();
        let called = Arc::new(Mutex::new(Vec::new()));
        let demo_key = if setup.demo_key {
            let (tenant, user) = make_user(&operator, "enterprise").await;
            Some(Someone { tenant, user, key: make_key(&operator, user, None).await }.key)
        } else {
            None
        };
        let state = ApiState::new(ApiParts {
            tenancy,
            catalogue,
            generation,
            task_state: task_state.clone(),
            media: media.clone(),
            ledger: Ledger::new(pool),
            control: control.clone(),
            operator: operator.clone(),
            health: setup.health,
            metrics: Arc::new(|| "up 1\n".to_owned()),
            clock: setup.clock,
            shutdown: shutdown.clone(),
            demo_key,
            callbacks: Arc::new(SignedByHand),
            called: Arc::new({
                let called = called.clone();
                move |owner| called.lock().unwrap().push(owner)
            }),
            config: setup.config,
        });
        let (router, admin) = (api::router(state.clone()), api::admin_router(state));
        Self {
            router,
            admin,
            task_state,
            control,
            media,
            operator,
            shutdown,
            called,
            _storage: storage,
            db,
            _redis: redis,
        }
    }

    /// A new tenant of the tier with one user, a key and 1,000 credits.
    pub(crate) async fn someone(&self, tier: &str) -> Someone {
        let (tenant, user) = make_user(&self.operator, tier).await;
        self.grant(user, 1_000).await;
        Someone { tenant, user, key: make_key(&self.operator, user, None).await }
    }

    /// A further user of the same tenant, with a key and without credits.
    pub(crate) async fn colleague(&self, of: &Someone) -> Someone {
        let new = NewUser { tenant: of.tenant, name: "Grace".to_owned(), external_id: None };
        let user = fresh(self.operator.create_user(Actor::CommandLine, None, new).await.unwrap()).id;
        Someone { tenant: of.tenant, user, key: make_key(&self.operator, user, None).await }
    }

    /// A key of this user with other scopes.
    pub(crate) async fn key(&self, user: UserId, scopes: &[Scope]) -> String {
        make_key(&self.operator, user, Some(scopes)).await
    }

    pub(crate) async fn grant(&self, user: UserId, credits: i64) {
        let new = NewGrant { user, credits: Credits::new(credits).unwrap(), category: None };
        self.operator.grant(Actor::CommandLine, None, new).await.unwrap();
    }

    /// Sends a request as a client on this machine would.
    pub(crate) async fn send(&self, request: Request<Body>) -> Answer {
        read(self.open(request).await).await
    }

    /// Sends a request from the machine of this address.
    pub(crate) async fn send_from(&self, address: &str, request: Request<Body>) -> Answer {
        read(self.open_from(SocketAddr::new(address.parse().unwrap(), 4_000), request).await).await
    }

    /// Sends a request and leaves the answer's body unread.
    pub(crate) async fn open(&self, request: Request<Body>) -> Response<Body> {
        self.open_from("127.0.0.1:4000".parse().unwrap(), request).await
    }

    async fn open_from(&self, peer: SocketAddr, mut request: Request<Body>) -> Response<Body> {
        request.extensions_mut().insert(ConnectInfo(peer));
        self.router.clone().oneshot(request).await.unwrap()
    }

    pub(crate) async fn get(&self, path: &str, key: &str) -> Answer {
        self.send(request(Method::GET, path, Some(key), None)).await
    }

    pub(crate) async fn post(&self, path: &str, key: &str, body: &Value) -> Answer {
        self.send(request(Method::POST, path, Some(key), Some(body))).await
    }

    /// A queued task of this user.
    pub(crate) async fn task(&self, owner: &Someone) -> TaskId {
        let answer = self.post("/generations", &owner.key, &video()).await;
        assert_eq!(answer.status, StatusCode::ACCEPTED, "{}", answer.json());
        answer.json()["task_id"].as_str().unwrap().parse().unwrap()
    }

    /// Claims a queued task as a scheduler would.
    pub(crate) async fn claim(&self, task: TaskId) -> Attempt {
        let claim = Claim {
            task,
            attempt_no: 1,
            account: "mock".parse().unwrap(),
            provider_model: "mock-fast".parse().unwrap(),
            worker: "here:1:a".parse().unwrap(),
            account_limit: 100,
            model_limit: 100,
            day_limit: None,
            submit_limit: Duration::from_secs(5),
        };
        match self.task_state.claim(vec![claim]).await.unwrap().pop().unwrap() {
            ClaimOutcome::Claimed(_, attempt) => attempt,
            other => panic!("{other:?}"),
        }
    }

    /// Tells what the provider says of a claimed task.
    pub(crate) async fn observe(&self, task: TaskId, attempt: Attempt, seen: Seen) {
        let event = Event::Observed { job: JobHandle::new("job-1"), seen };
        self.advance(Move::by_owner(task, attempt, event)).await;
    }

    pub(crate) async fn advance(&self, wish: Move) {
        let outcome = self.task_state.advance(wish).await.unwrap();
        assert!(matches!(outcome, MoveOutcome::Moved(_)), "{outcome:?}");
    }

    /// Brings a queued task to its end, with a video.
    pub(crate) async fn succeed(&self, task: TaskId) {
        let attempt = self.claim(task).await;
        self.observe(task, attempt, Seen::Finished).await;
        let reference = domain::AttemptRef { task, attempt_no: attempt.no };
        let source = futures::stream::iter([Ok::<_, std::io::Error>(bytes::Bytes::from_static(CLIP))]);
        let staged = self.media.ingest(reference, source, Some("video/mp4"), None).await.unwrap();
        let published = self.media.publish(staged).await.unwrap();
        let event = Event::OutputPublished { asset: published.asset };
        let mut wish = Move::by_owner(task, attempt, event);
        wish.detail.published = Some(published);
        self.advance(wish).await;
    }

    pub(crate) const fn clip() -> &'static [u8] {
        CLIP
    }
}

/// A body that `POST /generations` accepts; 10 credits.
pub(crate) fn video() -> Value {
    json!({ "model": "mock-fast", "prompt": "A paper boat", "duration_seconds": 5 })
}

pub(crate) fn request(method: Method, path: &str, key: Option<&str>, body: Option<&Value>) -> Request<Body> {
    let mut builder = Request::builder().method(method).uri(path);
    if let Some(key) = key {
        builder = builder.header("authorization", format!("Bearer {key}"));
    }
    match body {
        Some(body) => builder
            .header("content-type", "application/json")
            .body(Body::from(serde_json::to_vec(body).unwrap()))
            .unwrap(),
        None => builder.body(Body::empty()).unwrap(),
    }
}

pub(crate) async fn read(response: Response<Body>) -> Answer {
    let (parts, body) = response.into_parts();
    let bytes = axum::body::to_bytes(body, 16 << 20).await.unwrap().to_vec();
    Answer { status: parts.status, headers: parts.headers, bytes }
}

/// A pool of this size, as the platform makes it.
async fn small_pool(db: &TestDb, most: u32) -> sqlx::PgPool {
    let pool = sqlx::postgres::PgPoolOptions::new().max_connections(most);
    pool.acquire_timeout(Duration::from_secs(3)).connect(&db.url).await.unwrap()
}

async fn make_user(operator: &Operator, tier: &str) -> (TenantId, UserId) {
    let new = NewTenant {
        name: "Acme".to_owned(),
        tier: Some(tier.to_owned()),
        time_zone: Some("Europe/Paris".to_owned()),
        payer: None,
    };
    let tenant = fresh(operator.create_tenant(Actor::CommandLine, None, new).await.unwrap()).id;
    let new = NewUser { tenant, name: "Ada".to_owned(), external_id: None };
    (tenant, fresh(operator.create_user(Actor::CommandLine, None, new).await.unwrap()).id)
}

async fn make_key(operator: &Operator, user: UserId, scopes: Option<&[Scope]>) -> String {
    let new = NewKey { user, scopes: scopes.map(|scopes| scopes.iter().copied().collect()) };
    fresh(operator.create_key(Actor::CommandLine, None, new).await.unwrap()).text
}

fn fresh<T>(done: Done<T>) -> T {
    match done {
        Done::Fresh(made) => made,
        Done::Replayed { .. } => panic!("nothing to replay"),
    }
}
