//! The addresses that are not public, and the names and addresses of cloud metadata services.
//!
//! A guest's request leaves from this machine, so it could reach hosts that are reachable only from this
//! machine. By default only globally routable addresses are allowed, by the registries of special-purpose
//! addresses (RFC 6890 and its updates). In IPv6 only `2000::/3` is assigned for global unicast; the special
//! prefixes within it are excluded.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{Ipv4Net, Ipv6Net};

use super::HostName;

/// Returns the reason why an address is refused by default, or `None` for a public address.
///
/// The address must be canonical ([`IpAddr::to_canonical`]), because the kernel dials the embedded IPv4
/// address of an IPv4-mapped address.
pub(super) fn reason_not_public(address: IpAddr) -> Option<&'static str> {
    match address {
        _ if is_metadata(address) => Some(METADATA),
        IpAddr::V4(address) => reason_v4(address),
        IpAddr::V6(address) => reason_v6(address),
    }
}

/// Returns whether a name is that of a metadata service, or lies below such a name.
pub(super) fn is_metadata_name(name: &HostName) -> bool {
    METADATA_NAMES.iter().any(|metadata_name| name.is_or_is_below(metadata_name))
}

fn is_metadata(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => METADATA_V4.contains(&address),
        IpAddr::V6(address) => METADATA_V6.contains(&address),
    }
}

fn reason_v4(address: Ipv4Addr) -> Option<&'static str> {
    SPECIAL_V4.iter().find(|(net, _)| net.contains(&address)).map(|(_, reason)| *reason)
}

fn reason_v6(address: Ipv6Addr) -> Option<&'static str> {
    if let Some((_, reason)) = SPECIAL_V6.iter().find(|(net, _)| net.contains(&address)) {
        return Some(reason);
    }
    if NAT64.contains(&address) {
        // A translator dials the IPv4 address in the last 32 bits (RFC 6052, section 2.2).
        let [.., a, b, c, d] = address.octets();
        return reason_not_public(IpAddr::V4(Ipv4Addr::new(a, b, c, d)));
    }
    (!GLOBAL_V6.contains(&address)).then_some("not assigned for global use")
}

/// The reason for the addresses of [`METADATA_V4`] and [`METADATA_V6`], and for [`METADATA_NAMES`].
pub(super) const METADATA: &str = "of a cloud's metadata service, which gives out this machine's credentials";

const SPECIAL_V4: &[(Ipv4Net, &str)] = &[
    (v4([0, 0, 0, 0], 8), "of this host (0.0.0.0/8)"),
    (v4([10, 0, 0, 0], 8), "private (RFC 1918)"),
    (v4([100, 64, 0, 0], 10), "of a carrier's network (RFC 6598)"),
    (v4([127, 0, 0, 0], 8), "loopback"),
    (v4([169, 254, 0, 0], 16), "link-local"),
    (v4([172, 16, 0, 0], 12), "private (RFC 1918)"),
    (v4([192, 0, 0, 0], 24), "reserved for protocols (RFC 6890)"),
    (v4([192, 0, 2, 0], 24), "for documentation"),
    (v4([192, 88, 99, 0], 24), "a 6to4 relay (RFC 7526)"),
    (v4([192, 168, 0, 0], 16), "private (RFC 1918)"),
    (v4([198, 18, 0, 0], 15), "for benchmarking (RFC 2544)"),
    (v4([198, 51, 100, 0], 24), "for documentation"),
    (v4([203, 0, 113, 0], 24), "for documentation"),
    (v4([224, 0, 0, 0], 4), "multicast"),
    // Includes 255.255.255.255, the broadcast address.
    (v4([240, 0, 0, 0], 4), "reserved"),
];

/// Prefixes that are refused whatever address they embed. Those outside `2000::/3` would be refused in any
/// case. They are listed so that the denial can name the reason.
const SPECIAL_V6: &[(Ipv6Net, &str)] = &[
    (v6([0, 0, 0, 0, 0, 0, 0, 0], 128), "unspecified"),
    (v6([0, 0, 0, 0, 0, 0, 0, 1], 128), "loopback"),
    (v6([0, 0, 0, 0, 0, 0xffff, 0, 0], 96), "an IPv4-mapped address"),
    (v6([0, 0, 0, 0, 0, 0, 0, 0], 96), "an IPv4-compatible address (RFC 4291)"),
    (v6([0x64, 0xff9b, 1, 0, 0, 0, 0, 0], 48), "of a local translator (RFC 8215)"),
    (v6([0x100, 0, 0, 0, 0, 0, 0, 0], 64), "discarded (RFC 6666)"),
    (v6([0x2001, 0, 0, 0, 0, 0, 0, 0], 32), "of a Teredo tunnel (RFC 4380)"),
    (v6([0x2001, 0, 0, 0, 0, 0, 0, 0], 23), "reserved for protocols (RFC 2928)"),
    (v6([0x2001, 0xdb8, 0, 0, 0, 0, 0, 0], 32), "for documentation"),
    (v6([0x2002, 0, 0, 0, 0, 0, 0, 0], 16), "of a 6to4 tunnel (RFC 7526)"),
    (v6([0x3fff, 0, 0, 0, 0, 0, 0, 0], 20), "for documentation"),
    (v6([0x5f00, 0, 0, 0, 0, 0, 0, 0], 16), "a segment identifier (RFC 9602)"),
    (v6([0xfc00, 0, 0, 0, 0, 0, 0, 0], 7), "private (RFC 4193)"),
    (v6([0xfe80, 0, 0, 0, 0, 0, 0, 0], 10), "link-local"),
    (v6([0xfec0, 0, 0, 0, 0, 0, 0, 0], 10), "site-local (RFC 3879)"),
    (v6([0xff00, 0, 0, 0, 0, 0, 0, 0], 8), "multicast"),
];

