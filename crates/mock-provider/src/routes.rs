//! The provider's own API: submit, poll, look up by the caller's reference, cancel, fetch the output.

use std::{sync::Arc, time::Instant};

use axum::{
    Json, Router,
    body::Bytes,
    extract::{DefaultBodyLimit, Path, Query, State, rejection::QueryRejection},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::{
    Config,
    callbacks::{Callbacks, Target},
    clip::CLIP,
    control,
    faults::{Action, Faults, On},
    jobs::{Account, Count, Jobs, NewJob, Refused, Seen, Status},
    server::{self, CloseConnection},
};

/// Largest submit body.
const SUBMIT_BYTES_MAX: usize = 256 << 10;

pub(crate) struct App {
    pub(crate) jobs: Jobs,
    pub(crate) faults: Faults,
    pub(crate) callbacks: Callbacks,
    public_url: Option<String>,
}

pub(crate) type Shared = State<Arc<App>>;

pub(crate) fn router(app: Arc<App>) -> Router {
    Router::new()
        .route("/healthz", get(async || Json(json!({"status": "ok"}))))
        .route("/v1/jobs", post(submit).get(lookup).layer(DefaultBodyLimit::max(SUBMIT_BYTES_MAX)))
        .route("/v1/jobs/{id}", get(poll))
        .route("/v1/jobs/{id}/cancel", post(cancel))
        .route("/v1/jobs/{id}/output", get(output))
        .nest("/_control", control::router())
        .fallback(async || refusal(StatusCode::NOT_FOUND, "not_found", "no such path"))
        .with_state(app)
}

/// The provider's error form: `{error: {code, message}}`.
pub(crate) fn refusal(status: StatusCode, code: &str, message: &str) -> Response {
    (status, Json(json!({"error": {"code": code, "message": message}}))).into_response()
}

fn no_such_job() -> Response {
    refusal(StatusCode::NOT_FOUND, "not_found", "no such job")
}

#[derive(Serialize)]
struct Failure {
    code: &'static str,
    message: &'static str,
}

/// A job as the API spells it.
#[derive(Serialize)]
struct JobBody {
    id: String,
    status: Status,
    progress: u8,
    #[serde(skip_serializing_if = "Option::is_none")]
    output_url: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Failure>,
}

impl App {
    /// Reads the state file, so it may block.
    pub(crate) fn new(config: &Config) -> Arc<Self> {
        Arc::new(Self {
            jobs: match &config.state_file {
                Some(file) => Jobs::restored(config, file, Instant::now(), server::wall_clock()),
                None => Jobs::new(config),
            },
            faults: Faults::default(),
            callbacks: Callbacks::new(config.callback_secret.clone(), config.callback_hosts.clone()),
            public_url: config.public_url.as_ref().map(|url| url.trim_end_matches('/').to_owned()),
        })
    }

    fn account(&self, headers: &HeaderMap) -> Account {
        self.jobs.account(headers.get(header::AUTHORIZATION).map(HeaderValue::as_bytes))
    }

    /// What addresses at this provider begin with, for this caller.
    fn base(&self, headers: &HeaderMap) -> String {
        match (&self.public_url, headers.get(header::HOST).and_then(|h| h.to_str().ok())) {
            (Some(base), _) => base.clone(),
            (None, Some(host)) => format!("http://{host}"),
            (None, None) => String::new(),
        }
    }

    fn body(&self, job: Seen, headers: &HeaderMap) -> JobBody {
        Self::body_at(job, &self.base(headers))
    }

    /// A job as a callback carries it.
    pub(crate) fn report(&self, job: Seen, base: &str) -> Bytes {
        // Texts and numbers have a JSON form.
        serde_json::to_vec(&Self::body_at(job, base)).unwrap_or_default().into()
    }

    fn body_at(job: Seen, base: &str) -> JobBody {
        let output_url =
            (job.status == Status::Succeeded).then(|| format!("{base}/v1/jobs/{}/output", job.id));
        let error = (job.status == Status::Failed)
            .then_some(Failure { code: "provider_internal", message: "the generation failed" });
        JobBody { id: job.id.to_string(), status: job.status, progress: job.progress, output_url, error }
    }

    /// The fault for a request about one job. Its model and prompt are only looked up when some rule asks.
    pub(crate) fn fault(&self, on: On, id: Option<&str>) -> Action {
        if !self.faults.any(on) {
            return Action::default();
        }
        let described = id.and_then(|id| self.jobs.described(id));
        let (model, prompt) = described.as_ref().map(|(model, prompt)| (&**model, &**prompt)).unzip();
        self.faults.take(on, model, prompt)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Submit {
    model: String,
    prompt: String,
    duration_seconds: u32,
    client_reference: String,
    #[serde(default)]
    callback_url: Option<String>,
}

impl Submit {
    fn check(&self) -> Result<(), &'static str> {
        if self.prompt.trim().is_empty() {
            return Err("prompt: empty");
        }
        if !(1..=10).contains(&self.duration_seconds) {
            return Err("duration_seconds: not from 1 to 10");
        }
        if self.client_reference.is_empty() || self.client_reference.len() > 255 {
            return Err("client_reference: not from 1 to 255 bytes");
        }
        if self.callback_url.as_ref().is_some_and(|url| !url.starts_with("http") || target(url).is_none()) {
            return Err("callback_url: no http address");
        }
        Ok(())
    }
}

/// An address with a host, as callbacks go to.
fn target(url: &str) -> Option<http::Uri> {
    url.parse::<http::Uri>().ok().filter(|url| url.host().is_some())
}

async fn submit(State(app): Shared, headers: HeaderMap, body: Bytes) -> Response {
    let submit: Submit = match serde_json::from_slice(&body) {
        Ok(submit) => submit,
        Err(error) => return refusal(StatusCode::BAD_REQUEST, "invalid_input", &error.to_string()),
    };
    let fault = app.faults.take(On::Submit, Some(&submit.model), Some(&submit.prompt));
    if fault.drops_before_accept() {
        return CloseConnection::answer();
    }
    app.jobs.count_submit(&submit.client_reference, Instant::now());
    let answer = match fault.refusal() {
        Some(refusal) => refusal,
        None => accept(&app, &headers, submit, fault.duplicates()),
    };
    fault.apply(answer).await
}

fn accept(app: &App, headers: &HeaderMap, submit: Submit, twice: bool) -> Response {
    if let Err(why) = submit.check() {
        return refusal(StatusCode::UNPROCESSABLE_ENTITY, "invalid_input", why);
    }
    let job = || NewJob {
        model: submit.model.clone(),
        prompt: submit.prompt.clone(),
        client_reference: submit.client_reference.clone(),
        account: app.account(headers),
        callback: submit
            .callback_url
            .as_deref()
            .and_then(target)
            .map(|url| Arc::new(Target { url, base: app.base(headers) })),
    };
    let create = || {
        let (job, now) = (job(), Instant::now());
        let is_reported = job.callback.is_some();
        let made = app.jobs.create(job, now)?;
        if is_reported {
            app.callbacks.look(made.id.clone(), app.jobs.starts_at(&made.id, now));
        }
        Ok(made)
    };
    let created = create().and_then(|first| if twice { create() } else { Ok(first) });
    match created {
        Ok(job) => {
            (StatusCode::ACCEPTED, Json(json!({"id": &*job.id, "status": job.status}))).into_response()
        }
        Err(Refused::UnknownModel) => refusal(StatusCode::NOT_FOUND, "model_gone", "no such model"),
        Err(Refused::Full) => refusal(StatusCode::SERVICE_UNAVAILABLE, "overloaded", "too many live jobs"),
    }
}

async fn poll(State(app): Shared, headers: HeaderMap, Path(id): Path<String>) -> Response {
    app.jobs.count(Count::Poll);
    let fault = app.fault(On::Poll, Some(&id));
    let answer =
        fault.refusal().unwrap_or_else(|| match app.jobs.get(&id, app.account(&headers), Instant::now()) {
            Some(job) => Json(app.body(job, &headers)).into_response(),
            None => no_such_job(),
        });
    fault.apply(answer).await
}

#[derive(Deserialize)]
struct ByReference {
    client_reference: String,
}

async fn lookup(
    State(app): Shared,
    headers: HeaderMap,
    query: Result<Query<ByReference>, QueryRejection>,
) -> Response {
    let Ok(Query(ByReference { client_reference })) = query else {
        return refusal(StatusCode::BAD_REQUEST, "invalid_input", "client_reference: missing");
    };
    app.jobs.count(Count::Lookup);
    let mut jobs = app.jobs.find(&client_reference, app.account(&headers), Instant::now());
    let fault = app.fault(On::Lookup, jobs.first().map(|job| &*job.id));
    if fault.duplicates() {
        jobs.extend(jobs.clone());
    }
    let answer = fault.refusal().unwrap_or_else(|| {
        let jobs: Vec<JobBody> = jobs.into_iter().map(|job| app.body(job, &headers)).collect();
        Json(json!({"jobs": jobs})).into_response()
    });
    fault.apply(answer).await
}

async fn cancel(State(app): Shared, headers: HeaderMap, Path(id): Path<String>) -> Response {
    let fault = app.fault(On::Cancel, Some(&id));
    if fault.drops_before_accept() {
        return CloseConnection::answer();
    }
    app.jobs.count(Count::Cancel);
    let answer = fault.refusal().unwrap_or_else(|| {
        match app.jobs.cancel(&id, app.account(&headers), Instant::now()) {
            Some(job) => {
                app.callbacks.look(job.id.clone(), Instant::now());
                Json(app.body(job, &headers)).into_response()
            }
            None => no_such_job(),
        }
    });
    fault.apply(answer).await
}

/// The file. Its address is a capability, like the pre-signed ones of real providers, so no credential is asked for.
async fn output(State(app): Shared, Path(id): Path<String>) -> Response {
    app.jobs.count(Count::Output);
    let fault = app.fault(On::Output, Some(&id));
    let answer = fault.refusal().unwrap_or_else(|| match app.jobs.get(&id, None, Instant::now()) {
        Some(job) if job.status == Status::Succeeded => {
            ([(header::CONTENT_TYPE, "video/mp4")], Bytes::from_static(CLIP)).into_response()
        }
        _ => refusal(StatusCode::NOT_FOUND, "not_found", "no such output"),
    });
    fault.apply(answer).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Body;
    use http::Request;
    use http_body_util::BodyExt;
    use serde_json::Value;
    use tower::ServiceExt;

    async fn call(app: &Router, method: &str, path: &str, body: Value) -> (StatusCode, Value) {
        let body = if body.is_null() { Body::empty() } else { Body::from(body.to_string()) };
        let request = Request::builder().method(method).uri(path).header("host", "mock:9090");
        let request = request.header("content-type", "application/json").body(body).expect("request");
        let answer = app.clone().oneshot(request).await.expect("infallible");
        let status = answer.status();
        let bytes = answer.into_body().collect().await.expect("body").to_bytes();
        (status, serde_json::from_slice(&bytes).unwrap_or(Value::Null))
    }

    fn job(reference: &str) -> Value {
        json!({"model": "mock-fast", "prompt": "a cat", "duration_seconds": 5, "client_reference": reference})
    }

    /// The job once it has left the states given: its time is real, so the test asks until then.
    async fn job_after(app: &Router, path: &str, states: &[&str]) -> Value {
        loop {
            let (status, seen) = call(app, "GET", path, Value::Null).await;
            assert_eq!(status, StatusCode::OK);
            if !states.iter().any(|state| seen["status"] == *state) {
                return seen;
            }
            tokio::time::sleep(std::time::Duration::from_millis(2)).await;
        }
    }

    #[tokio::test]
    async fn a_job_from_submit_to_output() {
        let app = router(App::new(&Config::default()));
        call(&app, "PUT", "/_control/models/mock-fast", json!({"duration_ms": 200})).await;
        let (status, made) = call(&app, "POST", "/v1/jobs", job("t1.1")).await;
        assert_eq!((status, &made["status"]), (StatusCode::ACCEPTED, &json!("queued")));
        let path = format!("/v1/jobs/{}", made["id"].as_str().expect("id"));
        assert_eq!(call(&app, "GET", &format!("{path}/output"), Value::Null).await.0, StatusCode::NOT_FOUND);
        let seen = job_after(&app, &path, &["queued"]).await;
        assert_eq!((&seen["id"], &seen["status"]), (&made["id"], &json!("running")));
        assert!(seen["output_url"].is_null() && seen["progress"].as_u64().expect("number") < 100);
        let seen = job_after(&app, &path, &["running"]).await;
        assert_eq!((&seen["status"], &seen["progress"]), (&json!("succeeded"), &json!(100)));
        assert_eq!(seen["output_url"], format!("http://mock:9090{path}/output"));
        assert_eq!(call(&app, "GET", &format!("{path}/output"), Value::Null).await.0, StatusCode::OK);
        let (_, found) = call(&app, "GET", "/v1/jobs?client_reference=t1.1", Value::Null).await;
        assert_eq!(found["jobs"][0]["id"], made["id"]);
        assert_eq!(
            call(&app, "GET", "/v1/jobs?client_reference=t9.1", Value::Null).await.1,
            json!({"jobs": []})
        );
    }

    #[tokio::test]
    async fn a_failing_model_fails_its_jobs_with_a_code() {
        let app = router(App::new(&Config::default()));
        let changed = json!({"duration_ms": 10, "fail_rate": 1.0});
        assert_eq!(call(&app, "PUT", "/_control/models/mock-fast", changed).await.0, StatusCode::OK);
        let (_, made) = call(&app, "POST", "/v1/jobs", job("t1.1")).await;
        let path = format!("/v1/jobs/{}", made["id"].as_str().expect("id"));
        let seen = job_after(&app, &path, &["queued", "running"]).await;
        assert_eq!(
            (&seen["status"], &seen["error"]["code"]),
            (&json!("failed"), &json!("provider_internal"))
        );
    }

    #[tokio::test]
    async fn figures_and_arrivals_tell_what_came_and_when() {
        let app = router(App::new(&Config::default()));
        let unix_us = || {
            let since = server::wall_clock().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
            u64::try_from(since.as_micros()).expect("before the end of time")
        };
        let before = unix_us();
        call(&app, "POST", "/v1/jobs", job("t1.1")).await;
        let (status, seen) = call(&app, "GET", "/_control/arrivals?within_ms=60000", Value::Null).await;
        assert_eq!((status, &seen["t1.1"]["submits"]), (StatusCode::OK, &json!(1)));
        let at = seen["t1.1"]["at_us"].as_u64().expect("a time");
        // The wall clock may be set by a hair in between, so the bounds are loose.
        assert!(at + 1_000_000 > before && at < unix_us() + 1_000_000, "{at}");
        let (status, _) = call(&app, "GET", "/_control/arrivals", Value::Null).await;
        assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY);
        let (_, figures) = call(&app, "GET", "/_control/figures", Value::Null).await;
        assert_eq!((&figures["submits"], &figures["running"]), (&json!(1), &json!(1)));
        assert!(figures.get("submits_by_reference").is_none(), "{figures}");
    }

    #[tokio::test]
    async fn a_refusing_fault_makes_no_job_and_answers_in_the_providers_form() {
        let app = router(App::new(&Config::default()));
        let rule =
            json!([{"on": "submit", "action": {"status": 429, "headers": {"retry-after": "7"}}, "times": 1}]);
        assert_eq!(call(&app, "PUT", "/_control/faults", rule).await.0, StatusCode::OK);
        let (status, body) = call(&app, "POST", "/v1/jobs", job("t1.1")).await;
        assert_eq!((status, &body["error"]["code"]), (StatusCode::TOO_MANY_REQUESTS, &json!("rate_limited")));
        let (_, stats) = call(&app, "GET", "/_control/stats", Value::Null).await;
        assert_eq!((&stats["submits"], &stats["running"]), (&json!(1), &json!(0)));
        assert_eq!(call(&app, "POST", "/v1/jobs", job("t1.2")).await.0, StatusCode::ACCEPTED);
    }

    #[tokio::test]
    async fn a_cancel_ends_the_job_and_a_duplicate_is_two_jobs() {
        let app = router(App::new(&Config::default()));
        let rule = json!([{"on": "submit", "action": {"duplicate": true}, "times": 1}]);
        call(&app, "PUT", "/_control/faults", rule).await;
        let (_, made) = call(&app, "POST", "/v1/jobs", job("t1.1")).await;
        let path = format!("/v1/jobs/{}/cancel", made["id"].as_str().expect("id"));
        let (status, seen) = call(&app, "POST", &path, Value::Null).await;
        assert_eq!((status, &seen["status"]), (StatusCode::OK, &json!("canceled")));
        let (_, stats) = call(&app, "GET", "/_control/stats", Value::Null).await;
        assert_eq!(stats["max_live_by_task"], 2);
        assert_eq!(
            (&stats["live_by_task"], &stats["cancels"], &stats["submits"]),
            (&json!({"t1": 1}), &json!(1), &json!(1))
        );
        let (status, _) = call(&app, "POST", "/v1/jobs/job_none/cancel", Value::Null).await;
        assert_eq!(status, StatusCode::NOT_FOUND);
    }

    #[tokio::test]
    async fn bad_submits_are_refused() {
        let app = router(App::new(&Config::default()));
        let mut too_long = job("t1.1");
        too_long["duration_seconds"] = json!(11);
        let mut unknown = job("t1.1");
        unknown["model"] = json!("gone");
        let mut extra = job("t1.1");
        extra["loop"] = json!(true);
        for (body, status, code) in [
            (too_long, StatusCode::UNPROCESSABLE_ENTITY, "invalid_input"),
            (unknown, StatusCode::NOT_FOUND, "model_gone"),
            (extra, StatusCode::BAD_REQUEST, "invalid_input"),
        ] {
            let (got, answer) = call(&app, "POST", "/v1/jobs", body).await;
            assert_eq!((got, &answer["error"]["code"]), (status, &json!(code)));
        }
        let mut with_callback = job("t1.1");
        with_callback["callback_url"] = json!("https://example.com/hook");
        assert_eq!(call(&app, "POST", "/v1/jobs", with_callback).await.0, StatusCode::ACCEPTED);
    }
}
