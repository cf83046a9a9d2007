//! The addresses that requests may reach, in every spelling.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use portcullis_policy::{DenialCode, UrlHost};
use proptest::prelude::*;

use super::{check_denied, get, grant, grant_of, judged, operator};

#[test]
fn every_spelling_of_a_special_address_is_refused() {
    for host in SPECIAL {
        check_denied(
            get(&format!("http://{host}/")),
            DenialCode::AddressNotPublic,
            "egress.allow_private",
            "an operator allows it with `allow_private = [\"",
        );
    }
    for url in ["http://8.8.8.8", "http://[2606:4700::1111]", "http://[64:ff9b::808:808]", "http://134744072"]
    {
        judged(url);
    }
}

#[test]
fn the_line_of_a_hint_allows_the_address() {
    for host in SPECIAL {
        let url = format!("http://{host}/");
        let hint = get(&url).expect_err("is denied").hint;
        let (_, line) = hint.split_once("allow_private = [").expect("a line");
        let (entry, _) = line.split_once("]`").expect("its end");
        let grant = grant_of(&operator(&format!("allow_private = [{entry}]")));
        assert!(grant.judge_request("GET", &url).is_ok(), "{url}: {entry}");
    }
}

#[test]
fn hosts_that_no_standard_reads_are_refused() {
    for host in
        ["127.0.0.0.1", "256.0.0.1", "0x100000000", "1.2.3.08", "a..b", "[::1", "[fe80::1%25eth0]", "a b"]
    {
        let hint = "neither a name nor an address";
        check_denied(get(&format!("http://{host}/")), DenialCode::UrlRefused, "profiles.Net.hosts", hint);
    }
}

#[test]
fn every_address_of_a_name_is_judged() {
    let host = UrlHost::parse("api.example.com").expect("a host");
    let address = |text: &str| grant().judge_address(&host, 443, text.parse().expect(text));
    let public = address("::ffff:8.8.8.8").expect("public");
    assert_eq!(public.socket_addr().to_string(), "8.8.8.8:443");
    assert_eq!(address("2606:4700::1").expect("public").socket_addr().to_string(), "[2606:4700::1]:443");
    for text in ["127.0.0.1", "::ffff:10.0.0.1", "::1", "fd00::1", "64:ff9b::192.168.0.1", "169.254.169.254"]
    {
        let canonical = text.parse::<IpAddr>().expect("an address").to_canonical();
        // Only the operator sees the address. The caller knows the name, but not its address.
        let rule = format!("egress.allow_private[\"{}\"]", SocketAddr::new(canonical, 443));
        check_denied(
            address(text),
            DenialCode::AddressNotPublic,
            &rule,
            "`api.example.com` resolves to an address",
        );
        let denial = address(text).expect_err("is denied");
        let denial_text = format!("{denial} {}", denial.message());
        assert!(!denial_text.contains(&canonical.to_string()), "{denial_text}");
    }
    // The name of a metadata service is refused, whatever address it resolves to.
    let metadata = UrlHost::parse("metadata.google.internal").expect("a host");
    let result = grant().judge_address(&metadata, 80, Ipv4Addr::new(8, 8, 8, 8).into());
    check_denied(result, DenialCode::AddressNotPublic, "egress.allow_private", "metadata.google.internal:80");
    // Only the address in the URL may be dialled.
    let literal = UrlHost::parse("8.8.8.8").expect("a host");
    let result = grant().judge_address(&literal, 80, Ipv4Addr::new(8, 8, 4, 4).into());
    let rule = "egress.allow_private[\"8.8.4.4\"]";
    check_denied(result, DenialCode::AddressNotPublic, rule, "another address");
}