/// Global unicast (RFC 4291, section 2.4, as assigned by IANA).
const GLOBAL_V6: Ipv6Net = v6([0x2000, 0, 0, 0, 0, 0, 0, 0], 3);

/// The well-known prefix of NAT64 (RFC 6052). An address in it is judged by its embedded address, because
/// resolvers in networks without IPv4 answer with such addresses (DNS64).
const NAT64: Ipv6Net = v6([0x64, 0xff9b, 0, 0, 0, 0, 0, 0], 96);

/// Metadata services of clouds. Most have an address in a special prefix; 168.63.129.16 (Azure) does not.
const METADATA_V4: [Ipv4Addr; 5] = [
    Ipv4Addr::new(169, 254, 169, 254),
    Ipv4Addr::new(169, 254, 170, 2),
    Ipv4Addr::new(100, 100, 100, 200),
    Ipv4Addr::new(168, 63, 129, 16),
    Ipv4Addr::new(192, 0, 0, 192),
];

const METADATA_V6: [Ipv6Addr; 3] = [
    Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254),
    Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x23),
    Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254),
];

/// Names of metadata services. They are refused before they are resolved, because a cloud's resolver may answer with
/// any address.
const METADATA_NAMES: &[&str] = &[
    "instance-data",
    "instance-data.ec2.internal",
    "metadata",
    "metadata.azure.internal",
    "metadata.goog",
    "metadata.google.internal",
    "metadata.packet.net",
    "metadata.platformequinix.com",
    "metadata.tencentyun.com",
];

const fn v4(octets: [u8; 4], prefix: u8) -> Ipv4Net {
    let [a, b, c, d] = octets;
    Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), prefix)
}

const fn v6(segments: [u16; 8], prefix: u8) -> Ipv6Net {
    let [a, b, c, d, e, f, g, h] = segments;
    Ipv6Net::new_assert(Ipv6Addr::new(a, b, c, d, e, f, g, h), prefix)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::UrlHost;

    fn reason(text: &str) -> Option<&'static str> {
        reason_not_public(text.parse::<IpAddr>().expect(text).to_canonical())
    }

    #[test]
    fn public_addresses_pass() {
        for text in [
            "1.1.1.1",
            "8.8.8.8",
            "100.63.255.255",
            "100.128.0.0",
            "172.15.255.255",
            "172.32.0.0",
            "192.0.1.1",
            "198.17.255.255",
            "198.20.0.0",
            "223.255.255.255",
            "2606:4700:4700::1111",
            "2001:200::1",
            "2001:4860:4860::8888",
            "3ffe::1",
            "64:ff9b::8.8.8.8",
            "::ffff:8.8.8.8",
        ] {
            assert_eq!(reason(text), None, "{text}");
        }
    }

    #[test]
    fn the_ends_of_every_special_prefix_are_refused() {
        for (net, _) in SPECIAL_V4 {
            for address in [net.network(), net.broadcast()] {
                for embedded in [address.into(), address.to_ipv6_mapped().into(), embedded_in(NAT64, address)]
                {
                    assert!(reason_not_public(IpAddr::to_canonical(&embedded)).is_some(), "{embedded}");
                }
            }
        }
        for (net, _) in SPECIAL_V6 {
            for address in [net.network(), net.broadcast()] {
                // In canonical form the IPv4-mapped prefix is all of IPv4, whose first and last address are special.
                assert!(reason_not_public(IpAddr::V6(address).to_canonical()).is_some(), "{address}");
            }
        }
    }

    #[test]
    fn tunnels_are_refused_whatever_they_embed() {
        for text in
            ["2002:808:808::1", "2001:0:808:808::1", "::8.8.8.8", "64:ff9b:1::8.8.8.8", "5f00::1", "4000::"]
        {
            assert!(reason(text).is_some(), "{text}");
        }
    }

    #[test]
    fn metadata_services_are_known_in_every_form() {
        for text in [
            "169.254.169.254",
            "::ffff:169.254.169.254",
            "64:ff9b::a9fe:a9fe",
            "fd00:ec2::254",
            "fd20:ce::254",
            "100.100.100.200",
            "168.63.129.16",
        ] {
            assert_eq!(reason(text), Some(METADATA), "{text}");
        }
        for (text, is_metadata) in [
            ("metadata.google.internal", true),
            ("METADATA.google.internal.", true),
            ("x.metadata.google.internal", true),
            ("metadata", true),
            ("metadata.example.com", false),
            ("google.internal", false),
        ] {
            let Ok(UrlHost::Name(name)) = UrlHost::parse(text) else { panic!("{text}") };
            assert_eq!(is_metadata_name(&name), is_metadata, "{text}");
        }
    }

    fn embedded_in(net: Ipv6Net, address: Ipv4Addr) -> IpAddr {
        Ipv6Addr::from_bits(net.network().to_bits() | u128::from(address.to_bits())).into()
    }
}
