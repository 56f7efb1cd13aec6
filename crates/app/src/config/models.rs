//! Models: what they can do, what they cost, where their jobs go.

use std::collections::BTreeMap;

use domain::{
    Credits, ModelName, ProviderAccountId,
    model::{Model, Route},
};
use serde::{Deserialize, Serialize};

/// One `models.<name>`. A model whose account has no address is not offered.
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
}

/// The models of the mock provider.
pub(super) fn defaults() -> BTreeMap<ModelName, ModelConfig> {
    let entry = |model: Model| {
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
            account: model.route.account,
            provider_model: model.route.provider_model,
        };
        (model.name, config)
    };
    catalogue::CatalogueConfig::default().models.into_iter().map(entry).collect()
}

impl ModelConfig {
    pub(super) fn to_model(&self, name: &ModelName) -> Model {
        Model {
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
            route: Route { account: self.account.clone(), provider_model: self.provider_model.clone() },
        }
    }
}
