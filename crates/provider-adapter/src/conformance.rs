//! What every adapter has to get right, proved against the scripted provider over real HTTP.
//!
//! An adapter joins with one line, `conformance!(name, make)`, where `make` builds it for an account and a secret.
//! The checks speak of the trait only, so they hold for every dialect of the scripted provider alike.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};
use std::time::{Duration, Instant};

use bytes::Bytes;
use domain::{
    clock::{SharedClock, SystemClock},
    failure::FailureClass,
    ids::{AttemptRef, ProviderAccountId, TaskId},
    task::state::JobHandle,
};
use fetch::{Fetch, FetchConfig, Limits, Request, SendGuard};
use futures::StreamExt;
use http::{HeaderMap, Method};
use serde_json::{Value, json};

use crate::provider::{
    CancelOutcome, LookUp, NotSent, Observation, OutputError, Provider, SubmitJob, SubmitOutcome,
};

/// Builds the adapter under test for one account with its secret.
pub(crate) type Make = fn(&Stage, ProviderAccountId, &str) -> Arc<dyn Provider>;

/// A scripted provider with two accounts' adapters in front of it.
pub(crate) struct Stage {
    server: mock_provider::Running,
    fetch: Fetch,
}

impl Stage {
    pub(crate) async fn start() -> Self {
        let server = mock_provider::start(mock_provider::Config::default()).await.expect("start");
        let private_hosts = vec![server.authority()];
        let fetch = Fetch::new(FetchConfig { private_hosts, ..FetchConfig::default() }).expect("client");
        Self { server, fetch }
    }

    pub(crate) fn url(&self) -> String {
        self.server.url()
    }

    pub(crate) fn fetch(&self) -> Fetch {
        self.fetch.clone()
    }

    #[expect(clippy::unused_self, reason = "adapters ask the stage for all that they are made of")]
    pub(crate) fn clock(&self) -> SharedClock {
        Arc::new(SystemClock)
    }

    async fn control(&self, method: Method, path: &str, body: Value) -> Value {
        let url = format!("{}/_control/{path}", self.url());
        let body = if body.is_null() { Bytes::new() } else { Bytes::from(body.to_string()) };
        let headers = HeaderMap::new();
        let request = Request { method, url: &url, headers, body, guard: SendGuard::open() };
        let limits = Limits {
            total: Duration::from_secs(5),
            idle: Duration::from_secs(5),
            bytes_max: 1 << 20,
            redirects_max: 0,
        };
        let answer = self.fetch.request(request, limits).await.expect("control call");
        assert!(answer.status.is_success(), "{url}: {} {:?}", answer.status, answer.body);
        serde_json::from_slice(&answer.body).unwrap_or(Value::Null)
    }

    async fn fault(&self, on: &str, action: Value) {
        self.control(Method::PUT, "faults", json!([{"on": on, "action": action}])).await;
    }

    async fn no_faults(&self) {
        self.control(Method::DELETE, "faults", Value::Null).await;
    }

    async fn stat(&self, name: &str) -> Value {
        self.control(Method::GET, "stats", Value::Null).await[name].clone()
    }

    async fn lasting(&self, duration_ms: u64) {
        self.control(Method::PUT, "models/mock-fast", json!({"duration_ms": duration_ms})).await;
    }
}

pub(crate) fn account(name: &str) -> ProviderAccountId {
    name.parse().expect("account")
}

fn job() -> SubmitJob {
    SubmitJob {
        reference: AttemptRef { task: TaskId::generate(), attempt_no: 1 },
        model: "mock-fast".parse().expect("model"),
        prompt: "a cat on a \"roof\" \u{1f408}".into(),
        negative_prompt: None,
        duration_seconds: 5,
        resolution: "720p".into(),
        aspect_ratio: None,
        seed: None,
        callback_url: None,
        traceparent: Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".into()),
    }
}

async fn accepted(provider: &dyn Provider, job: &SubmitJob) -> JobHandle {
    match provider.submit(job, SendGuard::open()).await {
        SubmitOutcome::Accepted { job, .. } => job,
        other => panic!("not accepted: {other:?}"),
    }
}

