//! Everything that a scheduler needs, for one test: stores, a scripted provider, a tenant with a funded user.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    thread,
    time::Duration,
};

use catalogue::{AccountSpec, Catalogue, CatalogueConfig};
use control::{Control, ControlConfig, SlotSet};
use domain::{
    AccountId, Credits, GrantId, Priority, ProviderAccountId, TaskId, TaskStatus, TenantId, UserId,
    clock::SystemClock,
    model::Route,
    task::{Event, EventType, Inputs, Refusal},
};
use fetch::{Fetch, FetchConfig, Limits, Request, SendGuard};
use http::{HeaderMap, Method};
use ledger::{AccountOwner, Balance, Ledger, NewGrant, Subject, grant::GrantError};
use media::{LinkKeys, Media, MediaConfig, MediaLimits};
use pg::{PgError, PgPool, Violation};
use provider_adapter::{
    Provider, Providers,
    mock::{MockConfig, MockProvider},
};
use scheduler::{Loops, Nudge, Scheduler, SchedulerConfig, SchedulerParts};
use serde_json::Value;
use sqlx::postgres::PgPoolOptions;
use task_state::{
    Expect, Move, MoveDetail, MoveOutcome, NewTask, NewlyQueued, TaskRecord, TaskState, TaskStateConfig,
};
use tempfile::TempDir;
use tenancy::{Tenancy, TenancyConfig};
use testkit::{Proxy, TestDb, TestRedis, wait_for, wait_until};
use tokio::{sync::mpsc, task::JoinHandle};
use tokio_util::sync::CancellationToken;

pub(crate) const PRICE: i64 = 10;
/// Long enough for a debug build on a busy machine; tests end as soon as they can.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// What a test wants to be different.
#[derive(Clone)]
pub(crate) struct Setting {
    pub(crate) look_up: bool,
    pub(crate) slots: u32,
    pub(crate) tier: &'static str,
    pub(crate) submit_limit: Duration,
    pub(crate) duration: Duration,
    pub(crate) reconciling: Duration,
    pub(crate) scheduler: SchedulerConfig,
    pub(crate) redis_url: Option<String>,
    /// Jobs that one user may have at once, instead of what the tier says.
    pub(crate) user_running: Option<u32>,
    /// Jobs that each account may be given in a day.
    pub(crate) daily: Option<u32>,
    /// The weight of a second account, at a provider of its own, that serves the same models.
    pub(crate) second: Option<u32>,
    /// Stands between the scheduler and the provider's adapter.
    pub(crate) adapter: fn(MockProvider) -> Arc<dyn Provider>,
}

impl Default for Setting {
    fn default() -> Self {
        Self {
            look_up: true,
            slots: 200,
            tier: "enterprise",
            submit_limit: Duration::from_secs(2),
            duration: Duration::from_millis(200),
            reconciling: Duration::from_secs(600),
            scheduler: quick(),
            redis_url: None,
            user_running: None,
            daily: None,
            second: None,
            adapter: |adapter| Arc::new(adapter),
        }
    }
}

/// The loops of production with shorter times, so that tests of lost owners do not take a minute.
pub(crate) fn quick() -> SchedulerConfig {
    SchedulerConfig {
        lease: Duration::from_secs(3),
        heartbeat: Duration::from_millis(700),
        pass_interval: Duration::from_millis(300),
        ready_after: Duration::from_millis(500),
        shutdown_max: Duration::from_secs(10),
        ..SchedulerConfig::default()
    }
}

pub(crate) struct World {
    pub(crate) db: TestDb,
    pub(crate) control: Control,
    pub(crate) task_state: TaskState,
    pub(crate) provider: mock_provider::Running,
    /// The second account's, if there is one.
    pub(crate) other: Option<mock_provider::Running>,
    pub(crate) tenant: TenantId,
    pub(crate) user: UserId,
    account: AccountId,
    pub(crate) media: Media,
    parts: Parts,
    setting: Setting,
    place: Place,
    _storage: TempDir,
    _redis: TestRedis,
}

