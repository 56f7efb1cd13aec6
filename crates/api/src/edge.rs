//! The edge: what happens to every request before and after its route, in one pass.
//!
//! Before: the request gets an id and its client's address, and a body that is declared too large is refused
//! unread. After: a problem gets its body (it needs the request's id), its cause is logged once, and every answer
//! carries what it must: the id, the limits that were asked, what is degraded, and headers that keep browsers from
//! guessing; its time is noted by route. One function does all of it, because each further layer would cost every request.

use std::{
    convert::Infallible,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    panic::AssertUnwindSafe,
    pin::Pin,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
    time::{Duration, Instant},
};

use axum::{
    body::{Body, HttpBody},
    extract::{ConnectInfo, MatchedPath, Request},
    response::{IntoResponse, Response},
    routing::Route,
};
use bytes::Bytes;
use chrono::{DateTime, Utc};
use domain::{TaskId, complaints::Complaints};
use futures::{FutureExt as _, future::ready};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use http_body::{Frame, SizeHint};
use tokio::time::timeout;
use tower::Service as _;

use crate::{
    ApiConfig,
    gate::Pass,
    limits::LimitLines,
    problem::{Code, Problem},
    state::ApiState,
};

pub(crate) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const DEGRADED: HeaderName = HeaderName::from_static("aivideo-degraded");
/// Answers of the API are data, never a page.
const DATA_ONLY: HeaderValue = HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'");
const REQUEST_ID_LENGTH_MAX: usize = 128;
/// What is left of a body when it is answered is read and thrown away only as far as it has come already. Beyond this it may
/// not have, and then the connection ends.
const LEFT_BYTES_MAX: u64 = 16 << 10;

/// What is known of a request apart from its content. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct RequestContext(Arc<Facts>);

#[derive(Debug)]
struct Facts {
    id: HeaderValue,
    address: IpAddr,
    arrived: Instant,
    limits: OnceLock<LimitLines>,
    task: OnceLock<TaskId>,
    place: Mutex<Option<Pass>>,
}

impl RequestContext {
    fn new(id: HeaderValue, address: IpAddr) -> Self {
        Self(Arc::new(Facts {
            id,
            address,
            arrived: Instant::now(),
            limits: OnceLock::new(),
            task: OnceLock::new(),
            place: Mutex::new(None),
        }))
    }

    /// A request from this address.
    #[cfg(test)]
    pub(crate) fn for_test(address: IpAddr) -> Self {
        Self::new(HeaderValue::from_static("req_test"), address)
    }

    /// The request's id: ours, or the client's if it is decent.
    pub(crate) fn id(&self) -> &str {
        self.0.id.to_str().unwrap_or_default()
    }

    /// The client's address, proxies considered.
    pub(crate) fn address(&self) -> IpAddr {
        self.0.address
    }

    /// When the request's head was there.
    pub(crate) fn arrived(&self) -> Instant {
        self.0.arrived
    }

    /// The limits that were asked, for the answer's headers. The first who says it is believed.
    pub(crate) fn note_limits(&self, lines: LimitLines) {
        let _ = self.0.limits.set(lines);
    }

    /// Gives back the place of this request among those that are being answered: it only waits now.
    pub(crate) fn leave_gate(&self) {
        self.0.place.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    fn enter_gate(&self, place: Pass) {
        *self.0.place.lock().unwrap_or_else(PoisonError::into_inner) = Some(place);
    }

    /// The task that the request turned out to be about, for the log.
    pub(crate) fn note_task(&self, task: TaskId) {
        let _ = self.0.task.set(task);
    }
}

/// Takes a request to its route and answers it.
///
/// This is a service's call and no middleware of axum's, which would box the route anew for each request; and it has no
/// async block, which would hold the route's future several times over.
pub(crate) fn edge(
    state: &ApiState,
    route: &mut Route,
    mut request: Request,
) -> impl Future<Output = Result<Response, Infallible>> + use<> {
    let peer = request.extensions().get::<ConnectInfo<SocketAddr>>();
    let peer = peer.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |info| info.0.ip());
    let address = state.proxies().client(peer, request.headers());
    let context = RequestContext::new(request_id(request.headers()), address);
    let asked = Asked::of(&mut request);
    let limit = limit(state.config(), &request);
    let answer = match admit(state, &context, &request) {
        Ok(()) => {
            request.extensions_mut().insert(context.clone());
            let handler = route.call(request).map(|Ok(response)| response);
            within(limit, handler).left_future()
        }
        Err(problem) => ready(problem.into_response()).right_future(),
    };
    let state = state.clone();
    answer.map(move |mut response| {
        complete(&state, &context, &asked, &mut response);
        Ok(response)
    })
}

