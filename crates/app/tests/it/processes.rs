//! Several processes of one deployment: each role in one of its own, and restarts one after the other under load.
//!
//! Every test runs on the queue `postgres`, and on Kafka where `AIVTEST_KAFKA_URL` names a broker.

use std::{
    collections::HashSet,
    net::SocketAddr,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    time::Duration,
};

use futures::future::join_all;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
};

use crate::{
    crashes::{assert_all_succeed, slow_jobs, wait_for_submits},
    harness::{Client, Demo, Folder, Server},
};

/// Clients that submit at once.
const CLIENTS: usize = 8;

/// What can carry tasks here. Each deployment on Kafka has topics of its own.
fn queues() -> Vec<String> {
    let broker = std::env::var("AIVTEST_KAFKA_URL").ok();
    let kafka = broker.map(|url| format!("{url}/it-{:08x}", rand::random::<u32>()));
    ["postgres".to_owned()].into_iter().chain(kafka).collect()
}

/// A demo that serves the API alone: its servers are what matters.
async fn start(folder: &Folder, queue: &str) -> Demo {
    Demo::start_within(folder.path(), Duration::from_secs(60), &["--roles", "api", "--queue", queue]).await
}

fn client(server: &Server, demo: &Demo) -> Client {
    Client::new(&server.url, &demo.ready.api_key)
}

#[tokio::test]
async fn each_role_in_a_process_of_its_own_brings_every_task_home() {
    for queue in queues() {
        let folder = Folder::new();
        let demo = start(&folder, &queue).await;
        let api = Server::start(&demo.ready.env_file, &["--roles", "api"]).await;
        let first = client(&api, &demo).submit("mock-fast", "nobody works yet").await;
        let relay = Server::start(&demo.ready.env_file, &["--roles", "relay"]).await;
        let mut tasks = client(&api, &demo).submit_many("mock-fast", 100).await;
        let stats = demo.provider().get("/_control/stats").await;
        assert_eq!(stats["submits"], 0, "{queue}: somebody works without being told to");
        let snapshot = client(&api, &demo).get(&format!("/tasks/{first}")).await;
        assert_eq!(snapshot["status"], "QUEUED", "{queue}");

        let one = Server::start(&demo.ready.env_file, &["--roles", "scheduler"]).await;
        let other = Server::start(&demo.ready.env_file, &["--roles", "scheduler"]).await;
        tasks.push(first);
        tasks.extend(client(&api, &demo).submit_many("mock-fast", 100).await);
        assert_all_succeed(&demo, &demo.client(), &tasks).await;
        for server in [api, relay, one, other] {
            assert_eq!(server.stop().await, Some(0), "{queue}");
        }
        demo.stop().await;
    }
}

