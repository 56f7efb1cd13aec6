//! The configuration of models and provider accounts, and the contradictions that it must not contain.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use domain::{
    Credits, ModelName, ProviderAccountId,
    limits::Bucket,
    model::{Model, Route},
};
use serde::{Deserialize, Serialize};

/// The largest share of a route.
const WEIGHT_MAX: u32 = 1_000;
/// Longest lifetime that a task may be given, in seconds.
const DEADLINE_SECONDS_MAX: u32 = 86_400;

/// Models and provider accounts. Each list replaces the default list as a whole.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CatalogueConfig {
    /// The models, in the order in which they are listed to users.
    pub models: Vec<Model>,
    /// The accounts that their routes name.
    pub accounts: Vec<AccountSpec>,
    /// For how long an operator's intent may go unnoticed, in milliseconds; at most 5,000.
    pub intents_cache_ms: u64,
}

/// An account at a provider: how much of it we may use. Its credentials lie elsewhere, under its id.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AccountSpec {
    /// Its name, under which credentials and adapter settings are found too.
    pub id: ProviderAccountId,
    /// Whose API it speaks.
    pub kind: ProviderKind,
    /// Jobs at once, over all models.
    pub slots: u32,
    /// Jobs at once of one model (by the provider's name of it), where that is fewer.
    #[serde(default)]
    pub model_slots: BTreeMap<ModelName, u32>,
    /// Jobs in a day of UTC, over all models. None is unlimited.
    #[serde(default)]
    pub daily: Option<u32>,
    /// Submits, over all models. None is unlimited.
    #[serde(default)]
    pub submits: Option<Bucket>,
    /// Submits of one model (by the provider's name of it).
    #[serde(default)]
    pub model_submits: BTreeMap<ModelName, Bucket>,
}

/// A provider whose API an adapter speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProviderKind {
    /// The scripted provider of this repository.
    Mock,
}

impl AccountSpec {
    /// Jobs at once of the given model: its own number, else the account's.
    #[must_use]
    pub fn slots_of(&self, provider_model: &ModelName) -> u32 {
        self.model_slots.get(provider_model).copied().unwrap_or(self.slots).min(self.slots)
    }

    /// The submit rate of the given model, if it has one of its own.
    #[must_use]
    pub fn submits_of(&self, provider_model: &ModelName) -> Option<Bucket> {
        self.model_submits.get(provider_model).copied()
    }
}

/// Why a catalogue cannot be served: every contradiction, one a line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct ConfigError(pub Vec<String>);

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the catalogue contradicts itself: {}", self.0.join("; "))
    }
}

impl Default for CatalogueConfig {
    /// The three models of the mock provider, and the one account that serves them.
    fn default() -> Self {
        let account: ProviderAccountId = name("mock");
        let model = |model: &str, title: &str, per_second, usual_duration_ms, expensive| Model {
            name: name(model),
            title: title.to_owned(),
            duration_seconds: (1, 10),
            price_per_second: ["480p", "720p", "1080p"]
                .into_iter()
                .map(|resolution| (resolution.to_owned(), Credits::new(per_second).unwrap_or(Credits::MAX)))
                .collect(),
            default_resolution: "720p".to_owned(),
            aspect_ratios: ["16:9", "9:16", "1:1"].map(str::to_owned).to_vec(),
            negative_prompt: true,
            seed: true,
            usual_duration_ms,
            deadline_seconds: 30 * 60,
            expensive,
            routes: vec![Route { account: account.clone(), provider_model: name(model), weight: 1 }],
        };
        Self {
            models: vec![
                model("mock-fast", "Mock Fast", 2, 1_000, false),
                model("mock-slow", "Mock Slow", 2, 60_000, false),
                model("mock-pro", "Mock Pro", 20, 3_000, true),
            ],
            accounts: vec![AccountSpec {
                id: account.clone(),
                kind: ProviderKind::Mock,
                slots: 200,
                model_slots: BTreeMap::from([(name("mock-pro"), 10)]),
                daily: None,
                submits: Some(Bucket::per_second(500, 50)),
                model_submits: BTreeMap::new(),
            }],
            intents_cache_ms: 5_000,
        }
    }
}

/// A name that is legal as it stands in this file.
fn name<T: std::str::FromStr<Err: fmt::Debug>>(text: &str) -> T {
    text.parse().expect("names in the defaults are legal")
}

