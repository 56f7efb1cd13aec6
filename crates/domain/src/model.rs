//! What a model can do, what it costs, and where its jobs go.

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{
    credits::Credits,
    ids::{ModelName, ProviderAccountId},
};

/// A model as the catalogue lists it: its capability matrix, its prices and its route.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Model {
    /// The public name.
    pub name: ModelName,
    /// A name for people.
    pub title: String,
    /// Shortest and longest video in whole seconds.
    pub duration_seconds: (u32, u32),
    /// Resolutions with their price per second; the first is no default, see `default_resolution`.
    pub price_per_second: BTreeMap<String, Credits>,
    /// Taken when the request names none.
    pub default_resolution: String,
    /// Aspect ratios; a request may name none.
    pub aspect_ratios: Vec<String>,
    /// Whether a negative prompt is understood.
    pub negative_prompt: bool,
    /// Whether a seed is understood.
    pub seed: bool,
    /// How long a generation usually takes, in milliseconds.
    pub usual_duration_ms: u64,
    /// When a task is given up unless its request says otherwise.
    pub deadline_seconds: u32,
    /// Whether submits are counted in a strict window.
    pub expensive: bool,
    /// Where its jobs go: at least one way, no account twice.
    pub routes: Vec<Route>,
}

/// A provider account and the model's name there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Route {
    /// The account.
    pub account: ProviderAccountId,
    /// The model's name at the provider.
    pub provider_model: ModelName,
    /// The share of the model's jobs that goes there while every account has room.
    #[serde(default = "equal_share")]
    pub weight: u32,
}

/// The weight of a route that names none.
#[must_use]
pub const fn equal_share() -> u32 {
    1
}

/// Why a request does not fit a model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Misfit {
    /// The length is outside the model's range.
    #[error("must be from {min} to {max} seconds for this model")]
    Duration {
        /// Shortest.
        min: u32,
        /// Longest.
        max: u32,
    },
    /// The model does not make this resolution.
    #[error("must be one of {}", .0.join(", "))]
    Resolution(Vec<String>),
    /// The price would leave the range of credits.
    #[error("the price of this video is out of range")]
    Price,
}

impl Model {
    /// The usual duration.
    #[must_use]
    pub const fn usual_duration(&self) -> Duration {
        Duration::from_millis(self.usual_duration_ms)
    }

    /// The price of so many seconds in the given resolution.
    ///
    /// # Errors
    /// When the model does not make such a video, or its price would leave the range of credits.
    pub fn price(&self, duration_seconds: u32, resolution: &str) -> Result<Credits, Misfit> {
        let (min, max) = self.duration_seconds;
        if !(min..=max).contains(&duration_seconds) {
            return Err(Misfit::Duration { min, max });
        }
        let per_second = self
            .price_per_second
            .get(resolution)
            .ok_or_else(|| Misfit::Resolution(self.price_per_second.keys().cloned().collect()))?;
        per_second.checked_mul(duration_seconds).ok_or(Misfit::Price)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model(per_second: i64, max: u32) -> Model {
        Model {
            name: "m".parse().unwrap(),
            title: String::new(),
            duration_seconds: (1, max),
            price_per_second: BTreeMap::from([("720p".to_owned(), Credits::new(per_second).unwrap())]),
            default_resolution: "720p".to_owned(),
            aspect_ratios: vec![],
            negative_prompt: true,
            seed: true,
            usual_duration_ms: 1_000,
            deadline_seconds: 60,
            expensive: false,
            routes: vec![Route {
                account: "mock".parse().unwrap(),
                provider_model: "m".parse().unwrap(),
                weight: 1,
            }],
        }
    }

    #[test]
    fn the_largest_legal_combination_is_priced_exactly_and_nothing_wraps() {
        assert_eq!(model(900, 10).price(10, "720p"), Ok(Credits::new(9_000).unwrap()));
        assert_eq!(model(900, 10).price(0, "720p"), Err(Misfit::Duration { min: 1, max: 10 }));
        assert_eq!(model(900, 10).price(2_386_094, "720p"), Err(Misfit::Duration { min: 1, max: 10 }));
        assert_eq!(model(Credits::MAX.get(), 10).price(2, "720p"), Err(Misfit::Price));
        assert!(matches!(model(1, 10).price(1, "8k"), Err(Misfit::Resolution(_))));
    }
}
