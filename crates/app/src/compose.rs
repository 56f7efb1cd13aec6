//! How the crates are put together. Nobody else makes a pool, a client or an owner's handle.
//!
//! [`Stores`] is what every role and most commands stand on: the stores, and the owners of what lies in them.
//! [`Work`] adds what only a scheduler needs: providers.

use std::sync::Arc;

use anyhow::Context;
use bus::Bus;
use catalogue::Catalogue;
use control::{Control, ControlConfig};
use domain::clock::{SharedClock, SystemClock};
use fetch::Fetch;
use ledger::Ledger;
use media::{LinkKeys, Media, MediaConfig};
use operator::Operator;
use pg::{PgConfig, PgPool};
use provider_adapter::{Provider, Providers, mock::MockProvider};
use task_state::TaskState;
use tenancy::Tenancy;

use crate::config::Config;

/// What the keys that are made of the deployment's key are for. Changing a name breaks what was signed.
const LINKS: &str = "asset-links";

/// The stores and the owners of what lies in them.
#[derive(Clone)]
pub(crate) struct Stores {
    pub(crate) pool: PgPool,
    pub(crate) control: Control,
    pub(crate) tenancy: Tenancy,
    pub(crate) catalogue: Catalogue,
    pub(crate) ledger: Ledger,
    pub(crate) media: Media,
    pub(crate) task_state: TaskState,
    pub(crate) operator: Operator,
    /// The queue. One per event loop; whoever fills it tells the scheduler of its process by a nudge.
    pub(crate) bus: Arc<dyn Bus>,
    pub(crate) clock: SharedClock,
}

impl Stores {
    /// Connects to PostgreSQL and puts the owners together. Redis need not be there.
    ///
    /// # Errors
    /// When PostgreSQL cannot be reached, its schema is older than this binary, or the storage cannot be used.
    pub(crate) async fn open(config: &Config) -> anyhow::Result<Self> {
        let pool = pg::connect(&config.database.to_pg()).await.context("cannot reach PostgreSQL")?;
        pg::check_schema(&pool).await?;
        let control = Control::new(control_config(config))?;
        let task_state = TaskState::new(pool.clone(), control.clone(), config.scheduler.to_task_state());
        let tenancy = Tenancy::new(pool.clone(), config.tenancy.to_tenancy(&config.tiers))?;
        let catalogue = Catalogue::new(config.to_catalogue(), pool.clone())?;
        Self::assemble(config, pool, control, task_state, tenancy, catalogue)
    }

    /// The same owners for another event loop of this process, to be called there: with connections and writers of its
    /// own, so that neither loop waits for the other one's turn to read an answer: a connection belongs to the loop that
    /// opened it. What readers see at once of what was written, what is remembered of keys, rules and pauses, and the breakers
    /// before Redis, are the same.
    ///
    /// # Errors
    /// When PostgreSQL cannot be reached.
    pub(crate) async fn beside(&self, config: &Config) -> anyhow::Result<Self> {
        let max_connections = config.scheduler.max_connections;
        let options = PgConfig { max_connections, ..config.database.to_pg() };
        let pool = pg::connect(&options).await.context("cannot reach PostgreSQL")?;
        let control = self.control.beside(control_config(config))?;
        let task_state = self.task_state.beside(pool.clone(), control.clone());
        let (tenancy, catalogue) = (self.tenancy.beside(pool.clone()), self.catalogue.beside(pool.clone()));
        Self::assemble(config, pool, control, task_state, tenancy, catalogue)
    }

    fn assemble(
        config: &Config,
        pool: PgPool,
        control: Control,
        task_state: TaskState,
        tenancy: Tenancy,
        catalogue: Catalogue,
    ) -> anyhow::Result<Self> {
        Ok(Self {
            catalogue,
            ledger: Ledger::new(pool.clone()),
            media: media(config, &pool)?,
            bus: bus::connect_with(&config.queue.url, pool.clone(), config.queue.to_bus())?,
            operator: Operator::new(pool.clone(), tenancy.clone()),
            clock: Arc::new(SystemClock),
            pool,
            control,
            tenancy,
            task_state,
        })
    }
}