impl CatalogueConfig {
    /// Looks for contradictions.
    ///
    /// # Errors
    /// All of them.
    pub fn check(&self) -> Result<(), ConfigError> {
        let mut wrong = Vec::new();
        if self.intents_cache_ms == 0 || self.intents_cache_ms > 5_000 {
            wrong.push("intents_cache_ms must be from 1 to 5000".to_owned());
        }
        let mut accounts = BTreeSet::new();
        for account in &self.accounts {
            let id = &account.id;
            if !accounts.insert(id) {
                wrong.push(format!("account {id} is there twice"));
            }
            if account.daily == Some(0) {
                wrong.push(format!("account {id} may have no jobs in a day; to stop it, pause it"));
            }
            if account.slots == 0 || account.model_slots.values().any(|slots| *slots == 0) {
                wrong.push(format!("account {id} has no slots; to stop it, pause it"));
            }
            let empty = |bucket: &Bucket| bucket.capacity == 0 || bucket.refill == 0 || bucket.per_ms == 0;
            if account.submits.iter().chain(account.model_submits.values()).any(empty) {
                wrong.push(format!("account {id} has a submit rate that never lets anything through"));
            }
        }
        let mut models = BTreeSet::new();
        for model in &self.models {
            let name = &model.name;
            if !models.insert(name) {
                wrong.push(format!("model {name} is there twice"));
            }
            let mut routes = BTreeSet::new();
            for Route { account, .. } in &model.routes {
                if !accounts.contains(account) {
                    wrong.push(format!("model {name} goes to the account {account}, which is not there"));
                }
                if !routes.insert(account) {
                    wrong.push(format!("model {name} goes to the account {account} twice"));
                }
            }
            wrong.extend(faults_of(model).into_iter().map(|fault| format!("model {name}: {fault}")));
        }
        if wrong.is_empty() { Ok(()) } else { Err(ConfigError(wrong)) }
    }
}

/// What is wrong with one model.
fn faults_of(model: &Model) -> Vec<&'static str> {
    let mut faults = Vec::new();
    let (shortest, longest) = model.duration_seconds;
    if shortest == 0 || shortest > longest {
        faults.push("duration_seconds is no range of at least one second");
    }
    if model.price_per_second.values().any(|price| price.checked_mul(longest).is_none()) {
        faults.push("the longest video costs more than an amount of credits can say");
    }
    if !model.price_per_second.contains_key(&model.default_resolution) {
        faults.push("default_resolution has no price");
    }
    if model.routes.is_empty() {
        faults.push("it goes to no account");
    }
    if model.routes.iter().any(|route| !(1..=WEIGHT_MAX).contains(&route.weight)) {
        faults.push("a route's weight must be from 1 to 1000; to take an account out, pause it");
    }
    if model.deadline_seconds == 0 || model.deadline_seconds > DEADLINE_SECONDS_MAX {
        faults.push("deadline_seconds must be from 1 to 86400");
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_those_that_are_published() {
        let config = CatalogueConfig::default();
        assert_eq!(config.check(), Ok(()));
        let price = |model: &str, seconds| {
            let model = config.models.iter().find(|candidate| candidate.name.as_str() == model).unwrap();
            model.price(seconds, &model.default_resolution).unwrap().get()
        };
        assert_eq!((price("mock-fast", 5), price("mock-slow", 1), price("mock-pro", 10)), (10, 2, 200));
        let account = &config.accounts[0];
        assert_eq!((account.slots_of(&name("mock-fast")), account.slots_of(&name("mock-pro"))), (200, 10));
    }

    #[test]
    fn the_configuration_survives_its_text_form() {
        let config = CatalogueConfig::default();
        let text = serde_json::to_string(&config).unwrap();
        let back: CatalogueConfig = serde_json::from_str(&text).unwrap();
        assert_eq!((back.models, back.accounts), (config.models, config.accounts));
    }

    #[test]
    fn contradictions_are_named_all_at_once() {
        let mut config = CatalogueConfig::default();
        config.models[0].routes[0].account = name("elsewhere");
        let mut double = config.models[1].routes[0].clone();
        double.weight = 0;
        config.models[1].routes.push(double);
        config.models[2].routes.clear();
        config.models[1].duration_seconds = (5, 4);
        config.models[2].price_per_second.insert("8k".to_owned(), Credits::MAX);
        config.accounts[0].slots = 0;
        config.accounts.push(config.accounts[0].clone());
        let ConfigError(wrong) = config.check().unwrap_err();
        for part in [
            "elsewhere",
            "no range",
            "costs more",
            "no slots",
            "is there twice",
            "mock twice",
            "no account",
            "weight",
        ] {
            assert!(wrong.iter().any(|text| text.contains(part)), "{part}: {wrong:?}");
        }
    }
}
