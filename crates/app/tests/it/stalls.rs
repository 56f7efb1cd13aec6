//! Stores that go away, come back empty, or forget: work goes on by itself afterwards, and meanwhile the process says
//! that it does nothing, without filling its log.

use std::{
    collections::HashMap,
    fs,
    os::unix::{fs::MetadataExt, process::CommandExt},
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use chrono::{DateTime, TimeDelta, Utc};
use http::Method;
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::Value;

use crate::harness::{Client, Demo, Folder};

/// Tasks that wait when something happens.
const TASKS: usize = 100;
const PATIENCE: Duration = Duration::from_secs(90);

/// Few at a time, so that most still wait when the store goes.
const CONFIG: &str = r#"
[api]
ip = "unlimited"
ip_window = "unlimited"

[tiers.enterprise]
reads = "unlimited"
user = { submit = "unlimited" }
tenant = { submit = "unlimited" }

[providers.mock]
slots = 16
submits = "unlimited"
poll_ms = 100
"#;

/// A server of a demo, as its pid file names it.
struct ServerProcess {
    pid_file: std::path::PathBuf,
    pid: i32,
    words: Vec<String>,
    owner: (u32, u32),
}

impl ServerProcess {
    fn find(folder: &Path, name: &str) -> Self {
        let pid_file = folder.join(format!("{name}.pid"));
        let text = fs::read_to_string(&pid_file).expect("a pid file");
        let pid: i32 = text.split(' ').next().unwrap().parse().expect("a pid");
        let words = fs::read_to_string(format!("/proc/{pid}/cmdline")).expect("it lives");
        let words = words.split('\0').filter(|word| !word.is_empty()).map(str::to_owned).collect();
        let metadata = fs::metadata(format!("/proc/{pid}")).expect("it lives");
        Self { pid_file, pid, words, owner: (metadata.uid(), metadata.gid()) }
    }

    /// Ends it and waits until it is gone.
    async fn end(&self, signal: Signal) {
        kill(Pid::from_raw(self.pid), signal).expect("it runs");
        testkit::wait_until("the server to end", PATIENCE, async || {
            let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid)).unwrap_or_default();
            stat.is_empty() || stat.contains(") Z ")
        })
        .await;
    }

    /// Starts it again, by these words or by its own, and notes its pid where the demo looks for it.
    fn start_again(&self, words: Option<&[&str]>) {
        let own: Vec<&str> = self.words.iter().map(String::as_str).collect();
        let words = words.unwrap_or(&own);
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).current_dir("/").process_group(0);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        if nix::unistd::geteuid().is_root() {
            command.uid(self.owner.0).gid(self.owner.1);
        }
        let child = command.spawn().expect("the server starts");
        let stat = fs::read_to_string(format!("/proc/{}/stat", child.id())).expect("it lives");
        let started =
            stat.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(19)).expect("a start time");
        fs::write(&self.pid_file, format!("{} {started}\n", child.id())).expect("written");
        // Reaped by a thread of its own: the demo is to find a process or none, but no zombie.
        std::thread::spawn(move || {
            let mut child = child;
            child.wait()
        });
    }
}

struct Watched {
    demo: Demo,
    service: Client,
}

impl Watched {
    async fn ready(&self) -> (u16, Value) {
        self.service.ask(Method::GET, "/readyz", None).await
    }

    /// Seconds since the loop's last progress, as the metrics have it.
    async fn since_progress(&self, name: &str) -> f64 {
        let (_, text) = self.service.ask_bytes(Method::GET, "/metrics", None).await;
        let text = String::from_utf8(text).expect("text");
        let label = format!("loop_since_progress_seconds{{loop=\"{name}\"}} ");
        let value = text.lines().find_map(|line| line.strip_prefix(&label)).expect("the gauge");
        value.parse().expect("a number")
    }

    async fn until_ready_is(&self, status: u16) -> Value {
        testkit::wait_for(&format!("/readyz to answer {status}"), PATIENCE, async || {
            let (answered, readiness) = self.ready().await;
            (answered == status).then_some(readiness)
        })
        .await
    }

    /// Submits the tasks and waits until some of them are at the provider.
    async fn begin(&self) -> Vec<String> {
        let submits = async || self.demo.provider().get("/_control/stats").await["submits"].as_u64().unwrap();
        let before = submits().await;
        let tasks = self.demo.client().submit_many("mock-fast", TASKS).await;
        testkit::wait_until("some submits", PATIENCE, async || submits().await >= before + 8).await;
        tasks
    }

