//! The client against real sockets: what reaches them, and what is said about it when it does not.

use std::{
    net::{IpAddr, SocketAddr},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use futures::{StreamExt, future::BoxFuture};
use http::{HeaderMap, HeaderValue, Method};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

use crate::{
    Blocked, Download, Fetch, FetchConfig, FetchError, Limits, Request, Response, SendGuard, Sent, TimeLimit,
    guard::Lookup,
};

const LIMITS: Limits = Limits {
    total: Duration::from_secs(2),
    idle: Duration::from_millis(300),
    bytes_max: 1_000,
    redirects_max: 3,
};

/// What the server does once it has read a request.
#[derive(Clone, Debug)]
enum Reply {
    /// Sends these bytes and keeps the connection.
    Send(String),
    /// Sends these bytes and closes it.
    SendAndClose(String),
    /// Says nothing, for ever.
    Hang,
}

/// A server that answers by path and remembers what it saw.
#[derive(Clone)]
struct Server {
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Server {
    async fn start(reply: impl Fn(&str) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
        let server = Self {
            address: listener.local_addr().expect("address"),
            connections: Arc::default(),
            requests: Arc::default(),
        };
        let (shared, reply) = (server.clone(), Arc::new(reply));
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                shared.connections.fetch_add(1, Ordering::SeqCst);
                let (shared, reply) = (shared.clone(), reply.clone());
                tokio::spawn(async move {
                    while let Some(request) = read_request(&mut stream).await {
                        let path = request.split(' ').nth(1).unwrap_or_default().to_owned();
                        shared.requests.lock().expect("lock").push(request);
                        match reply(&path) {
                            Reply::Send(text) => stream.write_all(text.as_bytes()).await.expect("write"),
                            Reply::SendAndClose(text) => {
                                return stream.write_all(text.as_bytes()).await.expect("write");
                            }
                            Reply::Hang => std::future::pending().await,
                        }
                    }
                });
            }
        });
        server
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    fn seen(&self) -> (usize, usize) {
        (self.connections.load(Ordering::SeqCst), self.requests.lock().expect("lock").len())
    }
}

/// Head and body of one request; `None` at the end of the connection.
async fn read_request(stream: &mut tokio::net::TcpStream) -> Option<String> {
    let mut bytes = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            if body.len() >= length.map_or(0, |length| length.parse().expect("length")) {
                return Some(text);
            }
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    }
}

fn ok(body: &str) -> Reply {
    Reply::Send(format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len()))
}

fn redirect(to: &str) -> Reply {
    Reply::Send(format!("HTTP/1.1 302 Found\r\nlocation: {to}\r\ncontent-length: 0\r\n\r\n"))
}

fn allowing(servers: &[&Server]) -> Fetch {
    let private_hosts = servers.iter().map(|server| server.address.to_string()).collect();
    Fetch::new(FetchConfig { private_hosts, ..FetchConfig::default() }).expect("client")
}

async fn post(fetch: &Fetch, url: &str, guard: SendGuard) -> Result<Response, FetchError> {
    let body = Bytes::from_static(b"{}");
    fetch.request(Request { method: Method::POST, url, headers: HeaderMap::new(), body, guard }, LIMITS).await
}

async fn get(fetch: &Fetch, url: &str) -> Result<Bytes, FetchError> {
    let Download { mut stream, .. } = fetch.get_stream(url, LIMITS, HeaderMap::new()).await?;
    let mut whole = Vec::new();
    while let Some(chunk) = stream.next().await {
        whole.extend_from_slice(&chunk?);
    }
    Ok(whole.into())
}

#[tokio::test]
async fn requests_share_connections() {
    let server = Server::start(|_| ok("hello")).await;
    let fetch = allowing(&[&server]);
    for _ in 0..5 {
        assert_eq!(post(&fetch, &server.url("/"), SendGuard::open()).await.expect("answer").body, "hello");
    }
    assert_eq!(get(&fetch, &server.url("/")).await.expect("file"), "hello");
    assert_eq!(server.seen(), (1, 6));
    let first = server.requests.lock().expect("lock")[0].clone();
    assert!(first.contains("content-length: 2") && first.contains("accept-encoding: identity"), "{first}");
}

#[tokio::test]
async fn private_servers_that_are_not_listed_see_nothing() {
    let server = Server::start(|_| ok("secret")).await;
    let port = server.address.port();
    let config = FetchConfig { ports: vec![port], ..FetchConfig::default() };
    let fetch = Fetch::new(config).expect("client");
    for host in ["127.0.0.1", "localhost", "0x7f000001", "2130706433", "[::ffff:127.0.0.1]", "127.1"] {
        let error = post(&fetch, &format!("http://{host}:{port}/"), SendGuard::open()).await.expect_err(host);
        assert!(matches!(error, FetchError::Blocked(Blocked::Address(_))), "{host}: {error:?}");
        assert_eq!(error.sent(), Sent::NotSent);
    }
    let private = FetchConfig { private_hosts: vec![server.address.to_string()], ..FetchConfig::default() };
    let fetch = Fetch::new(private).expect("client").public_only();
    assert!(matches!(get(&fetch, &server.url("/")).await, Err(FetchError::Blocked(_))));
    assert_eq!(server.seen(), (0, 0));
}

