//! The checks before a connection: the URL's form, its host and port, and every address its name resolves to.

use std::{
    collections::HashSet,
    error::Error as StdError,
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use futures::future::BoxFuture;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use url::{Host, Url};

use crate::{address::is_public, error::Blocked};

/// Where a checked URL leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Destination {
    /// The public internet; names are checked again when they are resolved.
    Public,
    /// A `host:port` of the configuration, wherever it may lie.
    Private,
}

#[derive(Clone, Debug)]
pub(crate) struct Guard {
    /// `host:port`, as [`authority`] spells it.
    private_hosts: HashSet<String>,
    ports: HashSet<u16>,
}

/// The one spelling of a URL's host and port. The `url` crate has already unified case, odd forms of IPv4 literals
/// (hexadecimal, octal, a single number, fewer than four parts) and percent signs.
pub(crate) fn authority(url: &Url) -> Option<String> {
    Some(format!("{}:{}", url.host_str()?, url.port_or_known_default()?))
}

impl Guard {
    /// # Errors
    /// The entry that is no `host:port`.
    pub(crate) fn new(private_hosts: &[String], ports: &[u16]) -> Result<Self, String> {
        let parsed = private_hosts.iter().map(|entry| {
            let url = Url::parse(&format!("http://{entry}/")).ok();
            let exact = url.filter(|url| url.path() == "/" && url.username().is_empty());
            exact.and_then(|url| authority(&url)).ok_or_else(|| entry.clone())
        });
        Ok(Self { private_hosts: parsed.collect::<Result<_, _>>()?, ports: ports.iter().copied().collect() })
    }

    /// Checks everything that can be known without resolving a name.
    pub(crate) fn check(&self, url: &Url, private_allowed: bool) -> Result<Destination, Blocked> {
        if !matches!(url.scheme(), "http" | "https") {
            return Err(Blocked::Scheme);
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(Blocked::UserInfo);
        }
        let (Some(host), Some(port)) = (url.host(), url.port_or_known_default()) else {
            return Err(Blocked::Malformed);
        };
        if private_allowed && authority(url).is_some_and(|authority| self.private_hosts.contains(&authority))
        {
            return Ok(Destination::Private);
        }
        if !self.ports.contains(&port) {
            return Err(Blocked::Port(port));
        }
        let literal = match host {
            Host::Ipv4(v4) => Some(IpAddr::V4(v4)),
            Host::Ipv6(v6) => Some(IpAddr::V6(v6)),
            Host::Domain(_) => None,
        };
        match literal.filter(|address| !is_public(*address)) {
            Some(address) => Err(Blocked::Address(address)),
            None => Ok(Destination::Public),
        }
    }
}

/// How names become addresses; the system's resolver outside tests.
pub(crate) trait Lookup: Send + Sync {
    fn lookup(&self, name: String) -> BoxFuture<'static, std::io::Result<Vec<SocketAddr>>>;
}

pub(crate) struct SystemLookup;

impl Lookup for SystemLookup {
    fn lookup(&self, name: String) -> BoxFuture<'static, std::io::Result<Vec<SocketAddr>>> {
        Box::pin(async move { Ok(tokio::net::lookup_host((name, 0)).await?.collect()) })
    }
}

/// The resolver that the HTTP client connects through: what it returns is what is connected to, so an answer that
/// changes after the check changes nothing.
#[derive(Clone)]
pub(crate) struct CheckedResolver {
    pub(crate) lookup: Arc<dyn Lookup>,
    pub(crate) destination: Destination,
}

impl Resolve for CheckedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let (lookup, destination) = (self.lookup.lookup(name.as_str().to_owned()), self.destination);
        Box::pin(async move {
            let addresses = lookup.await?;
            // One bad address condemns the name: an honest host has no reason to mix.
            let bad = addresses.iter().map(SocketAddr::ip).find(|address| !is_public(*address));
            if let (Destination::Public, Some(address)) = (destination, bad) {
                return Err(Blocked::Address(address).into());
            }
            let addresses: Addrs = Box::new(addresses.into_iter());
            Ok(addresses)
        })
    }
}

/// The refusal that [`CheckedResolver`] gave, dug out of what the client library made of it.
pub(crate) fn blocked_in(error: &(dyn StdError + 'static)) -> Option<Blocked> {
    let mut layer = Some(error);
    while let Some(error) = layer {
        if let Some(blocked) = error.downcast_ref::<Blocked>() {
            return Some(blocked.clone());
        }
        layer = error.source();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str) -> Result<Destination, Blocked> {
        let guard = Guard::new(&["127.0.0.1:9090".into(), "Minio:9000".into()], &[80, 443]).expect("guard");
        guard.check(&Url::parse(text).map_err(|_| Blocked::Malformed)?, true)
    }

    #[test]
    fn every_spelling_of_a_private_address_is_refused() {
        for text in [
            "http://169.254.169.254/latest/meta-data",
            "http://127.0.0.1/",
            "http://[::1]/",
            "http://[::ffff:10.0.0.1]/",
            "http://[::ffff:a00:1]/",
            "http://0x7f000001/",
            "http://0x7f.1/",
            "http://2130706433/",
            "http://0177.0.0.1/",
            "http://127.1/",
            "http://0/",
            "http://%31%32%37.0.0.1/",
            "http://１２７.0.0.1/",
            "http://127。0。0。1/",
            "http://[64:ff9b::7f00:1]/",
            "http://127.0.0.1./",
        ] {
            assert!(matches!(check(text), Err(Blocked::Address(_))), "{text}: {:?}", check(text));
        }
    }

    #[test]
    fn form_scheme_and_port_are_checked() {
        assert_eq!(check("file:///etc/passwd"), Err(Blocked::Scheme));
        assert_eq!(check("gopher://example.com/"), Err(Blocked::Scheme));
        assert_eq!(check("http://user@example.com/"), Err(Blocked::UserInfo));
        assert_eq!(check("http://:pw@example.com/"), Err(Blocked::UserInfo));
        assert_eq!(check("http://example.com:6379/"), Err(Blocked::Port(6379)));
        assert_eq!(check("http://[fe80::1%25eth0]/"), Err(Blocked::Malformed));
        assert_eq!(check("not a url"), Err(Blocked::Malformed));
        assert_eq!(check("https://example.com/a"), Ok(Destination::Public));
    }

    #[test]
    fn private_hosts_are_private_on_their_port_only() {
        assert_eq!(check("http://127.0.0.1:9090/v1"), Ok(Destination::Private));
        assert_eq!(check("http://0x7f000001:9090/v1"), Ok(Destination::Private));
        assert_eq!(check("http://MINIO:9000/"), Ok(Destination::Private));
        assert_eq!(check("http://127.0.0.1:5432/"), Err(Blocked::Port(5432)));
        assert!(matches!(check("http://127.0.0.1:80/"), Err(Blocked::Address(_))));
        let guard = Guard::new(&["127.0.0.1:9090".into()], &[9090]).expect("guard");
        let url = Url::parse("http://127.0.0.1:9090/").expect("url");
        assert!(matches!(guard.check(&url, false), Err(Blocked::Address(_))), "not for everybody");
        assert_eq!(Guard::new(&["http://x:1".into()], &[]).err(), Some("http://x:1".into()));
    }
}