/// Where everything of one test lies.
#[derive(Clone)]
struct Place {
    database: String,
    redis: String,
    prefix: String,
    storage: PathBuf,
    provider: String,
    other: Option<String>,
    /// Where the providers may be reached.
    authorities: Vec<String>,
}

/// Proxies on the way from one process to its servers.
pub(crate) struct Detour {
    pub(crate) database: Proxy,
    pub(crate) redis: Proxy,
    pub(crate) provider: Proxy,
}

/// What one process has of its own.
struct Parts {
    control: Control,
    task_state: TaskState,
    catalogue: Catalogue,
    tenancy: Tenancy,
    providers: Providers,
    media: Media,
    fetch: Fetch,
}

impl Parts {
    fn new(place: &Place, setting: &Setting, pool: PgPool) -> Self {
        let hosts = place.authorities.clone();
        let fetch = Fetch::new(FetchConfig { private_hosts: hosts, ..FetchConfig::default() }).unwrap();
        let control = Control::new(ControlConfig {
            prefix: place.prefix.clone(),
            // A debug build on a busy machine answers late; what is tested here is not that.
            connect_limit: Duration::from_secs(1),
            response_limit: Duration::from_secs(1),
            slot_vouch: setting.scheduler.lease,
            ..ControlConfig::single(place.redis.clone())
        })
        .unwrap();
        let config = TaskStateConfig { reconciling: setting.reconciling, ..TaskStateConfig::default() };
        let task_state = TaskState::new(pool.clone(), control.clone(), config);
        let config = MediaConfig {
            storage_url: url::Url::from_directory_path(&place.storage).unwrap(),
            public_url: None,
            link_keys: LinkKeys { current: [1; 32], previous: None },
            limits: MediaLimits::default(),
        };
        let media = Media::new(config, pool.clone()).unwrap();
        let mut catalogue = CatalogueConfig { intents_cache_ms: 50, ..CatalogueConfig::default() };
        for account in &mut catalogue.accounts {
            account.slots = setting.slots;
            account.model_slots.clear();
            account.submits = None;
            account.daily = setting.daily;
        }
        if let Some(weight) = setting.second {
            let first = catalogue.accounts[0].clone();
            catalogue.accounts.push(AccountSpec { id: second_id(), ..first });
            for model in &mut catalogue.models {
                let first = model.routes[0].clone();
                model.routes.push(Route { account: second_id(), weight, ..first });
            }
        }
        for model in &mut catalogue.models {
            model.usual_duration_ms = u64::try_from(setting.duration.as_millis()).unwrap();
        }
        let catalogue = Catalogue::new(catalogue, pool.clone()).unwrap();
        let mut tenancy = TenancyConfig::default();
        for tier in &mut tenancy.tiers {
            tier.user.running = setting.user_running.unwrap_or(tier.user.running);
        }
        let tenancy = Tenancy::new(pool, tenancy).unwrap();
        let adapter = |account, url: &String| {
            let mut mock = MockConfig::new(url.clone());
            mock.look_up = setting.look_up;
            mock.poll_interval = Duration::from_millis(100);
            mock.limits.submit = setting.submit_limit;
            (setting.adapter)(MockProvider::new(account, mock, fetch.clone(), Arc::new(SystemClock)))
        };
        let first = adapter(account_id(), &place.provider);
        let second = place.other.iter().map(|url| adapter(second_id(), url));
        let providers = Providers::new(std::iter::once(first).chain(second)).unwrap();
        Self { control, task_state, catalogue, tenancy, providers, media, fetch }
    }

    fn scheduler(&self, setting: &Setting, pool: PgPool, name: &str) -> (Scheduler, Nudge) {
        Scheduler::new(SchedulerParts {
            task_state: self.task_state.clone(),
            control: self.control.clone(),
            catalogue: self.catalogue.clone(),
            tenancy: self.tenancy.clone(),
            providers: self.providers.clone(),
            media: self.media.clone(),
            bus: bus::connect("postgres", pool).unwrap(),
            worker_id: name.parse().unwrap(),
            config: setting.scheduler.clone(),
            clock: Arc::new(SystemClock),
            seed: 7,
            callback_url: Arc::new(|_, _| None),
        })
        .unwrap()
    }
}

