//! A Redis server of one test's own.

use std::{
    net::TcpListener,
    process::{Child, Command, Stdio},
    time::Duration,
};

use control::{Control, ControlConfig};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tempfile::TempDir;

/// Killed, by its own pid, when dropped.
pub(crate) struct PrivateRedis {
    process: Child,
    port: u16,
    folder: TempDir,
}

impl PrivateRedis {
    pub(crate) async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        // Another process may take the port in between; then the server exits and the next one is tried.
        for _ in 0..10 {
            let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            let mut process = spawn(port, &folder);
            if answers(port, &mut process).await {
                return Self { process, port, folder };
            }
        }
        panic!("no redis-server could be started");
    }

    /// A handle with short limits, so that tests of failures are quick.
    pub(crate) fn control(&self, limit: Duration) -> Control {
        Control::new(ControlConfig {
            connect_limit: limit,
            response_limit: limit,
            breaker_failures: 3,
            breaker_pause: Duration::from_millis(100),
            ..ControlConfig::single(self.url())
        })
        .unwrap()
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// A command given by a hand.
    pub(crate) async fn command(&self, words: &[&str]) {
        let mut connection = connect(self.port).await.unwrap();
        redis::cmd(words[0]).arg(&words[1..]).exec_async(&mut connection).await.unwrap();
    }

    pub(crate) fn freeze(&self) {
        self.signal(Signal::SIGSTOP);
    }

    pub(crate) fn thaw(&self) {
        self.signal(Signal::SIGCONT);
    }

    pub(crate) fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    /// On the same port, with no data.
    pub(crate) async fn start_again(&mut self) {
        self.process = spawn(self.port, &self.folder);
        assert!(answers(self.port, &mut self.process).await, "redis-server did not come back");
    }

    /// Takes away the folder that the server would save into.
    pub(crate) fn remove_folder(&self) {
        std::fs::remove_dir_all(self.folder.path()).unwrap();
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.process.id().try_into().unwrap()), signal).unwrap();
    }
}

impl Drop for PrivateRedis {
    fn drop(&mut self) {
        // It may be dead already, or frozen; SIGKILL ends it either way.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn spawn(port: u16, folder: &TempDir) -> Child {
    Command::new("redis-server")
        .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
        .arg("--dir")
        .arg(folder.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("redis-server is installed")
}

/// Whether the server came up, as opposed to exiting.
async fn answers(port: u16, process: &mut Child) -> bool {
    for _ in 0..1_000 {
        if process.try_wait().unwrap().is_some() {
            return false;
        }
        if let Ok(mut connection) = connect(port).await
            && redis::cmd("PING").exec_async(&mut connection).await.is_ok()
        {
            return true;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    false
}

async fn connect(port: u16) -> redis::RedisResult<redis::aio::MultiplexedConnection> {
    redis::Client::open(format!("redis://127.0.0.1:{port}"))?.get_multiplexed_async_connection().await
}
