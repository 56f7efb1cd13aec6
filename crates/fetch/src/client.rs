//! The client itself: configuration, one guarded request, and answers that fit into memory.

use std::{path::PathBuf, sync::Arc, time::Duration};

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use rustls::pki_types::{CertificateDer, pem::PemObject};
use tokio::time::Instant;
use url::Url;

use crate::{
    body::{Fate, Mark, MarkedBody, SendGuard},
    error::{Blocked, FetchError, Sent, TimeLimit},
    guard::{CheckedResolver, Destination, Guard, Lookup, SystemLookup, blocked_in},
};

/// What the client is made with.
#[derive(Clone, Debug)]
pub struct FetchConfig {
    /// `host:port` entries that may be reached although their addresses are private.
    pub private_hosts: Vec<String>,
    /// Ports that public hosts may be reached on.
    pub ports: Vec<u16>,
    /// The longest that resolving, connecting and agreeing on TLS may take together.
    pub connect: Duration,
    /// Connections kept open to one host when nothing is under way.
    pub idle_connections_per_host: usize,
    /// Sent as `User-Agent`.
    pub user_agent: String,
    /// A PEM file of certificate authorities that are trusted beside the built-in public ones.
    pub extra_roots: Option<PathBuf>,
}

impl Default for FetchConfig {
    fn default() -> Self {
        Self {
            private_hosts: Vec::new(),
            ports: vec![80, 443],
            connect: Duration::from_secs(3),
            idle_connections_per_host: 256,
            user_agent: concat!("aivideo/", env!("CARGO_PKG_VERSION")).to_owned(),
            extra_roots: None,
        }
    }
}

/// Why the client cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum NewFetchError {
    /// An entry of `private_hosts` is no `host:port`.
    #[error("{0:?} is no host:port")]
    PrivateHost(String),
    /// The file of further certificate authorities cannot be read.
    #[error("cannot read the certificate authorities")]
    Roots(#[source] rustls::pki_types::pem::Error),
    /// TLS cannot be set up with what was configured.
    #[error("cannot set up TLS")]
    Tls(#[source] rustls::Error),
    /// The HTTP client library refuses its configuration.
    #[error("cannot set up the HTTP client")]
    Client(#[source] reqwest::Error),
}

/// What one request may cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// From the call to the last byte of the answer.
    pub total: Duration,
    /// Between two arrivals of data.
    pub idle: Duration,
    /// The largest answer, in bytes. Answers are never unpacked, so this is their size in memory too.
    pub bytes_max: u64,
    /// How many redirects a download follows; requests never follow any.
    pub redirects_max: u8,
}

/// A request to an API.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    /// The verb.
    pub method: Method,
    /// The absolute address.
    pub url: &'a str,
    /// Sent as they are, beside `User-Agent` and `Accept-Encoding`.
    pub headers: HeaderMap,
    /// Sent as it is; without one, whether a failed request arrived is known less often.
    pub body: Bytes,
    /// Asked directly before the request is written.
    pub guard: SendGuard,
}

/// An answer that was read whole, whatever its status.
#[derive(Clone, Debug)]
pub struct Response {
    /// Its status; redirects are answers like any other here.
    pub status: StatusCode,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body.
    pub body: Bytes,
}

struct Inner {
    guard: Guard,
    public: reqwest::Client,
    /// A client of its own, so that a name that is private on one port stays checked on every other, and no pooled
    /// connection crosses the line.
    private: reqwest::Client,
}

/// The guarded client. Clones share connections.
#[derive(Clone)]
pub struct Fetch {
    inner: Arc<Inner>,
    private_allowed: bool,
}

impl std::fmt::Debug for Fetch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fetch").field("private_allowed", &self.private_allowed).finish_non_exhaustive()
    }
}

impl Fetch {
    /// Sets the client up. No connection is made.
    ///
    /// # Errors
    /// When the configuration contradicts itself or names a file that cannot be read.
    pub fn new(config: FetchConfig) -> Result<Self, NewFetchError> {
        Self::with_lookup(config, Arc::new(SystemLookup))
    }