/// A scheduler that runs in this process.
pub(crate) struct Running {
    pub(crate) nudge: Nudge,
    pub(crate) loops: Loops,
    shutdown: CancellationToken,
    run: JoinHandle<()>,
}

impl Running {
    /// Ends it in order.
    pub(crate) async fn stop(self) {
        self.shutdown.cancel();
        self.run.await.unwrap();
    }
}

/// A scheduler in a process of its own, as far as one test process can have that: its own thread, runtime,
/// connections and caches.
pub(crate) struct Process {
    commands: mpsc::UnboundedSender<Command>,
    thread: Option<thread::JoinHandle<()>>,
}

enum Command {
    Stall(Duration),
    Kill,
}

impl Process {
    /// Everything in it stands still for so long, as after SIGSTOP.
    pub(crate) fn stall(&self, time: Duration) {
        self.commands.send(Command::Stall(time)).unwrap();
    }

    /// It ends where it stands, as after SIGKILL.
    pub(crate) fn kill(mut self) {
        self.end();
    }

    fn end(&mut self) {
        let _ = self.commands.send(Command::Kill);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
    }
}

/// Somebody who pays for tasks of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) tenant: TenantId,
    pub(crate) user: UserId,
    account: AccountId,
}

/// A task to submit.
#[derive(Clone)]
pub(crate) struct Order {
    pub(crate) model: &'static str,
    pub(crate) prompt: &'static str,
    pub(crate) deadline_seconds: u32,
    pub(crate) priority: Priority,
}

impl Default for Order {
    fn default() -> Self {
        Self {
            model: "mock-fast",
            prompt: "a paper boat",
            deadline_seconds: 1_800,
            priority: Priority::default(),
        }
    }
}

impl World {
    pub(crate) async fn new() -> Self {
        Self::with(Setting::default()).await
    }

    pub(crate) async fn with(setting: Setting) -> Self {
        let (db, redis, storage) = (TestDb::new().await, TestRedis::new(), TempDir::new().unwrap());
        let model = |name: &str| mock_provider::Model {
            name: name.to_owned(),
            duration: setting.duration,
            fail_rate: 0.0,
        };
        let start = async || {
            let models = ["mock-fast", "mock-slow", "mock-pro"].map(model).to_vec();
            let config = mock_provider::Config { models, ..mock_provider::Config::default() };
            mock_provider::start(config).await.unwrap()
        };
        let provider = start().await;
        let mut other = None;
        if setting.second.is_some() {
            other = Some(start().await);
        }
        let place = Place {
            database: db.url.clone(),
            redis: setting.redis_url.clone().unwrap_or_else(|| redis.url.clone()),
            prefix: redis.prefix.clone(),
            storage: storage.path().to_owned(),
            provider: provider.url(),
            other: other.as_ref().map(mock_provider::Running::url),
            authorities: std::iter::once(&provider)
                .chain(&other)
                .map(mock_provider::Running::authority)
                .collect(),
        };
        let parts = Parts::new(&place, &setting, db.pool.clone());
        let (tenant, user, account) = (TenantId::generate(), UserId::generate(), AccountId::generate());
        let world = Self {
            control: parts.control.clone(),
            task_state: parts.task_state.clone(),
            media: parts.media.clone(),
            parts,
            provider,
            other,
            tenant,
            user,
            account,
            setting,
            place,
            _storage: storage,
            _redis: redis,
            db,
        };
        world.add_tenant(tenant, world.setting.tier).await;
        world.add_user(world.owner()).await;
        world
    }

    /// Who owns the tasks of [`Self::submit`].
    pub(crate) const fn owner(&self) -> Owner {
        Owner { tenant: self.tenant, user: self.user, account: self.account }
    }

