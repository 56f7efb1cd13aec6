//! A private Kafka broker, to be taken away for a while.

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, bail};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tokio::process::Command;

use crate::process::{Frozen, pid_of};

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

    fn pid(&self) -> anyhow::Result<Pid> {
        pid_of(&self.folder.join("pid")).context("the broker left no pid")
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> anyhow::Result<SocketAddr> {
        self.url.trim_start_matches("kafka://").parse().context("the address of the broker")
    }

    /// kill -9.
    pub(crate) fn kill(&self) -> anyhow::Result<()> {
        Ok(kill(self.pid()?, Signal::SIGKILL)?)
    }

    /// Starts the killed one again, at the same address and with its data.
    pub(crate) async fn start_again(&self) -> anyhow::Result<()> {
        let url = self.script("start").await?;
        anyhow::ensure!(url == self.url, "the broker came back at {url}, not at {}", self.url);
        Ok(())
    }

    /// Kills it with -9 and starts it again later.
    pub(crate) async fn kill_for(&self, down: Duration) -> anyhow::Result<()> {
        self.kill()?;
        tokio::time::sleep(down).await;
        self.start_again().await
    }

    /// Stops its clock until the guard is dropped: connections stay, and nobody answers.
    pub(crate) fn freeze(&self) -> anyhow::Result<Frozen> {
        Ok(Frozen::stop(self.pid()?)?)
    }

    /// Stops its clock for a moment.
    pub(crate) async fn freeze_for(&self, frozen: Duration) -> anyhow::Result<()> {
        let _frozen = self.freeze()?;
        tokio::time::sleep(frozen).await;
        Ok(())
    }

    /// Starts it anew with another address that it tells its clients: they come back there, whatever address they had
    /// first, so whoever wants to stand between has to be named here.
    pub(crate) async fn advertise(&self, address: SocketAddr) -> anyhow::Result<()> {
        let file = self.folder.join("server.properties");
        let settings = advertising(&fs::read_to_string(&file)?, address);
        self.script("stop").await?;
        fs::write(&file, settings)?;
        self.start_again().await
    }

    /// Ends it.
    pub(crate) async fn stop(&self) -> anyhow::Result<()> {
        self.script("stop").await.map(drop)
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        // After an orderly stop there is none; after a panic it may not outlive the run.
        let _ = self.kill();
    }
}

/// The settings with this address instead of the one that was told to clients.
fn advertising(settings: &str, address: SocketAddr) -> String {
    let line = |line: &str| match line.split_once('=') {
        Some((name @ "advertised.listeners", _)) => format!("{name}=PLAINTEXT://{address}\n"),
        _ => format!("{line}\n"),
    };
    settings.lines().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_told_the_new_address_and_the_broker_listens_where_it_was() {
        let settings = "listeners=PLAINTEXT://127.0.0.1:1,CONTROLLER://127.0.0.1:2\n\
                        advertised.listeners=PLAINTEXT://127.0.0.1:1\nnode.id=1\n";
        let expected = settings.replace(
            "advertised.listeners=PLAINTEXT://127.0.0.1:1",
            "advertised.listeners=PLAINTEXT://127.0.0.1:9",
        );
        assert_eq!(advertising(settings, "127.0.0.1:9".parse().unwrap()), expected);
    }
}
