//! Requests and redirects.

use std::net::Ipv4Addr;

use portcullis_policy::{DenialCode, RequestedSubject, UrlHost};
use portcullis_types::SafetyTier;

use crate::support::{BASE, decide, load, tool};

use super::{check_denied, get, grant, grant_of, judged, operator};

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
        "has a user name or a password",
    );
    let post = grant().judge_request("POST", "https://api.example.com");
    let line = "granted: `GET`, `HEAD`; an operator allows it with `methods = [\"GET\", \"HEAD\", \"POST\"]`";
    check_denied(post, DenialCode::MethodNotGranted, "profiles.Net.methods", line);
    for method in ["get", "TRACE", "CONNECT", "GET ", "", "G\nET"] {
        let result = grant().judge_request(method, "https://api.example.com");
        check_denied(result, DenialCode::MethodNotGranted, "profiles.Net.methods", "a policy can grant only");
    }
}

#[test]
fn the_line_of_a_hint_allows_the_request() {
    for url in ["https://B\u{fc}cher.example.:8443/x", "https://8.8.8.8", "https://[64:ff9b::808:808]:1"] {
        let hint = get(url).expect_err("is denied").hint;
        let (_, line) = hint.split_once("allows it with `").expect("a line");
        let (line, _) = line.split_once('`').expect("its end");
        let text = format!("{BASE}[profiles.Net]\n{line}\n[tools.t]\nprofile = 'Net'");
        assert!(grant_of(&text).judge_request("GET", url).is_ok(), "{line}");
    }
}

/// The lines of a hint, each written as a key of its section.
fn lines_of(hint: &str) -> String {
    let mut quoted = hint.split('`').skip(1).step_by(2).skip_while(|text| !text.contains(" = "));
    let mut text = String::new();
    while let (Some(line), Some(section)) = (quoted.next(), quoted.next()) {
        text.push_str(&format!("{section}\n{line}\n"));
    }
    text
}

/// `Nothing` and a profile with the vault never have hosts, so the hint proposes a new profile for the tool.
#[test]
fn the_lines_of_a_hint_give_a_tool_its_first_host() {
    let url = "https://api.example.com:8443/x";
    let refused = |profile: &str| {
        let text = format!("{BASE}[tools.t]\nprofile = '{profile}'\n");
        let refused = grant_of(&text).judge_request("GET", url).expect_err("is denied");
        assert_eq!((refused.code, refused.subject.as_str()), (DenialCode::EgressNotGranted, url));
        lines_of(&refused.hint)
    };
    for profile in ["Nothing", "V"] {
        let text = format!("{BASE}{}", refused(profile));
        assert!(grant_of(&text).judge_request("GET", url).is_ok(), "{text}");
    }
    let text = BASE.replace("[profiles.W]\n", &refused("W")) + "[tools.t]\nprofile = 'W'\n";
    assert!(grant_of(&text).judge_request("GET", url).is_ok(), "{text}");
    // A URL in an argument is refused with the same lines.
    let subject = RequestedSubject::Url { argument: "url".into(), url: url.into() };
    let descriptor = tool("t", SafetyTier::Privileged);
    let refused = decide(&load(BASE), &descriptor, std::slice::from_ref(&subject)).expect_err("is denied");
    let text = format!("{BASE}{}", lines_of(&refused.hint));
    assert!(decide(&load(&text), &descriptor, &[subject]).is_ok(), "{text}");
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
        grant.judge_address(&UrlHost::parse("a").expect("a host"), 443, Ipv4Addr::new(8, 8, 8, 8).into());
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
    check_denied(
        decide("file:///etc/passwd"),
        DenialCode::UrlRefused,
        "profiles.Net.hosts",
        "does not begin with",
    );
    check_denied(decide("http://[::1]/"), DenialCode::AddressNotPublic, "egress.allow_private", "loopback");
    assert_eq!(policy.network_ports().into_iter().collect::<Vec<_>>(), [80, 443, 8080, 8443]);
}

#[test]
fn a_grant_says_its_network_in_json() {
    let grant = grant_of(&operator("allow_private = ['127.0.0.1:8080']"));
    let json = serde_json::to_value(&grant).expect("serializes");
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
fn a_redirect_is_judged_like_a_first_request() {
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
