//! The mock provider as a process of its own, so that it outlives a crash of the platform like a real provider.

use std::{
    fs,
    net::{Ipv4Addr, SocketAddr},
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use fetch::{Fetch, FetchConfig, Limits, Request, SendGuard};
use nix::sys::signal::Signal;
use serde::Deserialize;
use tokio::process::Command;

use super::{
    place::Place,
    process::{Process, spawn_server, tail},
};
use crate::config::Secret;

/// The server's name in pid, port and log files.
pub(super) const NAME: &str = "mock-provider";
const READY_MAX: Duration = Duration::from_secs(10);
const STARTS_MAX: u32 = 3;
/// It ends its answers and writes its jobs.
const STOP_MAX: Duration = Duration::from_secs(10);
const PING: Limits =
    Limits { total: Duration::from_secs(2), idle: Duration::from_secs(2), bytes_max: 4096, redirects_max: 0 };

/// Makes sure that it runs, and returns its URL.
///
/// # Errors
/// When it cannot be started; the message holds the end of its log.
pub(super) async fn ensure(place: &Place, callback_secret: Option<&Secret>) -> anyhow::Result<String> {
    if let Some(process) = place.server(NAME) {
        if let Some(port) = place.last_port(NAME)
            && ping(port).await.is_ok()
        {
            tracing::info!(port, "the mock provider still runs, taking it over");
            return Ok(url(port));
        }
        tracing::warn!("the mock provider runs but does not answer, starting it again");
        process.stop(Signal::SIGTERM, Duration::from_secs(2)).await;
    }
    // It works in a folder of its own, by which one that nobody noted is found.
    let folder = place.private_folder(NAME)?;
    Process::end_strays(&folder).await;
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    let log = place.path("mock-provider.log");
    let mut last = None;
    for _ in 0..STARTS_MAX {
        let port = place.port(NAME)?;
        let mut command = Command::new(&program);
        // A provider knows nothing of its customers, neither their databases nor their secrets, but the one that both
        // have agreed upon.
        command.env_clear().envs(std::env::var_os("RUST_LOG").map(|level| ("RUST_LOG", level)));
        command.envs(
            callback_secret.map(|secret| ("AIVIDEO_PROVIDERS__MOCK__CALLBACK_SECRET", secret.reveal())),
        );
        command.args(["mock-provider", "--http-addr", &format!("127.0.0.1:{port}"), "--state-file"]);
        // Tasks that run when the demo is stopped go on at the next start, so their jobs have to be there then.
        command.arg(place.path("mock-provider.json")).current_dir(&folder);
        let (mut child, process) =
            spawn_server(&mut command, &log).context("cannot run the mock provider")?;
        process.record(&place.pid_file(NAME))?;
        let from = Instant::now();
        let error = loop {
            match ping(port).await {
                Ok(()) => return Ok(url(port)),
                Err(error) if from.elapsed() > READY_MAX => break error,
                Err(_) => {}
            }
            if let Some(status) = child.try_wait()? {
                break anyhow::anyhow!("it ended with {status}");
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        };
        process.stop(Signal::SIGKILL, Duration::ZERO).await;
        place.forget_port(NAME);
        last = Some(error);
    }
    let error = last.unwrap_or_else(|| anyhow::anyhow!("it was never tried"));
    Err(error.context(format!("the mock provider did not start; its log ends with:\n{}", tail(&log))))
}

/// Ends the process that this folder's pid file names, if it lives.
pub(super) async fn stop(place: &Place) {
    if let Some(process) = place.server(NAME) {
        process.stop(Signal::SIGTERM, STOP_MAX).await;
    }
    let _ = fs::remove_file(place.pid_file(NAME));
}

/// Whether a mock provider of this version answers there.
async fn ping(port: u16) -> anyhow::Result<()> {
    #[derive(Deserialize)]
    struct Pong {
        mock_provider: bool,
        version: String,
    }
    let host = SocketAddr::from((Ipv4Addr::LOCALHOST, port)).to_string();
    let fetch = Fetch::new(FetchConfig { private_hosts: vec![host.clone()], ..FetchConfig::default() })?;
    let request = Request {
        method: http::Method::GET,
        url: &format!("http://{host}/_control/ping"),
        headers: http::HeaderMap::new(),
        body: Default::default(),
        guard: SendGuard::open(),
    };
    let answer = fetch.request(request, PING).await?;
    let pong: Pong = serde_json::from_slice(&answer.body)?;
    if !pong.mock_provider || pong.version != env!("CARGO_PKG_VERSION") {
        bail!("a mock provider of version {} answers", pong.version);
    }
    Ok(())
}

fn url(port: u16) -> String {
    format!("http://127.0.0.1:{port}")
}
