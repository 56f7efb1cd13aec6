//! The adapter for the mock provider, and the smallest complete one to learn from.
//!
//! Its API is plain: JSON both ways, a job by id, a search by our reference, an output at an address of its own.
//! The benchmark's fast stand-in speaks the same and is reached by the same adapter.

mod callbacks;

use std::time::Duration;

pub use callbacks::MockCallbacks;

use async_trait::async_trait;
use bytes::Bytes;
use domain::{
    clock::SharedClock,
    failure::FailureClass,
    ids::{AttemptRef, ProviderAccountId},
    task::state::JobHandle,
};
use fetch::{Fetch, FetchError, Limits, Request, Response, SendGuard};
use futures::StreamExt;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use serde::{Deserialize, Serialize};

use crate::{
    capabilities::{CallbackForm, CancelForm, Capabilities, OutputForm, ProgressForm, ProviderLimits},
    classify,
    handle::Job,
    provider::{
        CancelOutcome, LookUp, Observation, OutputError, OutputRef, OutputStream, Provider, SubmitJob,
        SubmitOutcome, Unclear,
    },
};

/// How one account at a mock provider is reached.
#[derive(Clone, Debug)]
pub struct MockConfig {
    /// Where it listens, such as `http://127.0.0.1:9090`. Its host and port must be among those that `fetch` may
    /// reach although they are private.
    pub base_url: String,
    /// Sent as a bearer token. Its `Debug` shows nothing when it was made by [`credential`].
    pub authorization: Option<HeaderValue>,
    /// Whether it can search by our reference. Tests switch this off to see what happens without.
    pub look_up: bool,
    /// Whether callbacks are asked for: only where their signatures can be checked.
    pub callbacks: bool,
    /// The pause between two looks at one job.
    pub poll_interval: Duration,
    /// How long calls may take.
    pub limits: ProviderLimits,
}

impl MockConfig {
    /// The usual settings for a mock provider at this address.
    #[must_use]
    pub fn new(base_url: impl Into<String>) -> Self {
        Self {
            base_url: base_url.into(),
            authorization: None,
            look_up: true,
            callbacks: false,
            poll_interval: Duration::from_secs(1),
            limits: ProviderLimits { submit: Duration::from_secs(5), ..ProviderLimits::default() },
        }
    }
}

/// A bearer credential whose `Debug` shows nothing; `None` when it holds signs that no header can.
#[must_use]
pub fn credential(secret: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::try_from(format!("Bearer {secret}")).ok()?;
    value.set_sensitive(true);
    Some(value)
}

/// One account at a mock provider.
pub struct MockProvider {
    account: ProviderAccountId,
    config: MockConfig,
    capabilities: Capabilities,
    fetch: Fetch,
    clock: SharedClock,
}

#[derive(Serialize)]
struct SubmitBody<'a> {
    model: &'a str,
    prompt: &'a str,
    duration_seconds: u32,
    client_reference: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    callback_url: Option<&'a str>,
}

/// A job as the provider spells it. Members that it adds are no concern of ours.
#[derive(Deserialize)]
struct JobBody {
    id: String,
    #[serde(default)]
    status: String,
    progress: Option<f64>,
    output_url: Option<String>,
    error: Option<ErrorBody>,
}

#[derive(Deserialize)]
struct JobsBody {
    jobs: Vec<JobBody>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ErrorBody {
    code: String,
    message: String,
}

/// The provider's error form.
#[derive(Deserialize)]
struct RefusalBody {
    error: ErrorBody,
}

impl ErrorBody {
    fn class(&self) -> FailureClass {
        self.code.parse().unwrap_or(FailureClass::Unknown)
    }

    fn text(&self) -> String {
        classify::kept_text(&format!("{}: {}", self.code, self.message))
    }
}

impl JobBody {
    fn observation(&self) -> Result<Observation, Unclear> {
        Ok(match self.status.as_str() {
            "queued" => Observation::Queued,
            "running" => Observation::Running { progress: self.progress.and_then(percent) },
            "succeeded" => match &self.output_url {
                Some(url) => Observation::Succeeded { output: OutputRef::new(url) },
                None => return Err(nonsense("succeeded without an output")),
            },
            "failed" => match &self.error {
                Some(error) => Observation::Failed { class: error.class(), message: error.text() },
                None => {
                    Observation::Failed { class: FailureClass::Unknown, message: "no reason given".into() }
                }
            },
            "canceled" => Observation::Canceled,
            "" => return Err(nonsense("a job without a status")),
            other => Observation::Unrecognised { raw: classify::kept_text(other) },
        })
    }

