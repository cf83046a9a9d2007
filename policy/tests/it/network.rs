//! The network: faults of its keys, requests, redirects and addresses, and that an overlay takes away only.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use portcullis_policy::{Denial, DenialCode, Grant, Host, JudgedRequest, RequestedSubject, ToolOrigin};
use portcullis_types::SafetyTier;
use proptest::prelude::*;

use crate::support::{BASE, decide, load, load_with, tool, try_load};

/// A policy whose tool `t` may fetch.
fn operator(egress: &str) -> String {
    format!(
        "{BASE}
[profiles.Net]
hosts = ['https://api.example.com', 'https://*.example.com:8443', 'http://*', 'http://*:8080']
[tools.t]
profile = 'Net'
[egress]
{egress}"
    )
}

fn grant_of(text: &str) -> Grant {
    decide(&load(text), &tool("t", SafetyTier::ReadOnly), &[]).expect("granted")
}

fn grant() -> Grant {
    grant_of(&operator(""))
}

fn get(url: &str) -> Result<JudgedRequest, Denial> {
    grant().judge_request("GET", url)
}

#[track_caller]
fn judged(url: &str) -> JudgedRequest {
    get(url).unwrap_or_else(|denial| panic!("{url}: {denial}"))
}

#[track_caller]
fn check_denied<T: std::fmt::Debug>(result: Result<T, Denial>, code: DenialCode, rule: &str, hint: &str) {
    let denial = result.expect_err("is denied");
    assert_eq!((denial.code, denial.rule.as_str()), (code, rule), "{denial}");
    assert!(denial.hint.contains(hint), "{denial}");
}

/// Checks the faults of lines after [`BASE`], which has 16 lines.
#[track_caller]
fn check_fault(lines: &str, fault: &str) {
    let error = try_load(&format!("{BASE}{lines}"), None).expect_err("is refused").to_string();
    assert_eq!(error, format!("portcullis.toml:{fault}"));
}

#[test]
fn a_request_is_granted_by_scheme_host_port_and_method() {
    for url in ["https://api.example.com/v1?q#f", "https://a.b.example.com:8443", "http://other.example/"] {
        let request = judged(url);
        assert_eq!((request.method().as_str(), request.redirects()), ("GET", 0));
    }
    assert_eq!(judged("https://API.example.com.:443/a/../v1#f").url().as_str(), "https://api.example.com/v1");
    let hosts = "profiles.Net.hosts";
    for (url, line) in [
        ("https://example.com", "hosts = [\"https://example.com\"]` under `[profiles.Net]`"),
        ("https://a.example.com", "hosts = [\"https://a.example.com\"]"),
        ("https://api.example.com:9443/x", "hosts = [\"https://api.example.com:9443\"]"),
        ("http://other.example:81", "hosts = [\"http://other.example:81\"]"),
    ] {
        check_denied(get(url), DenialCode::HostNotGranted, hosts, line);
    }
    check_denied(
        get("https://u:p@api.example.com"),
        DenialCode::UrlRefused,
        hosts,
        "no user and no password",
    );
    let post = grant().judge_request("POST", "https://api.example.com");
    let line = "granted: `GET`, `HEAD`; an operator allows it with `methods = [\"GET\", \"HEAD\", \"POST\"]`";
    check_denied(post, DenialCode::MethodNotGranted, "profiles.Net.methods", line);
    for method in ["get", "TRACE", "CONNECT", "GET ", "", "G\nET"] {
        let result = grant().judge_request(method, "https://api.example.com");
        check_denied(result, DenialCode::MethodNotGranted, "profiles.Net.methods", "no policy grants other");
    }
}