/// Answers each look-up with the next of its lists, the last for ever.
struct Scripted(Mutex<Vec<Vec<IpAddr>>>);

impl Lookup for Scripted {
    fn lookup(&self, _: String) -> BoxFuture<'static, std::io::Result<Vec<SocketAddr>>> {
        let mut script = self.0.lock().expect("lock");
        let now = if script.len() > 1 { script.remove(0) } else { script[0].clone() };
        Box::pin(async move { Ok(now.into_iter().map(|ip| SocketAddr::new(ip, 0)).collect()) })
    }
}

fn scripted(script: &[&[&str]], config: FetchConfig) -> Fetch {
    let ips = |list: &&[&str]| list.iter().map(|ip| ip.parse().expect("address")).collect();
    let lookup = Arc::new(Scripted(Mutex::new(script.iter().map(ips).collect())));
    Fetch::with_lookup(config, lookup).expect("client")
}

#[tokio::test]
async fn a_name_is_judged_by_every_address_of_the_answer_that_is_connected() {
    let server = Server::start(|_| ok("secret")).await;
    let config = || FetchConfig {
        ports: vec![server.address.port()],
        connect: Duration::from_millis(200),
        ..FetchConfig::default()
    };
    let url = format!("http://rebind.example:{}/", server.address.port());
    // Public beside private is refused as a whole.
    let mixed = scripted(&[&["1.1.1.1", "127.0.0.1"]], config());
    assert!(matches!(get(&mixed, &url).await, Err(FetchError::Blocked(Blocked::Address(_)))));
    // A name that changes: each connection is judged by its own answer, so there is no second, unchecked one.
    let rebinding = scripted(&[&["192.0.2.1"], &["127.0.0.1"]], config());
    for _ in 0..2 {
        assert!(matches!(get(&rebinding, &url).await, Err(FetchError::Blocked(Blocked::Address(_)))));
    }
    assert_eq!(server.seen(), (0, 0));
    // A listed name may be private, on its port.
    let listed = FetchConfig {
        private_hosts: vec![format!("rebind.example:{}", server.address.port())],
        ..FetchConfig::default()
    };
    assert_eq!(get(&scripted(&[&["127.0.0.1"]], listed), &url).await.expect("file"), "secret");
}

#[tokio::test]
async fn redirects_are_checked_and_lose_credentials() {
    let target = Server::start(|_| ok("target")).await;
    let unlisted = Server::start(|_| ok("secret")).await;
    let (there, forbidden) = (target.url("/there"), unlisted.url("/"));
    let server = Server::start(move |path| match path {
        "/same" => redirect("/file"),
        "/file" => ok("file"),
        "/other" => redirect(&there),
        "/unlisted" => redirect(&forbidden),
        "/metadata" => redirect("http://169.254.169.254/latest"),
        "/scheme" => redirect("file:///etc/passwd"),
        _ => redirect("/loop"),
    })
    .await;
    let fetch = allowing(&[&server, &target]);
    assert_eq!(get(&fetch, &server.url("/same")).await.expect("file"), "file");
    for path in ["/other", "/unlisted", "/metadata", "/scheme"] {
        let error = get(&fetch, &server.url(path)).await.expect_err(path);
        assert!(matches!(error, FetchError::Blocked(_)), "{path}: {error:?}");
    }
    assert!(matches!(get(&fetch, &server.url("/loop")).await, Err(FetchError::Redirected)));
    assert_eq!((unlisted.seen(), target.seen()), ((0, 0), (0, 0)));
    // A request to an API is answered with the redirect itself.
    let answer = post(&fetch, &server.url("/other"), SendGuard::open()).await.expect("answer");
    assert_eq!(answer.status, 302);

    let mut headers = HeaderMap::new();
    headers.insert("authorization", HeaderValue::from_static("Bearer k"));
    fetch.get_stream(&server.url("/same"), LIMITS, headers).await.expect("file");
    let seen = server.requests.lock().expect("lock").clone();
    let with_key: Vec<_> = seen.iter().filter(|request| request.contains("Bearer k")).collect();
    assert_eq!(with_key.len(), 2, "the same origin keeps them");
}