    async fn assert_goes_on(&self, tasks: &[String]) {
        for end in self.demo.client().ends_of(tasks, PATIENCE).await {
            assert_eq!(end["status"], "SUCCEEDED", "{end}");
        }
        self.until_ready_is(200).await;
    }
}

/// No warning comes more often than once a second; those of different loops and instances are different ones.
fn assert_calm(log: &str) {
    let mut last: HashMap<String, DateTime<Utc>> = HashMap::new();
    let mut floods: HashMap<String, usize> = HashMap::new();
    let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    for line in lines.filter(|line| matches!(line["level"].as_str(), Some("WARN" | "ERROR"))) {
        let at: DateTime<Utc> = line["timestamp"].as_str().and_then(|at| at.parse().ok()).expect("a time");
        let what = format!("{} {} {} {}", line["target"], line["message"], line["loop"], line["instance"]);
        if let Some(before) = last.insert(what.clone(), at)
            && at - before < TimeDelta::seconds(1)
        {
            *floods.entry(what).or_default() += 1;
        }
    }
    assert!(!last.is_empty(), "nothing was said at all");
    assert!(floods.is_empty(), "repeated within a second: {floods:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn after_each_loss_of_a_store_work_goes_on_by_itself_and_meanwhile_the_process_says_that_it_does_not() {
    let folder = Folder::new();
    let config = folder.path().join("stalls.toml");
    fs::write(&config, CONFIG).unwrap();
    let demo = Demo::start_within(folder.path(), PATIENCE, &["--config", config.to_str().unwrap()]).await;
    let service = Client::new(&demo.ready.url, "none");
    let watched = Watched { demo, service };
    let health = async || watched.service.ask(Method::GET, "/healthz", None).await.0;
    watched.until_ready_is(200).await;

    // Redis goes, and comes back with nothing.
    let tasks = watched.begin().await;
    let redis = ServerProcess::find(folder.path(), "redis");
    redis.end(Signal::SIGKILL).await;
    let readiness = watched.until_ready_is(503).await;
    let reason = readiness["roles"].as_array().unwrap().iter().find_map(|role| role["reason"].as_str());
    assert!(reason.is_some_and(|reason| reason.contains("no progress in ")), "{readiness}");
    assert!(readiness["degraded"].as_array().unwrap().contains(&"control".into()), "{readiness}");
    assert_eq!(health().await, 200, "starting again would not help");
    assert!(watched.since_progress("dispatch:mock-fast").await >= 20.0);
    fs::remove_dir_all(folder.path().join("redis").join("appendonlydir")).unwrap();
    let settings = folder.path().join("redis.conf");
    redis.start_again(Some(&["redis-server", settings.to_str().unwrap()]));
    watched.assert_goes_on(&tasks).await;
    testkit::wait_until("the metric to fall", PATIENCE, async || {
        watched.since_progress("dispatch:mock-fast").await < 5.0
    })
    .await;

    // Somebody empties it.
    let tasks = watched.begin().await;
    let flushed = Command::new("redis-cli").args(["-u", &watched.demo.ready.redis_url, "FLUSHALL"]).output();
    assert!(String::from_utf8_lossy(&flushed.unwrap().stdout).contains("OK"));
    watched.assert_goes_on(&tasks).await;

    // PostgreSQL is started again.
    let tasks = watched.begin().await;
    let postgres = ServerProcess::find(folder.path(), "postgres");
    postgres.end(Signal::SIGQUIT).await;
    watched.until_ready_is(503).await;
    assert_eq!(health().await, 200, "starting again would not help");
    postgres.start_again(None);
    watched.until_ready_is(200).await;
    watched.assert_goes_on(&tasks).await;

    let stats = watched.demo.provider().get("/_control/stats").await;
    assert_eq!(stats["max_live_by_task"], 1, "{stats}");
    assert!(stats["max_running"].as_u64() <= Some(16), "{stats}");
    watched.demo.assert_audit().await;
    assert_eq!(watched.demo.stop().await, Some(0));
    assert_calm(&fs::read_to_string(folder.path().join("demo.log")).unwrap());
}
