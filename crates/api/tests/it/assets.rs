//! Content of assets: who gets it, how, and which part.

use std::sync::Arc;

use axum::body::Body;
use chrono::{DateTime, TimeDelta};
use http::{Method, Request, StatusCode};
use testkit::TestClock;

use crate::harness::{Answer, Api, Setup, Someone, request};

struct Stored {
    api: Api,
    owner: Someone,
    /// The signed link.
    link: String,
    /// The path without a signature.
    path: String,
    clock: Arc<TestClock>,
}

impl Stored {
    async fn new() -> Self {
        let clock = Arc::new(TestClock::at(DateTime::UNIX_EPOCH + TimeDelta::seconds(1_764_400_000)));
        let api = Api::with(Setup { clock: clock.clone(), ..Setup::default() }).await;
        let owner = api.someone("pro").await;
        let task = api.task(&owner).await;
        api.succeed(task).await;
        let read = api.get(&format!("/tasks/{task}"), &owner.key).await.json();
        let link = read["output_url"].as_str().unwrap().to_owned();
        let path = format!("/assets/{}/content", read["output_asset_id"].as_str().unwrap());
        Self { api, owner, link, path, clock }
    }

    async fn ask(&self, method: Method, path: &str, headers: &[(&'static str, &str)]) -> Answer {
        let mut ask: Request<Body> = request(method, path, None, None);
        for (name, value) in headers {
            ask.headers_mut().insert(*name, value.parse().unwrap());
        }
        self.api.send(ask).await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_video_comes_whole_with_headers_that_keep_it_a_video() {
    let stored = Stored::new().await;
    let clip = Api::clip();
    let by_link = stored.ask(Method::GET, &stored.link, &[]).await;
    let by_key = stored.api.get(&stored.path, &stored.owner.key).await;
    for answer in [&by_link, &by_key] {
        assert_eq!((answer.status, answer.bytes.as_slice()), (StatusCode::OK, clip));
        assert_eq!(answer.header("content-type"), Some("video/mp4"));
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
        assert_eq!(answer.header("accept-ranges"), Some("bytes"));
        assert_eq!(answer.header("content-length"), Some(clip.len().to_string().as_str()));
        assert!(answer.header("content-security-policy").unwrap().starts_with("sandbox"));
        assert!(answer.header("content-disposition").unwrap().ends_with(".mp4\""));
        assert_eq!(answer.header("cache-control"), Some("private, max-age=3600"));
    }
    let head = stored.ask(Method::HEAD, &stored.link, &[]).await;
    assert_eq!((head.status, head.bytes.len()), (StatusCode::OK, 0));
    assert_eq!(head.header("content-length"), by_link.header("content-length"));
    let etag = by_link.header("etag").unwrap();
    let seen = stored.ask(Method::GET, &stored.link, &[("if-none-match", etag)]).await;
    assert_eq!((seen.status, seen.bytes.len()), (StatusCode::NOT_MODIFIED, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_player_gets_the_part_it_asks_for() {
    let stored = Stored::new().await;
    let (clip, size) = (Api::clip(), Api::clip().len());
    let part = stored.ask(Method::GET, &stored.link, &[("range", "bytes=10-19")]).await;
    assert_eq!((part.status, part.bytes.as_slice()), (StatusCode::PARTIAL_CONTENT, &clip[10..20]));
    assert_eq!(part.header("content-range"), Some(format!("bytes 10-19/{size}").as_str()));
    assert_eq!(part.header("content-length"), Some("10"));
    let tail = stored.ask(Method::GET, &stored.link, &[("range", "bytes=-3")]).await;
    assert_eq!(tail.bytes, &clip[size - 3..]);
    let etag = part.header("etag").unwrap();
    let same = [("range", "bytes=0-1"), ("if-range", etag)];
    assert_eq!(stored.ask(Method::GET, &stored.link, &same).await.status, StatusCode::PARTIAL_CONTENT);
    let other = [("range", "bytes=0-1"), ("if-range", "\"other\"")];
    assert_eq!(stored.ask(Method::GET, &stored.link, &other).await.status, StatusCode::OK);
    let outside = stored.ask(Method::GET, &stored.link, &[("range", &format!("bytes={size}-"))]).await;
    assert_eq!(
        (outside.status, outside.code().as_str()),
        (StatusCode::RANGE_NOT_SATISFIABLE, "range_not_satisfiable")
    );
    assert_eq!(outside.header("content-range"), Some(format!("bytes */{size}").as_str()));
    let head = stored.ask(Method::HEAD, &stored.link, &[("range", "bytes=0-1")]).await;
    assert_eq!((head.status, head.header("content-length")), (StatusCode::PARTIAL_CONTENT, Some("2")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_link_opens_one_file_for_its_time_and_nothing_else() {
    let stored = Stored::new().await;
    let status = async |path: &str| {
        let answer = stored.ask(Method::GET, path, &[]).await;
        (answer.status.as_u16(), if answer.status.is_success() { String::new() } else { answer.code() })
    };
    let not_found = (404, "not_found".to_owned());
    let (path, query) = stored.link.split_once('?').unwrap();
    let (exp, sig) = query.split_once('&').unwrap();
    let other = path.replace("asset_0", "asset_1");
    assert_ne!(other, path);
    let last = if sig.ends_with('0') { "1" } else { "0" };
    for bad in [
        format!("{other}?{query}"),
        format!("{path}?{exp}&{}{last}", &sig[..sig.len() - 1]),
        format!("{path}?exp=99999999999&{sig}"),
        format!("{path}?exp=x&{sig}"),
        format!("{path}?{exp}"),
        format!("{path}?{sig}"),
        format!("{path}?{exp}&sig="),
    ] {
        assert_eq!(status(&bad).await, not_found, "{bad}");
    }
    assert_eq!(status(&format!("{path}?{query}&x=1")).await.0, 422);
    assert_eq!(status(path).await.0, 401, "no link and no key");
    stored.clock.advance(TimeDelta::minutes(59));
    assert_eq!(status(&stored.link).await.0, 200, "at least an hour");
    stored.clock.advance(TimeDelta::minutes(62));
    assert_eq!(status(&stored.link).await, (403, "link_expired".to_owned()));
    assert_eq!(status(&format!("{path}?{exp}&{}{last}", &sig[..sig.len() - 1])).await, not_found);
}
