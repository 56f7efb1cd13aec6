//! The listener: accepts connections and drives the router on each.
//!
//! It talks to hyper directly rather than through axum's own server for one reason: a fault rule must be able to
//! close the connection without any answer, and hyper does that when a service returns an error.

use std::{
    future::Future,
    io,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use axum::{
    Router,
    body::Body,
    response::{IntoResponse, Response},
};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{net::TcpListener, sync::Semaphore};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tower::Service;

use crate::{
    Config, callbacks,
    routes::{self, App},
};

/// Connections served at once; the kernel's backlog holds the rest.
const CONNECTIONS_MAX: usize = 10_000;
/// How long answers under way may take after the shutdown signal. Hanging ones are cut off then.
const DRAIN_MAX: Duration = Duration::from_secs(1);

/// Marks an answer that must not be given: the connection is closed instead.
#[derive(Clone)]
pub(crate) struct CloseConnection;

impl CloseConnection {
    pub(crate) fn answer() -> Response {
        let mut answer = ().into_response();
        answer.extensions_mut().insert(Self);
        answer
    }
}

/// The clock by which jobs go on while nobody runs: the only one that two lives share.
#[expect(
    clippy::disallowed_methods,
    reason = "this crate depends on none of ours, so not on their clock either"
)]
pub(crate) fn wall_clock() -> SystemTime {
    SystemTime::now()
}