    fn handle(&self) -> Result<JobHandle, Unclear> {
        Job::new(&self.id).map(|job| job.to_handle()).ok_or_else(|| nonsense("an id that cannot be one"))
    }
}

/// Whole percent of what a provider calls progress; `None` for what is no number between 0 and 100.
fn percent(progress: f64) -> Option<u8> {
    (0..=100_u8).rev().find(|whole| progress >= f64::from(*whole)).filter(|_| progress <= 100.0)
}

fn nonsense(what: &str) -> Unclear {
    Unclear { class: FailureClass::ProviderInternal, retry_after: None, message: format!("nonsense: {what}") }
}

fn parse<'a, T: Deserialize<'a>>(answer: &'a Response) -> Result<T, Unclear> {
    serde_json::from_slice(&answer.body)
        .map_err(|error| nonsense(&classify::kept_text(&format!("{}: {error}", answer.status))))
}

impl MockProvider {
    /// An adapter for one account. Nothing is sent yet.
    #[must_use]
    pub fn new(account: ProviderAccountId, config: MockConfig, fetch: Fetch, clock: SharedClock) -> Self {
        let config = MockConfig { base_url: config.base_url.trim_end_matches('/').to_owned(), ..config };
        let capabilities = Capabilities {
            look_up: config.look_up,
            absence_is_proof_after: config.look_up.then_some(Duration::from_secs(2)),
            cancel: CancelForm::AnyLive,
            progress: ProgressForm::Percent,
            callbacks: if config.callbacks { CallbackForm::PerRequest } else { CallbackForm::None },
            output: OutputForm::PublicUrl,
            output_kept_for: None,
            poll_interval: config.poll_interval,
            prompt_chars_max: 4_000,
            limits: config.limits,
        };
        Self { account, config, capabilities, fetch, clock }
    }

    /// One call to the provider's API with this account's credential.
    async fn call(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
        headers: HeaderMap,
        guard: SendGuard,
        total: Duration,
    ) -> Result<Response, FetchError> {
        let mut headers = headers;
        if let Some(authorization) = &self.config.authorization {
            headers.insert(header::AUTHORIZATION, authorization.clone());
        }
        let url = format!("{}{path}", self.config.base_url);
        let limits = Limits {
            total,
            idle: self.config.limits.idle,
            bytes_max: self.config.limits.answer_bytes_max,
            redirects_max: 0,
        };
        self.fetch.request(Request { method, url: &url, headers, body, guard }, limits).await
    }

    /// A call that carries nothing and changes nothing of ours.
    async fn ask(&self, method: Method, path: &str, total: Duration) -> Result<Response, Unclear> {
        let answer = self.call(method, path, Bytes::new(), HeaderMap::new(), SendGuard::open(), total).await;
        answer.map_err(|error| classify::failed_call(&error))
    }

    /// Class, pause and words of an answer without success.
    fn refusal(&self, answer: &Response) -> (Option<FailureClass>, Option<Duration>, String) {
        let retry_after = classify::retry_after(answer, &self.config.limits, self.clock.now());
        match parse::<RefusalBody>(answer) {
            Ok(body) => {
                (Some(body.error.class()), retry_after, format!("{}: {}", answer.status, body.error.text()))
            }
            Err(_) => (None, retry_after, answer.status.to_string()),
        }
    }

    fn unclear(&self, answer: &Response) -> Unclear {
        let (code, retry_after, message) = self.refusal(answer);
        classify::refused_call(answer.status, code, retry_after, message)
    }

