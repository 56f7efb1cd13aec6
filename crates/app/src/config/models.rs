//! Models: what they can do, what they cost, where their jobs go.

use std::collections::BTreeMap;

use domain::{
    Credits, ModelName, ProviderAccountId,
    model::{Model, Route, equal_share},
};
use serde::{Deserialize, Serialize};

/// One `models.<name>`. A model of which no account has an address is not offered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ModelConfig {
    /// A name for people.
    pub(crate) title: String,
    /// Shortest and longest video in whole seconds.
    pub(crate) duration_seconds: (u32, u32),
    /// Resolutions with their price in credits per second.
    pub(crate) price_per_second: BTreeMap<String, Credits>,
    /// Taken when the request names none.
    pub(crate) default_resolution: String,
    /// Aspect ratios.
    pub(crate) aspect_ratios: Vec<String>,
    /// Whether a negative prompt is understood.
    pub(crate) negative_prompt: bool,
    /// Whether a seed is understood.
    pub(crate) seed: bool,
    /// How long a generation usually takes, in milliseconds.
    pub(crate) usual_duration_ms: u64,
    /// When a task is given up unless its request says otherwise.
    pub(crate) deadline_seconds: u32,
    /// Whether submits are counted in a strict window.
    pub(crate) expensive: bool,
    /// The provider account that its jobs go to.
    pub(crate) account: ProviderAccountId,
    /// Its name there.
    pub(crate) provider_model: ModelName,
    /// That account's share of the jobs, if there are further ones.
    #[serde(default = "equal_share")]
    pub(crate) weight: u32,
    /// Further accounts that serve it. Each takes its share, and what the others have no room for.
    #[serde(default)]
    pub(crate) further_routes: Vec<Route>,
}

/// The models of the mock provider.
pub(super) fn defaults() -> BTreeMap<ModelName, ModelConfig> {
    let entry = |model: Model| {
        let mut routes = model.routes.into_iter();
        let first = routes.next()?;
        let config = ModelConfig {
            title: model.title,
            duration_seconds: model.duration_seconds,
            price_per_second: model.price_per_second,
            default_resolution: model.default_resolution,
            aspect_ratios: model.aspect_ratios,
            negative_prompt: model.negative_prompt,
            seed: model.seed,
            usual_duration_ms: model.usual_duration_ms,
            deadline_seconds: model.deadline_seconds,
            expensive: model.expensive,
            account: first.account,
            provider_model: first.provider_model,
            weight: first.weight,
            further_routes: routes.collect(),
        };
        Some((model.name, config))
    };
    catalogue::CatalogueConfig::default().models.into_iter().filter_map(entry).collect()
}

impl ModelConfig {
    /// The model with its routes to the accounts that are up; none when there are none.
    pub(super) fn to_model(
        &self,
        name: &ModelName,
        is_up: impl Fn(&ProviderAccountId) -> bool,
    ) -> Option<Model> {
        let first = Route {
            account: self.account.clone(),
            provider_model: self.provider_model.clone(),
            weight: self.weight,
        };
        let routes: Vec<_> = std::iter::once(&first)
            .chain(&self.further_routes)
            .filter(|route| is_up(&route.account))
            .cloned()
            .collect();
        if routes.is_empty() {
            return None;
        }
        Some(Model {
            name: name.clone(),
            title: self.title.clone(),
            duration_seconds: self.duration_seconds,
            price_per_second: self.price_per_second.clone(),
            default_resolution: self.default_resolution.clone(),
            aspect_ratios: self.aspect_ratios.clone(),
            negative_prompt: self.negative_prompt,
            seed: self.seed,
            usual_duration_ms: self.usual_duration_ms,
            deadline_seconds: self.deadline_seconds,
            expensive: self.expensive,
            routes,
        })
    }
}
