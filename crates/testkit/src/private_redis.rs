//! A Redis server of one test's own, which may be flushed, frozen, killed and started again.

use std::{
    net::TcpListener,
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::Duration,
};

use uuid::Uuid;

/// How long a server may take to answer after its start.
const START_MAX: Duration = Duration::from_secs(10);
/// Ports that are tried: another process may take one between our look and the server's start.
const STARTS_MAX: u32 = 10;

/// A `redis-server` without data of earlier lives. Killed, by its own pid, when dropped.
#[derive(Debug)]
pub struct PrivateRedis {
    server: Option<Child>,
    port: u16,
    folder: PathBuf,
}

impl PrivateRedis {
    /// Starts one on a free port.
    ///
    /// # Panics
    /// When there is no `redis-server`, or it does not start.
    pub async fn start() -> Self {
        let folder = std::env::temp_dir().join(format!("aivideo-redis-{}", Uuid::now_v7().simple()));
        std::fs::create_dir(&folder).expect("a folder for the private Redis");
        let mut redis = Self { server: None, port: 0, folder };
        for _ in 0..STARTS_MAX {
            redis.port = free_port();
            if redis.try_start(&[]).await {
                return redis;
            }
        }
        panic!("no redis-server could be started");
    }

    /// Its address.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// A command given by hand.
    ///
    /// # Panics
    /// When the server refuses it or does not answer.
    pub async fn command(&self, words: &[&str]) {
        let mut connection = self.connect().await.expect("the private Redis answers");
        let (name, arguments) = words.split_first().expect("a command");
        redis::cmd(name).arg(arguments).exec_async(&mut connection).await.expect("the command is accepted");
    }

    /// Forgets everything.
    ///
    /// # Panics
    /// When the server does not answer.
    pub async fn flush(&self) {
        self.command(&["FLUSHALL"]).await;
    }

    /// Lets the process stand still; connections stay open and nobody answers.
    ///
    /// # Panics
    /// When it does not run.
    pub fn freeze(&self) {
        self.signal("-STOP");
    }

    /// Lets it go on.
    ///
    /// # Panics
    /// When it does not run.
    pub fn thaw(&self) {
        self.signal("-CONT");
    }

    /// Ends it where it stands, with all that it held.
    pub fn kill(&mut self) {
        if let Some(mut server) = self.server.take() {
            // It may be dead already, or frozen; SIGKILL ends it either way.
            let _ = server.kill();
            let _ = server.wait();
        }
    }

    /// Starts it on the same port, empty unless it was told to `SAVE`.
    ///
    /// # Panics
    /// When it does not come up.
    pub async fn start_again(&mut self) {
        assert!(self.try_start(&[]).await, "redis-server did not come back");
    }

    /// Starts it on the same port and lets it take that long over every key that it was told to `SAVE`. It answers
    /// `LOADING` meanwhile; this returns when it has loaded them.
    ///
    /// # Panics
    /// When it does not come up.
    pub async fn load_again(&mut self, per_key: Duration) {
        let delay = per_key.as_micros().to_string();
        // It looks at its connections once in so many bytes.
        let slowly = ["--key-load-delay", &delay, "--loading-process-events-interval-bytes", "1024"];
        assert!(self.try_start(&slowly).await, "redis-server did not come back");
    }

    /// Takes away the folder that the server would save into.
    ///
    /// # Panics
    /// When it is gone already.
    pub fn remove_folder(&self) {
        std::fs::remove_dir_all(&self.folder).expect("the server's folder");
    }

    /// Whether the server came up, as opposed to exiting.
    async fn try_start(&mut self, settings: &[&str]) -> bool {
        self.kill();
        let server = Command::new("redis-server")
            .args([
                "--port",
                &self.port.to_string(),
                "--bind",
                "127.0.0.1",
                "--save",
                "",
                "--appendonly",
                "no",
            ])
            .arg("--dir")
            .arg(&self.folder)
            .args(settings)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("redis-server is installed");
        let server = self.server.insert(server);
        let client = redis::Client::open(format!("redis://127.0.0.1:{}", self.port)).expect("an address");
        let started = std::time::Instant::now();
        while started.elapsed() < START_MAX {
            if server.try_wait().expect("our own child").is_some() {
                return false;
            }
            if let Ok(mut connection) = client.get_multiplexed_async_connection().await
                && redis::cmd("PING").exec_async(&mut connection).await.is_ok()
            {
                return true;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        false
    }

    async fn connect(&self) -> redis::RedisResult<redis::aio::MultiplexedConnection> {
        redis::Client::open(self.url())?.get_multiplexed_async_connection().await
    }

    fn signal(&self, signal: &str) {
        let pid = self.server.as_ref().expect("it runs").id().to_string();
        let sent = Command::new("kill").args([signal, &pid]).status().expect("kill runs");
        assert!(sent.success(), "{signal} {pid}");
    }
}

impl Drop for PrivateRedis {
    fn drop(&mut self) {
        self.kill();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("an address").port()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn it_forgets_on_a_flush_and_over_a_death_and_keeps_its_address() {
        let mut redis = PrivateRedis::start().await;
        let url = redis.url();
        for forget in ["flush", "death"] {
            redis.command(&["SET", "a", "1"]).await;
            if forget == "flush" {
                redis.flush().await;
            } else {
                redis.kill();
                redis.start_again().await;
            }
            let mut connection = redis.connect().await.unwrap();
            let there: bool = redis::cmd("EXISTS").arg("a").query_async(&mut connection).await.unwrap();
            assert!(!there, "{forget}");
            assert_eq!(redis.url(), url);
        }
    }
}