    /// The path of a job; a handle that no adapter wrote is as unknown as a job can be.
    fn path(job: &JobHandle) -> Option<String> {
        Job::from_handle(job).map(|job| format!("/v1/jobs/{}", job.id))
    }
}

#[async_trait]
impl Provider for MockProvider {
    fn account(&self) -> &ProviderAccountId {
        &self.account
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    async fn submit(&self, job: &SubmitJob, guard: SendGuard) -> SubmitOutcome {
        let refused = |message: &str| SubmitOutcome::RejectedFinal {
            class: FailureClass::InvalidInput,
            message: message.to_owned(),
        };
        if job.prompt.chars().count() > self.capabilities.prompt_chars_max {
            return refused("the prompt is too long for this provider");
        }
        let body = SubmitBody {
            model: job.model.as_str(),
            prompt: &job.prompt,
            duration_seconds: job.duration_seconds,
            client_reference: job.reference.to_string(),
            callback_url: job.callback_url.as_deref().filter(|_| self.config.callbacks),
        };
        let Ok(body) = serde_json::to_vec(&body) else { return refused("not expressible as JSON") };
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(traceparent) = job.traceparent.as_deref().and_then(|t| HeaderValue::from_str(t).ok()) {
            headers.insert("traceparent", traceparent);
        }
        let limit = self.config.limits.submit;
        let answer = match self.call(Method::POST, "/v1/jobs", body.into(), headers, guard, limit).await {
            Ok(answer) => answer,
            Err(error) => return classify::failed_submit(&error),
        };
        if !answer.status.is_success() {
            let (code, retry_after, message) = self.refusal(&answer);
            return classify::refused_submit(answer.status, code, retry_after, message);
        }
        match parse::<JobBody>(&answer).and_then(|body| Ok((body.handle()?, body))) {
            // With an id in hand the job can be followed, whatever else the answer says.
            Ok((job, body)) => SubmitOutcome::Accepted {
                job,
                seen: body.observation().unwrap_or(Observation::Running { progress: None }),
            },
            // Without one there is a job whose name we do not know.
            Err(unclear) => SubmitOutcome::Unknown { message: unclear.message },
        }
    }

    async fn observe(&self, job: &JobHandle) -> Result<Observation, Unclear> {
        let Some(path) = Self::path(job) else { return Ok(Observation::Lost) };
        let answer = self.ask(Method::GET, &path, self.config.limits.poll).await?;
        match answer.status {
            status if status.is_success() => parse::<JobBody>(&answer)?.observation(),
            StatusCode::NOT_FOUND | StatusCode::GONE => Ok(Observation::Lost),
            _ => Err(self.unclear(&answer)),
        }
    }

    async fn look_up(&self, reference: AttemptRef) -> LookUp {
        if !self.config.look_up {
            return LookUp::Unsupported;
        }
        let path = format!("/v1/jobs?client_reference={reference}");
        let answer = match self.ask(Method::GET, &path, self.config.limits.look_up).await {
            Ok(answer) if answer.status.is_success() => answer,
            Ok(answer) => return LookUp::Unclear(self.unclear(&answer)),
            Err(unclear) => return LookUp::Unclear(unclear),
        };
        parse::<JobsBody>(&answer).and_then(|body| found(&body.jobs)).unwrap_or_else(LookUp::Unclear)
    }

    async fn cancel(&self, job: &JobHandle) -> CancelOutcome {
        let Some(path) = Self::path(job) else { return CancelOutcome::NotFound };
        let answer = match self.ask(Method::POST, &format!("{path}/cancel"), self.config.limits.cancel).await
        {
            Ok(answer) => answer,
            Err(unclear) => return CancelOutcome::Unclear(unclear),
        };
        match answer.status {
            status if status.is_success() => {
                match parse::<JobBody>(&answer).and_then(|body| body.observation()) {
                    Ok(Observation::Canceled) => CancelOutcome::Canceled,
                    Ok(seen) if seen.is_through() => CancelOutcome::TooLate(seen),
                    Ok(_) => CancelOutcome::Requested,
                    Err(unclear) => CancelOutcome::Unclear(unclear),
                }
            }
            StatusCode::NOT_FOUND | StatusCode::GONE => CancelOutcome::NotFound,
            _ => CancelOutcome::Unclear(self.unclear(&answer)),
        }
    }

    async fn open_output(
        &self,
        job: &JobHandle,
        output: Option<&OutputRef>,
    ) -> Result<OutputStream, OutputError> {
        let url = match output {
            Some(output) => output.clone(),
            None => match self.observe(job).await {
                Ok(Observation::Succeeded { output }) => output,
                Ok(Observation::Lost) => {
                    return Err(OutputError::Gone("the job is not known any more".into()));
                }
                Ok(other) => return Err(OutputError::Refused(format!("the job has no output: {other:?}"))),
                Err(Unclear { retry_after, message, .. }) => {
                    return Err(OutputError::Temporary { retry_after, message });
                }
            },
        };
        let limits = Limits {
            total: self.config.limits.output_total,
            idle: self.config.limits.idle,
            bytes_max: self.config.limits.output_bytes_max,
            redirects_max: 3,
        };
        // The address is a capability by itself; the credential stays at home.
        let download = self.fetch.get_stream(url.as_str(), limits, HeaderMap::new()).await;
        let download = download.map_err(|error| self.output_error(&error))?;
        // A stream cannot borrow the adapter, and within it nothing is refused by a status any more.
        let stream = download.stream.map(|chunk| chunk.map_err(|error| broken_output(&error)));
        Ok(OutputStream {
            content_type: download.content_type,
            length: download.length,
            stream: stream.boxed(),
        })
    }
}

impl MockProvider {
    fn output_error(&self, error: &FetchError) -> OutputError {
        match error {
            FetchError::Status { status, retry_after } => match status.as_u16() {
                401 | 403 | 404 | 410 => OutputError::Gone(status.to_string()),
                _ => {
                    let mut headers = HeaderMap::new();
                    if let Some(value) = retry_after.as_deref().and_then(|v| HeaderValue::from_str(v).ok()) {
                        headers.insert(header::RETRY_AFTER, value);
                    }
                    let answer = Response { status: *status, headers, body: Bytes::new() };
                    OutputError::Temporary {
                        retry_after: classify::retry_after(&answer, &self.config.limits, self.clock.now()),
                        message: status.to_string(),
                    }
                }
            },
            other => broken_output(other),
        }
    }
}

fn broken_output(error: &FetchError) -> OutputError {
    match error {
        FetchError::Blocked(_) | FetchError::TooLarge(_) | FetchError::Redirected => {
            OutputError::Refused(classify::failed_call(error).message)
        }
        _ => OutputError::Temporary { retry_after: None, message: classify::failed_call(error).message },
    }
}

/// Which of several jobs with one reference to go on with: a finished one first, for it is paid; then one that
/// lives; then whatever there is. Other live ones are surplus.
fn found(jobs: &[JobBody]) -> Result<LookUp, Unclear> {
    let mut seen = jobs
        .iter()
        .map(|job| Ok((job.handle()?, job.observation()?)))
        .collect::<Result<Vec<_>, Unclear>>()?;
    // Stable: among equals the oldest, which the provider lists first.
    seen.sort_by_key(|(_, observation)| match observation {
        Observation::Succeeded { .. } => 0,
        live if !live.is_through() => 1,
        _ => 2,
    });
    let mut seen = seen.into_iter();
    let Some((job, observation)) = seen.next() else { return Ok(LookUp::Absent) };
    let others = seen.filter(|(other, observation)| *other != job && !observation.is_through());
    let surplus = others.map(|(other, _)| other).collect();
    Ok(LookUp::Found { job, seen: observation, surplus })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::conformance;

    conformance!(mock, |stage: &Stage, account, secret| {
        let limits = ProviderLimits {
            submit: Duration::from_millis(400),
            poll: Duration::from_millis(400),
            look_up: Duration::from_millis(400),
            cancel: Duration::from_millis(400),
            idle: Duration::from_millis(300),
            ..ProviderLimits::default()
        };
        let config = MockConfig { authorization: credential(secret), limits, ..MockConfig::new(stage.url()) };
        MockProvider::new(account, config, stage.fetch(), stage.clock())
    });

    #[test]
    fn the_credential_is_not_shown() {
        let config = MockConfig { authorization: credential("s3cret"), ..MockConfig::new("http://x") };
        assert!(!format!("{config:?}").contains("s3cret"));
        assert_eq!(credential("a\nb"), None);
    }

    #[test]
    fn progress_is_whole_percent_or_nothing() {
        assert_eq!([percent(0.0), percent(37.9), percent(100.0)], [Some(0), Some(37), Some(100)]);
        assert_eq!([percent(-1.0), percent(100.5), percent(f64::NAN)], [None; 3]);
    }

    fn job(id: &str, status: &str) -> JobBody {
        let output_url = (status == "succeeded").then(|| "http://x/o".to_owned());
        JobBody { id: id.into(), status: status.into(), progress: None, output_url, error: None }
    }

    #[test]
    fn of_several_jobs_the_paid_one_is_taken_and_other_live_ones_are_surplus() {
        let jobs = ["failed", "running", "succeeded", "queued"];
        let jobs: Vec<_> = jobs.iter().enumerate().map(|(n, s)| job(&format!("j{n}"), s)).collect();
        let Ok(LookUp::Found { job: taken, surplus, .. }) = found(&jobs) else { panic!("found") };
        assert_eq!(taken.as_str(), "j2");
        assert_eq!(surplus.iter().map(JobHandle::as_str).collect::<Vec<_>>(), ["j1", "j3"]);
        // The same job listed twice is one job.
        let twice = [job("j1", "running"), job("j1", "running")];
        let Ok(LookUp::Found { surplus, .. }) = found(&twice) else { panic!("found") };
        assert!(surplus.is_empty());
        // A list that cannot be read whole proves nothing.
        assert!(found(&[job("../j", "running")]).is_err());
    }

    #[test]
    fn unknown_states_count_as_running_and_keep_their_text() {
        let seen = job("j", "warming_up").observation().expect("observation");
        assert_eq!(seen, Observation::Unrecognised { raw: "warming_up".into() });
        assert!(!seen.is_through());
        assert!(job("j", "failed").observation().expect("observation").is_through());
    }
}