#[test]
fn allow_private_allows_one_address_and_port() {
    let grant = grant_of(&operator(
        "allow_private = ['127.0.0.1:8080', '[::1]:80', '169.254.169.254:80', 'metadata.google.internal:80']",
    ));
    for url in [
        "http://127.0.0.1:8080/",
        "http://127.1:8080/",
        "http://[::ffff:127.0.0.1]:8080/",
        "http://[::1]/",
        "http://169.254.169.254/",
        "http://metadata.google.internal/",
    ] {
        assert!(grant.judge_request("GET", url).is_ok(), "{url}");
    }
    for url in [
        "http://127.0.0.1/",
        "http://127.0.0.2:8080/",
        "http://[::1]:8080/",
        "http://[64:ff9b::7f00:1]:8080/",
        "http://[::127.0.0.1]:8080/",
        "http://metadata.google.internal:8080/",
        "http://a.metadata.google.internal/",
        "http://metadata/",
    ] {
        let result = grant.judge_request("GET", url);
        check_denied(result, DenialCode::AddressNotPublic, "egress.allow_private", "");
    }
    // The entry grants no host: the rules of `hosts` still apply.
    let https = grant.judge_request("GET", "https://127.0.0.1:8080/");
    check_denied(https, DenialCode::HostNotGranted, "profiles.Net.hosts", "https://127.0.0.1:8080");
}

/// An IPv4 address in one of the spellings that the URL standard accepts.
fn spelled(address: Ipv4Addr, spelling: usize) -> String {
    let [a, b, c, d] = address.octets();
    let bits = address.to_bits();
    match spelling {
        0 => address.to_string(),
        1 => bits.to_string(),
        2 => format!("0x{bits:08X}"),
        3 => format!("0{bits:o}"),
        4 => format!("0x{a:x}.0{b:o}.{c}.{d}."),
        5 => format!("{a}.{}", bits & 0xff_ffff),
        6 => format!("{a}.{b}.0x{:x}", bits & 0xffff),
        7 => format!("[::ffff:{address}]"),
        8 => format!("[64:ff9b::{address}]"),
        _ => format!("[::ffff:{:x}:{:x}]", bits >> 16, bits & 0xffff),
    }
}

proptest! {
    #[test]
    fn no_spelling_reaches_a_special_ipv4_address(bits in any::<u32>(), spelling in 0_usize..10, net in 0_usize..10) {
        let nets: [(u32, u32); 10] = [
            (0x0000_0000, 8), (0x0a00_0000, 8), (0x6440_0000, 10), (0x7f00_0000, 8), (0xa9fe_0000, 16),
            (0xac10_0000, 12), (0xc0a8_0000, 16), (0xc612_0000, 15), (0xe000_0000, 4), (0xf000_0000, 4),
        ];
        let (base, prefix) = nets[net];
        let address = Ipv4Addr::from_bits(base | (bits & (u32::MAX >> prefix)));
        let url = format!("http://{}/", spelled(address, spelling));
        let denial = get(&url).expect_err("is denied");
        prop_assert_eq!(denial.code, DenialCode::AddressNotPublic, "{}", url);
    }

    #[test]
    fn an_address_is_public_in_all_spellings_or_in_none(bits in any::<u32>()) {
        let address = Ipv4Addr::from_bits(bits);
        let verdicts: Vec<bool> =
            (0..10).map(|spelling| get(&format!("http://{}/", spelled(address, spelling))).is_ok()).collect();
        prop_assert!(verdicts.iter().all(|verdict| *verdict == verdicts[0]), "{address} {verdicts:?}");
        let host = UrlHost::parse("a.example").expect("a host");
        prop_assert_eq!(grant().judge_address(&host, 80, address.into()).is_ok(), verdicts[0]);
    }

    #[test]
    fn only_global_unicast_passes_in_ipv6(bits in any::<u128>(), shift in 0_u32..120) {
        let address = Ipv6Addr::from_bits(bits >> shift);
        let host = UrlHost::parse("a.example").expect("a host");
        if grant().judge_address(&host, 80, address.into()).is_ok() {
            let is_global = address.segments()[0] & 0xe000 == 0x2000;
            let is_nat64 = address.segments()[..6] == [0x64, 0xff9b, 0, 0, 0, 0];
            prop_assert!(is_global || is_nat64 || address.to_ipv4_mapped().is_some(), "{address}");
            prop_assert!(address.segments()[0] != 0x2002);
        }
    }

    #[test]
    fn the_host_that_is_judged_is_the_host_of_the_url(text in "[a-zA-Z0-9:/?#@.%\\[\\]*\\\\ \u{e4}\u{ff0e}\u{3002}\t-]{0,30}") {
        // Join as a client joins a redirect's target, before the target is judged.
        let base = url::Url::parse("http://a.example/b/c?d").expect("a URL");
        for start in ["http://", "//", "/", "", "http:"] {
            let Ok(joined) = base.join(&format!("{start}{text}")) else { continue };
            if let Ok(request) = get(joined.as_str()) {
                let host = joined.host_str().unwrap_or_default();
                prop_assert_eq!(request.url().host_str(), Some(host.strip_suffix('.').unwrap_or(host)));
                prop_assert_eq!(Some(request.authority().port()), joined.port_or_known_default());
                prop_assert_eq!(request.url().path(), joined.path());
                prop_assert_eq!(request.url().query(), joined.query());
            }
        }
    }

    #[test]
    fn a_judged_url_is_judged_the_same_again(text in "[a-zA-Z0-9:/?#@.%\\[\\]*\\\\ \u{e4}\u{ff0e}-]{0,30}") {
        for start in ["http://", "https://", "http://127.0.0.1", ""] {
            if let Ok(request) = get(&format!("{start}{text}")) {
                let second_request = get(request.url().as_str());
                prop_assert_eq!(Ok(request), second_request);
            }
        }
    }
}