fn control_config(config: &Config) -> ControlConfig {
    // A new slot is vouched for as long as a lease lasts: from then on its owner renews both.
    let slot_vouch = config.scheduler.to_scheduler().lease;
    ControlConfig { slot_vouch, ..config.redis.to_control() }
}

fn media(config: &Config, pool: &PgPool) -> anyhow::Result<Media> {
    let media = MediaConfig {
        storage_url: config.storage.url.parse().context("storage.url")?,
        public_url: config.api.public_url.clone(),
        link_keys: LinkKeys {
            current: config.secrets.derive(LINKS),
            previous: config.secrets.derive_previous(LINKS),
        },
        limits: config.storage.limits(),
    };
    Ok(Media::new(media, pool.clone())?)
}

/// What a scheduler needs besides: who makes the videos.
pub(crate) struct Work {
    pub(crate) providers: Providers,
}

impl Work {
    /// Makes an adapter for every account that is set up.
    ///
    /// # Errors
    /// When an account's credential cannot be read.
    pub(crate) fn new(config: &Config, stores: &Stores) -> anyhow::Result<Self> {
        let fetch = Fetch::new(config.outbound.to_fetch(config.private_hosts()))?;
        let mut adapters: Vec<Arc<dyn Provider>> = Vec::new();
        for (account, provider) in &config.providers {
            let mock = provider.to_mock().map_err(|fault| anyhow::anyhow!("providers.{account}: {fault}"))?;
            if let Some(mock) = mock {
                let adapter =
                    MockProvider::new(account.clone(), mock, fetch.clone(), Arc::clone(&stores.clock));
                adapters.push(Arc::new(adapter));
            }
        }
        Ok(Self { providers: Providers::new(adapters)? })
    }
}

#[cfg(test)]
pub(crate) mod testing {
    //! The owners on a test's own stores.

    use testkit::{TestDb, TestRedis};

    use super::Stores;
    use crate::config::{Config, Secret, StoreUrl};

    /// Stores that vanish with this value.
    pub(crate) struct TestStores {
        pub(crate) stores: Stores,
        pub(crate) config: Config,
        pub(crate) db: TestDb,
        _redis: TestRedis,
        _files: tempfile::TempDir,
    }

    impl TestStores {
        pub(crate) async fn open() -> Self {
            let (db, redis, files) = (TestDb::new().await, TestRedis::new(), tempfile::tempdir().unwrap());
            let mut config = Config::default();
            config.database.url = StoreUrl::new(&*db.url);
            config.database.max_connections = 4;
            config.redis.url = StoreUrl::new(&*redis.url);
            config.redis.prefix.clone_from(&redis.prefix);
            config.storage.url = url::Url::from_directory_path(files.path()).unwrap().into();
            config.secrets.key = Secret::new("q8vY0uJc3mZlT5xWn7RkB2sHd9FpGaE1iVoXtLy4wCg=");
            let stores = Stores::open(&config).await.unwrap();
            Self { stores, config, db, _redis: redis, _files: files }
        }
    }
}

#[cfg(test)]
mod tests {
    use catalogue::{IntentKind, NewIntent, set_intent};

    use super::testing::TestStores;

    #[tokio::test]
    async fn a_pause_holds_at_once_for_every_event_loop_of_the_process() {
        let test = TestStores::open().await;
        let beside = test.stores.beside(&test.config).await.unwrap();
        let known = async || beside.catalogue.intents().await.unwrap().iter().count();
        assert_eq!(known().await, 0, "and that is remembered");
        let pause = NewIntent {
            subject: "model:mock-fast".parse().unwrap(),
            kind: IntentKind::Pause,
            reason: "billing".to_owned(),
            set_by: Default::default(),
        };
        set_intent(&mut test.stores.pool.acquire().await.unwrap(), &pause).await.unwrap();
        test.stores.catalogue.forget_intents();
        assert_eq!(known().await, 1);
    }
}
