//! The configuration: `aivideo.toml`, then the environment over it, typed and checked before anything starts.
//!
//! One struct per component, each in its own file with its defaults documented; `config/aivideo.toml` shows all of
//! them. Unknown keys are refused, and contradictions are found here rather than at three in the morning. All
//! faults are reported at once, each with its field.

pub(crate) mod env;
mod fault;
mod secret;

mod callbacks;
mod database;
mod demo;
mod http;
mod log;
mod models;
mod outbound;
mod providers;
mod queue;
mod redis;
mod scheduler;
mod secrets;
mod storage;
mod tenancy;
mod tiers;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::Duration,
};

use api::ApiConfig;
use catalogue::{CatalogueConfig, ProviderKind};
use domain::{ModelName, ProviderAccountId};
use figment::{
    Figment, Metadata, Profile, Provider,
    providers::{Format, Serialized, Toml},
    value::{Dict, Empty, Map, Value},
};
use generation::GenerationConfig;
use serde::{Deserialize, Serialize};

use self::{
    callbacks::CallbacksConfig, database::DatabaseConfig, demo::DemoConfig, env::Environment, fault::Faults,
    models::ModelConfig, outbound::OutboundConfig, providers::ProviderConfig, queue::QueueConfig,
    redis::RedisConfig, scheduler::SchedulerSection, secrets::SecretsConfig, storage::StorageConfig,
    tenancy::TenancySection, tiers::TierConfig,
};
pub(crate) use self::{
    env::is_ours,
    fault::{ConfigError, Fault},
    http::HttpConfig,
    log::{LogConfig, LogFormat},
    secret::{Secret, StoreUrl},
};

/// Read when no file is named and it lies in the current folder.
const DEFAULT_FILE: &str = "aivideo.toml";

/// Everything that can be said to a process.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Config {
    /// Where the process listens.
    pub(crate) http: HttpConfig,
    /// The HTTP side's limits.
    pub(crate) api: ApiConfig,
    /// Admission.
    pub(crate) generation: GenerationConfig,
    /// Whether and where providers report.
    pub(crate) callbacks: CallbacksConfig,
    /// The scheduler.
    pub(crate) scheduler: SchedulerSection,
    /// What demo gives.
    pub(crate) demo: DemoConfig,
    /// PostgreSQL.
    pub(crate) database: DatabaseConfig,
    /// Redis.
    pub(crate) redis: RedisConfig,
    /// The queue.
    pub(crate) queue: QueueConfig,
    /// Stored files.
    pub(crate) storage: StorageConfig,
    /// The key of the deployment.
    pub(crate) secrets: SecretsConfig,
    /// Logs.
    pub(crate) log: LogConfig,
    /// Requests to addresses from outside.
    pub(crate) outbound: OutboundConfig,
    /// Who is who, and limits besides those of tiers.
    pub(crate) tenancy: TenancySection,
    /// Tiers by name.
    pub(crate) tiers: BTreeMap<String, TierConfig>,
    /// Provider accounts by name.
    pub(crate) providers: BTreeMap<ProviderAccountId, ProviderConfig>,
    /// Models by name.
    pub(crate) models: BTreeMap<ModelName, ModelConfig>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            http: HttpConfig::default(),
            api: ApiConfig::default(),
            generation: GenerationConfig::default(),
            callbacks: CallbacksConfig::default(),
            scheduler: SchedulerSection::default(),
            demo: DemoConfig::default(),
            database: DatabaseConfig::default(),
            redis: RedisConfig::default(),
            queue: QueueConfig::default(),
            storage: StorageConfig::default(),
            secrets: SecretsConfig::default(),
            log: LogConfig::default(),
            outbound: OutboundConfig::default(),
            tenancy: TenancySection::default(),
            tiers: tiers::defaults(),
            providers: providers::defaults(),
            models: models::defaults(),
        }
    }
}

/// The sections that a command uses; faults of others do not keep it from running.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Needs {
    /// Only the database: `migrate`.
    Database,
    /// Everything: `serve`, `check-config`, `audit`.
    All,
}

