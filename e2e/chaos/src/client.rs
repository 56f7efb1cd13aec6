//! HTTP as a client of the platform sees it: a failed request is an answer too.

use std::{
    net::SocketAddr,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use anyhow::{Context, bail};
use fetch::{Download, Fetch, FetchConfig, Limits, Request, SendGuard};
use http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use serde_json::Value;

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// A comment comes every ten seconds on a stream that is well.
const STREAM_IDLE_MAX: Duration = Duration::from_secs(25);
const STREAM_MAX: Duration = Duration::from_secs(600);
/// Beyond what the platform allows any answer, its longest shutdown included.
const ANSWER_MAX: Duration = Duration::from_secs(40);
const BYTES_MAX: u64 = 256 << 20;

/// What came back.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) replayed: bool,
    pub(crate) retry_after: Option<Duration>,
    /// What the platform says is away.
    pub(crate) degraded: Vec<String>,
    pub(crate) body: Vec<u8>,
    /// The body, where it is JSON.
    pub(crate) json: Value,
}

/// Somebody with a key, and everywhere that the platform can be asked.
#[derive(Clone)]
pub(crate) struct Client {
    fetch: Fetch,
    bearer: HeaderValue,
}

impl Client {
    /// One that may ask the given hosts and no others.
    pub(crate) fn new(key: &str, hosts: Vec<String>) -> anyhow::Result<Self> {
        let fetch = Fetch::new(FetchConfig { private_hosts: hosts, ..FetchConfig::default() })?;
        Ok(Self { fetch, bearer: HeaderValue::from_str(&format!("Bearer {key}"))? })
    }

    /// One request.
    ///
    /// # Errors
    /// When no answer came, whatever the reason.
    pub(crate) async fn ask(
        &self,
        method: Method,
        url: &str,
        body: Option<&Value>,
        key: Option<&str>,
    ) -> anyhow::Result<Answer> {
        let mut headers = HeaderMap::new();
        headers.insert(header::AUTHORIZATION, self.bearer.clone());
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(key) = key {
            headers.insert(IDEMPOTENCY_KEY, HeaderValue::from_str(key)?);
        }
        let body = body.map(|body| body.to_string().into()).unwrap_or_default();
        let request = Request { method, url, headers, body, guard: SendGuard::open() };
        let limits = Limits { total: ANSWER_MAX, idle: ANSWER_MAX, bytes_max: BYTES_MAX, redirects_max: 0 };
        let answer = self.fetch.request(request, limits).await?;
        let text = |name: &str| answer.headers.get(name).and_then(|value| value.to_str().ok());
        Ok(Answer {
            status: answer.status.as_u16(),
            replayed: text("idempotent-replayed") == Some("true"),
            retry_after: text("retry-after").and_then(|s| s.parse().ok()).map(Duration::from_secs),
            degraded: names(text("aivideo-degraded").unwrap_or_default()),
            body: answer.body.to_vec(),
            json: serde_json::from_slice(&answer.body).unwrap_or(Value::Null),
        })
    }

    /// A read that has to succeed.
    ///
    /// # Errors
    /// When it does not.
    pub(crate) async fn get(&self, url: &str) -> anyhow::Result<Value> {
        let answer = self.ask(Method::GET, url, None, None).await.with_context(|| url.to_owned())?;
        if answer.status != 200 {
            bail!("{url}: {} {}", answer.status, answer.json);
        }
        Ok(answer.json)
    }

    /// Opens a stream of events.
    ///
    /// # Errors
    /// When it is refused, or does not open.
    pub(crate) async fn stream(&self, url: &str) -> anyhow::Result<Download> {
        let headers = HeaderMap::from_iter([(header::AUTHORIZATION, self.bearer.clone())]);
        let limits =
            Limits { total: STREAM_MAX, idle: STREAM_IDLE_MAX, bytes_max: BYTES_MAX, redirects_max: 0 };
        self.fetch.get_stream(url, limits, headers).await.with_context(|| url.to_owned())
    }

    /// The text of a submit, for a client that writes it to the wire itself.
    pub(crate) fn raw_submit(&self, address: SocketAddr, body: &Value, key: &str) -> anyhow::Result<String> {
        let body = body.to_string();
        Ok(format!(
            "POST /generations HTTP/1.1\r\nhost: {address}\r\nauthorization: {}\r\nidempotency-key: {key}\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            self.bearer.to_str()?,
            body.len()
        ))
    }
}

/// A list in a header.
fn names(text: &str) -> Vec<String> {
    text.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

/// The addresses of the API, asked in turn.
pub(crate) struct Doors {
    addresses: Vec<SocketAddr>,
    next: AtomicUsize,
}

impl Doors {
    pub(crate) fn new(addresses: Vec<SocketAddr>) -> Self {
        Self { addresses, next: AtomicUsize::new(0) }
    }

    /// The next one.
    pub(crate) fn next(&self) -> SocketAddr {
        self.addresses[self.next.fetch_add(1, Ordering::Relaxed) % self.addresses.len()]
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.next())
    }
}