    /// Another tenant with so many users.
    pub(crate) async fn another_tenant(&self, tier: &str, users: usize) -> Vec<Owner> {
        let tenant = TenantId::generate();
        self.add_tenant(tenant, tier).await;
        let mut owners = Vec::with_capacity(users);
        for _ in 0..users {
            let owner = Owner { tenant, user: UserId::generate(), account: AccountId::generate() };
            self.add_user(owner).await;
            owners.push(owner);
        }
        owners
    }

    async fn add_tenant(&self, tenant: TenantId, tier: &str) {
        sqlx::query(
            "INSERT INTO tenants (id, name, account_id, tier) VALUES ($1, 't', gen_random_uuid(), $2)",
        )
        .bind(tenant.as_uuid())
        .bind(tier)
        .execute(&self.db.pool)
        .await
        .unwrap();
    }

    async fn add_user(&self, owner: Owner) {
        let Owner { tenant, user, account } = owner;
        let pool = &self.db.pool;
        sqlx::query("INSERT INTO users (id, tenant_id, name, account_id) VALUES ($1, $2, 'u', $3)")
            .bind(user.as_uuid())
            .bind(tenant.as_uuid())
            .bind(account.as_uuid())
            .execute(pool)
            .await
            .unwrap();
        pg::transact(pool, move |conn| {
            Box::pin(async move {
                ledger::open_account(conn, account, AccountOwner::User(user)).await?;
                let new = NewGrant {
                    id: GrantId::generate(),
                    account,
                    category: "test".to_owned(),
                    priority: 100,
                    expires_at: None,
                    source: format!("test of {user}"),
                    amount: Credits::new(1_000_000).unwrap(),
                };
                ledger::grant(conn, &new).await?;
                Ok::<_, GrantError>(())
            })
        })
        .await
        .unwrap();
    }

    /// Starts a scheduler under its own name.
    pub(crate) fn scheduler(&self, name: &str) -> Running {
        let (scheduler, nudge) = self.parts.scheduler(&self.setting, self.db.pool.clone(), name);
        let (loops, shutdown) = (scheduler.loops(), CancellationToken::new());
        let run = tokio::spawn(scheduler.run(shutdown.clone()));
        Running { nudge, loops, shutdown, run }
    }

    /// Starts a scheduler that shares nothing with this process but the stores, and that can die or stand still.
    pub(crate) fn process(&self, name: &str) -> Process {
        self.process_at(self.place.clone(), name)
    }

    /// Proxies in front of all servers.
    pub(crate) async fn detour(&self) -> Detour {
        Detour {
            database: Proxy::before(&self.place.database).await,
            redis: Proxy::before(&self.place.redis).await,
            provider: Proxy::before(&self.place.provider).await,
        }
    }

    /// Starts a scheduler like [`Self::process`] that reaches everything by way of these proxies.
    pub(crate) fn process_by(&self, detour: &Detour, name: &str) -> Process {
        let mut place = self.place.clone();
        place.database = detour.database.url(&place.database);
        place.redis = detour.redis.url(&place.redis);
        let provider = url::Url::parse(&detour.provider.url(&place.provider)).unwrap();
        place.authorities.push(format!("127.0.0.1:{}", provider.port().unwrap()));
        place.provider = provider.as_str().trim_end_matches('/').to_owned();
        self.process_at(place, name)
    }

