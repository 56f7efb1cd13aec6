//! The servers around the platform: a demo starts them in a folder of their own and is then killed, which leaves them
//! running, as a crash would.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use anyhow::{Context, bail};
use nix::sys::signal::{Signal, kill};
use serde::Deserialize;
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::Command,
};

use crate::{
    postgres::Postgres,
    process::{gone, living, pid_of},
    redis::RedisServer,
};

/// A first start makes a database; on a busy machine that takes its time.
const START_MAX: Duration = Duration::from_secs(120);
/// What a server may take to end in good order.
const STOP_MAX: Duration = Duration::from_secs(15);

/// What `demo --json` prints, as far as it is needed here.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Ready {
    pub(crate) api_key: String,
    pub(crate) mock_provider_url: String,
    database_url: String,
    redis_url: String,
    env_file: PathBuf,
}

/// A command without anything of the caller's own settings, where no `aivideo.toml` lies.
pub(crate) fn command(aivideo: &Path, folder: &Path) -> Command {
    let mut command = Command::new(aivideo);
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command.current_dir(folder).stdin(Stdio::null()).kill_on_drop(true);
    command
}

/// PostgreSQL, Redis and the mock provider of one run.
pub(crate) struct Servers {
    folder: PathBuf,
    pub(crate) ready: Ready,
    /// What every further process of the deployment takes from the environment.
    pub(crate) variables: Vec<(String, String)>,
    pub(crate) redis: RedisServer,
    pub(crate) postgres: Postgres,
}

impl Servers {
    /// Starts them with a migrated and seeded database.
    ///
    /// # Errors
    /// When the demo does not become ready.
    pub(crate) async fn start(
        aivideo: &Path,
        folder: &Path,
        queue: &str,
        variables: &[(String, String)],
    ) -> anyhow::Result<Self> {
        let data = folder.join("demo");
        let log = folder.join("demo.log");
        let mut demo = command(aivideo, folder)
            .args(["demo", "--json", "--roles", "api", "--http-addr", "127.0.0.1:0", "--queue", queue])
            .arg("--data-dir")
            .arg(&data)
            .envs(variables.iter().map(|(name, value)| (name, value)))
            .stdout(Stdio::piped())
            .stderr(fs::File::create(&log)?)
            .spawn()
            .with_context(|| format!("cannot run {}", aivideo.display()))?;
        let mut lines = BufReader::new(demo.stdout.take().context("no output")?).lines();
        let line = tokio::time::timeout(START_MAX, lines.next_line()).await;
        let ready: Ready = match line {
            Ok(Ok(Some(line))) => serde_json::from_str(&line)?,
            _ => {
                end_all(&data).await;
                bail!("the demo did not start:\n{}", fs::read_to_string(&log).unwrap_or_default());
            }
        };
        demo.start_kill()?;
        demo.wait().await?;
        let text = fs::read_to_string(&ready.env_file)?;
        let variables = variables_of(&text);
        let pid = pid_of(&data.join("redis.pid")).context("Redis left no pid")?;
        let redis = RedisServer::adopt(&data, &ready.redis_url, pid)?;
        let postgres = Postgres::of(&data, &ready.database_url)?;
        Ok(Self { folder: data, ready, variables, redis, postgres })
    }

    /// Ends all of them.
    pub(crate) async fn stop(&self) {
        self.redis.stop().await;
        end_all(&self.folder).await;
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        // After an orderly stop nobody is left; after a panic nothing may outlive the run.
        for pid in living(&self.folder) {
            let _ = kill(pid, Signal::SIGKILL);
        }
    }
}

/// The lines of an env file.
fn variables_of(text: &str) -> Vec<(String, String)> {
    let pairs = text.lines().filter_map(|line| line.split_once('='));
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

async fn end_all(folder: &Path) {
    let servers = living(folder);
    for &pid in &servers {
        // PostgreSQL takes SIGINT for an end that waits for no client; the others end too.
        let _ = kill(pid, Signal::SIGINT);
    }
    for &pid in &servers {
        if !gone(pid, STOP_MAX).await {
            let _ = kill(pid, Signal::SIGKILL);
        }
    }
}
