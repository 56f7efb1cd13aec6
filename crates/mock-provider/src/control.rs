//! The control calls, by which tests script the provider and read what it saw.

use std::{
    sync::Arc,
    time::{Duration, Instant, UNIX_EPOCH},
};

use axum::{
    Json, Router,
    body::Bytes,
    extract::{DefaultBodyLimit, Path, Query, State, rejection::QueryRejection},
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
    server,
};

/// Rules may carry bodies of megabytes, to play a provider that answers far too much.
const CONTROL_BYTES_MAX: usize = 64 << 20;
/// Arrivals told at once.
const ARRIVALS_MAX: usize = 100_000;
/// A job lasts a day at most.
const DURATION_MS_MAX: u64 = 86_400_000;

pub(crate) fn router() -> Router<Arc<App>> {
    Router::new()
        .route("/ping", get(ping))
        .route("/stats", get(stats))
        .route("/figures", get(figures))
        .route("/arrivals", get(arrivals))
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

/// The counters of [`stats`] without its maps, which grow with the load.
async fn figures(State(app): Shared) -> Response {
    Json(app.jobs.figures(Instant::now())).into_response()
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Window {
    within_ms: u64,
}

/// `{reference: {at_us, submits}}` of the references that were first seen within the last so many milliseconds, newest
/// first and at most [`ARRIVALS_MAX`]; `at_us` is the wall clock's time of the first submit, since 1970.
async fn arrivals(State(app): Shared, window: Result<Query<Window>, QueryRejection>) -> Response {
    let Ok(Query(Window { within_ms })) = window else {
        return unusable("within_ms: not a number of milliseconds");
    };
    // Both clocks at one moment: what was measured by the steady one is told by the one that others share.
    let (now, wall) = (Instant::now(), server::wall_clock());
    let window = Duration::from_millis(within_ms);
    let arrivals = app.jobs.arrivals(window, ARRIVALS_MAX, now);
    let told = arrivals.into_iter().map(|arrival| {
        let at = wall.checked_sub(arrival.ago).and_then(|at| at.duration_since(UNIX_EPOCH).ok());
        let at_us = at.map(|at| u64::try_from(at.as_micros()).unwrap_or(u64::MAX));
        (arrival.reference.to_string(), json!({"at_us": at_us, "submits": arrival.submits}))
    });
    Json(Value::Object(told.collect())).into_response()
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
