//! Brokers for tests, run by `scripts/kafka.sh`.

use std::{
    path::{Path, PathBuf},
    process::Output,
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tokio::{process::Command, sync::OnceCell};

const VARIABLE: &str = "AIVTEST_KAFKA_URL";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

async fn script(what: &str, folder: Option<&Path>) -> Output {
    let done = Command::new(root().join("scripts/kafka.sh")).arg(what).args(folder).output().await.unwrap();
    assert!(done.status.success(), "kafka.sh {what}: {}", String::from_utf8_lossy(&done.stderr));
    done
}

async fn start(folder: Option<&Path>) -> String {
    let printed = script("start", folder).await.stdout;
    let printed = String::from_utf8(printed).unwrap();
    let url = printed.trim().strip_prefix("export AIVTEST_KAFKA_URL=kafka://");
    url.unwrap_or_else(|| panic!("kafka.sh printed {printed:?}")).to_owned()
}

/// `host:port` of the broker that all tests share: the one that the environment names, else one is started.
pub(super) async fn shared() -> String {
    static SHARED: OnceCell<String> = OnceCell::const_new();
    let find = || async {
        match std::env::var(VARIABLE) {
            Ok(url) if !url.is_empty() => {
                url.strip_prefix("kafka://").expect("AIVTEST_KAFKA_URL is kafka://host:port").to_owned()
            }
            _ => start(None).await,
        }
    };
    SHARED.get_or_init(find).await.clone()
}

/// A broker of one test, which may do to it what it likes. It ends with this value.
pub(super) struct Private {
    folder: PathBuf,
    pub(super) address: String,
}

impl Private {
    pub(super) async fn start() -> Self {
        let folder = root().join(".local/kafka").join(format!("test-{}", uuid::Uuid::now_v7().simple()));
        let address = start(Some(&folder)).await;
        Self { folder, address }
    }

    /// One with further settings.
    pub(super) async fn start_with(settings: &str) -> Self {
        let broker = Self::start().await;
        broker.stop().await;
        let file = broker.folder.join("server.properties");
        let all = std::fs::read_to_string(&file).unwrap() + settings;
        std::fs::write(&file, all).unwrap();
        broker.start_again().await;
        broker
    }

    pub(super) async fn stop(&self) {
        script("stop", Some(&self.folder)).await;
    }

    pub(super) async fn start_again(&self) {
        assert_eq!(start(Some(&self.folder)).await, self.address, "its clients must find it again");
    }

    pub(super) fn freeze(&self) {
        kill(self.pid().unwrap(), Signal::SIGSTOP).unwrap();
    }

    pub(super) fn thaw(&self) {
        kill(self.pid().unwrap(), Signal::SIGCONT).unwrap();
    }

    fn pid(&self) -> Option<Pid> {
        let pid = std::fs::read_to_string(self.folder.join("pid")).ok()?;
        pid.trim().parse().ok().map(Pid::from_raw)
    }
}

impl Drop for Private {
    fn drop(&mut self) {
        if let Some(pid) = self.pid() {
            let _ = kill(pid, Signal::SIGKILL);
        }
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
