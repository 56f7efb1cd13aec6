//! Services of our own: a whole `aivideo demo` in a temporary folder, as a process of its own so that the load and
//! what is under load share nothing but the machine.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use anyhow::{Context, bail};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde::Deserialize;
use sqlx::{Connection, PgConnection};
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, Command},
};
use tokio_util::sync::CancellationToken;

use super::{machine::Postgres, provider::Provider, target::Target};
use crate::demo;

/// Nothing is limited but by the machine; `--config` names another file.
const SETTINGS: &str = include_str!("../../../../../config/bench.toml");
/// A first start makes a database.
const READY_MAX: Duration = Duration::from_secs(90);
/// An orderly stop lets submits under way finish.
const STOP_MAX: Duration = Duration::from_secs(60);
/// A count of millions of rows takes a moment.
const QUERY_MAX: Duration = Duration::from_secs(30);

/// Which roles run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scheduler {
    On,
    Off,
}

/// A deployment that lives as long as this value is not stopped.
pub(super) struct Private {
    child: Child,
    folder: TempDir,
    ready: Ready,
}

/// What the demo says when it is ready; the rest of its line is of no use here.
#[derive(Deserialize)]
struct Ready {
    url: String,
    api_key: String,
    mock_provider_url: String,
    database_url: String,
}

impl Private {
    /// Starts everything anew. `None` when it was interrupted meanwhile.
    ///
    /// # Errors
    /// When it is not ready in time; the message holds the end of its log. Nothing runs then.
    pub(super) async fn start(
        config: Option<&Path>,
        scheduler: Scheduler,
        stop: &CancellationToken,
    ) -> anyhow::Result<Option<Self>> {
        let folder = folder()?;
        let settings = match config {
            Some(file) => file.canonicalize().with_context(|| format!("cannot read {}", file.display()))?,
            None => {
                let file = folder.path().join("bench.toml");
                fs::write(&file, SETTINGS).context("cannot write the settings")?;
                file
            }
        };
        let log = folder.path().join("demo.log");
        let mut child = spawn(folder.path(), &settings, scheduler, &log)?;
        let ready = tokio::select! {
            ready = ready(&mut child) => Some(ready),
            () = stop.cancelled() => None,
        };
        match ready {
            Some(Ok(ready)) => Ok(Some(Self { child, folder, ready })),
            Some(Err(error)) => {
                let said = demo::tail(&log);
                end(child, folder).await?;
                Err(error
                    .context(format!("the private services did not start; their log ends with:\n{said}")))
            }
            None => end(child, folder).await.map(|()| None),
        }
    }

    /// Its API, with a key.
    pub(super) async fn api(&self) -> anyhow::Result<Target> {
        Ok(Target::parse(&self.ready.url, &self.ready.api_key, false).await?)
    }

    /// Its provider.
    pub(super) async fn provider(&self) -> anyhow::Result<Provider> {
        Ok(Provider::new(Target::parse(&self.ready.mock_provider_url, "bench", false).await?))
    }

    /// How many tasks PostgreSQL holds: accepted ones must all be there.
    pub(super) async fn stored(&self) -> anyhow::Result<u64> {
        let count = self.query("SELECT count(*)::text FROM generation_tasks").await?;
        count.parse().context("a count")
    }

    /// What durability it had.
    pub(super) async fn postgres(&self) -> anyhow::Result<Postgres> {
        Ok(Postgres {
            version: self.query("SHOW server_version").await?,
            fsync: self.query("SHOW fsync").await?,
            synchronous_commit: self.query("SHOW synchronous_commit").await?,
            full_page_writes: self.query("SHOW full_page_writes").await?,
            shared_buffers: self.query("SHOW shared_buffers").await?,
            max_wal_size: self.query("SHOW max_wal_size").await?,
        })
    }

    async fn query(&self, sql: &'static str) -> anyhow::Result<String> {
        let asked = async {
            let mut connection = PgConnection::connect(&self.ready.database_url).await?;
            let value = sqlx::query_scalar(sql).fetch_one(&mut connection).await?;
            connection.close().await?;
            Ok::<String, sqlx::Error>(value)
        };
        tokio::time::timeout(QUERY_MAX, asked)
            .await
            .context("no answer in time")?
            .context("the private PostgreSQL")
    }

    /// The memory of the process with all roles that is its own and not a file's, in bytes.
    pub(super) fn rss_anon(&self) -> Option<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()?)).ok()?;
        let kib =
            status.lines().find_map(|line| line.strip_prefix("RssAnon:"))?.trim().strip_suffix(" kB")?;
        kib.parse::<u64>().ok().map(|kib| kib * 1_024)
    }

    /// Stops everything and removes its files.
    ///
    /// # Errors
    /// When something of it could not be removed.
    pub(super) async fn stop(self) -> anyhow::Result<()> {
        end(self.child, self.folder).await
    }
}

/// A folder that PostgreSQL's own user can enter, should we be root. What is secret in it has modes of its own.
fn folder() -> anyhow::Result<TempDir> {
    let open = fs::Permissions::from_mode(0o755);
    let folder = tempfile::Builder::new().prefix("aivideo-bench-").permissions(open).tempdir();
    folder.context("cannot make a temporary folder")
}

fn spawn(folder: &Path, settings: &Path, scheduler: Scheduler, log: &Path) -> anyhow::Result<Child> {
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    let log = fs::File::create(log).context("cannot write a log")?;
    let mut command = Command::new(program);
    // The caller's own settings must not reach what is measured; `--config` may.
    command.env_clear();
    for name in ["PATH", "HOME", "TMPDIR", "RUST_LOG"] {
        command.envs(std::env::var_os(name).map(|value| (name, value)));
    }
    command
        .args(["demo", "--json", "--http-addr", "127.0.0.1:0", "--data-dir"])
        .arg(folder)
        .arg("--config")
        .arg(settings);
    if scheduler == Scheduler::Off {
        command.args(["--roles", "api"]);
    }
    // In a group of its own, so that the terminal's Ctrl-C reaches only us and we stop it in order.
    command.current_dir(folder).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log).process_group(0);
    command.spawn().context("cannot run the private services")
}

async fn ready(child: &mut Child) -> anyhow::Result<Ready> {
    let out = child.stdout.take().context("no output")?;
    let mut lines = BufReader::new(out).lines();
    let line = tokio::time::timeout(READY_MAX, lines.next_line()).await.context("not ready in time")??;
    let Some(line) = line else { bail!("they ended before they were ready") };
    serde_json::from_str(&line).context("what they said when ready was not understood")
}

/// Ends the demo and whatever servers it may have left, and removes the files.
async fn end(mut child: Child, folder: TempDir) -> anyhow::Result<()> {
    if let Some(pid) = child.id().and_then(|pid| i32::try_from(pid).ok()) {
        // It may have ended by itself; then there is nobody to tell.
        let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
        if tokio::time::timeout(STOP_MAX, child.wait()).await.is_err() {
            child.kill().await.context("cannot end the private services")?;
        }
    }
    let elsewhere: Option<PathBuf> = demo::end_servers(folder.path()).await?;
    if let Some(files) = elsewhere {
        fs::remove_dir_all(&files).with_context(|| format!("cannot remove {}", files.display()))?;
    }
    let path = folder.path().to_owned();
    folder.close().with_context(|| format!("cannot remove {}", path.display()))
}
