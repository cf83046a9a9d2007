//! The hosts of a shell: allowed rules, judged tunnels, and the effect of a run's labels.

use std::{net::IpAddr, sync::Arc};

use portcullis_policy::{
    CallRequest, Denial, DenialCode, FlowLabel, Grant, RequestedSubject, RunContext, ShellNetwork, UrlHost,
    WorkspaceSecurityPolicy,
};

use crate::support::{BASE, load, load_with, try_load};

use super::shell_exec;

const HOSTS: &str = "[shell]\nmounts = { shared = 'write' }\n\
    hosts = ['https://github.com', 'https://*.crates.io', 'https://localhost:8443', 'https://metadata.goog']\n\
    [egress]\nallow_private = ['127.0.0.1:8443']\n";

fn with_hosts() -> WorkspaceSecurityPolicy {
    load(&format!("{BASE}\n{HOSTS}"))
}

fn network() -> ShellNetwork {
    with_hosts().shell_network().expect("a network").clone()
}

fn call(policy: &WorkspaceSecurityPolicy, run: &RunContext<'_>) -> Result<Grant, Denial> {
    let subjects = [RequestedSubject::Command { argument: "command".into(), command: "true".into() }];
    policy.authorize(&CallRequest { tool: &shell_exec(), subjects: &subjects, run })
}

#[test]
fn a_tunnel_leads_to_granted_hosts_and_ports() {
    let network = network();
    assert_eq!(network.ports(), [443, 8443].into());
    for url in ["https://github.com:443/", "https://index.crates.io/", "https://localhost:8443/"] {
        network.judge_tunnel(url).expect(url);
    }
    for (url, code) in [
        ("https://example.com/", DenialCode::HostNotGranted),
        ("https://crates.io/", DenialCode::HostNotGranted),
        ("https://github.com:8443/", DenialCode::HostNotGranted),
        ("https://localhost/", DenialCode::HostNotGranted),
        ("https://github.com.example.com/", DenialCode::HostNotGranted),
        ("http://github.com/", DenialCode::HostNotGranted),
        ("https://127.0.0.1:8443/", DenialCode::HostNotGranted),
        ("https://metadata.goog/", DenialCode::AddressNotPublic),
        ("https://user@github.com/", DenialCode::UrlRefused),
        ("github.com", DenialCode::UrlRefused),
    ] {
        let denial = network.judge_tunnel(url).expect_err(url);
        assert_eq!(denial.code, code, "{denial}");
    }
    let denial = network.judge_tunnel("https://example.com/").expect_err("denied");
    assert_eq!((denial.rule.as_str(), denial.subject.as_str()), ("shell.hosts", "https://example.com"));
    assert!(denial.hint.contains("`hosts = [\"https://example.com\"]` under `[shell]`"), "{}", denial.hint);
}

#[test]
fn each_address_of_a_tunnels_host_is_judged() {
    let network = network();
    let judge = |host: &str, port, address: &str| {
        let address: IpAddr = address.parse().expect("an address");
        let judged = network.judge_address(&UrlHost::parse(host).expect("a host"), port, address);
        judged.map(|judged| judged.socket_addr().to_string()).map_err(|denial| denial.code)
    };
    assert_eq!(judge("github.com", 443, "140.82.121.3"), Ok("140.82.121.3:443".to_owned()));
    assert_eq!(judge("localhost", 8443, "::ffff:127.0.0.1"), Ok("127.0.0.1:8443".to_owned()));
    for (host, port, address) in [
        ("localhost", 8443, "::1"),
        ("localhost", 443, "127.0.0.1"),
        ("github.com", 443, "10.0.0.1"),
        ("github.com", 443, "169.254.169.254"),
        ("github.com", 443, "fd00::1"),
    ] {
        assert_eq!(judge(host, port, address), Err(DenialCode::AddressNotPublic), "{address}");
    }
}