#[test]
fn a_profile_without_hosts_has_no_network() {
    let policy = load(BASE);
    let grant = decide(&policy, &tool("t", SafetyTier::ReadOnly), &[]).expect("granted");
    assert!(grant.network.is_none() && !policy.has_network() && policy.network_ports().is_empty());
    let result = grant.judge_request("GET", "https://example.com/x");
    let line = "`hosts = [\"https://example.com\"]`";
    check_denied(result, DenialCode::EgressNotGranted, "profiles.R", line);
    let address =
        grant.judge_address(&Host::parse("a").expect("a host"), 443, Ipv4Addr::new(8, 8, 8, 8).into());
    check_denied(address, DenialCode::EgressNotGranted, "profiles.R", "`hosts`");
    for lines in ["[profiles.X]\nhosts = []", "[profiles.X]\nmethods = ['POST']"] {
        assert!(!load(&format!("{BASE}{lines}")).has_network(), "{lines}");
    }
}

#[test]
fn an_argument_that_is_an_address_is_judged_before_the_call() {
    let policy = load(&operator(""));
    let decide = |url: &str| {
        let subject = RequestedSubject::Url { argument: "url".into(), url: url.into() };
        decide(&policy, &tool("t", SafetyTier::ReadOnly), &[subject])
    };
    assert!(decide("https://api.example.com/x").is_ok());
    check_denied(decide("https://evil.test"), DenialCode::HostNotGranted, "profiles.Net.hosts", "evil.test");
    check_denied(decide("file:///etc/passwd"), DenialCode::UrlRefused, "profiles.Net.hosts", "begins with");
    check_denied(decide("http://[::1]/"), DenialCode::AddressNotPublic, "egress.allow_private", "loopback");
    assert_eq!(policy.network_ports().into_iter().collect::<Vec<_>>(), [80, 443, 8080, 8443]);
}

#[test]
fn a_grant_says_its_network_in_json() {
    let grant = grant_of(&operator("allow_private = ['127.0.0.1:8080']"));
    let json = serde_json::to_value(&grant).expect("serialises");
    assert_eq!(
        json["network"],
        serde_json::json!({
            "hosts": ["http://*", "http://*:8080", "https://api.example.com", "https://*.example.com:8443"],
            "methods": ["GET", "HEAD"],
            "allow_private": ["127.0.0.1:8080"],
            "max_response_bytes": 10 << 20,
            "max_redirects": 5,
        })
    );
}

