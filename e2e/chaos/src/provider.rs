//! A mock provider of the run's own, which can be taken away and brought back with the jobs that it had.

use std::{
    fs,
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use http::Method;
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::{Value, json};
use tokio::{process::Child, sync::Mutex};

use crate::{client::Client, fleet::free_port, process::Frozen, servers::command};

const START_MAX: Duration = Duration::from_secs(30);
/// It lets answers end and writes its jobs.
const STOP_MAX: Duration = Duration::from_secs(15);

/// One provider, at the same address for as long as the run lasts.
pub(crate) struct MockProvider {
    pub(crate) name: &'static str,
    pub(crate) address: SocketAddr,
    aivideo: PathBuf,
    folder: PathBuf,
    /// Who asks for its figures and gives it orders.
    client: Client,
    child: Mutex<Option<Child>>,
}

impl MockProvider {
    /// Starts one with its files in this folder.
    pub(crate) async fn start(aivideo: &Path, folder: &Path, name: &'static str) -> anyhow::Result<Self> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()?));
        let provider = Self {
            name,
            address,
            aivideo: aivideo.to_owned(),
            folder: folder.to_owned(),
            client: Client::new("control", vec![address.to_string()])?,
            child: Mutex::new(None),
        };
        provider.start_again().await?;
        Ok(provider)
    }

    /// Its address as a URL, or that of somebody who stands before it.
    pub(crate) fn url_at(address: SocketAddr) -> String {
        format!("http://{address}")
    }

    /// Starts it, with the jobs of its last life.
    pub(crate) async fn start_again(&self) -> anyhow::Result<()> {
        let file = |ending: &str| self.folder.join(format!("provider-{}.{ending}", self.name));
        let log = fs::File::options().create(true).append(true).open(file("log"))?;
        let mut child = command(&self.aivideo, &self.folder)
            .args(["mock-provider", "--http-addr", &self.address.to_string(), "--state-file"])
            .arg(file("json"))
            .stdout(log.try_clone()?)
            .stderr(log)
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot run {}", self.aivideo.display()))?;
        let begun = Instant::now();
        while self.ask("GET", "/_control/ping", None).await.is_err() {
            if begun.elapsed() > START_MAX || child.try_wait()?.is_some() {
                bail!("the provider {} did not start; see {}", self.name, file("log").display());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        *self.child.lock().await = Some(child);
        Ok(())
    }

    /// Ends it in good order, so that its jobs are there again later, as those of a real provider are.
    pub(crate) async fn stop(&self) -> anyhow::Result<()> {
        let Some(mut child) = self.child.lock().await.take() else { return Ok(()) };
        kill(pid(&child)?, Signal::SIGTERM)?;
        let ended = tokio::time::timeout(STOP_MAX, child.wait()).await;
        ended.with_context(|| format!("the provider {} did not end", self.name))??;
        Ok(())
    }

    /// Stops its clock until the guard is dropped.
    pub(crate) async fn freeze(&self) -> anyhow::Result<Frozen> {
        let child = self.child.lock().await;
        Ok(Frozen::stop(pid(child.as_ref().context("it is stopped")?)?)?)
    }

    /// A job of this model takes this long from now on.
    pub(crate) async fn duration(&self, model: &str, duration: Duration) -> anyhow::Result<()> {
        let body = json!({ "duration_ms": u64::try_from(duration.as_millis())? });
        self.ask("PUT", &format!("/_control/models/{model}"), Some(body)).await.map(drop)
    }

    /// Figures begin anew; jobs go on.
    pub(crate) async fn reset(&self) -> anyhow::Result<()> {
        self.ask("POST", "/_control/reset", None).await.map(drop)
    }

    /// How many submits it has seen.
    pub(crate) async fn submits(&self) -> anyhow::Result<u64> {
        let figures = self.ask("GET", "/_control/figures", None).await?;
        figures["submits"].as_u64().context("a figure")
    }

    /// All that it has seen.
    pub(crate) async fn stats(&self) -> anyhow::Result<Value> {
        self.ask("GET", "/_control/stats", None).await
    }

    async fn ask(&self, method: &str, path: &str, body: Option<Value>) -> anyhow::Result<Value> {
        let url = format!("{}{path}", Self::url_at(self.address));
        let method = Method::from_bytes(method.as_bytes())?;
        let answer = self.client.ask(method, &url, body.as_ref(), None).await?;
        anyhow::ensure!((200..300).contains(&answer.status), "{path}: {} {}", answer.status, answer.json);
        Ok(answer.json)
    }
}

fn pid(child: &Child) -> anyhow::Result<Pid> {
    let pid = child.id().and_then(|pid| i32::try_from(pid).ok()).context("it had ended by itself")?;
    Ok(Pid::from_raw(pid))
}
