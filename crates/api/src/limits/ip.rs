//! The address limit in front of everything that writes: one token bucket per address, in process.
//!
//! The table is bounded by construction: an address becomes one of 65,536 slots by a keyed hash whose key is made
//! when the process starts, so nobody can aim at another's slot and nobody can fill memory with addresses.

use std::{
    collections::hash_map::RandomState,
    hash::BuildHasher,
    net::{IpAddr, Ipv6Addr, SocketAddr},
    time::Duration,
};

use axum::{
    body::Body,
    response::{IntoResponse, Response},
};
use domain::limits::{Bucket, LimitScope, Reset};
use governor::middleware::NoOpMiddleware;
use http::{HeaderMap, Method, Request};
use ipnet::IpNet;
use tower_governor::{
    GovernorError, GovernorLayer, governor::GovernorConfigBuilder, key_extractor::KeyExtractor,
};

use crate::{
    edge::RequestContext,
    limits::{LimitLine, LimitLines},
    problem::{Code, Problem, RefusedBy},
};

/// Whose address a request comes from when proxies stand in front.
#[derive(Debug, Clone, Default)]
pub(crate) struct Proxies {
    /// How many proxies of ours each request passes.
    pub(crate) hops: usize,
    /// Where they are; others' forwarding headers are not believed.
    pub(crate) trusted: Vec<IpNet>,
}

impl Proxies {
    /// The client's address: the peer's, or the n-th X-Forwarded-For entry from the right behind n trusted hops.
    pub(crate) fn client(&self, peer: IpAddr, headers: &HeaderMap) -> IpAddr {
        let peer = peer.to_canonical();
        if self.hops == 0 || !self.trusted.iter().any(|net| net.contains(&peer)) {
            return peer;
        }
        // Several header lines are one list, in order of appearance.
        let entries: Vec<&str> = headers
            .get_all("x-forwarded-for")
            .iter()
            .filter_map(|line| line.to_str().ok())
            .flat_map(|line| line.split(','))
            .map(str::trim)
            .collect();
        let entry = entries.len().checked_sub(self.hops).and_then(|index| entries.get(index));
        // An entry that is no address was not written by our proxy: the peer is all we know.
        entry.and_then(|text| parse_address(text)).map_or(peer, |address| address.to_canonical())
    }
}

/// An address, with or without a port.
fn parse_address(text: &str) -> Option<IpAddr> {
    let bare = text.trim_start_matches('[').trim_end_matches(']');
    bare.parse().ok().or_else(|| text.parse::<SocketAddr>().ok().map(|address| address.ip()))
}

/// The address as limits see it: IPv6 by its /64, which is what one customer has.
pub(crate) fn limited_address(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => {
            let [a, b, c, d, ..] = v6.segments();
            IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
        v4 @ IpAddr::V4(_) => v4,
    }
}

/// Turns addresses into slots.
#[derive(Debug, Clone, Default)]
pub(crate) struct Slots(RandomState);

impl Slots {
    pub(crate) fn of(&self, address: IpAddr) -> u16 {
        let [low, high, ..] = self.0.hash_one(limited_address(address)).to_le_bytes();
        u16::from_le_bytes([low, high])
    }
}

impl KeyExtractor for Slots {
    type Key = u16;

    fn extract<T>(&self, request: &Request<T>) -> Result<u16, GovernorError> {
        let context =
            request.extensions().get::<RequestContext>().ok_or(GovernorError::UnableToExtractKey)?;
        Ok(self.of(context.address()))
    }
}

/// The layer, for the methods that write. Reads have a bucket per key, wrong keys one per address.
pub(crate) fn layer(bucket: Bucket) -> Option<GovernorLayer<Slots, NoOpMiddleware, Body>> {
    let every = Duration::from_millis(bucket.per_ms).checked_div(bucket.refill)?;
    let config = GovernorConfigBuilder::default()
        .key_extractor(Slots::default())
        .period(every)
        .burst_size(bucket.capacity)
        .methods(vec![Method::POST, Method::PUT, Method::PATCH, Method::DELETE])
        .finish()?;
    Some(GovernorLayer::new(config).error_handler(move |error| refusal(&error, bucket)))
}

fn refusal(error: &GovernorError, bucket: Bucket) -> Response {
    let GovernorError::TooManyRequests { wait_time, .. } = error else {
        return Problem::internal(error.clone()).into_response();
    };
    metrics::counter!(domain::metric::RATE_LIMIT_REJECTED, "rule" => "ip").increment(1);
    // The library cuts to whole seconds; one more is the shortest wait that is never too short.
    let wait = Duration::from_secs(wait_time + 1);
    let window_seconds = bucket.window().as_secs().max(1);
    let line = LimitLine {
        policy: "ip".into(),
        quota: bucket.capacity.into(),
        window_seconds,
        remaining: 0,
        reset_seconds: window_seconds,
    };
    Problem::new(Code::RateLimited, "Too many requests from this network.")
        .retry_after(wait)
        .refused_by(RefusedBy {
            scope: LimitScope::Ip,
            policy: "ip".into(),
            limit: bucket.capacity.into(),
            reset: Some(Reset::In(bucket.window())),
        })
        .with_limits(&LimitLines(vec![line]))
        .into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn forwarded(lines: &[&str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append("x-forwarded-for", line.parse().unwrap());
        }
        headers
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    /// C33: what a client writes into a header counts only where a proxy of ours has added to it.
    #[test]
    fn without_trusted_proxies_only_the_peer_counts() {
        let headers = forwarded(&["1.2.3.4"]);
        assert_eq!(Proxies::default().client(ip("9.9.9.9"), &headers), ip("9.9.9.9"));
        let proxies = Proxies { hops: 1, trusted: vec!["10.0.0.0/8".parse().unwrap()] };
        assert_eq!(proxies.client(ip("9.9.9.9"), &headers), ip("9.9.9.9"));
    }

    #[test]
    fn trusted_hops_are_counted_from_the_right() {
        let proxies = |hops| Proxies { hops, trusted: vec!["10.0.0.0/8".parse().unwrap()] };
        let headers = forwarded(&["6.6.6.6, 1.2.3.4", "10.0.0.2"]);
        assert_eq!(proxies(1).client(ip("10.0.0.1"), &headers), ip("10.0.0.2"));
        assert_eq!(proxies(2).client(ip("10.0.0.1"), &headers), ip("1.2.3.4"));
        assert_eq!(proxies(9).client(ip("10.0.0.1"), &headers), ip("10.0.0.1"));
        assert_eq!(proxies(1).client(ip("10.0.0.1"), &forwarded(&["unknown"])), ip("10.0.0.1"));
        assert_eq!(
            proxies(1).client(ip("::ffff:10.0.0.1"), &forwarded(&["[2001:db8::1]:80"])),
            ip("2001:db8::1")
        );
    }

    #[test]
    fn one_customer_of_ipv6_is_one_address() {
        let slots = Slots::default();
        assert_eq!(slots.of(ip("2001:db8:0:1::1")), slots.of(ip("2001:db8:0:1:ffff::2")));
        assert_eq!(limited_address(ip("2001:db8:0:2::1")), ip("2001:db8:0:2::"));
        assert_eq!(limited_address(ip("::ffff:1.2.3.4")), ip("1.2.3.4"));
    }
}
