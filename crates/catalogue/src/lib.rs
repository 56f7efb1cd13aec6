//! The catalogue: which models there are, what they cost, and where their jobs go.
//!
//! Models, prices and provider accounts come from configuration and never change while a process runs. What an
//! operator decided at run time (pause this account, drain that model) is a fact: it lies in PostgreSQL, so that no
//! deploy and no lost cache undoes it, and every process knows it within five seconds.

mod config;
mod intents;

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

pub use config::{AccountSpec, CatalogueConfig, ConfigError, ProviderKind};
use domain::{ModelName, ProviderAccountId, model::Model};
pub use intents::{Intent, IntentKind, Intents, NewIntent, Subject, clear_intent, list_intents, set_intent};
use moka::future::Cache;
use pg::{PgError, PgPool};

/// Models and accounts as configured, and the operators' intents as of at most five seconds ago. Cheap to clone.
#[derive(Clone)]
pub struct Catalogue {
    pool: PgPool,
    shared: Arc<Shared>,
}

struct Shared {
    models: Vec<Arc<Model>>,
    by_name: BTreeMap<ModelName, Arc<Model>>,
    accounts: BTreeMap<ProviderAccountId, Arc<AccountSpec>>,
    /// By how often a change was made here: a look that began before one must not be taken for what came after it.
    intents: Cache<u64, Arc<Intents>>,
    changes: AtomicU64,
}

impl Catalogue {
    /// Takes the configuration in.
    ///
    /// # Errors
    /// Every contradiction in it: a price out of range, a route to an account that is not there, and so on.
    pub fn new(config: CatalogueConfig, pool: PgPool) -> Result<Self, ConfigError> {
        config.check()?;
        let models: Vec<_> = config.models.into_iter().map(Arc::new).collect();
        let by_name = models.iter().map(|model| (model.name.clone(), Arc::clone(model))).collect();
        let accounts = config.accounts.into_iter().map(|spec| (spec.id.clone(), Arc::new(spec))).collect();
        let age = Duration::from_millis(config.intents_cache_ms);
        let intents = Cache::builder().max_capacity(1).time_to_live(age).build();
        let changes = AtomicU64::new(0);
        Ok(Self { pool, shared: Arc::new(Shared { models, by_name, accounts, intents, changes }) })
    }

    /// The same with connections of another event loop of this process. What is remembered, and when it is dropped, is the
    /// same.
    #[must_use]
    pub fn beside(&self, pool: PgPool) -> Self {
        Self { pool, shared: Arc::clone(&self.shared) }
    }

    /// The model of this name.
    #[must_use]
    pub fn model(&self, name: &ModelName) -> Option<Arc<Model>> {
        self.shared.by_name.get(name).cloned()
    }

    /// Every model, in the order of the configuration.
    #[must_use]
    pub fn models(&self) -> &[Arc<Model>] {
        &self.shared.models
    }

    /// The provider account of this name.
    #[must_use]
    pub fn account(&self, id: &ProviderAccountId) -> Option<Arc<AccountSpec>> {
        self.shared.accounts.get(id).cloned()
    }

    /// Every provider account, by name.
    pub fn accounts(&self) -> impl Iterator<Item = &Arc<AccountSpec>> {
        self.shared.accounts.values()
    }

    /// What operators intend, as of at most five seconds ago. Callers at the same moment share one read.
    ///
    /// # Errors
    /// When nothing that fresh is known and PostgreSQL cannot be asked. Whoever submits must then not.
    pub async fn intents(&self) -> Result<Arc<Intents>, Arc<PgError>> {
        let pool = self.pool.clone();
        self.shared
            .intents
            .try_get_with(self.shared.changes.load(Ordering::SeqCst), async move {
                let mut conn = pool.acquire().await.map_err(PgError::from)?;
                Ok::<_, PgError>(Arc::new(Intents::new(list_intents(&mut conn).await?)))
            })
            .await
    }

    /// Drops what is remembered of the intents: called after the commit of a change, so that this process sees it
    /// at once.
    pub fn forget_intents(&self) {
        self.shared.changes.fetch_add(1, Ordering::SeqCst);
    }
}

impl std::fmt::Debug for Catalogue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Catalogue")
            .field("models", &self.shared.by_name.keys())
            .field("accounts", &self.shared.accounts.keys())
            .finish_non_exhaustive()
    }
}