/// Hosts that no request reaches by default, in every spelling that the URL standard accepts.
const SPECIAL: &[&str] = &[
    "127.0.0.1",
    "127.1",
    "127.0.1",
    "2130706433",
    "0x7f000001",
    "0x7f.0.0.1",
    "0X7F.1",
    "0177.0.0.1",
    "017700000001",
    "00000177.1",
    "127.0.0.1.",
    "127.255.255.255",
    "\u{ff11}27.0.0.1",
    "127\u{3002}0\u{3002}0\u{3002}1",
    "%31%32%37.0.0.1",
    "\u{2460}27.0.0.1",
    "0",
    "0.0.0.0",
    "0x0",
    "10.1",
    "172.16.0.1",
    "192.168.1.1",
    "3232235777",
    "100.64.0.1",
    "169.254.169.254",
    "0xa9fea9fe",
    "2852039166",
    "0251.0376.0251.0376",
    "100.100.100.200",
    "168.63.129.16",
    "192.0.0.192",
    "192.0.2.1",
    "198.18.0.1",
    "198.51.100.1",
    "203.0.113.1",
    "224.0.0.1",
    "240.0.0.1",
    "255.255.255.255",
    "4294967295",
    "[::]",
    "[::1]",
    "[0:0:0:0:0:0:0:1]",
    "[0000::0001]",
    "[::127.0.0.1]",
    "[::ffff:127.0.0.1]",
    "[::ffff:7f00:1]",
    "[0:0:0:0:0:FFFF:A9FE:A9FE]",
    "[64:ff9b::127.0.0.1]",
    "[64:ff9b::a9fe:a9fe]",
    "[64:ff9b::a00:1]",
    "[64:ff9b:1::808:808]",
    "[2002:7f00:1::]",
    "[2002:808:808::]",
    "[2001::7f00:1]",
    "[2001:0:808:808::1]",
    "[2001:0:1::80ff:fffe]",
    "[::ffff:0:127.0.0.1]",
    "[2001:10::1]",
    "[2001:db8::1]",
    "[3fff::1]",
    "[100::1]",
    "[fc00::1]",
    "[fd00:ec2::254]",
    "[fd20:ce::254]",
    "[fe80::1]",
    "[fec0::1]",
    "[ff02::1]",
    "[4000::1]",
    "metadata",
    "metadata.google.internal",
    "METADATA.GOOGLE.INTERNAL.",
    "metadata%2egoogle%2einternal",
    "metadata\u{3002}google\u{3002}internal",
    "a.metadata.google.internal",
    "instance-data",
];