#[test]
fn rules_without_a_server_name_to_compare_are_faults() {
    for (rule, fault) in [
        ("http://github.com", "a shell reaches hosts by TLS only"),
        ("https://192.0.2.1", "no server name to check"),
        ("https://[2001:db8::1]:443", "no server name to check"),
        ("github.com", "begins with `https://`"),
        ("https://github.com/path", "no path"),
        ("https://git*.com", "`*` is the whole host"),
    ] {
        let text = format!("{BASE}\n[shell]\nhosts = ['{rule}']\n");
        let error = try_load(&text, None).expect_err(rule).to_string();
        assert!(error.contains("shell.hosts") && error.contains(fault), "{rule}: {error}");
    }
    let not_a_list = try_load(&format!("{BASE}\n[shell]\nhosts = 'https://a.test'\n"), None);
    assert!(not_a_list.expect_err("no list").to_string().contains("shell.hosts"));
}

#[test]
fn a_shell_without_hosts_has_no_network() {
    for section in
        ["", "[shell]", "[shell]\nhosts = []", "[shell]\nenabled = false\nhosts = ['https://a.test']"]
    {
        let policy = load(&format!("{BASE}\n{section}"));
        assert_eq!(policy.shell_network(), None, "{section}");
    }
    let without = load(&format!("{BASE}\n[shell]"));
    assert_eq!(without.digest(), load(&format!("{BASE}\n[shell]\nhosts = []")).digest());
    assert_ne!(without.digest(), load(&format!("{BASE}\n[shell]\nhosts = ['https://a.test']")).digest());
}

#[test]
fn an_overlay_takes_hosts_away_and_adds_none() {
    let operator = format!("{BASE}\n{HOSTS}");
    let reduced = load_with(&operator, "shell.hosts = ['https://index.crates.io']");
    let network = reduced.shell_network().expect("a network");
    network.judge_tunnel("https://index.crates.io/").expect("left");
    assert!(network.judge_tunnel("https://github.com/").is_err());
    assert_eq!(load_with(&operator, "shell.hosts = []").shell_network(), None);
    for wider in ["https://*", "https://crates.io", "https://*.github.com", "https://github.com:8443"] {
        let error = try_load(&operator, Some(&format!("shell.hosts = ['{wider}']"))).expect_err(wider);
        assert!(error.to_string().contains("is not within the operator's list"), "{wider}: {error}");
    }
    let without = format!("{BASE}\n[shell]");
    try_load(&without, Some("shell.hosts = ['https://github.com']")).expect_err("nothing to take from");
}

#[test]
fn a_command_with_hosts_is_a_sink_of_the_network() {
    let flow = "[[flow]]\nafter = ['vault']\nthen = ['network']\napproval = 'deny'\n";
    let run = RunContext {
        labels: Arc::new([(FlowLabel::Vault, "c1".to_owned())].into()),
        ..RunContext::default()
    };
    let with = load(&format!("{BASE}\n{HOSTS}\n{flow}"));
    let denial = call(&with, &run).expect_err("denied");
    assert_eq!((denial.code, denial.rule.as_str()), (DenialCode::FlowDenied, "flow[vault -> network]"));
    let granted = call(&with, &RunContext::default()).expect("nothing was read");
    let shell = granted.shell.expect("a shell");
    assert_eq!(shell.network.as_deref(), with.shell_network());
    let without = load(&format!("{BASE}\n[shell]\nmounts = {{ shared = 'write' }}\n{flow}"));
    assert_eq!(call(&without, &run).expect("no sink").flow, None);
}

#[test]
fn a_rule_that_another_covers_is_warned_of() {
    let policy = load(&format!("{BASE}\n[shell]\nhosts = ['https://*', 'https://github.com']"));
    let warnings: Vec<String> = policy.warnings().iter().map(ToString::to_string).collect();
    assert!(warnings.iter().any(|warning| warning.contains("`https://*` covers this")), "{warnings:?}");
}
