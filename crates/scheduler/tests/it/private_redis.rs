//! A Redis server of one test's own, which may be flushed, stopped and started again.

use std::{
    net::TcpListener,
    process::{Child, Command, Stdio},
    time::Duration,
};

use tempfile::TempDir;
use testkit::wait_until;

pub(crate) struct PrivateRedis {
    port: u16,
    folder: TempDir,
    server: Option<Child>,
}

impl PrivateRedis {
    pub(crate) async fn start() -> Self {
        let port = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
        let mut redis = Self { port, folder: TempDir::new().unwrap(), server: None };
        redis.start_again().await;
        redis
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Starts it empty.
    pub(crate) async fn start_again(&mut self) {
        let server = Command::new("redis-server")
            .args([
                "--bind",
                "127.0.0.1",
                "--port",
                &self.port.to_string(),
                "--save",
                "",
                "--appendonly",
                "no",
            ])
            .arg("--dir")
            .arg(self.folder.path())
            .stdout(Stdio::null())
            .spawn()
            .expect("redis-server");
        self.server = Some(server);
        wait_until("the private Redis to listen", Duration::from_secs(10), || {
            std::future::ready(std::net::TcpStream::connect(("127.0.0.1", self.port)).is_ok())
        })
        .await;
    }

    /// Ends it where it stands, with all that it held.
    pub(crate) fn kill(&mut self) {
        if let Some(mut server) = self.server.take() {
            let _ = server.kill();
            let _ = server.wait();
        }
    }

    pub(crate) fn flush(&self) {
        let answer = Command::new("redis-cli")
            .args(["-h", "127.0.0.1", "-p", &self.port.to_string(), "FLUSHALL"])
            .output()
            .expect("redis-cli");
        assert_eq!(String::from_utf8_lossy(&answer.stdout).trim(), "OK");
    }
}

impl Drop for PrivateRedis {
    fn drop(&mut self) {
        self.kill();
    }
}
