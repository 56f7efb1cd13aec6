//! The real binary as a process, and how a test talks to it.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Output, Stdio},
    time::{Duration, Instant},
};

use fetch::{Fetch, FetchConfig, Limits, Request, Response, SendGuard};
use futures::{StreamExt, stream};
use http::{HeaderMap, HeaderValue, Method, header};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, Command},
};

pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_aivideo");
/// A first start makes a database; on a busy machine that takes its time.
const FIRST_START_MAX: Duration = Duration::from_secs(60);

/// What `demo --json` prints.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Ready {
    pub(crate) url: String,
    pub(crate) api_key: String,
    pub(crate) admin_key: String,
    pub(crate) tenant_id: String,
    pub(crate) user_id: String,
    pub(crate) mock_provider_url: String,
    pub(crate) database_url: String,
    pub(crate) redis_url: String,
    pub(crate) env_file: PathBuf,
}

/// A command without anything of the developer's own settings.
pub(crate) fn command(args: &[&str]) -> Command {
    let mut command = Command::new(BINARY);
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
    // Where no aivideo.toml lies.
    command.args(args).current_dir(std::env::temp_dir()).stdin(Stdio::null());
    command
}

/// Runs a command to its end.
pub(crate) async fn run(command: &mut Command) -> Output {
    tokio::time::timeout(Duration::from_secs(60), command.output())
        .await
        .expect("it never ended")
        .expect("it runs")
}

/// The variables of a demo's env file.
pub(crate) fn variables(env_file: &Path) -> Vec<(String, String)> {
    let text = fs::read_to_string(env_file).expect("the env file");
    let pairs = text.lines().map(|line| line.split_once('=').expect("KEY=value"));
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// A demo in a folder of its own, whose servers end with the test.
pub(crate) struct Demo {
    child: Child,
    folder: PathBuf,
    pub(crate) ready: Ready,
}

impl Demo {
    /// Starts one and waits until it is ready.
    pub(crate) async fn start(folder: &Path) -> Self {
        Self::start_within(folder, FIRST_START_MAX, &[]).await
    }

    /// Starts one that has to be ready within `limit`.
    pub(crate) async fn start_within(folder: &Path, limit: Duration, extra: &[&str]) -> Self {
        let data_dir = folder.to_str().expect("UTF-8");
        let args = ["demo", "--json", "--http-addr", "127.0.0.1:0", "--data-dir", data_dir];
        let log = fs::File::options().create(true).append(true).open(folder.join("demo.log")).expect("log");
        let mut child = command(&[&args, extra].concat())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .expect("the binary runs");
        let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let line = tokio::time::timeout(limit, lines.next_line()).await;
        let failed = |why: &str| {
            let log = fs::read_to_string(folder.join("demo.log")).unwrap_or_default();
            panic!("{why}; its log:\n{log}")
        };
        let line = match line {
            Ok(Ok(Some(line))) => line,
            Ok(_) => failed("the demo ended before it was ready"),
            Err(_) => failed("the demo was not ready in time"),
        };
        let ready = serde_json::from_str(&line).expect("one line of JSON");
        Self { child, folder: folder.to_owned(), ready }
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id().expect("it was not waited for").try_into().expect("a pid"))
    }

    /// Ctrl-C's gentler sister; returns the exit code.
    pub(crate) async fn stop(mut self) -> Option<i32> {
        kill(self.pid(), Signal::SIGTERM).expect("it runs");
        let ended = tokio::time::timeout(Duration::from_secs(45), self.child.wait()).await;
        ended.expect("it did not stop").expect("waited").code()
    }

    /// What a crash of the machine's memory does: no handler runs.
    pub(crate) async fn kill(mut self) {
        kill(self.pid(), Signal::SIGKILL).expect("it runs");
        self.child.wait().await.expect("waited");
        // The servers stay: the next start is to find them.
        std::mem::forget(self);
    }

    /// The pids of its servers that live now.
    pub(crate) fn servers(folder: &Path) -> Vec<i32> {
        let files = fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
        files
            .map(|entry| entry.path())
            .filter(|path| path.extension().is_some_and(|extension| extension == "pid"))
            .filter_map(|path| fs::read_to_string(path).ok()?.split(' ').next()?.parse().ok())
            .filter(|pid| Path::new(&format!("/proc/{pid}/cwd")).exists())
            .collect()
    }

    pub(crate) fn client(&self) -> Client {
        Client::new(&self.ready.url, &self.ready.api_key)
    }

    /// The mock provider's control.
    pub(crate) fn provider(&self) -> Client {
        Client::new(&self.ready.mock_provider_url, "control")
    }

    /// Runs another command of the same deployment.
    pub(crate) async fn beside(&self, args: &[&str]) -> Output {
        run(command(args).envs(variables(&self.ready.env_file))).await
    }

    /// No row of the audit, or the test fails with them.
    pub(crate) async fn assert_audit(&self) {
        let output = self.beside(&["audit"]).await;
        let rows = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{rows}{}", String::from_utf8_lossy(&output.stderr));
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        let Some(pid) = self.child.id().and_then(|pid| i32::try_from(pid).ok()) else { return };
        // The test failed in the middle: nothing may outlive it.
        let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        end_servers(&self.folder);
    }
}

/// Ends whatever a demo of this folder left.
pub(crate) fn end_servers(folder: &Path) {
    for pid in Demo::servers(folder) {
        let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
    }
}

/// A folder that PostgreSQL's user can enter, and whose servers end with it.
pub(crate) struct Folder(tempfile::TempDir);