#[tokio::test]
async fn restarts_one_after_the_other_lose_no_task_and_submit_none_twice() {
    const ROLES: [&str; 4] = ["api,relay,scheduler", "api,relay,scheduler", "api", "relay,scheduler"];
    for queue in queues() {
        let folder = Folder::new();
        let demo = start(&folder, &queue).await;
        slow_jobs(&demo).await;
        let mut servers = Vec::new();
        for roles in ROLES {
            servers.push(Server::start(&demo.ready.env_file, &["--roles", roles]).await);
        }
        let (over, next) = (AtomicBool::new(false), AtomicUsize::new(0));
        // The demo's own API stays, so that clients always have somewhere to go; the work is all elsewhere.
        let clients = (0..CLIENTS).map(async |_| {
            let (client, mut tasks) = (demo.client(), Vec::new());
            while !over.load(Ordering::Relaxed) || next.load(Ordering::Relaxed) < 200 {
                let n = next.fetch_add(1, Ordering::Relaxed);
                tasks.push(client.submit("mock-fast", &format!("number {n}")).await);
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            tasks
        });
        let restarts = async {
            for (n, roles) in ROLES.iter().enumerate() {
                wait_for_submits(&demo.provider(), 20 * (n as u64 + 1)).await;
                let new = Server::start(&demo.ready.env_file, &["--roles", roles]).await;
                let old = std::mem::replace(&mut servers[n], new);
                assert_eq!(old.stop().await, Some(0), "{queue}: {roles}");
            }
            over.store(true, Ordering::Relaxed);
        };
        let (tasks, ()) = tokio::join!(join_all(clients), restarts);
        let tasks: Vec<_> = tasks.into_iter().flatten().collect();
        assert_all_succeed(&demo, &demo.client(), &tasks).await;
        for server in servers {
            assert_eq!(server.stop().await, Some(0));
        }
        demo.stop().await;
    }
}

#[tokio::test]
async fn a_process_that_is_told_to_stop_answers_what_it_has_begun_and_sends_its_streams_elsewhere() {
    let folder = Folder::new();
    let demo = Demo::start(folder.path()).await;
    let server = Server::start(&demo.ready.env_file, &[]).await;
    let address: SocketAddr = server.url.strip_prefix("http://").unwrap().parse().unwrap();
    let watched = client(&server, &demo).submit("mock-slow", "watched").await;
    let mut stream = Raw::open(address).await;
    stream.send(&get(&format!("/tasks/{watched}/events"), &demo.ready.api_key)).await;
    assert!(stream.line_with("event: snapshot").await, "the stream did not begin");

    let body = json!({ "model": "mock-fast", "prompt": "begun", "duration_seconds": 1 }).to_string();
    let mut begun = Vec::new();
    for _ in 0..20 {
        let mut connection = Raw::open(address).await;
        connection.send(&post(&body, &demo.ready.api_key)).await;
        // The server says so when it begins to read the body: from here on the request is under way.
        assert!(connection.line_with("100 Continue").await);
        begun.push(connection);
    }
    let stopping = tokio::spawn(server.stop());
    let refuses = async || TcpStream::connect(address).await.is_err();
    testkit::wait_until("no new connection is accepted", Duration::from_secs(10), refuses).await;
    let mut tasks = Vec::new();
    for connection in &mut begun {
        connection.send(&body).await;
        let answer = connection.rest().await;
        assert!(answer.contains("HTTP/1.1 202"), "begun and not finished: {answer}");
        let json: Value = serde_json::from_str(answer.split("\r\n\r\n").last().unwrap()).unwrap();
        tasks.push(json["task_id"].as_str().unwrap().to_owned());
    }
    assert!(stream.rest().await.contains("retry:"), "the stream ended without a hint when to come back");
    assert_eq!(stopping.await.unwrap(), Some(0));
    assert_eq!(tasks.iter().collect::<HashSet<_>>().len(), begun.len());
    assert_all_succeed(&demo, &demo.client(), &tasks).await;
    demo.stop().await;
}

fn get(path: &str, key: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {key}\r\n\r\n")
}

/// The head alone.
fn post(body: &str, key: &str) -> String {
    format!(
        "POST /generations HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {key}\r\nexpect: 100-continue\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    )
}

/// A connection whose every byte is ours.
struct Raw(BufReader<TcpStream>);

impl Raw {
    async fn open(address: SocketAddr) -> Self {
        Self(BufReader::new(TcpStream::connect(address).await.unwrap()))
    }

    async fn send(&mut self, text: &str) {
        self.0.get_mut().write_all(text.as_bytes()).await.unwrap();
    }

    /// Reads until a line holds the text; false when the other side ends before.
    async fn line_with(&mut self, text: &str) -> bool {
        let read = async {
            let mut line = String::new();
            while self.0.read_line(&mut line).await.unwrap() > 0 {
                if line.contains(text) {
                    return true;
                }
                line.clear();
            }
            false
        };
        tokio::time::timeout(Duration::from_secs(20), read).await.expect("it never came")
    }

    /// Everything until the other side ends.
    async fn rest(&mut self) -> String {
        let mut text = Vec::new();
        let read = self.0.read_to_end(&mut text);
        // An end without good-bye is one too; what came before it counts.
        let _ = tokio::time::timeout(Duration::from_secs(20), read).await.expect("it never ended");
        String::from_utf8_lossy(&text).into_owned()
    }
}
