//! One request to whoever wants to hear about a job.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    time::{Duration, UNIX_EPOCH},
};

use axum::body::Body;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use futures::StreamExt;
use hmac::{Hmac, KeyInit, Mac};
use http::{Method, Request, StatusCode, Uri, header};
use hyper_util::rt::TokioIo;
use sha2::Sha256;
use tokio::net::TcpStream;

use super::{CallbackSecret, Callbacks, Report};
use crate::{faults::Sending, server::wall_clock};

/// How long a receiver may take.
const LIMIT: Duration = Duration::from_secs(5);

/// Why nobody answered.
#[derive(Debug)]
#[expect(dead_code, reason = "read by whoever reads the log")]
pub(super) enum Unsent {
    Forbidden,
    Connection(io::Error),
    Request(hyper::Error),
    Late,
}

/// Sends the report and returns the answer's status, or what a fault rule wants it to be.
pub(super) async fn send(
    callbacks: &Callbacks,
    report: &Report,
    plan: &Sending,
) -> Result<StatusCode, Unsent> {
    let answer = tokio::time::timeout(LIMIT, exchange(callbacks, report, plan)).await;
    let status = answer.unwrap_or(Err(Unsent::Late))?;
    if plan.unanswered { Err(Unsent::Late) } else { Ok(plan.status.unwrap_or(status)) }
}

async fn exchange(callbacks: &Callbacks, report: &Report, plan: &Sending) -> Result<StatusCode, Unsent> {
    let address = allowed(&report.target.url, &callbacks.hosts).await?;
    let stream = TcpStream::connect(address).await.map_err(Unsent::Connection)?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(Unsent::Request)?;
    let request = request(&callbacks.secret, report, plan);
    let exchange = async {
        let answer = sender.send_request(request).await.map_err(Unsent::Request)?;
        Ok(answer.status())
    };
    tokio::select! {
        answer = exchange => answer,
        // The connection only ends by itself when it breaks; the answer says so, too.
        Err(error) = connection => Err(Unsent::Request(error)),
    }
}

fn request(secret: &CallbackSecret, report: &Report, plan: &Sending) -> Request<Body> {
    let url = &report.target.url;
    let body = plan.body.clone().unwrap_or_else(|| report.body.clone());
    let seconds = wall_clock().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let mut request = Request::new(Body::empty());
    *request.method_mut() = Method::POST;
    *request.uri_mut() =
        url.path_and_query().map_or_else(|| Uri::from_static("/"), |path| Uri::from(path.clone()));
    let headers = request.headers_mut();
    let mut set = |name: &'static str, value: String| {
        // Made of ids, digits and base64, which headers can hold.
        if let Ok(value) = value.parse() {
            headers.insert(name, value);
        }
    };
    set("host", url.authority().map(ToString::to_string).unwrap_or_default());
    set("content-type", "application/json".to_owned());
    set("content-length", body.len().to_string());
    set("webhook-id", report.id.clone());
    set("webhook-timestamp", seconds.to_string());
    set("webhook-signature", signature(secret, &report.id, seconds, &body));
    for (name, value) in &plan.headers {
        headers.insert(name, value.clone());
    }
    *request.body_mut() = carried(body, plan);
    debug_assert!(request.headers().contains_key(header::HOST));
    request
}

/// The body as a rule wants it to arrive: whole, broken off, or never.
fn carried(body: Bytes, plan: &Sending) -> Body {
    if plan.hang {
        return Body::from_stream(futures::stream::pending::<io::Result<Bytes>>());
    }
    match plan.truncate {
        Some(kept) if kept < body.len() => {
            let end =
                futures::stream::once(async { Err(io::Error::other("cut off as the fault rule says")) });
            Body::from_stream(futures::stream::iter([Ok(body.slice(..kept))]).chain(end))
        }
        _ => Body::from(body),
    }
}

fn signature(secret: &CallbackSecret, id: &str, seconds: u64, body: &[u8]) -> String {
    let mut mac =
        <Hmac<Sha256> as KeyInit>::new_from_slice(&secret.0).expect("HMAC takes keys of any length");
    mac.update(format!("{id}.{seconds}.").as_bytes());
    mac.update(body);
    format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
}

/// The address of a receiver that may be called: on this machine, or listed.
async fn allowed(url: &Uri, hosts: &[String]) -> Result<SocketAddr, Unsent> {
    let host = url.host().filter(|_| url.scheme_str() == Some("http")).ok_or(Unsent::Forbidden)?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let port = url.port_u16().unwrap_or(80);
    let listed = hosts.iter().any(|listed| *listed == format!("{host}:{port}"));
    if !listed && host != "localhost" && host.parse::<IpAddr>().is_err() {
        return Err(Unsent::Forbidden);
    }
    let mut found = tokio::net::lookup_host((host, port)).await.map_err(Unsent::Connection)?;
    found.find(|address| listed || address.ip().is_loopback()).ok_or(Unsent::Forbidden)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_signature_is_that_of_a_published_vector() {
        let secret =
            CallbackSecret::parse("whsec_dGVzdHNlY3JldHRlc3RzZWNyZXR0ZXN0c2VjcmV0MTI=").expect("one");
        let body = br#"{"id":"1234567890","status":"succeeded","message":"","create_time":1781080778802,"update_time":1781080794151}"#;
        let signature = signature(&secret, "9876543210", 1_781_080_794, body);
        assert_eq!(signature, "v1,UsKlJP00XoQyOn410NM9xv34sP+Gl0jnOO9Lcpr7NJ4=");
        assert!(!format!("{secret:?}").contains("116"));
    }

    #[tokio::test]
    async fn only_this_machine_and_listed_hosts_are_called() {
        let hosts = ["127.0.0.9:1".to_owned(), "10.0.0.1:8080".to_owned()];
        for (url, may) in [
            ("http://127.0.0.1:8080/x", true),
            ("http://[::1]:8080/x", true),
            ("http://localhost/x", true),
            ("http://10.0.0.1:8080/x", true),
            ("http://10.0.0.1:8081/x", false),
            ("http://192.168.0.1/x", false),
            ("https://127.0.0.1/x", false),
            ("http://example.com/x", false),
        ] {
            let outcome = allowed(&url.parse().expect("a URL"), &hosts).await;
            assert_eq!(outcome.is_ok(), may, "{url}: {outcome:?}");
        }
    }
}