impl Config {
    /// Reads the file (or `aivideo.toml`, if there is one) and the variables over it.
    ///
    /// # Errors
    /// Whatever cannot be read, every unknown key, and every contradiction in the sections that the command needs.
    pub(crate) fn load(
        file: Option<&Path>,
        variables: impl IntoIterator<Item = (String, String)>,
        needs: Needs,
    ) -> Result<Self, ConfigError> {
        let config = Self::read(file, variables)?;
        let mut faults = config.faults();
        if needs == Needs::Database {
            faults.retain(|fault| fault.field.starts_with("database."));
        }
        if faults.is_empty() { Ok(config) } else { Err(ConfigError(faults)) }
    }

    /// The same without the search for contradictions: demo still adds what only it knows.
    ///
    /// # Errors
    /// Whatever cannot be read, and every unknown key.
    pub(crate) fn read(
        file: Option<&Path>,
        variables: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, ConfigError> {
        let mut faults = Faults::default();
        let environment = Environment::read(variables, &mut faults);
        let file = match file {
            Some(file) => Some(file.to_owned()),
            None => Some(PathBuf::from(DEFAULT_FILE)).filter(|file| file.is_file()),
        };
        let file = file.and_then(|file| File::read(&file, &mut faults));
        let layers = Figment::from(Serialized::defaults(Self::default()));
        let set: Vec<(String, Dict)> = file
            .iter()
            .map(|file| (file.name.clone(), file.dict.clone()))
            .chain(environment.dicts().map(|(source, dict)| (source.to_owned(), dict.clone())))
            .collect();
        let layers = match file {
            Some(file) => layers.merge(file),
            None => layers,
        };
        match environment.over(layers).extract::<Self>() {
            Ok(config) => {
                for (source, dict) in &set {
                    find_unknown(source, dict, &config, &mut faults);
                }
                if faults.0.is_empty() { Ok(config) } else { Err(ConfigError(faults.0)) }
            }
            Err(errors) => {
                for error in errors {
                    let source = error.metadata.as_ref().map(|metadata| format!(" (in {})", metadata.name));
                    let field = if error.path.is_empty() { "?".to_owned() } else { error.path.join(".") };
                    faults.add(field, format_args!("{}{}", error.kind, source.unwrap_or_default()));
                }
                Err(ConfigError(faults.0))
            }
        }
    }

    /// Every contradiction.
    pub(crate) fn faults(&self) -> Vec<Fault> {
        let mut faults = Faults::default();
        self.http.check(&mut faults);
        self.check_api(&mut faults);
        faults.check("generation", self.generation.check());
        self.callbacks.check(&mut faults);
        self.scheduler.check(&mut faults);
        self.demo.check(&mut faults);
        self.database.check(&mut faults);
        self.redis.check(&mut faults);
        self.queue.check(&mut faults);
        self.storage.check(&mut faults);
        self.secrets.check(&mut faults);
        self.log.check(&mut faults);
        self.outbound.check(&mut faults);
        self.tenancy.check(&self.tiers, &mut faults);
        for (account, provider) in &self.providers {
            provider.check(account, self.scheduler.lease(), &mut faults);
        }
        for (name, model) in &self.models {
            faults.require(
                self.providers.contains_key(&model.account),
                format!("models.{name}.account"),
                format_args!("{} is none of the provider accounts", model.account),
            );
        }
        self.check_lease(&mut faults);
        faults.check("models", self.to_catalogue().check());
        faults.0
    }

    /// A lease covers every step that its owner makes between two renewals; the submit is checked with its provider.
    fn check_lease(&self, faults: &mut Faults) {
        let renewal_ms = self.redis.connect_ms_max.saturating_add(self.redis.response_ms_max);
        let heartbeats_ms = self.scheduler.heartbeat_seconds.saturating_mul(2_000);
        faults.require(
            Duration::from_millis(heartbeats_ms.saturating_add(renewal_ms)) <= self.scheduler.lease(),
            "redis.response_ms_max",
            "a late heartbeat and its answer (redis.connect_ms_max and this) would outlast scheduler.lease_seconds",
        );
    }

    fn check_api(&self, faults: &mut Faults) {
        faults.check("api", self.api.check());
        faults.require(
            self.api.store_in_flight_max < self.database.max_connections as usize,
            "api.store_in_flight_max",
            "must be below database.max_connections, or reads could keep the writer waiting for a connection",
        );
        if let Some(url) = &self.api.public_url {
            let usable = matches!(url.scheme(), "http" | "https") && url.has_host() && url.query().is_none();
            faults.require(usable, "api.public_url", "must be an http:// or https:// address");
        }
    }

    /// Where providers reach the API, if they are to report there.
    pub(crate) fn callbacks_url(&self) -> Option<&url::Url> {
        let url = self.callbacks.url.as_ref().or(self.api.public_url.as_ref());
        url.filter(|_| self.callbacks.enabled)
    }

    /// The address of the account `mock`, if one is set.
    pub(crate) fn mock_provider_url(&self) -> Option<&str> {
        let (_, mock) = self.providers.iter().find(|(account, _)| account.as_str() == "mock")?;
        mock.url.as_deref()
    }

    /// What the account `mock` signs callbacks with.
    pub(crate) fn mock_callback_secret(&self) -> Option<&Secret> {
        let (_, mock) = self.providers.iter().find(|(account, _)| account.as_str() == "mock")?;
        mock.callback_secret.as_ref()
    }

    /// `host:port` of the providers that may be reached although they are private: those that are made for tests.
    pub(crate) fn private_hosts(&self) -> impl Iterator<Item = String> {
        let mocks = self.providers.values().filter(|provider| provider.kind == ProviderKind::Mock);
        mocks.filter_map(ProviderConfig::authority)
    }

    /// The models and accounts that are set up: those of accounts with an address.
    pub(crate) fn to_catalogue(&self) -> CatalogueConfig {
        let is_up =
            |account: &ProviderAccountId| self.providers.get(account).is_some_and(|p| p.url.is_some());
        let accounts = self.providers.iter().filter(|(account, _)| is_up(account));
        CatalogueConfig {
            models: self.models.iter().filter_map(|(name, model)| model.to_model(name, is_up)).collect(),
            accounts: accounts.map(|(account, provider)| provider.to_spec(account)).collect(),
            ..CatalogueConfig::default()
        }
    }
}

/// The configuration file as a layer.
struct File {
    name: String,
    dict: Dict,
}

impl File {
    fn read(path: &Path, faults: &mut Faults) -> Option<Self> {
        let name = path.display().to_string();
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) => {
                faults.add(name, format_args!("cannot be read: {error}"));
                return None;
            }
        };
        match Toml::from_str::<Dict>(&text) {
            Ok(dict) => Some(Self { name, dict: unlimited(dict) }),
            Err(error) => {
                faults.add(name, format_args!("is not TOML: {error}"));
                None
            }
        }
    }
}

