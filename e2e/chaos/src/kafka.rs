//! A private Kafka broker, to be taken away for a while.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, bail};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tokio::process::Command;

/// A first start fetches the programs.
const START_MAX: Duration = Duration::from_secs(300);

/// A broker in a folder of its own that nobody else uses.
pub(crate) struct Broker {
    script: PathBuf,
    folder: PathBuf,
    pub(crate) url: String,
}

impl Broker {
    /// Starts one.
    ///
    /// # Errors
    /// When the script fails.
    pub(crate) async fn start(script: &Path, folder: PathBuf) -> anyhow::Result<Self> {
        fs::create_dir_all(&folder)?;
        let mut broker = Self { script: script.to_owned(), folder, url: String::new() };
        broker.url = broker.script("start").await?;
        Ok(broker)
    }

    /// Runs the script and returns the address that it prints.
    async fn script(&self, what: &str) -> anyhow::Result<String> {
        let output = Command::new(&self.script).arg(what).arg(&self.folder).kill_on_drop(true).output();
        let output =
            tokio::time::timeout(START_MAX, output).await.context("the broker's script never ended")??;
        if !output.status.success() {
            bail!("{what} of the broker: {}", String::from_utf8_lossy(&output.stderr));
        }
        let said = String::from_utf8_lossy(&output.stdout);
        Ok(said.trim().rsplit_once('=').map(|(_, url)| url.to_owned()).unwrap_or_default())
    }

    fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        let pid = fs::read_to_string(self.folder.join("pid")).context("the broker left no pid")?;
        Ok(kill(Pid::from_raw(pid.trim().parse()?), signal)?)
    }

    /// Kills it with -9 and starts it again later, at the same address and with its data.
    pub(crate) async fn kill_for(&self, down: Duration) -> anyhow::Result<()> {
        self.signal(Signal::SIGKILL)?;
        tokio::time::sleep(down).await;
        let url = self.script("start").await?;
        anyhow::ensure!(url == self.url, "the broker came back at {url}, not at {}", self.url);
        Ok(())
    }

    /// Stops its clock and lets it go on later: connections stay, and nobody answers.
    pub(crate) async fn freeze_for(&self, frozen: Duration) -> anyhow::Result<()> {
        self.signal(Signal::SIGSTOP)?;
        tokio::time::sleep(frozen).await;
        self.signal(Signal::SIGCONT)
    }

    /// Ends it.
    pub(crate) async fn stop(&self) -> anyhow::Result<()> {
        self.script("stop").await.map(drop)
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        // After an orderly stop there is none; after a panic it may not outlive the run.
        let _ = self.signal(Signal::SIGKILL);
    }
}