    fn process_at(&self, place: Place, name: &str) -> Process {
        let (setting, name) = (self.setting.clone(), name.to_owned());
        let (commands, mut given) = mpsc::unbounded_channel();
        let thread = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let pool = PgPoolOptions::new().max_connections(6).connect_lazy(&place.database).unwrap();
                let parts = Parts::new(&place, &setting, pool.clone());
                let (scheduler, _nudge) = parts.scheduler(&setting, pool, &name);
                let run = tokio::spawn(scheduler.run(CancellationToken::new()));
                while let Some(Command::Stall(time)) = given.recv().await {
                    thread::sleep(time);
                }
                drop(run);
            });
            // Whatever was under way ends where it stands.
            runtime.shutdown_background();
        });
        Process { commands, thread: Some(thread) }
    }

    /// Submits as generation would: tasks, holds, open counts and messages in one transaction.
    pub(crate) async fn submit(&self, count: usize, order: Order) -> Vec<TaskId> {
        self.submit_of(self.owner(), count, order).await
    }

    /// The same for somebody else.
    pub(crate) async fn submit_of(&self, owner: Owner, count: usize, order: Order) -> Vec<TaskId> {
        let tasks: Vec<NewTask> = (0..count).map(|_| new_task(owner, &order)).collect();
        let ids = tasks.iter().map(|t| t.task).collect();
        let Owner { tenant, user, account } = owner;
        pg::transact(&self.db.pool, move |conn| {
            Box::pin(async move {
                let now = pg::now(conn).await?;
                let subjects = [Subject::Tenant(tenant), Subject::User(user)];
                let mut admission = ledger::lock_admission(conn, &[account], &subjects, &[]).await?;
                for task in &tasks {
                    admission.funds.try_hold(account, task.task, task.price).unwrap();
                    admission.open.try_add((tenant, u32::MAX), (user, u32::MAX)).unwrap();
                }
                task_state::create(conn, &tasks, &admission, now).await
            })
        })
        .await
        .unwrap();
        ids
    }

    /// Tells a scheduler of tasks, as generation would after its commit.
    pub(crate) async fn nudge(&self, scheduler: &Running, tasks: &[TaskId]) {
        let records = self.task_state.records(tasks).await.unwrap();
        let queued: Vec<_> = records
            .iter()
            .map(|record| NewlyQueued {
                task: record.id(),
                tenant: record.snapshot.tenant_id,
                user: record.snapshot.user_id,
                model: record.snapshot.model.clone(),
                priority: record.snapshot.priority,
                created_at: record.snapshot.created_at,
            })
            .collect();
        scheduler.nudge.queued(&queued, Duration::ZERO);
    }

    pub(crate) async fn submit_one(&self, order: Order) -> TaskId {
        self.submit(1, order).await[0]
    }

    /// Records the wish to cancel, as generation would. What the task is after it, or why not.
    pub(crate) async fn cancel(&self, task: TaskId) -> Result<Arc<TaskRecord>, Refusal> {
        let wish = Move {
            task,
            expect: Expect::AnyState,
            event: Event::CancelRequested,
            detail: MoveDetail::default(),
        };
        match self.task_state.advance(wish).await.unwrap() {
            MoveOutcome::Moved(record) => Ok(record),
            MoveOutcome::Refused(refusal, _) => Err(refusal),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) async fn record(&self, task: TaskId) -> TaskRecord {
        self.task_state.record(task).await.unwrap().unwrap()
    }

    pub(crate) async fn until(&self, task: TaskId, status: TaskStatus) -> TaskRecord {
        wait_for(&format!("{task} to be {status}"), PATIENCE, || async {
            let record = self.record(task).await;
            assert!(
                record.snapshot.status == status || !record.snapshot.status.is_terminal(),
                "{task} ended {} instead of {status}: {:?}",
                record.snapshot.status,
                record.snapshot.error_code
            );
            (record.snapshot.status == status).then_some(record)
        })
        .await
    }

    /// Waits until all tasks have ended.
    pub(crate) async fn ended(&self, tasks: &[TaskId]) -> Vec<TaskRecord> {
        wait_for("all tasks to end", PATIENCE, || async {
            let records = self.task_state.records(tasks).await.unwrap();
            let all = records.iter().all(|record| record.snapshot.status.is_terminal());
            all.then_some(records)
        })
        .await
    }

    /// Waits until no attempt is open any more and Redis holds no slot.
    pub(crate) async fn quiet(&self) {
        wait_until("every attempt to be closed", PATIENCE, || async {
            self.task_state.open_attempts(None, 10).await.unwrap().is_empty()
        })
        .await;
        let sets = [SlotSet::Account(account_id()), SlotSet::Tenant(self.tenant)];
        wait_until("every slot to be given back", PATIENCE, || async {
            self.control.slot_members(&sets).await.unwrap().iter().all(Vec::is_empty)
        })
        .await;
    }

    /// The folder of the object storage.
    pub(crate) fn storage(&self) -> &Path {
        &self.place.storage
    }

    pub(crate) async fn events(&self, task: TaskId) -> Vec<EventType> {
        let events = self.task_state.events(task, 0).await.unwrap();
        events.iter().map(|event| event.event_type).collect()
    }

    pub(crate) async fn balance(&self) -> Balance {
        Ledger::new(self.db.pool.clone()).balance(self.account).await.unwrap()
    }

    /// Every invariant that the stores' owners know.
    pub(crate) async fn audit(&self) {
        let media = self.media.clone();
        let violations: Vec<Violation> = pg::read_snapshot(&self.db.pool, move |conn| {
            Box::pin(async move {
                let mut found = ledger::audit(conn).await?;
                found.extend(task_state::audit::audit(conn, Duration::from_secs(5)).await?);
                found.extend(media.audit(conn).await?);
                Ok::<_, PgError>(found)
            })
        })
        .await
        .unwrap();
        assert!(violations.is_empty(), "{violations:#?}");
    }

    /// Puts fault rules in place.
    pub(crate) async fn faults(&self, rules: Value) {
        self.provider_call(&self.provider, Method::PUT, "faults", rules).await;
    }

    pub(crate) async fn model(&self, model: &str, change: Value) {
        self.provider_call(&self.provider, Method::PUT, &format!("models/{model}"), change).await;
    }

    /// What the provider has seen.
    pub(crate) async fn stats(&self) -> Value {
        self.provider_call(&self.provider, Method::GET, "stats", Value::Null).await
    }

    /// What the second account's provider has seen.
    pub(crate) async fn stat_of_other(&self, name: &str) -> u64 {
        let other = self.other.as_ref().unwrap();
        self.provider_call(other, Method::GET, "stats", Value::Null).await[name].as_u64().unwrap()
    }

    pub(crate) async fn stat(&self, name: &str) -> u64 {
        self.stats().await[name].as_u64().unwrap()
    }

    async fn provider_call(
        &self,
        provider: &mock_provider::Running,
        method: Method,
        path: &str,
        body: Value,
    ) -> Value {
        let body = if body.is_null() { bytes::Bytes::new() } else { body.to_string().into() };
        let url = format!("{}/_control/{path}", provider.url());
        let limits = Limits { total: PATIENCE, idle: PATIENCE, bytes_max: 16 << 20, redirects_max: 0 };
        let request =
            Request { method, url: &url, headers: HeaderMap::new(), body, guard: SendGuard::open() };
        let response = self.parts.fetch.request(request, limits).await.unwrap();
        assert!(response.status.is_success(), "{path}: {:?}", response.body);
        serde_json::from_slice(&response.body).unwrap_or(Value::Null)
    }
}

pub(crate) fn second_id() -> ProviderAccountId {
    "mock-b".parse().unwrap()
}

pub(crate) fn account_id() -> ProviderAccountId {
    "mock".parse().unwrap()
}

fn new_task(owner: Owner, order: &Order) -> NewTask {
    NewTask {
        task: TaskId::generate(),
        tenant: owner.tenant,
        user: owner.user,
        project: None,
        account: owner.account,
        model: order.model.parse().unwrap(),
        price: Credits::new(PRICE).unwrap(),
        inputs: Inputs {
            prompt: order.prompt.to_owned(),
            negative_prompt: None,
            duration_seconds: 5,
            resolution: "720p".to_owned(),
            aspect_ratio: None,
            seed: None,
            tags: Vec::new(),
        },
        deadline_seconds: order.deadline_seconds,
        priority: order.priority,
        traceparent: None,
        quota_day: None,
    }
}