impl Provider for File {
    fn metadata(&self) -> Metadata {
        Metadata::named(self.name.clone())
    }

    fn data(&self) -> Result<Map<Profile, Dict>, figment::Error> {
        Ok(Profile::Default.collect(self.dict.clone()))
    }
}

/// TOML has no null, so `"unlimited"` is how a limit is taken away that the defaults have.
fn unlimited(dict: Dict) -> Dict {
    let value = |value| match value {
        Value::String(tag, text) if text == "unlimited" => Value::Empty(tag, Empty::None),
        Value::Dict(tag, dict) => Value::Dict(tag, unlimited(dict)),
        other => other,
    };
    dict.into_iter().map(|(key, below)| (key, value(below))).collect()
}

/// Keys that were set and that the configuration does not have. Compared with the effective configuration rather
/// than left to each struct, so that no struct can forget to be strict.
fn find_unknown(source: &str, set: &Dict, config: &Config, faults: &mut Faults) {
    fn walk(path: &str, set: &Dict, known: &serde_json::Value, source: &str, faults: &mut Faults) {
        // Tables are known key by key; other values were understood as a whole.
        let serde_json::Value::Object(known) = known else { return };
        for (key, value) in set {
            let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
            match (known.get(key), value) {
                (None, _) => faults.add(path, format_args!("no such key (in {source})")),
                (Some(known), Value::Dict(_, below)) => walk(&path, below, known, source, faults),
                (Some(_), _) => {}
            }
        }
    }
    match serde_json::to_value(config) {
        Ok(known) => walk("", set, &known, source, faults),
        Err(error) => faults.add("?", error),
    }
}

#[cfg(test)]
mod tests;
