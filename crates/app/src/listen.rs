//! The HTTP listeners. They talk to hyper directly, so that heads have a limit in time, connections one in number,
//! and a stop one in length.

use std::{future::Future, net::SocketAddr, sync::Arc, time::Duration};

use axum::{Router, body::Body, extract::ConnectInfo};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tower::Service;

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
    let head_max = Duration::from_secs(config.head_seconds_max);
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
                    let served = connection(stream, peer, router.clone(), head_max, shutdown.clone());
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

fn connection(
    stream: TcpStream,
    peer: SocketAddr,
    router: Router,
    head_max: Duration,
    shutdown: CancellationToken,
) -> impl Future<Output = ()> {
    // Small answers must not wait for the peer's acknowledgement; failing to ask does no harm.
    let _ = stream.set_nodelay(true);
    let service = hyper::service::service_fn(move |request: hyper::Request<hyper::body::Incoming>| {
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(ConnectInfo(peer));
        router.clone().call(request)
    });
    let mut server = hyper::server::conn::http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(head_max).half_close(false);
    let connection = server.serve_connection(TokioIo::new(stream), service);
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
        let router =
            Router::new().route("/slow", get(slow)).route("/never", get(std::future::pending::<()>)).route(
                "/peer",
                get(|ConnectInfo(peer): ConnectInfo<SocketAddr>| async move { peer.to_string() }),
            );
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
