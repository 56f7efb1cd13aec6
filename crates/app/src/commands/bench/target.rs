//! Where load may go: a plain HTTP address, on this machine unless the caller says otherwise.

use std::net::SocketAddr;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Uri, header};
use http_body_util::Full;
use thiserror::Error;
use url::{Host, Url};

/// Why an address is refused.
#[derive(Debug, Error)]
pub(super) enum TargetError {
    #[error("{0} is no address of the form http://host:port")]
    Form(String),
    #[error(
        "{0} is not on this machine, and load goes to loopback addresses only; --allow-remote lifts that for a \
         deployment of your own"
    )]
    Remote(String),
    #[error("{0} cannot be found: {1}")]
    Unknown(String, std::io::Error),
    #[error("the key has characters that no header takes")]
    Key,
}

/// A server under load, with everything that its requests have in common.
#[derive(Debug, Clone)]
pub(super) struct Target {
    pub(super) address: SocketAddr,
    pub(super) url: String,
    headers: HeaderMap,
}

impl Target {
    /// Reads the address. It is resolved once, so that names cost nothing under load and lead to one place.
    pub(super) async fn parse(text: &str, key: &str, allow_remote: bool) -> Result<Self, TargetError> {
        let form = || TargetError::Form(text.to_owned());
        let url = Url::parse(text).map_err(|_| form())?;
        let plain = url.scheme() == "http"
            && url.path() == "/"
            && url.query().is_none()
            && url.fragment().is_none()
            && url.username().is_empty()
            && url.password().is_none();
        let (Some(host), true) = (url.host(), plain) else { return Err(form()) };
        let remote = || TargetError::Remote(text.to_owned());
        let here = match &host {
            Host::Ipv4(address) => address.is_loopback(),
            Host::Ipv6(address) => address.is_loopback(),
            Host::Domain(name) => *name == "localhost",
        };
        if !here && !allow_remote {
            return Err(remote());
        }
        let unknown = |error| TargetError::Unknown(text.to_owned(), error);
        let port = url.port_or_known_default().ok_or_else(form)?;
        let mut addresses = match &host {
            Host::Domain(name) => tokio::net::lookup_host((*name, port)).await.map_err(unknown)?.collect(),
            Host::Ipv4(address) => vec![SocketAddr::from((*address, port))],
            Host::Ipv6(address) => vec![SocketAddr::from((*address, port))],
        };
        // Servers of ours listen on IPv4 unless told otherwise, and a name may stand for both.
        addresses.sort_by_key(SocketAddr::is_ipv6);
        let address =
            addresses.into_iter().next().ok_or_else(|| unknown(std::io::ErrorKind::NotFound.into()))?;
        if !allow_remote && !address.ip().is_loopback() {
            return Err(remote());
        }
        let mut headers = HeaderMap::new();
        let authority = if port == 80 { host.to_string() } else { format!("{host}:{port}") };
        headers.insert(header::HOST, HeaderValue::from_str(&authority).map_err(|_| form())?);
        let mut bearer = HeaderValue::from_str(&format!("Bearer {key}")).map_err(|_| TargetError::Key)?;
        bearer.set_sensitive(true);
        headers.insert(header::AUTHORIZATION, bearer);
        Ok(Self { address, url: text.trim_end_matches('/').to_owned(), headers })
    }

    /// A read.
    pub(super) fn get(&self, path: &Uri) -> Request<Full<Bytes>> {
        self.request(Method::GET, path.clone(), Bytes::new())
    }

    /// A write of JSON.
    pub(super) fn send(&self, method: Method, path: Uri, body: impl Into<Bytes>) -> Request<Full<Bytes>> {
        let mut request = self.request(method, path, body.into());
        request.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        request
    }

    fn request(&self, method: Method, path: Uri, body: Bytes) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method;
        *request.uri_mut() = path;
        request.headers_mut().clone_from(&self.headers);
        request
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_plain_addresses_of_this_machine_are_taken() {
        for good in
            ["http://127.0.0.1:8080", "http://127.0.0.1:8080/", "http://[::1]:8080", "http://localhost:1"]
        {
            let target = Target::parse(good, "k", false).await.expect(good);
            assert!(target.address.ip().is_loopback(), "{good}");
        }
        for remote in
            ["http://192.0.2.1:80", "http://example.com", "http://[2001:db8::1]:1", "http://0.0.0.0:1"]
        {
            let refused = Target::parse(remote, "k", false).await.expect_err(remote);
            assert!(matches!(refused, TargetError::Remote(_)), "{remote}: {refused}");
        }
        for bad in [
            "https://127.0.0.1:1",
            "http://127.0.0.1:1/v1",
            "127.0.0.1:1",
            "http://a:b@127.0.0.1",
            "http://127.0.0.1/?a",
        ] {
            let refused = Target::parse(bad, "k", true).await.expect_err(bad);
            assert!(matches!(refused, TargetError::Form(_)), "{bad}: {refused}");
        }
        assert!(matches!(Target::parse("http://127.0.0.1:1", "a\nb", false).await, Err(TargetError::Key)));
    }

    #[tokio::test]
    async fn requests_carry_the_host_and_a_key_that_is_never_shown() {
        let target = Target::parse("http://127.0.0.1:81", "hunter2", false).await.unwrap();
        let request = target.send(Method::POST, Uri::from_static("/generations"), "{}");
        assert_eq!(request.headers()[header::HOST], "127.0.0.1:81");
        assert_eq!(request.headers()[header::AUTHORIZATION], "Bearer hunter2");
        assert!(!format!("{target:?}{request:?}").contains("hunter2"));
    }
}
