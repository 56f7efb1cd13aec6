//! Redis servers, each of which can be told something, frozen, and lost.

use std::{
    fs,
    io::Write,
    net::{Ipv4Addr, SocketAddr},
    os::unix::fs::OpenOptionsExt,
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
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    process::{Child, Command},
    sync::Mutex,
};

use crate::{
    fleet::free_port,
    process::{Frozen, gone},
};

/// What a killed one may take to be gone, and an empty one to start.
const PATIENCE: Duration = Duration::from_secs(15);
/// What it may take to answer, frozen moments aside.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// One server.
pub(crate) struct RedisServer {
    pub(crate) address: SocketAddr,
    password: String,
    program: PathBuf,
    settings: PathBuf,
    /// What it keeps lies here, and nothing else.
    data: PathBuf,
    log: PathBuf,
    /// Held while it is frozen or away for a moment, so that nobody talks to it then.
    life: Mutex<Life>,
}

struct Life {
    pid: Pid,
    /// The one that we started ourselves.
    child: Option<Child>,
}

impl RedisServer {
    /// One that runs already; its files lie in this folder under the name `redis`.
    pub(crate) fn adopt(folder: &Path, url: &str, pid: Pid) -> anyhow::Result<Self> {
        let rest = url.strip_prefix("redis://default:").context("the address of Redis")?;
        let (password, address) =
            rest.trim_end_matches("/0").split_once('@').context("the address of Redis")?;
        Ok(Self {
            address: address.parse()?,
            password: password.to_owned(),
            program: fs::read_link(format!("/proc/{pid}/exe"))?,
            settings: folder.join("redis.conf"),
            data: folder.join("redis"),
            log: folder.join("redis.log"),
            life: Mutex::new(Life { pid, child: None }),
        })
    }

    /// Another one of the same program and password, empty, with its files in this folder.
    pub(crate) async fn start_another(&self, folder: &Path, name: &str) -> anyhow::Result<Self> {
        let (port, data) = (free_port()?, folder.join(name));
        fs::create_dir_all(&data)?;
        let settings = folder.join(format!("{name}.conf"));
        let quoted = data.display().to_string().replace('\\', "\\\\").replace('"', "\\\"");
        // Nobody else may read the password.
        let mut file =
            fs::File::options().create(true).write(true).truncate(true).mode(0o600).open(&settings)?;
        write!(
            file,
            "bind 127.0.0.1\nport {port}\ndir \"{quoted}\"\nrequirepass {}\nsave \"\"\nappendonly yes\n\
             appendfsync everysec\nmaxmemory-policy noeviction\ndaemonize no\n",
            self.password
        )?;
        let other = Self {
            address: (Ipv4Addr::LOCALHOST, port).into(),
            password: self.password.clone(),
            program: self.program.clone(),
            settings,
            data,
            log: folder.join(format!("{name}.log")),
            life: Mutex::new(Life { pid: Pid::this(), child: None }),
        };
        other.start(&mut *other.life.lock().await).await?;
        Ok(other)
    }

    /// Its URL where somebody else stands before it, or its own with its own address.
    pub(crate) fn url_at(&self, address: SocketAddr) -> String {
        format!("redis://default:{}@{address}/0", self.password)
    }

    /// Sends commands and reads as many `+OK`.
    pub(crate) async fn ok(&self, what: &str) -> anyhow::Result<()> {
        let _alone = self.life.lock().await;
        self.talk(what).await
    }

    async fn talk(&self, what: &str) -> anyhow::Result<()> {
        let talk = async {
            let mut stream = TcpStream::connect(self.address).await?;
            stream.write_all(format!("AUTH {}\r\n{what}\r\n", self.password).as_bytes()).await?;
            let mut answer = [0; 10];
            stream.read_exact(&mut answer).await?;
            if &answer != b"+OK\r\n+OK\r\n" {
                bail!("{what}: {}", String::from_utf8_lossy(&answer));
            }
            Ok(())
        };
        tokio::time::timeout(ANSWER_MAX, talk).await.with_context(|| format!("{what} was not answered"))?
    }

    /// Stops its clock until the guard is dropped.
    pub(crate) async fn freeze(&self) -> anyhow::Result<Frozen> {
        Ok(Frozen::stop(self.life.lock().await.pid)?)
    }

    /// Stops its clock for a moment.
    pub(crate) async fn freeze_for(&self, frozen: Duration) -> anyhow::Result<()> {
        let life = self.life.lock().await;
        let _frozen = Frozen::stop(life.pid)?;
        tokio::time::sleep(frozen).await;
        Ok(())
    }

    /// kill -9.
    pub(crate) async fn kill(&self) -> anyhow::Result<()> {
        Self::end(&mut *self.life.lock().await).await
    }

    /// Starts the killed one where it was, with nothing in it, and waits until it answers.
    pub(crate) async fn start_empty(&self) -> anyhow::Result<()> {
        self.clear()?;
        self.start(&mut *self.life.lock().await).await
    }

    /// Kills it, throws its files away and starts it where it was.
    pub(crate) async fn lose_for(&self, down: Duration) -> anyhow::Result<()> {
        let mut life = self.life.lock().await;
        Self::end(&mut life).await?;
        tokio::time::sleep(down).await;
        self.clear()?;
        self.start(&mut life).await
    }

    /// Ends the one that we started. Nothing in it is worth a question.
    pub(crate) async fn stop(&self) {
        if let Some(mut child) = self.life.lock().await.child.take() {
            let _ = child.kill().await;
        }
    }

    async fn end(life: &mut Life) -> anyhow::Result<()> {
        kill(life.pid, Signal::SIGKILL)?;
        match life.child.take() {
            Some(mut child) => drop(child.wait().await?),
            None => gone(life.pid, PATIENCE).await.then_some(()).context("Redis did not die")?,
        }
        Ok(())
    }

    fn clear(&self) -> anyhow::Result<()> {
        for entry in fs::read_dir(&self.data)? {
            let path = entry?.path();
            if path.is_dir() { fs::remove_dir_all(path)? } else { fs::remove_file(path)? }
        }
        Ok(())
    }

    async fn start(&self, life: &mut Life) -> anyhow::Result<()> {
        let log = fs::File::options().create(true).append(true).open(&self.log)?;
        let child = Command::new(&self.program)
            // The same file is several programs, by the name that it is called with.
            .arg0("redis-server")
            .arg(&self.settings)
            .current_dir(&self.data)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .process_group(0)
            .kill_on_drop(true)
            .spawn()?;
        let pid = child.id().and_then(|pid| i32::try_from(pid).ok()).context("Redis ended at once")?;
        *life = Life { pid: Pid::from_raw(pid), child: Some(child) };
        let begun = Instant::now();
        while let Err(error) = self.talk("SELECT 0").await {
            if begun.elapsed() > PATIENCE {
                return Err(error.context(format!("Redis did not start; see {}", self.log.display())));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }
}