/// Looks until the provider is through with the job.
async fn through(provider: &dyn Provider, job: &JobHandle) -> Observation {
    let until = Instant::now() + Duration::from_secs(5);
    loop {
        let seen = provider.observe(job).await.expect("clear");
        if seen.is_through() {
            return seen;
        }
        assert!(Instant::now() < until, "still {seen:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn whole(provider: &dyn Provider, job: &JobHandle, seen: &Observation) -> Result<Bytes, OutputError> {
    let Observation::Succeeded { output } = seen else { panic!("no output: {seen:?}") };
    let mut output = provider.open_output(job, Some(output)).await?;
    let mut bytes = Vec::new();
    while let Some(chunk) = output.stream.next().await {
        bytes.extend_from_slice(&chunk?);
    }
    assert_eq!(output.length.unwrap_or(bytes.len() as u64), bytes.len() as u64);
    Ok(bytes.into())
}

pub(crate) async fn a_job_is_accepted_followed_and_brought_home(stage: &Stage, provider: Arc<dyn Provider>) {
    stage.lasting(150).await;
    let handle = accepted(&*provider, &job()).await;
    let seen = through(&*provider, &handle).await;
    assert_eq!(&whole(&*provider, &handle, &seen).await.expect("file")[4..8], b"ftyp");
    let opened = provider.open_output(&handle, None).await.expect("asked for anew");
    assert_eq!(opened.content_type.as_deref(), Some("video/mp4"));
    assert_eq!(provider.observe(&JobHandle::new("job_unknown")).await, Ok(Observation::Lost));
    // An odd answer to a submit is no reason to lose the job that it names.
    for body in [json!({"id": "job_7", "status": "defrosting"}), json!({"id": "job_7"})] {
        stage.fault("submit", json!({"body": body})).await;
        assert_eq!(accepted(&*provider, &job()).await.as_str(), "job_7");
    }
}

pub(crate) async fn a_job_is_found_by_our_reference(stage: &Stage, provider: Arc<dyn Provider>) {
    stage.lasting(60_000).await;
    let job = job();
    assert_eq!(provider.look_up(job.reference).await, LookUp::Absent);
    let handle = accepted(&*provider, &job).await;
    let LookUp::Found { job: found, surplus, seen } = provider.look_up(job.reference).await else {
        panic!("not found")
    };
    assert_eq!((found, surplus.len()), (handle, 0));
    assert!(!seen.is_through());
    let next = AttemptRef { attempt_no: 2, ..job.reference };
    assert_eq!(provider.look_up(next).await, LookUp::Absent, "another attempt of the task is another job");
    // Only a proper answer proves absence.
    for action in [
        json!({"status": 500}),
        json!({"status": 404}),
        json!({"body": {"jobs": "none"}}),
        json!({"body": {}}),
        json!({"body": "[]"}),
        json!({"truncate_bytes": 3}),
        json!({"drop": "after_accept"}),
        json!({"hang": true}),
    ] {
        stage.fault("lookup", action.clone()).await;
        let answer = provider.look_up(next).await;
        assert!(matches!(answer, LookUp::Unclear(_)), "{action}: {answer:?}");
    }
}

pub(crate) async fn a_cancel_has_an_outcome(stage: &Stage, provider: Arc<dyn Provider>) {
    stage.lasting(60_000).await;
    let handle = accepted(&*provider, &job()).await;
    assert_eq!(provider.cancel(&handle).await, CancelOutcome::Canceled);
    assert_eq!(provider.observe(&handle).await, Ok(Observation::Canceled));
    assert_eq!(stage.stat("running").await, 0);
    stage.lasting(1).await;
    let handle = accepted(&*provider, &job()).await;
    through(&*provider, &handle).await;
    assert!(matches!(provider.cancel(&handle).await, CancelOutcome::TooLate(Observation::Succeeded { .. })));
    assert_eq!(provider.cancel(&JobHandle::new("job_unknown")).await, CancelOutcome::NotFound);
    for action in [json!({"status": 503}), json!({"hang": true}), json!({"drop": "before_accept"})] {
        stage.fault("cancel", action.clone()).await;
        let outcome = provider.cancel(&handle).await;
        assert!(matches!(outcome, CancelOutcome::Unclear(_)), "{action}: {outcome:?}");
    }
}

pub(crate) async fn refusals_are_told_apart(stage: &Stage, provider: Arc<dyn Provider>) {
    for (action, class, pause) in [
        (json!({"status": 429, "headers": {"retry-after": "7"}}), FailureClass::RateLimited, Some(7)),
        (json!({"status": 429, "headers": {"retry-after": "-5"}}), FailureClass::RateLimited, Some(1)),
        (json!({"status": 503}), FailureClass::Overloaded, None),
        (
            json!({"status": 429, "body": {"error": {"code": "concurrency_full", "message": "9 of 9"}}}),
            FailureClass::ConcurrencyFull,
            Some(1),
        ),
    ] {
        stage.fault("submit", action.clone()).await;
        let outcome = provider.submit(&job(), SendGuard::open()).await;
        let SubmitOutcome::RejectedRetryable { class: seen, retry_after, .. } = outcome else {
            panic!("{action}: {outcome:?}")
        };
        assert_eq!((seen, retry_after), (class, pause.map(Duration::from_secs)), "{action}");
    }
    for (action, class) in [
        (json!({"status": 422}), FailureClass::InvalidInput),
        (json!({"status": 401}), FailureClass::ProviderAuth),
        (json!({"status": 402}), FailureClass::ProviderCredit),
        (
            json!({"status": 400, "body": {"error": {"code": "moderated_input", "message": "no"}}}),
            FailureClass::ModeratedInput,
        ),
        (
            json!({"status": 429, "body": {"error": {"code": "provider_credit", "message": "pay"}}}),
            FailureClass::ProviderCredit,
        ),
    ] {
        stage.fault("submit", action.clone()).await;
        let outcome = provider.submit(&job(), SendGuard::open()).await;
        assert!(
            matches!(outcome, SubmitOutcome::RejectedFinal { class: seen, .. } if seen == class),
            "{action}: {outcome:?}"
        );
    }
    stage.no_faults().await;
    let gone = SubmitJob { model: "withdrawn".parse().expect("model"), ..job() };
    let outcome = provider.submit(&gone, SendGuard::open()).await;
    assert!(
        matches!(outcome, SubmitOutcome::RejectedFinal { class: FailureClass::ModelGone, .. }),
        "{outcome:?}"
    );
    assert_eq!(stage.stat("running").await, 0);
}

pub(crate) async fn a_submit_in_doubt_is_unknown_within_its_limit(
    stage: &Stage,
    provider: Arc<dyn Provider>,
) {
    stage.lasting(60_000).await;
    for (action, made) in [
        (json!({"drop": "after_accept"}), true),
        (json!({"hang": true}), true),
        (json!({"truncate_bytes": 4}), true),
        (json!({"body": "<html>ok</html>"}), true),
        (json!({"body": {"id": "../x", "status": "queued"}}), true),
        (json!({"status": 201, "headers": {"content-encoding": "gzip"}}), true),
        (json!({"drop": "before_accept"}), false),
        (json!({"status": 500}), false),
        (json!({"status": 502, "body": "<html>bad gateway</html>"}), false),
        (json!({"status": 307, "headers": {"location": "/v1/jobs"}}), true),
    ] {
        stage.fault("submit", action.clone()).await;
        let (job, begun) = (job(), Instant::now());
        let outcome = provider.submit(&job, SendGuard::open()).await;
        assert!(matches!(outcome, SubmitOutcome::Unknown { .. }), "{action}: {outcome:?}");
        let limit = provider.capabilities().limits.submit;
        assert!(begun.elapsed() < limit + Duration::from_secs(1), "{action}: {:?}", begun.elapsed());
        stage.no_faults().await;
        match provider.look_up(job.reference).await {
            LookUp::Found { seen, .. } => assert!(made && !seen.is_through(), "{action}"),
            LookUp::Absent => assert!(!made, "{action}"),
            other => panic!("{action}: {other:?}"),
        }
    }
    assert_eq!(stage.stat("max_live_by_task").await, 1, "nothing was sent twice");
}

pub(crate) async fn a_doubled_job_is_seen(stage: &Stage, provider: Arc<dyn Provider>) {
    stage.lasting(60_000).await;
    stage.fault("submit", json!({"duplicate": true})).await;
    let job = job();
    accepted(&*provider, &job).await;
    let LookUp::Found { surplus, .. } = provider.look_up(job.reference).await else { panic!("not found") };
    assert_eq!(surplus.len(), 1);
    assert_eq!(provider.cancel(&surplus[0]).await, CancelOutcome::Canceled);
    assert_eq!(stage.stat("running").await, 1);
}

pub(crate) async fn nothing_is_sent_late(stage: &Stage, provider: Arc<dyn Provider>) {
    let asked = Arc::new(AtomicBool::new(false));
    let seen = asked.clone();
    let guard = SendGuard::new(move || {
        seen.store(true, Ordering::SeqCst);
        false
    });
    let outcome = provider.submit(&job(), guard).await;
    assert!(matches!(outcome, SubmitOutcome::NotSent { why: NotSent::HeldBack, .. }), "{outcome:?}");
    assert!(asked.load(Ordering::SeqCst));
    assert_eq!(stage.stat("submits").await, 0);
}

pub(crate) async fn a_poll_that_cannot_be_read_is_a_failed_poll(stage: &Stage, provider: Arc<dyn Provider>) {
    stage.lasting(60_000).await;
    let handle = accepted(&*provider, &job()).await;
    for action in [
        // What a bomb looks like before it is unpacked, which never happens.
        json!({"headers": {"content-encoding": "gzip"}}),
        json!({"headers": {"content-encoding": "br"}}),
        json!({"body": "x".repeat(300_000)}),
        json!({"body": format!("{}1", "[".repeat(100_000))}),
        json!({"body": {"id": "x"}}),
        json!({"body": {"id": "x", "status": "succeeded"}}),
        json!({"status": 500}),
        json!({"status": 403}),
        json!({"status": 302, "headers": {"location": "http://169.254.169.254/"}}),
        json!({"truncate_bytes": 10}),
        json!({"drop": "after_accept"}),
        json!({"hang": true}),
    ] {
        stage.fault("poll", action.clone()).await;
        let seen = provider.observe(&handle).await;
        assert!(seen.is_err(), "{}: {seen:?}", action.to_string().chars().take(80).collect::<String>());
    }
    stage.fault("poll", json!({"status": 429, "headers": {"retry-after": "3"}})).await;
    let unclear = provider.observe(&handle).await.expect_err("told to wait");
    assert_eq!(
        (unclear.class, unclear.retry_after),
        (FailureClass::RateLimited, Some(Duration::from_secs(3)))
    );
    stage.fault("poll", json!({"body": {"id": "x", "status": "defrosting", "mood": 1}})).await;
    let seen = provider.observe(&handle).await.expect("a state, if a new one");
    assert_eq!(seen, Observation::Unrecognised { raw: "defrosting".into() });
    stage.no_faults().await;
    assert!(!provider.observe(&handle).await.expect("clear").is_through(), "the job never noticed");
}

pub(crate) async fn an_output_is_whole_or_an_error(stage: &Stage, provider: Arc<dyn Provider>) {
    stage.lasting(1).await;
    let handle = accepted(&*provider, &job()).await;
    let seen = through(&*provider, &handle).await;
    for action in [json!({"truncate_bytes": 4_000}), json!({"drop": "after_accept"}), json!({"status": 503})]
    {
        stage.fault("output", action.clone()).await;
        let result = whole(&*provider, &handle, &seen).await;
        assert!(matches!(result, Err(OutputError::Temporary { .. })), "{action}: {result:?}");
    }
    for status in [403, 404, 410] {
        stage.fault("output", json!({"status": status})).await;
        let result = whole(&*provider, &handle, &seen).await;
        assert!(matches!(result, Err(OutputError::Gone(_))), "{status}: {result:?}");
    }
    // An output address comes from outside and is guarded like one.
    stage.fault("output", json!({"status": 302, "headers": {"location": "http://127.0.0.1:5432/"}})).await;
    let result = whole(&*provider, &handle, &seen).await;
    assert!(matches!(result, Err(OutputError::Refused(_))), "{result:?}");
    stage.no_faults().await;
    whole(&*provider, &handle, &seen).await.expect("whole at last");
    let pending = accepted(&*provider, &job()).await;
    stage.fault("poll", json!({"body": {"id": "x", "status": "running"}})).await;
    assert!(matches!(provider.open_output(&pending, None).await, Err(OutputError::Refused(_))));
}

pub(crate) async fn every_call_carries_its_own_accounts_credential(stage: &Stage, make: Make) {
    stage.lasting(60_000).await;
    let (a, b) = (make(stage, account("a"), "secret-a"), make(stage, account("b"), "secret-b"));
    let job = job();
    let handle = accepted(&*a, &job).await;
    // To the other account the job does not exist, whichever way it asks.
    assert_eq!(b.observe(&handle).await, Ok(Observation::Lost));
    assert_eq!(b.look_up(job.reference).await, LookUp::Absent);
    assert_eq!(b.cancel(&handle).await, CancelOutcome::NotFound);
    assert!(!a.observe(&handle).await.expect("clear").is_through());
    assert!(matches!(a.look_up(job.reference).await, LookUp::Found { .. }));
    assert_eq!(a.cancel(&handle).await, CancelOutcome::Canceled);
}

pub(crate) async fn an_unreachable_provider_was_sent_nothing(stage: Stage, make: Make) {
    let provider = make(&stage, account("a"), "secret");
    stage.server.stop().await;
    let outcome = provider.submit(&job(), SendGuard::open()).await;
    assert!(matches!(outcome, SubmitOutcome::NotSent { why: NotSent::Unreachable, .. }), "{outcome:?}");
    assert!(matches!(provider.look_up(job().reference).await, LookUp::Unclear(_)));
    assert!(provider.observe(&JobHandle::new("job_1")).await.is_err());
}

/// Runs the whole suite as one test per check.
macro_rules! conformance {
    ($name:ident, $make:expr) => {
        mod $name {
            use super::*;
            use crate::conformance::{self as suite, Make, Stage, account};
            use std::sync::Arc;

            fn make(
                stage: &Stage,
                account: domain::ids::ProviderAccountId,
                secret: &str,
            ) -> Arc<dyn crate::Provider> {
                Arc::new(($make)(stage, account, secret))
            }

            crate::conformance::conformance!(@checks
                a_job_is_accepted_followed_and_brought_home,
                a_job_is_found_by_our_reference,
                a_cancel_has_an_outcome,
                refusals_are_told_apart,
                a_submit_in_doubt_is_unknown_within_its_limit,
                a_doubled_job_is_seen,
                nothing_is_sent_late,
                a_poll_that_cannot_be_read_is_a_failed_poll,
                an_output_is_whole_or_an_error,
            );

            #[tokio::test]
            async fn every_call_carries_its_own_accounts_credential() {
                suite::every_call_carries_its_own_accounts_credential(&Stage::start().await, make as Make).await;
            }

            #[tokio::test]
            async fn an_unreachable_provider_was_sent_nothing() {
                suite::an_unreachable_provider_was_sent_nothing(Stage::start().await, make as Make).await;
            }
        }
    };
    (@checks $($check:ident,)*) => {$(
        #[tokio::test]
        async fn $check() {
            let stage = Stage::start().await;
            let provider = make(&stage, account("mine"), "secret");
            suite::$check(&stage, provider).await;
        }
    )*};
}
pub(crate) use conformance;