/// Serves until `shutdown` resolves, then lets answers under way finish for a second and writes the state file.
///
/// # Errors
/// When the listener has no local address, or the state file cannot be written. A failed accept (say, out of file descriptors) is logged and retried.
pub async fn serve(
    listener: TcpListener,
    config: Config,
    shutdown: impl Future<Output = ()>,
) -> io::Result<()> {
    let address = listener.local_addr()?;
    tracing::info!(%address, "mock provider listening");
    let state_file = config.state_file.clone();
    let state = tokio::task::spawn_blocking(move || App::new(&config)).await?;
    let app = routes::router(state.clone());
    let stop = CancellationToken::new();
    let callbacks = tokio::spawn(callbacks::run(state.clone(), stop.clone()));
    let connections = TaskTracker::new();
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    tokio::pin!(shutdown);
    loop {
        let accepted = async {
            let place = places.clone().acquire_owned().await;
            (listener.accept().await, place)
        };
        tokio::select! {
            () = &mut shutdown => break,
            (accepted, place) = accepted => match accepted {
                Ok((stream, _)) => {
                    // Small answers must not wait for the peer's acknowledgement; failing to ask does no harm.
                    let _ = stream.set_nodelay(true);
                    let (app, stop) = (app.clone(), stop.clone());
                    connections.spawn(async move {
                        connection(TokioIo::new(stream), app, stop).await;
                        drop(place);
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "accept failed");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
        }
    }
    drop(listener);
    stop.cancel();
    connections.close();
    connections.wait().await;
    // It ends at the stop; a panic of its own has been reported by the runtime.
    let _ = callbacks.await;
    if let Some(file) = state_file {
        let save = move || state.jobs.save(&file, Instant::now(), wall_clock());
        tokio::task::spawn_blocking(save).await??;
    }
    Ok(())
}

async fn connection(io: TokioIo<tokio::net::TcpStream>, app: Router, stop: CancellationToken) {
    let service = hyper::service::service_fn(move |request: hyper::Request<hyper::body::Incoming>| {
        let answer = app.clone().call(request.map(Body::new));
        async move {
            let answer = answer.await.unwrap_or_else(|never| match never {});
            match answer.extensions().get::<CloseConnection>() {
                Some(_) => Err(io::Error::other("closed as the fault rule says")),
                None => Ok(answer),
            }
        }
    });
    let mut server = hyper::server::conn::http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(Duration::from_secs(60));
    let connection = server.serve_connection(io, service);
    tokio::pin!(connection);
    tokio::select! {
        ended = &mut connection => {
            if let Err(error) = ended {
                tracing::debug!(%error, "connection ended early");
            }
            return;
        }
        () = stop.cancelled() => connection.as_mut().graceful_shutdown(),
    }
    // Past the limit the connection is dropped with whatever it was about to say.
    let _ = tokio::time::timeout(DRAIN_MAX, connection).await;
}

/// A provider that runs inside this process and stops when dropped.
#[derive(Debug)]
pub struct Running {
    address: SocketAddr,
    stop: CancellationToken,
    server: tokio::task::JoinHandle<io::Result<()>>,
}

/// Starts a provider on a free loopback port, for tests.
///
/// # Errors
/// When no port can be bound.
pub async fn start(config: Config) -> io::Result<Running> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let address = listener.local_addr()?;
    let stop = CancellationToken::new();
    let server = tokio::spawn(serve(listener, config, stop.clone().cancelled_owned()));
    Ok(Running { address, stop, server })
}

impl Running {
    /// Its base address, without a trailing slash.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// `host:port`, as allow-lists spell it.
    #[must_use]
    pub fn authority(&self) -> String {
        self.address.to_string()
    }

    /// Stops it and waits until its port is closed.
    pub async fn stop(mut self) {
        self.stop.cancel();
        // The server cannot panic by itself; a join error means the runtime is going away with it.
        let _ = (&mut self.server).await;
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    /// One request on a connection of its own; all bytes that came back until the server closed.
    async fn raw(provider: &Running, request: &str) -> String {
        let mut stream = tokio::net::TcpStream::connect(provider.address).await.expect("connect");
        stream.write_all(request.as_bytes()).await.expect("write");
        let mut answer = Vec::new();
        // A reset counts as the end: what matters is what had come before it.
        let _ = stream.read_to_end(&mut answer).await;
        String::from_utf8_lossy(&answer).into_owned()
    }

    fn post(path: &str, body: &str, method: &str) -> String {
        format!(
            "{method} {path} HTTP/1.1\r\nhost: mock\r\ncontent-type: application/json\r\n\
             connection: close\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        )
    }

    const SUBMIT: &str =
        r#"{"model":"mock-fast","prompt":"a cat","duration_seconds":5,"client_reference":"t1.1"}"#;

    #[tokio::test]
    async fn a_drop_is_a_closed_connection_and_not_a_status() {
        let provider = start(Config::default()).await.expect("start");
        for (kind, jobs) in [("before_accept", 0), ("after_accept", 1)] {
            let rule = format!(r#"[{{"on":"submit","action":{{"drop":"{kind}"}},"times":1}}]"#);
            let put = raw(&provider, &post("/_control/faults", &rule, "PUT")).await;
            assert!(put.starts_with("HTTP/1.1 200"), "{put}");
            assert_eq!(raw(&provider, &post("/v1/jobs", SUBMIT, "POST")).await, "", "{kind}");
            let stats = raw(&provider, &post("/_control/stats", "", "GET")).await;
            assert!(stats.contains(&format!(r#""submits":{jobs},"#)), "{kind}: {stats}");
            assert!(stats.contains(&format!(r#""running":{jobs},"#)), "{kind}: {stats}");
        }
        assert!(raw(&provider, &post("/v1/jobs", SUBMIT, "POST")).await.starts_with("HTTP/1.1 202"));
        provider.stop().await;
    }

    #[tokio::test]
    async fn a_cut_off_answer_announces_what_it_does_not_send() {
        let provider = start(Config::default()).await.expect("start");
        let rule = r#"[{"on":"submit","action":{"truncate_bytes":5}}]"#;
        raw(&provider, &post("/_control/faults", rule, "PUT")).await;
        let answer = raw(&provider, &post("/v1/jobs", SUBMIT, "POST")).await;
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head came");
        let announced = head.lines().find_map(|l| l.strip_prefix("content-length: ")).expect("a length");
        assert!(announced.parse::<usize>().expect("number") > 5, "{head}");
        assert_eq!(body.len(), 5);
    }

    #[tokio::test]
    async fn a_hanging_answer_does_not_keep_the_server_from_stopping() {
        let provider = start(Config::default()).await.expect("start");
        raw(&provider, &post("/_control/faults", r#"[{"on":"submit","action":{"hang":true}}]"#, "PUT")).await;
        let mut stream = tokio::net::TcpStream::connect(provider.address).await.expect("connect");
        stream.write_all(post("/v1/jobs", SUBMIT, "POST").as_bytes()).await.expect("write");
        loop {
            // The job exists although its answer never comes.
            if raw(&provider, &post("/_control/stats", "", "GET")).await.contains(r#""running":1,"#) {
                break;
            }
        }
        tokio::time::timeout(Duration::from_secs(5), provider.stop()).await.expect("stopped");
    }

    #[tokio::test]
    async fn jobs_outlive_an_orderly_stop_when_there_is_a_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let state_file = Some(folder.path().join("state.json"));
        let config = Config { state_file, ..Config::default() };
        let provider = start(config.clone()).await.expect("start");
        let made = raw(&provider, &post("/v1/jobs", SUBMIT, "POST")).await;
        let id = made.split_once(r#""id":""#).and_then(|(_, rest)| rest.split_once('"')).expect("an id").0;
        provider.stop().await;

        let provider = start(config).await.expect("start");
        let path = format!("/v1/jobs/{id}");
        loop {
            let seen = raw(&provider, &post(&path, "", "GET")).await;
            assert!(seen.starts_with("HTTP/1.1 200"), "{seen}");
            if seen.contains(r#""status":"succeeded""#) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let found = raw(&provider, &post("/v1/jobs?client_reference=t1.1", "", "GET")).await;
        assert!(found.contains(id), "{found}");
        let output = raw(&provider, &post(&format!("{path}/output"), "", "GET")).await;
        assert!(output.starts_with("HTTP/1.1 200") && output.contains("video/mp4"), "{output}");
        let stats = raw(&provider, &post("/_control/stats", "", "GET")).await;
        assert!(stats.contains(r#""submits_by_reference":{"t1.1":1}"#), "{stats}");
        assert!(stats.contains(r#""max_live_by_task":1,"#), "{stats}");
        provider.stop().await;
    }
}
