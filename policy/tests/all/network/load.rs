//! The keys of the network: faults, invariants, warnings. An overlay can only take away.

use portcullis_policy::{DenialCode, Robots, WorkspaceSecurityPolicy};
use portcullis_types::SafetyTier;

use crate::{
    shell::shell_exec,
    support::{BASE, decide, load, load_with, tool, try_load},
};

use super::operator;

/// Checks the faults of lines after [`BASE`], which has 16 lines.
#[track_caller]
fn check_fault(lines: &str, fault: &str) {
    let error = try_load(&format!("{BASE}{lines}"), None).expect_err("is refused").to_string();
    assert_eq!(error, format!("portcullis.toml:{fault}"));
}

#[test]
fn faults_have_a_location_and_say_what_to_write() {
    check_fault(
        "[profiles.X]\nhosts = ['https://a', 'a.example']",
        "18:23: profiles.X.hosts[1]: a rule begins with `https://` or `http://`; write for example \
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
        "18:18: egress.allow_private[0]: `intranet.example` is a host name, and its owner can point it at any \
         address; write the address and port",
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
    check_fault(
        "[egress]\nproxy = 'https://p.example:3128'",
        "18:9: egress.proxy: connections to a proxy do not use TLS; write `http://`. Connections through the \
         proxy still use TLS to the server",
    );
    check_fault(
        "[egress]\nproxy = 'http://user:word@p.example'",
        "18:9: egress.proxy: a proxy with credentials is not supported: leave out user and password",
    );
    check_fault(
        "[egress]\nrobots = 'obay'",
        "18:10: egress.robots: unknown word `obay`; did you mean `obey`?",
    );
}

#[test]
fn a_proxy_is_the_operators_and_is_shown() {
    let with = load(&operator("proxy = 'http://P.Example:3128/'"));
    let proxy = with.egress().proxy.as_ref().expect("set");
    assert_eq!(proxy.url().as_str(), "http://p.example:3128/");
    let without = load(&operator(""));
    assert!(without.egress().proxy.is_none());
    assert_ne!(with.digest(), without.digest());
    let proxy_lines = "proxy of all connections, which resolves their names\n  http://p.example:3128\n";
    assert!(with.summary().contains(proxy_lines), "{}", with.summary());
    assert!(!without.summary().contains("proxy"));
}

#[test]
fn robots_are_obeyed_unless_the_operator_says_otherwise() {
    let robots = |policy: &WorkspaceSecurityPolicy| policy.egress().robots;
    assert_eq!(robots(&load(BASE)), Robots::Obey);
    let ignoring = format!("{BASE}[egress]\nrobots = 'ignore'");
    assert_eq!(robots(&load(&ignoring)), Robots::Ignore);
    assert_ne!(load(&ignoring).digest(), load(BASE).digest());
    let obeying = load_with(&ignoring, "[egress]\nrobots = 'obey'");
    assert_eq!(
        (robots(&obeying), obeying.warnings().len()),
        (Robots::Obey, load(&ignoring).warnings().len())
    );
    assert_eq!(
        load_with(BASE, "[egress]\nrobots = 'obey'").warnings().len(),
        load(BASE).warnings().len() + 1
    );
    for operator in [BASE, &ignoring] {
        let error = try_load(operator, Some("[egress]\nrobots = 'ignore'")).expect_err("widens").to_string();
        assert_eq!(
            error,
            "workspace.toml:2:10: egress.robots: only the operator's policy may say `ignore`; this section only takes away"
        );
    }
}

#[test]
fn a_profile_with_hosts_has_neither_vault_nor_shell() {
    check_fault(
        "[profiles.X]\nmounts = { vault = 'read' }\nhosts = ['https://a']",
        "19:9: profiles.X.hosts: a profile with the vault cannot have hosts; use two profiles",
    );
    check_fault(
        "[profiles.Nothing]\nhosts = ['https://a']",
        "18:9: profiles.Nothing.hosts: the profile `Nothing` cannot have hosts; give this profile another name",
    );
    check_fault(
        "[profiles.X]\nhosts = ['https://a']\n[tools.shell_exec]\nprofile = 'X'",
        "20:11: tools.shell_exec.profile: a tool that runs commands has only the hosts of `[shell]`; name no profile for it",
    );
    check_fault(
        "[profiles.X]\nhosts = ['https://a']\n[tools.vault_copyto_read]\nprofile = 'V'\n\
         [tools.vault_copyto_write]\nprofile = 'X'",
        "22:11: tools.vault_copyto_write.profile: a step of `vault_copyto` reads the vault, so no other one has \
         hosts; name a profile without `hosts`",
    );
    let with_shell = format!("{}\n[shell]\nmounts = {{ shared = 'read' }}", operator(""));
    let grant = decide(&load(&with_shell), &shell_exec(), &[]).expect("granted");
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
    let only = "only the operator's policy may set this key; this section may only lower limits";
    for (overlay, fault) in [
        (
            "[profiles.Net]\nhosts = ['http://a', 'https://example.com']",
            "2:22: profiles.Net.hosts[1]: `https://example.com` is not within the operator's list; this section \
             may only remove elements",
        ),
        (
            "[profiles.R]\nhosts = ['https://api.example.com']",
            "2:10: profiles.R.hosts[0]: `https://api.example.com` is not within the operator's list; this section \
             may only remove elements",
        ),
        (
            "[profiles.Net]\nmethods = ['GET', 'PUT']",
            "2:19: profiles.Net.methods[1]: `PUT` is not within the operator's list; this section may only \
             remove elements",
        ),
        ("[egress]\nallow_private = []", &format!("2:1: egress.allow_private: {only}")),
        ("[egress]\nca = 'x'", &format!("2:1: egress.ca: {only}")),
        ("[egress]\nproxy = 'http://p'", &format!("2:1: egress.proxy: {only}")),
    ] {
        let error = try_load(&operator(""), Some(overlay)).expect_err("is refused").to_string();
        assert_eq!(error, format!("workspace.toml:{fault}"));
    }
    let section = format!("{}\n[sandbox.process.egress]\nallow_private = []", operator(""));
    assert!(try_load(&section, None).expect_err("is refused").to_string().contains(only));
}