#[tokio::test]
async fn answers_keep_their_limits() {
    let server = Server::start(|path| match path {
        "/announced" => ok(&"x".repeat(1_001)),
        "/chunked" => {
            let chunk = format!("1f4\r\n{}\r\n", "x".repeat(500));
            Reply::Send(format!(
                "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n{}0\r\n\r\n",
                chunk.repeat(3)
            ))
        }
        "/gzip" => Reply::Send(
            "HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 2\r\n\r\n\x1f\x0b".into(),
        ),
        "/short" => Reply::SendAndClose("HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf".into()),
        "/stalls" => Reply::Send("HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf".into()),
        "/missing" => {
            Reply::Send("HTTP/1.1 429 Slow\r\nretry-after: 7\r\ncontent-length: 4\r\n\r\nhtml".into())
        }
        _ => Reply::Hang,
    })
    .await;
    let fetch = allowing(&[&server]);
    for path in ["/announced", "/chunked", "/gzip", "/short", "/stalls", "/hang"] {
        let (url, guard) = (server.url(path), SendGuard::open());
        for error in [
            get(&fetch, &url).await.expect_err(path),
            post(&fetch, &url, guard).await.map(|_| ()).expect_err(path),
        ] {
            let expected = match path {
                "/announced" | "/chunked" => matches!(error, FetchError::TooLarge(1_000)),
                "/gzip" => matches!(error, FetchError::Encoded),
                "/short" => matches!(error, FetchError::Broken { .. }),
                "/stalls" => matches!(error, FetchError::TimedOut { limit: TimeLimit::Idle, .. }),
                _ => matches!(error, FetchError::TimedOut { limit: TimeLimit::Total, .. }),
            };
            assert!(expected, "{path}: {error:?}");
            assert_eq!(error.sent(), Sent::MaybeSent, "{path}");
        }
    }
    let error = get(&fetch, &server.url("/missing")).await.expect_err("no file");
    let FetchError::Status { status, retry_after } = error else { panic!("{error:?}") };
    assert_eq!((status.as_u16(), retry_after.as_deref()), (429, Some("7")));
}

#[tokio::test]
async fn what_was_certainly_not_sent_is_told_from_what_may_have_been() {
    let closing = Server::start(|_| Reply::SendAndClose(String::new())).await;
    let refusing = TcpListener::bind("127.0.0.1:0").await.expect("bind").local_addr().expect("address");
    // Hangs up in the middle of the TLS handshake.
    let no_tls = TcpListener::bind("127.0.0.1:0").await.expect("bind");
    let no_tls_address = no_tls.local_addr().expect("address");
    tokio::spawn(async move { while no_tls.accept().await.is_ok() {} });
    let fetch = Fetch::new(FetchConfig {
        private_hosts: vec![
            closing.address.to_string(),
            refusing.to_string(),
            "nowhere.invalid:80".into(),
            no_tls_address.to_string(),
        ],
        ..FetchConfig::default()
    })
    .expect("client");
    for url in [
        format!("http://{refusing}/"),
        "http://nowhere.invalid/".into(),
        format!("https://{no_tls_address}/"),
    ] {
        let error = post(&fetch, &url, SendGuard::open()).await.expect_err(&url);
        assert!(matches!(error, FetchError::Unreachable(_)), "{url}: {error:?}");
        assert_eq!(error.sent(), Sent::NotSent, "{url}");
    }
    let error = post(&fetch, &closing.url("/"), SendGuard::open()).await.expect_err("closed");
    assert!(matches!(error, FetchError::Broken { sent: Sent::MaybeSent, .. }), "{error:?}");
}

#[tokio::test]
async fn a_limit_that_passes_while_connecting_means_not_sent() {
    // Connects and then never speaks TLS: the request waits for a connection that does not come about.
    let silent = TcpListener::bind("127.0.0.1:0").await.expect("bind");
    let address = silent.local_addr().expect("address");
    let config = FetchConfig { private_hosts: vec![address.to_string()], ..FetchConfig::default() };
    let fetch = Fetch::new(config).expect("client");
    let request = Request {
        method: Method::POST,
        url: &format!("https://{address}/"),
        headers: HeaderMap::new(),
        body: Bytes::from_static(b"{}"),
        guard: SendGuard::open(),
    };
    let short = Limits { total: Duration::from_millis(100), ..LIMITS };
    let error = fetch.request(request, short).await.expect_err("no TLS");
    let expected = FetchError::TimedOut { limit: TimeLimit::Total, sent: Sent::NotSent };
    assert_eq!(format!("{error:?}"), format!("{expected:?}"));
}

#[tokio::test]
async fn a_guard_that_says_no_keeps_the_request_from_the_wire() {
    let server = Server::start(|_| ok("done")).await;
    let fetch = allowing(&[&server]);
    let error = post(&fetch, &server.url("/"), SendGuard::new(|| false)).await.expect_err("held back");
    assert!(matches!(error, FetchError::HeldBack) && error.sent() == Sent::NotSent, "{error:?}");
    // On a connection that stands already, too.
    post(&fetch, &server.url("/"), SendGuard::open()).await.expect("sent");
    let error = post(&fetch, &server.url("/"), SendGuard::new(|| false)).await.expect_err("held back");
    assert!(matches!(error, FetchError::HeldBack), "{error:?}");
    post(&fetch, &server.url("/"), SendGuard::open()).await.expect("sent");
    assert_eq!(server.seen().1, 2, "only the two that were allowed arrived");
}
