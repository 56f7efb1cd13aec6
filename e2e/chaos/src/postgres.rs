//! The PostgreSQL server of a run: a crash of one session, of the whole server, and a server whose clock stands still.

use std::{
    fs,
    net::SocketAddr,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process::Stdio,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use nix::{
    sys::signal::{Signal, kill},
    unistd::{Pid, geteuid},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    process::{Child, Command},
};

use crate::process::{Frozen, children_of, gone, pid_of, started_at};

/// What a killed one may take to be gone.
const GONE_MAX: Duration = Duration::from_secs(15);
/// It has to recover what it had not yet written.
const START_MAX: Duration = Duration::from_secs(60);
const ANSWER_MAX: Duration = Duration::from_secs(2);
/// A greeting of version 3.0 for the user `aivideo`: its length, the version, and pairs of words that end with a zero.
const GREETING: &[u8] = b"\0\0\0\x27\0\x03\0\0user\0aivideo\0database\0aivideo\0\0";
/// How the answer to it begins when the server wants a password, hence takes sessions.
const ASKS_FOR_PASSWORD: u8 = b'R';

/// The server that a demo has started in its folder.
pub(crate) struct Postgres {
    pub(crate) address: SocketAddr,
    pid_file: PathBuf,
    log: PathBuf,
}

/// A server that was killed, and all that it takes to start it again.
pub(crate) struct Killed {
    words: Vec<String>,
    owner: (u32, u32),
}

impl Postgres {
    /// The one whose files lie in this folder.
    pub(crate) fn of(folder: &Path, url: &str) -> anyhow::Result<Self> {
        let (_, rest) = url.rsplit_once('@').context("the address of PostgreSQL")?;
        let address = rest.split('/').next().unwrap_or(rest).parse().context("the address of PostgreSQL")?;
        Ok(Self { address, pid_file: folder.join("postgres.pid"), log: folder.join("postgres.log") })
    }

    fn pid(&self) -> anyhow::Result<Pid> {
        pid_of(&self.pid_file).context("PostgreSQL left no pid")
    }

    /// Kills one of its processes, upon which it takes all of them for unsafe.
    pub(crate) fn crash_session(&self) -> anyhow::Result<()> {
        // The last one is the youngest, so it serves a connection.
        let child = children_of(self.pid()?).pop().context("PostgreSQL has no children")?;
        Ok(kill(child, Signal::SIGKILL)?)
    }

    /// Stops the clocks of all its processes until the guard is dropped.
    pub(crate) fn freeze(&self) -> anyhow::Result<Frozen> {
        let pid = self.pid()?;
        // The parent first: then there are no new children.
        Ok(Frozen::stop(pid)?.and(children_of(pid))?)
    }

    /// kill -9 of all its processes at once, as when the machine loses its power.
    pub(crate) async fn kill(&self) -> anyhow::Result<Killed> {
        let pid = self.pid()?;
        let text = fs::read_to_string(format!("/proc/{pid}/cmdline"))?;
        let words = text.split('\0').filter(|word| !word.is_empty()).map(str::to_owned).collect();
        let process = fs::metadata(format!("/proc/{pid}"))?;
        let frozen = self.freeze()?;
        let children = children_of(pid);
        for one in children.iter().chain([&pid]) {
            // A child may have ended by itself.
            let _ = kill(*one, Signal::SIGKILL);
        }
        drop(frozen);
        for one in children.into_iter().chain([pid]) {
            if !gone(one, GONE_MAX).await {
                bail!("process {one} of PostgreSQL did not die");
            }
        }
        Ok(Killed { words, owner: (process.uid(), process.gid()) })
    }

    /// Starts the killed one again with its data and waits until it takes sessions.
    pub(crate) async fn start_again(&self, killed: &Killed) -> anyhow::Result<Child> {
        let (program, words) = killed.words.split_first().context("PostgreSQL had no name")?;
        let data = words.windows(2).find(|pair| pair[0] == "-D").context("PostgreSQL had no folder")?;
        // Its lock names a process that nobody may have reaped, and a zombie would pass for alive.
        let _ = fs::remove_file(Path::new(&data[1]).join("postmaster.pid"));
        let log = fs::File::options().create(true).append(true).open(&self.log)?;
        let mut command = Command::new(program);
        command.args(words).current_dir("/").stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        command.process_group(0).kill_on_drop(true);
        if geteuid().is_root() {
            command.uid(killed.owner.0).gid(killed.owner.1);
        }
        let child = command.spawn()?;
        let pid = child.id().and_then(|pid| i32::try_from(pid).ok()).context("PostgreSQL ended at once")?;
        let pid = Pid::from_raw(pid);
        let started = started_at(pid).context("PostgreSQL ended at once")?;
        fs::write(&self.pid_file, format!("{pid} {started}\n"))?;
        let begun = Instant::now();
        while !self.takes_sessions().await {
            if begun.elapsed() > START_MAX || started_at(pid).is_none() {
                bail!("PostgreSQL did not come back; see {}", self.log.display());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(child)
    }

    /// Whether it greets back instead of saying that it is still starting.
    async fn takes_sessions(&self) -> bool {
        let greet = async {
            let mut stream = TcpStream::connect(self.address).await?;
            stream.write_all(GREETING).await?;
            stream.read_u8().await
        };
        matches!(tokio::time::timeout(ANSWER_MAX, greet).await, Ok(Ok(ASKS_FOR_PASSWORD)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_greeting_says_how_long_it_is() {
        let said = u32::from_be_bytes(GREETING[..4].try_into().unwrap());
        assert_eq!(said as usize, GREETING.len());
    }

    #[test]
    fn its_address_is_taken_from_its_url() {
        let postgres =
            Postgres::of(Path::new("/x"), "postgres://aivideo:pw@127.0.0.1:20123/aivideo").unwrap();
        assert_eq!(postgres.address, "127.0.0.1:20123".parse().unwrap());
        assert!(Postgres::of(Path::new("/x"), "postgres://nowhere").is_err());
    }
}