    pub(crate) fn with_lookup(config: FetchConfig, lookup: Arc<dyn Lookup>) -> Result<Self, NewFetchError> {
        let guard = Guard::new(&config.private_hosts, &config.ports).map_err(NewFetchError::PrivateHost)?;
        let tls = tls(&config)?;
        #[expect(
            clippy::disallowed_methods,
            reason = "this is the one place that the ban sends everybody to"
        )]
        let client = |destination| {
            reqwest::Client::builder()
                .tls_backend_preconfigured(tls.clone())
                .dns_resolver(CheckedResolver { lookup: lookup.clone(), destination })
                // A proxy would resolve names itself, behind the back of every check.
                .no_proxy()
                .redirect(reqwest::redirect::Policy::none())
                .retry(reqwest::retry::never())
                .referer(false)
                .http1_only()
                .tcp_nodelay(true)
                .connect_timeout(config.connect)
                .pool_max_idle_per_host(config.idle_connections_per_host)
                // Shorter than what common servers and balancers keep, so that they seldom close first.
                .pool_idle_timeout(Duration::from_secs(30))
                .user_agent(&config.user_agent)
                .build()
                .map_err(NewFetchError::Client)
        };
        let inner =
            Inner { guard, public: client(Destination::Public)?, private: client(Destination::Private)? };
        Ok(Self { inner: Arc::new(inner), private_allowed: true })
    }

    /// The same client without its list of private hosts, for addresses that customers write.
    #[must_use]
    pub fn public_only(&self) -> Self {
        Self { inner: self.inner.clone(), private_allowed: false }
    }

    /// Says whether an address could be fetched, as far as that is known without resolving its name.
    ///
    /// # Errors
    /// Why it could not.
    pub fn check(&self, url: &str) -> Result<Url, Blocked> {
        let url = Url::parse(url).map_err(|_| Blocked::Malformed)?;
        self.inner.guard.check(&url, self.private_allowed).map(|_| url)
    }

    pub(crate) fn destination(&self, url: &Url) -> Result<Destination, FetchError> {
        self.inner.guard.check(url, self.private_allowed).map_err(FetchError::Blocked)
    }

    /// Sends a request and reads the whole answer within the limits.
    ///
    /// # Errors
    /// [`FetchError::sent`] says whether the other side can have seen it. Any status is an answer, not an error.
    pub async fn request(&self, request: Request<'_>, limits: Limits) -> Result<Response, FetchError> {
        let deadline = Instant::now() + limits.total;
        let url = Url::parse(request.url).map_err(|_| FetchError::Blocked(Blocked::Malformed))?;
        let mut answer = self.send(url, request, deadline, limits).await?;
        let mut body = BytesMut::new();
        while let Some(chunk) = next_chunk(&mut answer, deadline, limits.idle).await? {
            if (body.len() + chunk.len()) as u64 > limits.bytes_max {
                return Err(FetchError::TooLarge(limits.bytes_max));
            }
            body.extend_from_slice(&chunk);
        }
        let (status, headers) = (answer.status(), std::mem::take(answer.headers_mut()));
        Ok(Response { status, headers, body: body.freeze() })
    }

    /// One exchange up to the answer's head, whose announced size and encoding are checked.
    pub(crate) async fn send(
        &self,
        url: Url,
        request: Request<'_>,
        deadline: Instant,
        limits: Limits,
    ) -> Result<reqwest::Response, FetchError> {
        let client = match self.destination(&url)? {
            Destination::Public => &self.inner.public,
            Destination::Private => &self.inner.private,
        };
        let mut headers = request.headers;
        headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        let mut outgoing = client.request(request.method, url).headers(headers);
        let mut mark = None;
        if !request.body.is_empty() {
            let (body, its_mark) = MarkedBody::new(request.body, request.guard);
            outgoing = outgoing.body(reqwest::Body::wrap(body));
            mark = Some(its_mark);
        } else if !request.guard.may_send() {
            return Err(FetchError::HeldBack);
        }
        let answer = match tokio::time::timeout_at(deadline, outgoing.send()).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) => return Err(failed(error, mark.as_ref())),
            Err(_) => {
                let sent = mark.map_or(Sent::MaybeSent, |mark| mark.revoke().sent());
                return Err(FetchError::TimedOut { limit: TimeLimit::Total, sent });
            }
        };
        let encoding = answer.headers().get(header::CONTENT_ENCODING);
        if encoding.is_some_and(|encoding| !encoding.as_bytes().eq_ignore_ascii_case(b"identity")) {
            return Err(FetchError::Encoded);
        }
        if answer.content_length().is_some_and(|length| length > limits.bytes_max) {
            return Err(FetchError::TooLarge(limits.bytes_max));
        }
        Ok(answer)
    }
}

/// What a failed exchange means.
fn failed(error: reqwest::Error, mark: Option<&Mark>) -> FetchError {
    // The URL may hold a token in its path or query; errors end up in logs.
    let error = error.without_url();
    if let Some(blocked) = blocked_in(&error) {
        return FetchError::Blocked(blocked);
    }
    let fate = mark.map(Mark::revoke);
    if fate == Some(Fate::HeldBack) {
        return FetchError::HeldBack;
    }
    if error.is_connect() && fate != Some(Fate::Taken) {
        return FetchError::Unreachable(error);
    }
    FetchError::Broken { sent: fate.map_or(Sent::MaybeSent, Fate::sent), source: error }
}

/// The next piece of an answer's body, `None` at its end.
pub(crate) async fn next_chunk(
    answer: &mut reqwest::Response,
    deadline: Instant,
    idle: Duration,
) -> Result<Option<Bytes>, FetchError> {
    let idle_until = Instant::now() + idle;
    let (until, limit) =
        if idle_until < deadline { (idle_until, TimeLimit::Idle) } else { (deadline, TimeLimit::Total) };
    match tokio::time::timeout_at(until, answer.chunk()).await {
        Ok(chunk) => chunk.map_err(|e| FetchError::Broken { sent: Sent::MaybeSent, source: e.without_url() }),
        Err(_) => Err(FetchError::TimedOut { limit, sent: Sent::MaybeSent }),
    }
}

/// TLS with the ring provider named explicitly, and public roots that are compiled in: nothing of the machine is
/// needed, and no process-wide default is touched.
fn tls(config: &FetchConfig) -> Result<rustls::ClientConfig, NewFetchError> {
    let mut roots = rustls::RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
    if let Some(file) = &config.extra_roots {
        for certificate in CertificateDer::pem_file_iter(file).map_err(NewFetchError::Roots)? {
            roots.add(certificate.map_err(NewFetchError::Roots)?).map_err(NewFetchError::Tls)?;
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(NewFetchError::Tls)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    tls.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(tls)
}