#[test]
fn every_spelling_of_a_special_address_is_refused() {
    for host in [
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
    ] {
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
    let host = Host::parse("api.example.com").expect("a host");
    let address = |text: &str| grant().judge_address(&host, 443, text.parse().expect(text));
    let public = address("::ffff:8.8.8.8").expect("public");
    assert_eq!(public.socket_addr().to_string(), "8.8.8.8:443");
    assert_eq!(address("2606:4700::1").expect("public").socket_addr().to_string(), "[2606:4700::1]:443");
    for text in ["127.0.0.1", "::ffff:10.0.0.1", "::1", "fd00::1", "64:ff9b::192.168.0.1", "169.254.169.254"]
    {
        let canonical = text.parse::<IpAddr>().expect("an address").to_canonical();
        let line = format!("allow_private = [\"{}\"]", std::net::SocketAddr::new(canonical, 443));
        check_denied(address(text), DenialCode::AddressNotPublic, "egress.allow_private", &line);
    }
    // A name of a metadata service is not reached, whatever it resolves to.
    let metadata = Host::parse("metadata.google.internal").expect("a host");
    let result = grant().judge_address(&metadata, 80, Ipv4Addr::new(8, 8, 8, 8).into());
    check_denied(result, DenialCode::AddressNotPublic, "egress.allow_private", "metadata.google.internal:80");
    // The address in a URL is the one that is dialled.
    let written = Host::parse("8.8.8.8").expect("a host");
    let result = grant().judge_address(&written, 80, Ipv4Addr::new(8, 8, 4, 4).into());
    check_denied(result, DenialCode::AddressNotPublic, "egress.allow_private", "another address");
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
    // It grants no host: the rules still hold.
    let https = grant.judge_request("GET", "https://127.0.0.1:8080/");
    check_denied(https, DenialCode::HostNotGranted, "profiles.Net.hosts", "https://127.0.0.1:8080");
}

#[test]
fn a_redirect_is_judged_anew() {
    let grant = grant();
    let from = judged("https://api.example.com/a/b");
    let next = grant.judge_redirect(&from, "GET", "../c").expect("the same host");
    assert_eq!((next.url().as_str(), next.redirects()), ("https://api.example.com/c", 1));
    assert_eq!(next.authority(), from.authority());
    let other = grant.judge_redirect(&from, "HEAD", "//x.example.com:8443/").expect("another host");
    assert_ne!(other.authority(), from.authority());
    let up = grant.judge_redirect(&judged("http://api.example.com"), "GET", "https://api.example.com/");
    assert!(up.is_ok());
    let refused = |location: &str, code, rule: &str| {
        let result = grant.judge_redirect(&from, "GET", location);
        check_denied(result, code, rule, "");
    };
    refused("http://api.example.com/", DenialCode::RedirectRefused, "profiles.Net.hosts");
    refused("http://127.0.0.1/", DenialCode::RedirectRefused, "profiles.Net.hosts");
    refused("https://evil.test/", DenialCode::HostNotGranted, "profiles.Net.hosts");
    refused("//evil.test/", DenialCode::HostNotGranted, "profiles.Net.hosts");
    refused("https://u@api.example.com/", DenialCode::UrlRefused, "profiles.Net.hosts");
    refused("https:c", DenialCode::UrlRefused, "profiles.Net.hosts");
    refused("/\r\nSet-Cookie: a", DenialCode::UrlRefused, "profiles.Net.hosts");
    refused("javascript:alert(1)", DenialCode::UrlRefused, "profiles.Net.hosts");
    let post = grant.judge_redirect(&from, "POST", "/");
    check_denied(post, DenialCode::MethodNotGranted, "profiles.Net.methods", "POST");
    let private = grant.judge_redirect(&judged("http://a.example"), "GET", "http://[::ffff:a9fe:a9fe]/");
    check_denied(private, DenialCode::AddressNotPublic, "egress.allow_private", "metadata");
}

#[test]
fn a_denied_redirect_repeats_only_the_targets_origin() {
    let from = judged("https://api.example.com/");
    for location in ["https://evil.test/?token=s3cret", "http://x/s3cret", "https://s3cret@x/", "s3cret\n"] {
        let denial = grant().judge_redirect(&from, "GET", location).expect_err("denied");
        assert!(!denial.to_string().contains("s3cret"), "{denial}");
    }
}

#[test]
fn redirects_are_counted() {
    let grant = grant_of(&operator("max_redirects = 2"));
    let mut request = grant.judge_request("GET", "http://a.example/").expect("granted");
    for _ in 0..2 {
        request = grant.judge_redirect(&request, "GET", "/again").expect("followed");
    }
    let line = "`max_redirects = 3` under `[egress]`";
    let result = grant.judge_redirect(&request, "GET", "/again");
    check_denied(result, DenialCode::RedirectRefused, "egress.max_redirects", line);
    let none = grant_of(&operator("max_redirects = 0"));
    let first = none.judge_request("GET", "http://a.example/").expect("granted");
    assert!(none.judge_redirect(&first, "GET", "/").is_err());
}

#[test]
fn faults_have_a_place_and_say_what_to_write() {
    check_fault(
        "[profiles.X]\nhosts = ['https://a', 'a.example']",
        "18:23: profiles.X.hosts[1]: a rule begins with `https://` or `http://`; write such as \
         `https://api.example.com`",
    );
    check_fault(
        "[profiles.X]\nhosts = ['https://a/v1']",
        "18:10: profiles.X.hosts[0]: a rule has no path, query or fragment: it grants a whole host; write \
         `https://a`",
    );
    check_fault("[profiles.X]\nhosts = 'https://a'", "18:9: profiles.X.hosts: expected a list, found string");
    check_fault(
        "[profiles.X]\nmethods = ['GET', 'post']",
        "18:19: profiles.X.methods[1]: unknown method `post`: expected `GET`, `HEAD`, `OPTIONS`, `POST`, `PUT`, \
         `PATCH` or `DELETE`",
    );
    check_fault(
        "[profiles.X]\nhosts = ['https://a']\nmethods = []",
        "19:11: profiles.X.methods: an empty list grants nothing; write `hosts = []` to grant no host, or leave \
         `methods` out for GET and HEAD",
    );
    check_fault(
        "[egress]\nallow_private = ['intranet.example:80']",
        "18:18: egress.allow_private[0]: `intranet.example` is a name, which its owner may lead anywhere; write \
         its address and port",
    );
    check_fault(
        "[egress]\nmax_response = '2GiB'",
        "18:16: egress.max_response: 2GiB is out of bounds: 1KiB to 1GiB are allowed",
    );
    check_fault(
        "[egress]\nmax_redirects = 21",
        "18:17: egress.max_redirects: 21 is out of bounds: 0 to 20 are allowed",
    );
    check_fault(
        "[egress]\nca = ''",
        "18:6: egress.ca: a file is missing; write its path, absolute or relative to this file",
    );
    for key in ["proxy = 'http://p'", "robots = 'obey'"] {
        let error = try_load(&format!("{BASE}[egress]\n{key}"), None).expect_err("unknown").to_string();
        assert!(error.contains("unknown key"), "{error}");
    }
}

#[test]
fn a_profile_with_hosts_has_neither_vault_nor_shell() {
    check_fault(
        "[profiles.X]\nmounts = { vault = 'read' }\nhosts = ['https://a']",
        "19:9: profiles.X.hosts: the vault is never together with hosts; write two profiles",
    );
    check_fault(
        "[profiles.Nothing]\nhosts = ['https://a']",
        "18:9: profiles.Nothing.hosts: the profile `Nothing` has no hosts; use one of another name",
    );
    check_fault(
        "[profiles.X]\nhosts = ['https://a']\n[tools.shell_exec]\nprofile = 'X'",
        "20:11: tools.shell_exec.profile: a tool that runs commands never has hosts; name no profile for it",
    );
    check_fault(
        "[profiles.X]\nhosts = ['https://a']\n[tools.vault_copyto_read]\nprofile = 'V'\n\
         [tools.vault_copyto_write]\nprofile = 'X'",
        "22:11: tools.vault_copyto_write.profile: a step of `vault_copyto` reads the vault, so no other one has \
         hosts; name a profile without `hosts`",
    );
    let with_shell = format!("{}\n[shell]\nmounts = {{ shared = 'read' }}", operator(""));
    let shell =
        portcullis_policy::ToolFacts { origin: ToolOrigin::ShippedShell, ..crate::shell::shell_exec() };
    let grant = decide(&load(&with_shell), &shell, &[]).expect("granted");
    assert!(grant.shell.is_some() && grant.network.is_none());
}

#[test]
fn lines_that_grant_nothing_are_warned_of() {
    let text = format!(
        "{BASE}[profiles.X]\nmethods = ['POST']\n[profiles.Y]\nhosts = ['https://*', 'https://a']\n\
         [egress]\nallow_private = ['8.8.8.8:53']"
    );
    let policy = load(&text);
    let warnings: Vec<String> = policy.warnings().iter().map(ToString::to_string).collect();
    for expected in [
        "profiles.X.methods: without `hosts` no request is granted",
        "profiles.Y.hosts[1]: `https://*` covers this",
        "egress.allow_private[0]: this address is public",
    ] {
        assert!(warnings.iter().any(|warning| warning.contains(expected)), "{expected}: {warnings:?}");
    }
}

#[test]
fn an_overlay_takes_hosts_methods_and_limits_away() {
    let policy = load_with(
        &operator(""),
        "[profiles.Net]\nhosts = ['https://x.example.com:8443', 'http://a.example']\nmethods = ['GET']\n\
         [egress]\nmax_response = '1MiB'\nmax_redirects = 1",
    );
    let grant = decide(&policy, &tool("t", SafetyTier::ReadOnly), &[]).expect("granted");
    assert!(grant.judge_request("GET", "https://x.example.com:8443").is_ok());
    for (method, url, code) in [
        ("GET", "https://y.example.com:8443", DenialCode::HostNotGranted),
        ("GET", "https://api.example.com", DenialCode::HostNotGranted),
        ("HEAD", "http://a.example", DenialCode::MethodNotGranted),
    ] {
        assert_eq!(grant.judge_request(method, url).expect_err(url).code, code);
    }
    let network = grant.network.expect("has one");
    assert_eq!((network.max_response.0, network.max_redirects), (1 << 20, 1));
    let policy = load_with(&operator(""), "[profiles.Net]\nhosts = []");
    assert!(!policy.has_network());
    let text = policy.effective_toml();
    assert_eq!(load(&text).digest(), policy.digest(), "{text}");
}

#[test]
fn an_overlay_that_would_widen_the_network_is_refused() {
    let only = "only the operator's policy may say this; this section only lowers limits";
    for (overlay, fault) in [
        (
            "[profiles.Net]\nhosts = ['http://a', 'https://example.com']",
            "2:22: profiles.Net.hosts[1]: `https://example.com` is not within the operator's list; this section \
             may only take away",
        ),
        (
            "[profiles.R]\nhosts = ['https://api.example.com']",
            "2:10: profiles.R.hosts[0]: `https://api.example.com` is not within the operator's list; this section \
             may only take away",
        ),
        (
            "[profiles.Net]\nmethods = ['GET', 'PUT']",
            "2:19: profiles.Net.methods[1]: `PUT` is not within the operator's list; this section may only take \
             away",
        ),
        ("[egress]\nallow_private = []", &format!("2:1: egress.allow_private: {only}")),
        ("[egress]\nca = 'x'", &format!("2:1: egress.ca: {only}")),
    ] {
        let error = try_load(&operator(""), Some(overlay)).expect_err("is refused").to_string();
        assert_eq!(error, format!("workspace.toml:{fault}"));
    }
    let section = format!("{}\n[sandbox.process.egress]\nallow_private = []", operator(""));
    assert!(try_load(&section, None).expect_err("is refused").to_string().contains(only));
}

/// An IPv4 address in one of the spellings that the URL standard reads.
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
        let host = Host::parse("a.example").expect("a host");
        prop_assert_eq!(grant().judge_address(&host, 80, address.into()).is_ok(), verdicts[0]);
    }

    #[test]
    fn only_global_unicast_passes_in_ipv6(bits in any::<u128>(), shift in 0_u32..120) {
        let address = Ipv6Addr::from_bits(bits >> shift);
        let host = Host::parse("a.example").expect("a host");
        if grant().judge_address(&host, 80, address.into()).is_ok() {
            let is_global = address.segments()[0] & 0xe000 == 0x2000;
            let is_nat64 = address.segments()[..6] == [0x64, 0xff9b, 0, 0, 0, 0];
            prop_assert!(is_global || is_nat64 || address.to_ipv4_mapped().is_some(), "{address}");
            prop_assert!(address.segments()[0] != 0x2002);
        }
    }

    #[test]
    fn a_judged_url_is_judged_the_same_again(text in "[a-zA-Z0-9:/?#@.%\\[\\]*\\\\ \u{e4}\u{ff0e}-]{0,30}") {
        for start in ["http://", "https://", "http://127.0.0.1", ""] {
            if let Ok(request) = get(&format!("{start}{text}")) {
                let again = get(request.url().as_str());
                prop_assert_eq!(Ok(request), again);
            }
        }
    }
}