/// Lets a request in if its body isn't too large and there is room for it. Whether this process is alive is asked of it
/// most urgently when it is overloaded, so health has no gate.
fn admit(state: &ApiState, context: &RequestContext, request: &Request) -> Result<(), Problem> {
    let max = state.config().body_bytes_max;
    if declared_length(request.headers()).is_some_and(|length| length > max) {
        return Err(too_large(max));
    }
    if !matches!(request.uri().path(), "/healthz" | "/readyz" | "/metrics") {
        context.enter_gate(state.in_flight().try_pass()?);
    }
    Ok(())
}

/// What every answer gets, whatever it is.
fn complete(state: &ApiState, context: &RequestContext, asked: &Asked, response: &mut Response) {
    context.leave_gate();
    if let Some(problem) = response.extensions_mut().remove::<Problem>() {
        log_problem(&problem, context, &asked.method, response);
        write_problem(&problem, context, state.clock().now(), response);
    }
    finish(state, context, response);
    if asked.long_body.as_ref().is_some_and(|is_read| !is_read.load(Ordering::Acquire)) {
        // Said, so that nobody sends the next request on a connection that ends.
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    if let Some(pattern) = &asked.pattern {
        let took = context.arrived().elapsed();
        state.durations().note(pattern.as_str(), &asked.method, response.status(), took);
    }
    log_answer(context, asked, response.status());
}

/// What the edge still has to know of a request when the route has it.
struct Asked {
    method: Method,
    /// The pattern that the path has matched, if any.
    pattern: Option<MatchedPath>,
    /// The path, where a line of the log may tell of it.
    path: Option<String>,
    /// Whether all of a long body was read.
    long_body: Option<Arc<AtomicBool>>,
}

impl Asked {
    fn of(request: &mut Request) -> Self {
        let method = request.method().clone();
        let told = !method.is_safe() || tracing::enabled!(tracing::Level::DEBUG);
        Self {
            pattern: request.extensions().get::<MatchedPath>().cloned(),
            path: told.then(|| loggable(request.uri().path()).to_owned()),
            long_body: watch_long_body(request),
            method,
        }
    }
}

/// Has it noted when all of a body was read that may still be on its way when the request is answered.
fn watch_long_body(request: &mut Request) -> Option<Arc<AtomicBool>> {
    let is_long = match declared_length(request.headers()) {
        Some(length) => length > LEFT_BYTES_MAX,
        None => request.headers().contains_key(header::TRANSFER_ENCODING),
    };
    is_long.then(|| {
        let is_read = Arc::new(AtomicBool::new(false));
        let body = std::mem::take(request.body_mut());
        *request.body_mut() = Body::new(Watched { body, is_read: Arc::clone(&is_read) });
        is_read
    })
}

/// A body that notes its end.
struct Watched {
    body: Body,
    is_read: Arc<AtomicBool>,
}

impl HttpBody for Watched {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        if matches!(frame, Poll::Ready(None)) || self.body.is_end_stream() {
            self.is_read.store(true, Ordering::Release);
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The path without what makes it a credential: the last segment of a callback's address.
fn loggable(path: &str) -> &str {
    if path.starts_with("/callbacks/") {
        path.rsplit_once('/').map_or("", |(before, _)| before)
    } else {
        path
    }
}

/// One line for each request: what was changed, or tried, is worth keeping; reads and floods only while debugging.
fn log_answer(context: &RequestContext, asked: &Asked, status: StatusCode) {
    let Asked { method, path: Some(path), .. } = asked else { return };
    macro_rules! line {
        ($level:ident) => {
            tracing::$level!(
                request_id = context.id(),
                task_id = context.0.task.get().map(tracing::field::display),
                %method,
                path,
                status = status.as_u16(),
                elapsed_ms = context.arrived().elapsed().as_secs_f64() * 1_000.0,
                "answered"
            )
        };
    }
    let flood = matches!(status, StatusCode::UNAUTHORIZED | StatusCode::TOO_MANY_REQUESTS);
    if method.is_safe() || flood { line!(debug) } else { line!(info) }
}

/// How long the answer may take. Of a stream or a download only its beginning counts.
fn limit(config: &ApiConfig, request: &Request) -> Duration {
    let query = request.uri().query().unwrap_or_default();
    let waits = query.split('&').any(|parameter| parameter.starts_with("wait="));
    let seconds = if request.method().is_safe() && !waits {
        config.read_seconds_max.min(config.request_seconds_max)
    } else {
        config.request_seconds_max
    };
    Duration::from_secs(seconds)
}

/// The answer, whatever becomes of the handler: one that panics or takes too long is answered for.
fn within(limit: Duration, handler: impl Future<Output = Response>) -> impl Future<Output = Response> {
    timeout(limit, AssertUnwindSafe(handler).catch_unwind()).map(|answer| match answer {
        Ok(Ok(response)) => response,
        Ok(Err(_)) => Problem::internal(Panicked).into_response(),
        Err(_) => {
            Problem::unavailable("The answer took too long; it is not known what was done.").into_response()
        }
    })
}

/// What the panic hook has logged already; the request still gets an answer, and the process goes on.
#[derive(Debug, thiserror::Error)]
#[error("a handler panicked")]
struct Panicked;

pub(crate) fn too_large(max: u64) -> Problem {
    Problem::new(Code::PayloadTooLarge, format!("A body has at most {max} bytes."))
}

fn request_id(headers: &HeaderMap) -> HeaderValue {
    let decent = |value: &&HeaderValue| {
        let bytes = value.as_bytes();
        (1..=REQUEST_ID_LENGTH_MAX).contains(&bytes.len()) && bytes.iter().all(u8::is_ascii_graphic)
    };
    headers.get(REQUEST_ID).filter(decent).cloned().unwrap_or_else(|| {
        let mut text = *b"req_00000000000000000000000000000000";
        uuid::Uuid::now_v7().as_simple().encode_lower(&mut text[4..]);
        HeaderValue::from_bytes(&text).unwrap_or(HeaderValue::from_static("req_none"))
    })
}

fn declared_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

fn log_problem(problem: &Problem, context: &RequestContext, method: &Method, response: &Response) {
    let status = response.status();
    let causes = problem.cause().map(chain);
    // While a store is away every request fails alike; those that fail for another reason are told each.
    static AWAY: Complaints = Complaints::new();
    let silent = match problem.code() {
        Code::Unavailable => AWAY.complain(std::time::Instant::now()),
        _ => Some(0),
    };
    if let Some(silent) = silent.filter(|_| status.is_server_error()) {
        tracing::error!(
            request_id = context.id(),
            %method,
            code = problem.code().as_str(),
            cause = causes,
            silent,
            "request failed"
        );
    } else {
        tracing::debug!(
            request_id = context.id(),
            %method,
            code = problem.code().as_str(),
            cause = causes,
            "request refused"
        );
    }
}

/// An error with everything that led to it, for one log line.
fn chain(error: &(dyn std::error::Error + Send + Sync)) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(source) = next {
        text.push_str(": ");
        text.push_str(&source.to_string());
        next = source.source();
    }
    text
}

fn write_problem(problem: &Problem, context: &RequestContext, now: DateTime<Utc>, response: &mut Response) {
    let body = serde_json::to_vec(&problem.body(context.id(), now)).unwrap_or_default();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(body.len()));
    *response.body_mut() = Body::from(body);
}

fn finish(state: &ApiState, context: &RequestContext, response: &mut Response) {
    let headers = response.headers_mut();
    if let Some(lines) = context.0.limits.get()
        && !headers.contains_key(crate::limits::RATE_LIMIT)
    {
        lines.write(headers);
    }
    if let Some(degraded) = state.health().degraded() {
        headers.insert(DEGRADED, degraded);
    }
    headers.insert(REQUEST_ID, context.0.id.clone());
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.entry(header::CONTENT_SECURITY_POLICY).or_insert(DATA_ONLY);
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
}

#[cfg(test)]
mod tests {
    use axum::routing::future::RouteFuture;

    use super::*;

    #[test]
    fn only_who_writes_or_asks_to_wait_may_wait_long() {
        let seconds = |method: Method, uri: &str| {
            let request = Request::builder().method(method).uri(uri).body(Body::empty()).unwrap();
            limit(&ApiConfig::default(), &request).as_secs()
        };
        assert_eq!(seconds(Method::GET, "/tasks/1"), 10);
        assert_eq!(seconds(Method::GET, "/tasks/1?after_version=3&wait=25"), 35);
        assert_eq!(seconds(Method::GET, "/tasks?tag=wait"), 10);
        assert_eq!(seconds(Method::POST, "/generations"), 35);
    }

    #[tokio::test(start_paused = true)]
    async fn a_handler_that_panics_or_never_ends_is_answered_for() {
        let limit = Duration::from_secs(5);
        let panics = within(limit, async { panic!("a fault of ours") }).await;
        assert_eq!(panics.status(), StatusCode::INTERNAL_SERVER_ERROR);
        let hangs = within(limit, std::future::pending()).await;
        assert_eq!(hangs.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(hangs.headers()[header::RETRY_AFTER], "1");
    }

    #[test]
    fn a_decent_request_id_is_kept_and_another_replaced() {
        let mut headers = HeaderMap::new();
        headers.insert(REQUEST_ID, HeaderValue::from_static("abc-1"));
        assert_eq!(request_id(&headers), "abc-1");
        for bad in ["", "two words", &"x".repeat(129)] {
            headers.insert(REQUEST_ID, HeaderValue::from_str(bad).unwrap());
            assert!(request_id(&headers).to_str().unwrap().starts_with("req_"), "{bad:?}");
        }
    }

    #[test]
    fn the_edge_holds_the_future_of_the_route_once() {
        fn size<F>(_: impl Fn(&'static ApiState, &'static mut Route, Request) -> F) -> usize {
            size_of::<F>()
        }
        let (edge, route) = (size(edge), size_of::<RouteFuture<Infallible>>());
        assert!(edge < route * 2, "{edge} bytes around {route}");
    }
}
