//! The HTTP listeners. They talk to hyper directly, so that heads have a limit in time, clients that take nothing one
//! in patience, connections one in number, and a stop one in length.

mod client;

use std::{
    future::Future,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use axum::{Router, body::Body, extract::ConnectInfo};
use http::header::CONTENT_TYPE;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tower::Service;

use self::client::Client;
use crate::config::HttpConfig;

/// A pause after a failed accept, which usually means that there are no file descriptors left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Serves until the shutdown, then lets answers under way finish within the configured time.
pub(crate) async fn serve(
    listener: TcpListener,
    router: Router,
    config: &HttpConfig,
    shutdown: CancellationToken,
) {
    let connections = TaskTracker::new();
    let places = Arc::new(Semaphore::new(config.connections_max));
    let limits = ConnectionLimits::new(config);
    let over = CancellationToken::new();
    loop {
        let accepted = async {
            let place = places.clone().acquire_owned().await;
            (listener.accept().await, place)
        };
        tokio::select! {
            () = shutdown.cancelled() => break,
            (accepted, place) = accepted => match accepted {
                Ok((stream, peer)) => {
                    let served = connection(stream, peer, router.clone(), limits, shutdown.clone());
                    let over = over.clone();
                    connections.spawn(async move {
                        tokio::select! {
                            () = served => {}
                            () = over.cancelled() => {}
                        }
                        drop(place);
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "accept failed");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }
    // Nothing new is accepted from here on: whoever connects is refused by the kernel.
    drop(listener);
    connections.close();
    let drain_max = Duration::from_secs(config.drain_seconds_max);
    if tokio::time::timeout(drain_max, connections.wait()).await.is_err() {
        tracing::warn!(connections = connections.len(), "answers are still under way and are cut off");
        over.cancel();
        connections.wait().await;
    }
}

/// The address as somebody on this machine reaches it: "every address" is none that a client could ask.
pub(crate) fn reachable(mut address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        address.set_ip(match address.ip() {
            IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        });
    }
    address
}

/// What one connection may take its time with.
#[derive(Debug, Clone, Copy)]
struct ConnectionLimits {
    head: Duration,
    stuck: Duration,
    stream_stuck: Duration,
}

impl ConnectionLimits {
    fn new(config: &HttpConfig) -> Self {
        Self {
            head: Duration::from_secs(config.head_seconds_max),
            stuck: Duration::from_secs(config.stuck_seconds_max),
            stream_stuck: Duration::from_secs(config.stream_stuck_seconds_max),
        }
    }
}

fn connection(
    stream: TcpStream,
    peer: SocketAddr,
    router: Router,
    limits: ConnectionLimits,
    shutdown: CancellationToken,
) -> impl Future<Output = ()> {
    let client = Client::new(stream);
    client.end_when_stuck_for(limits.stuck);
    let answered = client.clone();
    let service = hyper::service::service_fn(move |request: hyper::Request<hyper::body::Incoming>| {
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(ConnectInfo(peer));
        let answer = router.clone().call(request);
        let client = answered.clone();
        async move {
            let answer = answer.await?;
            // A paused player may keep a file waiting; nobody pauses a stream of events, which holds a place.
            if answer.headers().get(CONTENT_TYPE).is_some_and(|kind| kind == "text/event-stream") {
                client.end_when_stuck_for(limits.stream_stuck);
            }
            Ok::<_, std::convert::Infallible>(answer)
        }
    });
    let mut server = hyper::server::conn::http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(limits.head).half_close(false);
    let connection = server.serve_connection(TokioIo::new(client), service);
    async move {
        tokio::pin!(connection);
        let ended = tokio::select! {
            ended = connection.as_mut() => ended,
            () = shutdown.cancelled() => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = ended {
            // A client that went away, or sent what is no HTTP. Its own business, and common.
            tracing::debug!(%error, "connection ended early");
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::routing::get;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    async fn start(config: HttpConfig) -> (SocketAddr, CancellationToken, tokio::task::JoinHandle<()>) {
        let slow = || async {
            tokio::time::sleep(Duration::from_millis(300)).await;
            "done"
        };
        let endless = || async {
            let piece = || Ok::<_, std::convert::Infallible>(vec![0_u8; 64 << 10]);
            Body::from_stream(futures::stream::repeat_with(piece))
        };
        let peer = |ConnectInfo(peer): ConnectInfo<SocketAddr>| async move { peer.to_string() };
        let router = Router::new()
            .route("/slow", get(slow))
            .route("/never", get(std::future::pending::<()>))
            .route("/endless", get(endless))
            .route("/peer", get(peer));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shutdown = CancellationToken::new();
        let stop = shutdown.clone();
        let server = tokio::spawn(async move { serve(listener, router, &config, stop).await });
        (address, shutdown, server)
    }

    async fn ask(address: SocketAddr, head: &str) -> TcpStream {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(head.as_bytes()).await.unwrap();
        stream
    }

    async fn answer(mut stream: TcpStream) -> String {
        let mut text = Vec::new();
        let _ = stream.read_to_end(&mut text).await;
        String::from_utf8_lossy(&text).into_owned()
    }

    #[tokio::test]
    async fn an_answer_under_way_is_finished_and_one_that_never_comes_is_cut_off() {
        let config = HttpConfig { drain_seconds_max: 1, ..HttpConfig::default() };
        let (address, shutdown, server) = start(config).await;
        let slow = ask(address, "GET /slow HTTP/1.1\r\nhost: x\r\n\r\n").await;
        let never = ask(address, "GET /never HTTP/1.1\r\nhost: x\r\n\r\n").await;
        // Both requests are in once a third one has been answered.
        let peer =
            answer(ask(address, "GET /peer HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await).await;
        assert!(peer.contains("127.0.0.1:"), "{peer}");
        shutdown.cancel();
        assert!(answer(slow).await.ends_with("done"));
        tokio::time::timeout(Duration::from_secs(5), server).await.expect("it never stopped").unwrap();
        assert_eq!(answer(never).await, "");
        assert!(TcpStream::connect(address).await.is_err(), "it still accepts");
    }

    #[tokio::test]
    async fn a_client_that_takes_nothing_of_an_endless_answer_is_cut_off() {
        let config = HttpConfig { stuck_seconds_max: 1, drain_seconds_max: 60, ..HttpConfig::default() };
        let (address, shutdown, server) = start(config).await;
        let mut never_reads = ask(address, "GET /endless HTTP/1.1\r\nhost: x\r\n\r\n").await;
        assert_eq!(never_reads.read(&mut [0; 1]).await.unwrap(), 1);
        // The stop waits for the answer to end, and nothing but the limit ends it.
        shutdown.cancel();
        tokio::time::timeout(Duration::from_secs(30), server).await.expect("it is kept").unwrap();
        drop(never_reads);
    }

    #[tokio::test]
    async fn a_head_that_never_ends_is_given_up() {
        let config = HttpConfig { head_seconds_max: 1, ..HttpConfig::default() };
        let (address, shutdown, server) = start(config).await;
        let dribble = ask(address, "GET /slow HTTP/1.1\r\nx-").await;
        let given_up = tokio::time::timeout(Duration::from_secs(5), answer(dribble)).await;
        assert!(given_up.is_ok(), "the connection was kept");
        shutdown.cancel();
        server.await.unwrap();
    }
}
