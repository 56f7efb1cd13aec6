//! `GET /models`: what can be made, and what it costs.

use std::collections::BTreeMap;

use axum::{extract::State, response::Response};
use domain::{Credits, ModelName, model::Model};
use serde::Serialize;
use utoipa::ToSchema;

use crate::{
    extract::{NoParams, Reader},
    openapi::ReadProblems,
    state::ApiState,
    view::{Page, json},
};

/// A model: its capability matrix, its prices and its usual duration.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Model)]
pub(crate) struct ModelView<'a> {
    /// The name to ask for.
    #[schema(value_type = String)]
    model: &'a ModelName,
    /// A name for people.
    title: &'a str,
    /// Shortest and longest video in whole seconds.
    duration_seconds: RangeView,
    /// Credits for each second, by resolution.
    #[schema(value_type = BTreeMap<String, i64>)]
    price_per_second: &'a BTreeMap<String, Credits>,
    /// Taken when a request names none.
    default_resolution: &'a str,
    /// What may be asked for; empty when the model has no choice.
    aspect_ratios: &'a [String],
    /// Whether a negative prompt is understood.
    negative_prompt: bool,
    /// Whether a seed is understood.
    seed: bool,
    /// How long a generation usually takes, in milliseconds.
    usual_duration_ms: u64,
    /// When a task is given up unless its request says otherwise.
    deadline_seconds: u32,
}

/// A closed range.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = SecondsRange)]
struct RangeView {
    /// The least.
    min: u32,
    /// The most.
    max: u32,
}

impl<'a> From<&'a Model> for ModelView<'a> {
    fn from(model: &'a Model) -> Self {
        let (min, max) = model.duration_seconds;
        Self {
            model: &model.name,
            title: &model.title,
            duration_seconds: RangeView { min, max },
            price_per_second: &model.price_per_second,
            default_resolution: &model.default_resolution,
            aspect_ratios: &model.aspect_ratios,
            negative_prompt: model.negative_prompt,
            seed: model.seed,
            usual_duration_ms: model.usual_duration_ms,
            deadline_seconds: model.deadline_seconds,
        }
    }
}

/// Models
#[utoipa::path(
    get,
    path = "/models",
    operation_id = "listModels",
    tag = "models",
    responses((status = 200, description = "Every model.", body = Page<ModelView<'static>>), ReadProblems),
)]
pub(crate) async fn list_models(State(state): State<ApiState>, _: Reader, _: NoParams) -> Response {
    let items = state.catalogue().models().iter().map(|model| ModelView::from(&**model)).collect();
    json(&Page::whole(items))
}