impl Folder {
    pub(crate) fn new() -> Self {
        let folder = tempfile::Builder::new().prefix("aivideo-it-").tempdir().expect("a temporary folder");
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(folder.path(), open).expect("ours");
        Self(folder)
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        end_servers(self.path());
    }
}

/// A further `serve` of a demo's deployment.
pub(crate) struct Server {
    child: Child,
    pub(crate) url: String,
}

impl Server {
    pub(crate) async fn start(env_file: &Path, args: &[&str]) -> Self {
        Self::start_with(env_file, args, &[]).await
    }

    /// One with some more variables.
    pub(crate) async fn start_with(env_file: &Path, args: &[&str], extra: &[(&str, &str)]) -> Self {
        let log_file = env_file.with_file_name("serve.log");
        let log = fs::File::options().create(true).append(true).open(log_file).expect("log");
        let mut child = command(&[&["serve"], args].concat())
            .envs(variables(env_file))
            .envs(extra.iter().copied())
            .env("AIVIDEO_HTTP_ADDR", "127.0.0.1:0")
            .stdout(Stdio::piped())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .expect("the binary runs");
        let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let line = tokio::time::timeout(Duration::from_secs(20), lines.next_line()).await;
        let line = line.expect("not ready in time").expect("readable").expect("it ended");
        let url = line.split_whitespace().find(|word| word.starts_with("http://")).expect("its address");
        Self { child, url: url.to_owned() }
    }

    pub(crate) async fn stop(mut self) -> Option<i32> {
        let pid = self.child.id().and_then(|pid| i32::try_from(pid).ok()).expect("it runs");
        kill(Pid::from_raw(pid), Signal::SIGTERM).expect("it runs");
        let ended = tokio::time::timeout(Duration::from_secs(45), self.child.wait()).await;
        ended.expect("it did not stop").expect("waited").code()
    }
}

/// A client with a key.
#[derive(Clone)]
pub(crate) struct Client {
    base: String,
    key: String,
    fetch: Fetch,
}

impl Client {
    pub(crate) fn new(base: &str, key: &str) -> Self {
        let host = base.strip_prefix("http://").expect("http").to_owned();
        let config = FetchConfig { private_hosts: vec![host], ..FetchConfig::default() };
        Self { base: base.to_owned(), key: key.to_owned(), fetch: Fetch::new(config).expect("a client") }
    }

    /// One request; the status and the JSON of the answer (null when it has none).
    pub(crate) async fn ask(&self, method: Method, path: &str, body: Option<&Value>) -> (u16, Value) {
        let (status, bytes) = self.ask_bytes(method, path, body).await;
        (status, serde_json::from_slice(&bytes).unwrap_or(Value::Null))
    }

    /// The same with the answer as it came.
    pub(crate) async fn ask_bytes(&self, method: Method, path: &str, body: Option<&Value>) -> (u16, Vec<u8>) {
        let answer = self.send(method, path, body).await;
        (answer.status.as_u16(), answer.body.to_vec())
    }

    /// The same with its headers.
    pub(crate) async fn send(&self, method: Method, path: &str, body: Option<&Value>) -> Response {
        let mut headers = HeaderMap::new();
        let bearer = format!("Bearer {}", self.key);
        headers.insert(header::AUTHORIZATION, HeaderValue::from_str(&bearer).expect("a header"));
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let request = Request {
            method,
            url: &format!("{}{path}", self.base),
            headers,
            body: body.map(|body| body.to_string().into()).unwrap_or_default(),
            guard: SendGuard::open(),
        };
        let limits = Limits {
            total: Duration::from_secs(40),
            idle: Duration::from_secs(40),
            bytes_max: 16 << 20,
            redirects_max: 0,
        };
        self.fetch.request(request, limits).await.expect("an answer")
    }

    pub(crate) async fn get(&self, path: &str) -> Value {
        let (status, json) = self.ask(Method::GET, path, None).await;
        assert_eq!(status, 200, "{path}: {json}");
        json
    }

    /// Submits one task and returns its id.
    pub(crate) async fn submit(&self, model: &str, prompt: &str) -> String {
        let body = json!({ "model": model, "prompt": prompt, "duration_seconds": 5 });
        let (status, json) = self.ask(Method::POST, "/generations", Some(&body)).await;
        assert_eq!(status, 202, "{json}");
        json["task_id"].as_str().expect("an id").to_owned()
    }

    /// Submits `count` of them, some at a time.
    pub(crate) async fn submit_many(&self, model: &str, count: usize) -> Vec<String> {
        let submit = |n: usize| async move { self.submit(model, &format!("number {n}")).await };
        stream::iter((0..count).map(submit)).buffer_unordered(16).collect().await
    }

    /// Waits for the end of each.
    pub(crate) async fn ends_of(&self, tasks: &[String], limit: Duration) -> Vec<Value> {
        stream::iter(tasks).map(|task| self.end_of(task, limit)).buffer_unordered(16).collect().await
    }

    /// Waits for the task's end and returns its snapshot.
    pub(crate) async fn end_of(&self, task: &str, limit: Duration) -> Value {
        let from = Instant::now();
        loop {
            let snapshot = self.get(&format!("/tasks/{task}?wait=2")).await;
            if ["SUCCEEDED", "FAILED", "CANCELED"].contains(&snapshot["status"].as_str().expect("a status")) {
                return snapshot;
            }
            assert!(from.elapsed() < limit, "not over in time: {snapshot}");
        }
    }
}
