//! The processes of the platform: `aivideo serve` several times, each killed and started again at the same address.

use std::{
    fs,
    net::{Ipv4Addr, SocketAddr, TcpListener},
    path::{Path, PathBuf},
    process::Stdio,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::Child,
    sync::Mutex,
};

use crate::{process::Frozen, servers::command};

/// Until it says that it is ready.
const START_MAX: Duration = Duration::from_secs(60);
/// A supervisor starts again what did not start: PostgreSQL may be down as well, or still busy with the connections of
/// the one that was killed.
const SUPERVISED_FOR: Duration = Duration::from_secs(60);
/// Its pause between two starts.
const SUPERVISOR_PAUSE: Duration = Duration::from_millis(300);
/// Answers, writers and submits under way have limits of their own; together they stay below this.
const STOP_MAX: Duration = Duration::from_secs(60);

/// All processes.
pub(crate) struct Fleet {
    members: Vec<Member>,
}

/// One place where a process runs, most of the time.
pub(crate) struct Member {
    pub(crate) roles: String,
    pub(crate) address: SocketAddr,
    aivideo: PathBuf,
    folder: PathBuf,
    variables: Vec<(String, String)>,
    pub(crate) log: PathBuf,
    /// Held while it is killed and started, so that nobody meets it in between.
    child: Mutex<Option<Child>>,
}

impl Fleet {
    /// Starts one process per set of roles.
    ///
    /// # Errors
    /// When one does not become ready.
    pub(crate) async fn start(
        aivideo: &Path,
        folder: &Path,
        variables: &[(String, String)],
        processes: &[String],
    ) -> anyhow::Result<Self> {
        let mut members = Vec::new();
        for (n, roles) in processes.iter().enumerate() {
            members.push(Member {
                roles: roles.clone(),
                address: (Ipv4Addr::LOCALHOST, free_port()?).into(),
                aivideo: aivideo.to_owned(),
                folder: folder.to_owned(),
                variables: variables.to_vec(),
                log: folder.join(format!("process-{n}.log")),
                child: Mutex::new(None),
            });
        }
        for member in &members {
            *member.child.lock().await = Some(member.spawn().await?);
        }
        Ok(Self { members })
    }

    pub(crate) fn members(&self) -> &[Member] {
        &self.members
    }

    /// Where the API answers, most of the time.
    pub(crate) fn doors(&self) -> Vec<SocketAddr> {
        let with_api = self.members.iter().filter(|member| member.roles.split(',').any(|role| role == "api"));
        with_api.map(|member| member.address).collect()
    }

    /// Ends all in good order, one after the other.
    ///
    /// # Errors
    /// When one did not end, or not well.
    pub(crate) async fn stop(&self) -> anyhow::Result<()> {
        for (n, member) in self.members.iter().enumerate() {
            if let Some(child) = member.child.lock().await.take() {
                end(child).await.with_context(|| format!("process {n}"))?;
            }
        }
        Ok(())
    }
}

impl Member {
    /// kill -9, and a new start.
    pub(crate) async fn kill(&self, down: Duration) -> anyhow::Result<()> {
        let mut child = self.child.lock().await;
        if let Some(mut old) = child.take() {
            old.start_kill()?;
            old.wait().await?;
        }
        tokio::time::sleep(down).await;
        *child = Some(self.spawn().await?);
        Ok(())
    }

    /// SIGTERM, the end, and a new start.
    pub(crate) async fn roll(&self) -> anyhow::Result<()> {
        let mut child = self.child.lock().await;
        if let Some(old) = child.take() {
            end(old).await?;
        }
        *child = Some(self.spawn().await?);
        Ok(())
    }

    /// Stops its clock for a while.
    pub(crate) async fn freeze(&self, for_: Duration) -> anyhow::Result<()> {
        let child = self.child.lock().await;
        let pid = child.as_ref().and_then(Child::id).and_then(|pid| i32::try_from(pid).ok());
        let _frozen = Frozen::stop(Pid::from_raw(pid.context("it had ended by itself")?))?;
        tokio::time::sleep(for_).await;
        Ok(())
    }

    /// Its memory that no file backs, in KiB; none while it is being killed, started or frozen.
    pub(crate) fn rss_anon(&self) -> Option<u64> {
        let pid = self.child.try_lock().ok()?.as_ref()?.id()?;
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let line = status.lines().find(|line| line.starts_with("RssAnon:"))?;
        line.split_whitespace().nth(1)?.parse().ok()
    }

    /// What it said of panics. It may have none, whatever it met.
    pub(crate) fn panics(&self) -> anyhow::Result<Vec<String>> {
        let text = String::from_utf8_lossy(&fs::read(&self.log)?).into_owned();
        Ok(text.lines().filter(|line| line.contains("panic")).map(str::to_owned).collect())
    }

    async fn spawn(&self) -> anyhow::Result<Child> {
        let give_up = Instant::now() + SUPERVISED_FOR;
        loop {
            match self.try_spawn().await {
                Ok(child) => return Ok(child),
                Err(error) if Instant::now() >= give_up => return Err(error),
                Err(_) => tokio::time::sleep(SUPERVISOR_PAUSE).await,
            }
        }
    }

    async fn try_spawn(&self) -> anyhow::Result<Child> {
        let log = fs::File::options().create(true).append(true).open(&self.log)?;
        let mut child = command(&self.aivideo, &self.folder)
            .args(["serve", "--roles", &self.roles])
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .env("AIVIDEO_HTTP_ADDR", self.address.to_string())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()?;
        let mut lines = BufReader::new(child.stdout.take().context("no output")?).lines();
        match tokio::time::timeout(START_MAX, lines.next_line()).await {
            Ok(Ok(Some(_))) => Ok(child),
            Ok(_) => {
                bail!("a process with the roles {} did not start; see {}", self.roles, self.log.display())
            }
            Err(_) => bail!("a process with the roles {} was not ready in time", self.roles),
        }
    }
}

async fn end(mut child: Child) -> anyhow::Result<()> {
    let pid = child.id().and_then(|pid| i32::try_from(pid).ok()).context("it had ended by itself")?;
    let begun = Instant::now();
    kill(Pid::from_raw(pid), Signal::SIGTERM)?;
    let Ok(status) = tokio::time::timeout(STOP_MAX, child.wait()).await else {
        bail!("it did not end within {STOP_MAX:?} after SIGTERM");
    };
    let status = status?;
    if !status.success() {
        bail!("it ended with {status} {:?} after SIGTERM", begun.elapsed());
    }
    Ok(())
}

/// A port outside the range from which the kernel takes those of outgoing connections: one of them could sit on the
/// port of a process that is just down.
pub(crate) fn free_port() -> anyhow::Result<u16> {
    for _ in 0..200 {
        let port = rand::random_range(20_000..32_000);
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return Ok(port);
        }
    }
    bail!("no free port")
}
