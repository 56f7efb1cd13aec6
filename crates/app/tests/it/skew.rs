//! Processes whose clocks disagree: limits are decided by Redis's clock, so they hold all the same.

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use futures::future::join_all;
use http::{Method, header};
use serde_json::{Value, json};

use crate::harness::{Client, Demo, Folder, Server};

/// Burst of a free user, and how many ask at once.
const CAPACITY: usize = 5;
const ASKED: usize = 20;

/// Gives a process another clock: Debian's package `libfaketime`.
fn faketime() -> PathBuf {
    let folders = std::fs::read_dir("/usr/lib").expect("/usr/lib").filter_map(Result::ok);
    let places = folders.map(|entry| entry.path()).chain([PathBuf::from("/usr/lib")]);
    let mut files = places.map(|place| place.join("faketime/libfaketimeMT.so.1"));
    files.find(|file| file.exists()).expect("libfaketime is installed (scripts/install.sh test)")
}

/// A server whose wall clock is wrong by this; durations are measured as ever.
async fn skewed(demo: &Demo, seconds: &str) -> Server {
    let library = faketime();
    let extra = [
        ("LD_PRELOAD", library.to_str().expect("UTF-8")),
        ("FAKETIME", seconds),
        ("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
    ];
    Server::start_with(&demo.ready.env_file, &["--roles", "api"], &extra).await
}

/// A key of a new user of a new tenant in the smallest tier.
async fn free_user(demo: &Demo) -> String {
    let admin = Client::new(&demo.ready.url, &demo.ready.admin_key);
    let post = async |path: &str, body: Value| {
        let (status, made) = admin.ask(Method::POST, path, Some(&body)).await;
        assert_eq!(status, 201, "{path}: {made}");
        made
    };
    let tenant = post("/admin/tenants", json!({ "name": "Skew", "tier": "free" })).await;
    let user = post("/admin/users", json!({ "tenant_id": tenant["id"], "name": "Ada" })).await;
    post("/admin/grants", json!({ "user_id": user["id"], "credits": 1_000 })).await;
    let key = post("/admin/keys", json!({ "user_id": user["id"] })).await;
    key["api_key"].as_str().expect("a key").to_owned()
}

#[tokio::test]
async fn three_processes_whose_clocks_are_half_a_minute_apart_share_one_bucket_and_say_truly_when_to_come_back()
 {
    let folder = Folder::new();
    let demo = Demo::start_within(folder.path(), Duration::from_secs(60), &["--roles", "api"]).await;
    let key = free_user(&demo).await;
    let (slow, right, fast) =
        tokio::join!(skewed(&demo, "-30s"), skewed(&demo, "+0s"), skewed(&demo, "+30s"));
    let clients = [&slow, &right, &fast].map(|server| Client::new(&server.url, &key));
    // Else this would be about nothing.
    let mut clocks = Vec::new();
    for client in &clients {
        let answer = client.send(Method::GET, "/me", None).await;
        let date = answer.headers[header::DATE].to_str().expect("text");
        clocks.push(chrono::DateTime::parse_from_rfc2822(date).expect("a date").timestamp());
    }
    assert!((25..=40).contains(&(clocks[1] - clocks[0])) && (20..=35).contains(&(clocks[2] - clocks[1])));

    let body = json!({ "model": "mock-slow", "prompt": "late or early", "duration_seconds": 1 });
    let ask = |n: usize| clients[n % clients.len()].send(Method::POST, "/generations", Some(&body));
    let asked = Instant::now();
    let answers = join_all((0..ASKED).map(ask)).await;
    let statuses: Vec<u16> = answers.iter().map(|answer| answer.status.as_u16()).collect();
    let passed = statuses.iter().filter(|status| **status == 202).count();
    let refused = statuses.iter().filter(|status| **status == 429).count();
    assert_eq!((passed, refused), (CAPACITY, ASKED - CAPACITY), "{statuses:?}");

    // Every process says the same, to the second: whoever comes then passes, whoever comes a second earlier does not.
    let waits: Vec<u64> = answers
        .iter()
        .filter_map(|answer| answer.headers.get(header::RETRY_AFTER)?.to_str().ok()?.parse().ok())
        .filter(|wait| *wait > 1)
        .collect();
    assert_eq!(waits.len(), refused, "each says when");
    let (least, most) = (waits.iter().min().expect("some"), waits.iter().max().expect("some"));
    let answered = asked.elapsed();
    assert!(*most <= 12, "a token comes every twelve seconds: {waits:?}");
    assert!(most - least <= 1 + answered.as_secs(), "{waits:?}");
    let mut n = 0;
    loop {
        let sent = asked.elapsed();
        let status = ask(n).await.status.as_u16();
        let elapsed = asked.elapsed();
        if status == 202 {
            let earliest = Duration::from_secs(least - 1);
            assert!(elapsed >= earliest, "it passed after {elapsed:?}, told was {least} s");
            break;
        }
        assert_eq!(status, 429);
        let latest = answered + Duration::from_secs(*most);
        assert!(sent < latest, "refused when asked after {sent:?}, told was {most} s");
        tokio::time::sleep(Duration::from_millis(150)).await;
        n += 1;
    }
    for server in [slow, right, fast] {
        server.stop().await;
    }
    demo.stop().await;
}
