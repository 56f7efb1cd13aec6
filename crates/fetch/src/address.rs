//! Which addresses belong to the public internet.
//!
//! IPv4 is public except for the special blocks of the IANA registry. IPv6 is the other way round: only global
//! unicast (2000::/3) is public, minus what lies in there for documentation, protocols and tunnels. That leaves out,
//! without naming them, loopback, link-local, unique-local, multicast, site-local, the NAT64 prefixes (behind which
//! any IPv4 address may stand) and whatever is assigned next.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::LazyLock,
};

use ipnet::{Ipv4Net, Ipv6Net};

const fn v4(a: u8, b: u8, c: u8, d: u8, prefix: u8) -> Ipv4Net {
    Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), prefix)
}

const SPECIAL_V4: [Ipv4Net; 16] = [
    v4(0, 0, 0, 0, 8),        // "this network"; 0.0.0.0 reaches the local machine
    v4(10, 0, 0, 0, 8),       // private
    v4(100, 64, 0, 0, 10),    // shared by carriers (CGNAT)
    v4(127, 0, 0, 0, 8),      // loopback
    v4(169, 254, 0, 0, 16),   // link-local, home of cloud metadata
    v4(172, 16, 0, 0, 12),    // private
    v4(192, 0, 0, 0, 24),     // protocol assignments
    v4(192, 0, 2, 0, 24),     // documentation
    v4(192, 88, 99, 0, 24),   // 6to4 relays, withdrawn
    v4(192, 168, 0, 0, 16),   // private
    v4(198, 18, 0, 0, 15),    // benchmarks
    v4(198, 51, 100, 0, 24),  // documentation
    v4(203, 0, 113, 0, 24),   // documentation
    v4(224, 0, 0, 0, 4),      // multicast
    v4(240, 0, 0, 0, 4),      // reserved, and broadcast
    v4(168, 63, 129, 16, 32), // a cloud's host services behind a public-looking address
];

const GLOBAL_V6: Ipv6Net = Ipv6Net::new_assert(Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3);

static SPECIAL_V6: LazyLock<[Ipv6Net; 4]> = LazyLock::new(|| {
    let net = |a, b, prefix| Ipv6Net::new_assert(Ipv6Addr::new(a, b, 0, 0, 0, 0, 0, 0), prefix);
    [
        net(0x2001, 0, 23),     // protocol assignments, Teredo among them
        net(0x2001, 0xdb8, 32), // documentation
        net(0x2002, 0, 16),     // 6to4: any IPv4 address in disguise
        net(0x3fff, 0, 20),     // documentation
    ]
});

/// Whether an address lies on the public internet. An IPv4 address written as IPv6 counts as what it stands for.
#[must_use]
pub fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => !SPECIAL_V4.iter().any(|net| net.contains(&v4)),
        IpAddr::V6(v6) => match v6.to_ipv4_mapped() {
            Some(v4) => is_public(IpAddr::V4(v4)),
            None => GLOBAL_V6.contains(&v6) && !SPECIAL_V6.iter().any(|net| net.contains(&v6)),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_addresses_are_not_public() {
        for text in [
            "0.0.0.0",
            "10.0.0.5",
            "100.64.0.1",
            "127.0.0.1",
            "127.255.255.254",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.1",
            "192.0.2.1",
            "192.168.1.1",
            "198.18.0.1",
            "198.51.100.7",
            "203.0.113.9",
            "224.0.0.1",
            "240.0.0.1",
            "255.255.255.255",
            "168.63.129.16",
            "::",
            "::1",
            "::127.0.0.1",
            "::ffff:10.0.0.1",
            "::ffff:127.0.0.1",
            "64:ff9b::a00:1",
            "64:ff9b:1::1",
            "100::1",
            "2001::1",
            "2001:db8::1",
            "2002:a00:1::",
            "3fff::1",
            "fc00::1",
            "fd12:3456::1",
            "fe80::1",
            "fec0::1",
            "ff02::1",
        ] {
            assert!(!is_public(text.parse().expect(text)), "{text}");
        }
    }

    #[test]
    fn public_addresses_are() {
        for text in [
            "1.1.1.1",
            "8.8.8.8",
            "172.32.0.1",
            "100.128.0.1",
            "::ffff:8.8.8.8",
            "2606:4700::1111",
            "2a00:1450::1",
        ] {
            assert!(is_public(text.parse().expect(text)), "{text}");
        }
    }
}
