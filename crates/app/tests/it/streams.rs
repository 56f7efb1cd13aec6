//! Hundreds of event streams: clients that vanish, that leave and that stay, and a process that stops under them.

use std::{fs, time::Duration};

use futures::StreamExt;
use http::Method;
use nix::sys::signal::{Signal, kill};
use serde_json::json;
use socket2::{SockFilter, SockRef};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::harness::{Client, Demo, Folder};

const TASKS: usize = 6;
const VANISH: usize = 120;
const LEAVE: usize = 60;
const STAY: usize = 120;
const PATIENCE: Duration = Duration::from_secs(60);

/// Comments every two seconds, so that the test does not take a minute.
const CONFIG: &str = r#"
[http]
stream_stuck_seconds_max = 2

[api]
ip = "unlimited"
ip_window = "unlimited"
stream_comment_seconds = 2

[tiers.enterprise]
reads = "unlimited"
"#;

/// An open stream, spoken to as directly as possible.
struct Stream {
    socket: TcpStream,
    text: String,
}

impl Stream {
    async fn open(demo: &Demo, task: &str) -> Self {
        let address = demo.ready.url.strip_prefix("http://").unwrap();
        let mut socket = TcpStream::connect(address).await.unwrap();
        let head = format!(
            "GET /tasks/{task}/events HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {}\r\n\r\n",
            demo.ready.api_key
        );
        socket.write_all(head.as_bytes()).await.unwrap();
        let mut stream = Self { socket, text: String::new() };
        stream.read_until("event: snapshot").await;
        stream
    }

    /// Reads on until the text comes. What was before it is forgotten.
    async fn read_until(&mut self, needle: &str) {
        let read = async {
            while !self.text.contains(needle) {
                assert!(self.read_some().await, "closed before {needle:?}: {}", self.text);
            }
        };
        tokio::time::timeout(PATIENCE, read).await.unwrap_or_else(|_| panic!("no {needle:?}"));
        self.text.clear();
    }

    /// Whether the server has sent something more.
    async fn read_some(&mut self) -> bool {
        let mut piece = [0; 4096];
        let length = self.socket.read(&mut piece).await.unwrap_or(0);
        self.text.push_str(&String::from_utf8_lossy(&piece[..length]));
        length > 0
    }

    /// The rest of it.
    async fn rest(mut self) -> String {
        let read = async { while self.read_some().await {} };
        tokio::time::timeout(PATIENCE, read).await.expect("it never ends");
        self.text
    }

    /// As if the cable was cut: whatever comes for this socket is dropped by the kernel before TCP sees it, so nothing
    /// is acknowledged, and nothing says good-bye.
    fn vanish(&self) {
        // One instruction: accept none of the packet's bytes.
        const RET: u16 = 0x06;
        SockRef::from(&self.socket).attach_filter(&[SockFilter::new(RET, 0, 0, 0)]).unwrap();
    }
}

async fn open(demo: &Demo, tasks: &[String], count: usize) -> Vec<Stream> {
    // A few at a time: more reads at once than the gate lets through would be sent away.
    let opening = tasks.iter().cycle().take(count).map(|task| Stream::open(demo, task));
    futures::stream::iter(opening).buffer_unordered(8).collect().await
}

/// The streams that the process says are open.
async fn open_streams(demo: &Demo) -> usize {
    let metrics = Client::new(&demo.ready.url, "none");
    let (_, text) = metrics.ask_bytes(Method::GET, "/metrics", None).await;
    let text = String::from_utf8(text).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("sse_streams_open ")).expect("the gauge");
    line.parse().unwrap()
}

fn file_descriptors(demo: &Demo) -> usize {
    fs::read_dir(format!("/proc/{}/fd", demo.pid())).unwrap().count()
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_end_with_their_readers_and_a_stop_ends_the_rest_with_a_hint_and_finishes_what_is_under_way()
{
    let folder = Folder::new();
    let config = folder.path().join("streams.toml");
    fs::write(&config, CONFIG).unwrap();
    // Without a scheduler every task stays quiet.
    let extra = ["--config", config.to_str().unwrap(), "--roles", "api"];
    let demo = Demo::start_within(folder.path(), PATIENCE, &extra).await;
    let tasks = demo.client().submit_many("mock-fast", TASKS).await;
    let before = file_descriptors(&demo);

    let vanishing = open(&demo, &tasks, VANISH).await;
    let leaving = open(&demo, &tasks, LEAVE).await;
    let mut staying = open(&demo, &tasks, STAY).await;
    assert_eq!(open_streams(&demo).await, VANISH + LEAVE + STAY);
    assert!(file_descriptors(&demo) >= before + VANISH + LEAVE + STAY);

    vanishing.iter().for_each(Stream::vanish);
    drop(leaving);
    testkit::wait_until("the streams of those who are gone to end", PATIENCE, async || {
        open_streams(&demo).await == STAY
    })
    .await;
    // A few may come and go with the database and Redis.
    testkit::wait_until("their connections to be closed", PATIENCE, async || {
        file_descriptors(&demo) < before + STAY + 30
    })
    .await;
    for stream in &mut staying {
        stream.text.clear();
        stream.read_until("\n:").await;
    }

    // A submit that is half there when the stop comes.
    let address = demo.ready.url.strip_prefix("http://").unwrap();
    let body = json!({ "model": "mock-fast", "prompt": "just in time", "duration_seconds": 5 }).to_string();
    let head = format!(
        "POST /generations HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {}\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n",
        demo.ready.api_key,
        body.len()
    );
    let (first, second) = body.split_at(10);
    let mut post = Stream { socket: TcpStream::connect(address).await.unwrap(), text: String::new() };
    post.socket.write_all(format!("{head}{first}").as_bytes()).await.unwrap();
    // It is in once a later request has been answered.
    assert_eq!(open_streams(&demo).await, STAY);
    kill(demo.pid(), Signal::SIGTERM).unwrap();
    for stream in staying {
        let rest = stream.rest().await;
        assert!(rest.contains("retry: 1000") || rest.contains("retry:1000"), "{rest}");
    }
    post.socket.write_all(second.as_bytes()).await.unwrap();
    let answer = post.rest().await;
    assert!(answer.starts_with("HTTP/1.1 202"), "{answer}");
    assert_eq!(demo.stop().await, Some(0));
    drop(vanishing);
}
