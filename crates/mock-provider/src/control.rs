//! The control calls, by which tests script the provider and read what it saw.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{
    Json, Router,
    body::Bytes,
    extract::{DefaultBodyLimit, Path, State},
    response::{IntoResponse, Response},
    routing::{get, post, put},
};
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    Model,
    faults::Rule,
    routes::{App, Shared, refusal},
};

/// Rules may carry bodies of megabytes, to play a provider that answers far too much.
const CONTROL_BYTES_MAX: usize = 64 << 20;
/// A job lasts a day at most.
const DURATION_MS_MAX: u64 = 86_400_000;

pub(crate) fn router() -> Router<Arc<App>> {
    Router::new()
        .route("/ping", get(ping))
        .route("/stats", get(stats))
        .route("/reset", post(reset))
        .route("/models", get(models))
        .route("/models/{model}", put(set_model))
        .route("/faults", get(faults).put(set_faults).delete(clear_faults))
        .layer(DefaultBodyLimit::max(CONTROL_BYTES_MAX))
}

/// Lets a starting demo tell a living provider of its own from any other server on that port.
async fn ping() -> Json<Value> {
    Json(json!({"mock_provider": true, "version": env!("CARGO_PKG_VERSION")}))
}

async fn stats(State(app): Shared) -> Response {
    Json(app.jobs.stats(Instant::now())).into_response()
}

async fn reset(State(app): Shared) -> StatusCode {
    app.jobs.reset(Instant::now());
    StatusCode::NO_CONTENT
}

fn shown(model: &Model) -> Value {
    json!({"model": model.name, "duration_ms": model.duration.as_millis(), "fail_rate": model.fail_rate})
}

async fn models(State(app): Shared) -> Json<Vec<Value>> {
    Json(app.jobs.models().iter().map(shown).collect())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ModelChange {
    #[serde(default)]
    duration_ms: Option<u64>,
    #[serde(default)]
    fail_rate: Option<f64>,
}

async fn set_model(State(app): Shared, Path(name): Path<String>, body: Bytes) -> Response {
    let change: ModelChange = match serde_json::from_slice(&body) {
        Ok(change) => change,
        Err(error) => return unusable(&error.to_string()),
    };
    if change.duration_ms.is_some_and(|ms| ms > DURATION_MS_MAX) {
        return unusable("duration_ms: more than a day");
    }
    if change.fail_rate.is_some_and(|rate| !(0.0..=1.0).contains(&rate)) {
        return unusable("fail_rate: not from 0 to 1");
    }
    match app.jobs.set_model(&name, change.duration_ms.map(Duration::from_millis), change.fail_rate) {
        Some(model) => Json(shown(&model)).into_response(),
        None => refusal(StatusCode::NOT_FOUND, "not_found", "no such model"),
    }
}

async fn faults(State(app): Shared) -> Json<Vec<Rule>> {
    Json(app.faults.rules())
}

async fn set_faults(State(app): Shared, body: Bytes) -> Response {
    let rules: Vec<Rule> = match serde_json::from_slice(&body) {
        Ok(rules) => rules,
        Err(error) => return unusable(&error.to_string()),
    };
    match app.faults.replace(rules) {
        Ok(()) => Json(app.faults.rules()).into_response(),
        Err(why) => unusable(&why),
    }
}

async fn clear_faults(State(app): Shared) -> StatusCode {
    // An empty list cannot be unsound.
    let _ = app.faults.replace(Vec::new());
    StatusCode::NO_CONTENT
}

fn unusable(why: &str) -> Response {
    refusal(StatusCode::UNPROCESSABLE_ENTITY, "invalid_input", why)
}
