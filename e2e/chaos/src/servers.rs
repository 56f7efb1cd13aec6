//! The servers around the platform: a demo starts them in a folder of their own and is then killed, which leaves them
//! running, as a crash would.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Stdio,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde::Deserialize;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
    process::{Child, Command},
    sync::Mutex,
};

/// A first start makes a database; on a busy machine that takes its time.
const START_MAX: Duration = Duration::from_secs(120);
/// What a server may take to end in good order, and an empty one to start.
const STOP_MAX: Duration = Duration::from_secs(15);
/// What Redis may take to answer, frozen moments aside.
const REDIS_MAX: Duration = Duration::from_secs(10);

/// What `demo --json` prints, as far as it is needed here.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Ready {
    pub(crate) api_key: String,
    pub(crate) mock_provider_url: String,
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
    redis: Mutex<Redis>,
}

struct Redis {
    pid: Pid,
    program: PathBuf,
    /// The one that we started ourselves, after the first was killed.
    child: Option<Child>,
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
        let pairs = text.lines().filter_map(|line| line.split_once('='));
        let variables = pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let pid = pid_of(&data.join("redis.pid")).context("Redis left no pid")?;
        let program = fs::read_link(format!("/proc/{pid}/exe"))?;
        let redis = Mutex::new(Redis { pid: Pid::from_raw(pid), program, child: None });
        Ok(Self { folder: data, ready, variables, redis })
    }

    /// Sends commands to Redis and reads as many `+OK`.
    pub(crate) async fn redis(&self, what: &str) -> anyhow::Result<()> {
        let _alone = self.redis.lock().await;
        self.redis_ok(what).await
    }

    async fn redis_ok(&self, what: &str) -> anyhow::Result<()> {
        let rest = self.ready.redis_url.strip_prefix("redis://default:").context("its address")?;
        let (password, address) = rest.trim_end_matches("/0").split_once('@').context("its address")?;
        let talk = async {
            let mut stream = TcpStream::connect(address).await?;
            stream.write_all(format!("AUTH {password}\r\n{what}\r\n").as_bytes()).await?;
            let mut answer = [0; 10];
            stream.read_exact(&mut answer).await?;
            if &answer != b"+OK\r\n+OK\r\n" {
                bail!("{what}: {}", String::from_utf8_lossy(&answer));
            }
            Ok(())
        };
        tokio::time::timeout(REDIS_MAX, talk).await.with_context(|| format!("{what} was not answered"))?
    }

    /// Stops its clock for a moment.
    pub(crate) async fn freeze_redis(&self, for_: Duration) -> anyhow::Result<()> {
        let redis = self.redis.lock().await;
        kill(redis.pid, Signal::SIGSTOP)?;
        tokio::time::sleep(for_).await;
        Ok(kill(redis.pid, Signal::SIGCONT)?)
    }

    /// Kills it, throws its files away and starts it where it was.
    pub(crate) async fn lose_redis(&self, down: Duration) -> anyhow::Result<()> {
        let mut redis = self.redis.lock().await;
        kill(redis.pid, Signal::SIGKILL)?;
        match redis.child.take() {
            Some(mut child) => drop(child.wait().await?),
            None => gone(redis.pid, STOP_MAX).await.then_some(()).context("Redis did not die")?,
        }
        tokio::time::sleep(down).await;
        for entry in fs::read_dir(self.folder.join("redis"))? {
            let path = entry?.path();
            if path.is_dir() { fs::remove_dir_all(path)? } else { fs::remove_file(path)? }
        }
        let log = fs::File::options().append(true).open(self.folder.join("redis.log"))?;
        let child = Command::new(&redis.program)
            // The same file is several programs, by the name that it is called with.
            .arg0("redis-server")
            .arg(self.folder.join("redis.conf"))
            .current_dir(&self.folder)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .process_group(0)
            .kill_on_drop(true)
            .spawn()?;
        let pid = child.id().and_then(|pid| i32::try_from(pid).ok()).context("Redis ended at once")?;
        redis.pid = Pid::from_raw(pid);
        redis.child = Some(child);
        let begun = Instant::now();
        while let Err(error) = self.redis_ok("SELECT 0").await {
            if begun.elapsed() > STOP_MAX {
                return Err(error.context("Redis did not come back"));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    /// Kills one of PostgreSQL's processes, upon which it takes all of them for unsafe.
    pub(crate) fn crash_postgres(&self) -> anyhow::Result<()> {
        let postmaster = pid_of(&self.folder.join("postgres.pid")).context("PostgreSQL left no pid")?;
        let children = fs::read_to_string(format!("/proc/{postmaster}/task/{postmaster}/children"))?;
        // The last one is the youngest, so it serves a connection.
        let child = children.split_whitespace().last().context("PostgreSQL has no children")?;
        Ok(kill(Pid::from_raw(child.parse()?), Signal::SIGKILL)?)
    }

    /// Ends all of them.
    pub(crate) async fn stop(&self) {
        if let Some(mut child) = self.redis.lock().await.child.take() {
            // Nothing in it is worth a question.
            let _ = child.kill().await;
        }
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

fn pid_of(file: &Path) -> Option<i32> {
    fs::read_to_string(file).ok()?.split_whitespace().next()?.parse().ok()
}

/// The servers of this folder's pid files that live: a number that was given out again works elsewhere.
fn living(folder: &Path) -> Vec<Pid> {
    let files = fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
    files
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "pid"))
        .filter_map(|path| {
            let text = fs::read_to_string(path).ok()?;
            let (pid, started) = text.trim().split_once(' ')?;
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
            let mut fields = stat.rsplit_once(") ")?.1.split(' ');
            let lives = !matches!(fields.next()?, "Z" | "X") && fields.nth(18)? == started;
            lives.then(|| pid.parse().ok()).flatten()
        })
        .map(Pid::from_raw)
        .collect()
}

async fn gone(pid: Pid, patience: Duration) -> bool {
    let begun = Instant::now();
    loop {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
        if matches!(state, None | Some('Z' | 'X')) {
            return true;
        }
        if begun.elapsed() > patience {
            return false;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
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
