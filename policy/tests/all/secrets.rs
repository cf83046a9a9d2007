//! `[secrets]`: faults, audiences and reductions. No grant without a network has a secret.

use std::collections::BTreeMap;

use portcullis_policy::{
    CallRequest, DenialCode, FlowLabel, Grant, KnownTools, RequestedSubject, RunContext, SecretName,
    WorkspaceSecurityPolicy,
};
use portcullis_types::SafetyTier;

use super::support::{BASE, decide, load, load_with, tool, try_load};

/// A policy whose tools `t` and `u` may fetch, with one secret for `t`.
fn operator(more: &str) -> String {
    format!(
        "{BASE}[profiles.Net]
hosts = ['https://api.example.com', 'https://*.example.org', 'http://127.0.0.1:8080']
[tools.t]
profile = 'Net'
[tools.u]
profile = 'Net'
[egress]
allow_private = ['127.0.0.1:8080']
[secrets.api]
from = 'env:API_TOKEN'
hosts = ['https://api.example.com', 'http://127.0.0.1:8080']
header = 'Authorization: Bearer {{secret}}'
tools = ['t']
{more}"
    )
}

/// Checks the fault of a secret with one line replaced, at the place of that line.
#[track_caller]
fn check_fault(key: &str, line: &str, fault: &str) {
    let operator = operator("");
    let start = operator.find(&format!("\n{key} = ")).expect("the key") + 1;
    let start = if key == "hosts" { operator.rfind("\nhosts = ").expect("the key") + 1 } else { start };
    let end = start + operator[start..].find('\n').expect("a line");
    let text = format!("{}{line}{}", &operator[..start], &operator[end..]);
    let error = try_load(&text, None).expect_err(line).to_string();
    assert!(error.contains(fault), "{line}\n{error}");
    assert_eq!(error.lines().count(), 1, "{error}");
}

#[test]
fn a_secret_without_a_good_source_is_refused() {
    let missing = "secrets.api.from: missing key; write for example `from = \"file:/run/secrets/token\"`";
    check_fault("from", "", missing);
    check_fault("from", "from = 'hunter2hunter2'", "a source begins with `file:`, `env:` or `credential:`");
    check_fault("from", "from = 'file:'", "`file:` is followed by a path");
    check_fault("from", "from = 'env:A B'", "`env:` is followed by the name of a variable");
    check_fault("from", "from = 'credential:../x'", "`credential:` is followed by the name of a file");
    check_fault("from", "from = 1", "secrets.api.from: expected a string");
    check_fault("from", "from = 'env:A'\nvalue = 'hunter2'", "secrets.api.value: unknown key");
}

#[test]
fn a_secret_goes_to_named_hosts_that_are_reached_by_tls() {
    check_fault("hosts", "", "secrets.api.hosts: missing key");
    check_fault("hosts", "hosts = []", "secrets.api.hosts: an empty list: the secret would never be sent");
    check_fault("hosts", "hosts = ['https://*']", "secrets.api.hosts[0]: a secret goes only to named hosts");
    check_fault("hosts", "hosts = ['api.example.com']", "a rule begins with `https://`");
    let reached = "no profile reaches this host";
    for host in ["https://other.example", "https://api.example.com:8443", "https://example.org"] {
        check_fault("hosts", &format!("hosts = ['{host}']"), reached);
    }
    let by_tls =
        "a secret is sent by `https` only, or to an address that is listed in `[egress] allow_private`";
    for host in
        ["http://api.example.com", "http://127.0.0.1:8081", "http://localhost:8080", "http://*.example.org"]
    {
        check_fault("hosts", &format!("hosts = ['{host}']"), by_tls);
    }
    // A proxy could read a secret that is sent without TLS.
    let with_proxy = operator("").replace("[egress]\n", "[egress]\nproxy = 'http://proxy.example:3128'\n");
    let error = try_load(&with_proxy, None).expect_err("the proxy reads it").to_string();
    assert!(
        error.contains("secrets.api.hosts[1]: a secret is sent by `https` only where `[egress] proxy`"),
        "{error}"
    );
    load(&with_proxy.replace(", 'http://127.0.0.1:8080']\nheader", "]\nheader"));
    // Some rules are wider than a profile's hosts, and some are narrower.
    for host in ["https://*.example.com", "https://x.example.org", "https://*.y.example.org"] {
        let text = operator("").replace("'https://api.example.com', 'http://127.0.0.1:8080'\n", "")
            + &format!("[secrets.two]\nfrom = 'env:B'\nhosts = ['{host}']\nheader = 'X-Key'\ntools = ['t']");
        load(&text);
    }
}

#[test]
fn an_unusable_header_or_tool_is_refused() {
    check_fault("header", "", "secrets.api.header: missing key");
    check_fault("header", "header = 'Host'", "the header `host` cannot carry a secret");
    check_fault("header", "header = 'Authorization: Bearer'", "must contain `{secret}` exactly once");
    check_fault("tools", "", "secrets.api.tools: missing key");
    check_fault("tools", "tools = []", "secrets.api.tools: an empty list");
    check_fault("tools", "tools = ['web fetch']", "secrets.api.tools[0]");
    check_fault("tools", "tools = ['web_fetch_request']", "this is a step of `web_fetch`; write `web_fetch`");
    // Both names stand for the same requests.
    for tools in ["'search_web'", "'web_search', 'search_web'"] {
        let line = "`search_web` uses the requests of `web_search`; write `web_search`, which covers both";
        check_fault("tools", &format!("tools = [{tools}]"), line);
    }
    let error =
        try_load(&format!("{BASE}[secrets.API]\nfrom = 'env:A'"), None).expect_err("faulty").to_string();
    assert!(error.contains("is not a valid secret name") && error.lines().count() == 4, "{error}");
}

#[test]
fn the_number_of_secrets_is_bounded() {
    let many = |count: usize| -> String {
        let one = |number| {
            format!(
                "[secrets.s{number}]\nfrom = 'env:S'\nhosts = ['https://api.example.com']\nheader = 'X-{number}'\ntools = ['t']\n"
            )
        };
        (0..count).map(one).collect()
    };
    load(&operator(&many(63)));
    let error = try_load(&operator(&many(64)), None).expect_err("too many").to_string();
    assert!(error.contains("65 secrets; at most 64 are allowed") && error.lines().count() == 1, "{error}");
}

#[test]
fn a_mistyped_tool_of_a_secret_stops_the_start() {
    let policy = load(&operator("").replace("tools = ['t']", "tools = ['t', 'web_fecth']"));
    let mut known = KnownTools::shipped();
    known.add(&tool("t", SafetyTier::ReadOnly).name);
    known.add(&tool("u", SafetyTier::ReadOnly).name);
    let error = policy.check_tools(&known).expect_err("unknown").to_string();
    assert_eq!(
        error,
        "portcullis.toml:29:15: secrets.api.tools[1]: no tool has this name: did you mean `web_fetch`?"
    );
    assert!(load(&operator("")).check_tools(&known).expect("all are known").is_empty());
}

#[test]
fn two_secrets_never_share_a_header_of_one_request() {
    let two = |host: &str, header: &str, tool: &str| {
        operator(&format!(
            "[secrets.two]\nfrom = 'env:B'\nhosts = ['{host}']\nheader = '{header}'\ntools = ['{tool}']"
        ))
    };
    let error =
        try_load(&two("https://*.example.com", "AUTHORIZATION", "t"), None).expect_err("two").to_string();
    assert!(
        error.contains("secrets.two.header: `api` sets `authorization` for the same tool and host"),
        "{error}"
    );
    for (host, header, tool) in [
        ("https://api.example.com", "X-Key", "t"),
        ("https://a.example.org", "Authorization", "t"),
        ("https://api.example.com", "Authorization", "u"),
    ] {
        load(&two(host, header, tool));
    }
}

#[test]
fn a_secret_is_not_a_variable_of_commands() {
    let error =
        try_load(&operator("[shell]\nenvironment = ['LANG', 'API_TOKEN']"), None).expect_err("refused");
    let fault = "shell.environment[1]: this is the secret `api`, which no command gets; leave it out";
    assert!(error.to_string().contains(fault), "{error}");
    load(&operator("[shell]\nenvironment = ['LANG']"));
}

fn fetch(policy: &WorkspaceSecurityPolicy, name: &str, url: &str) -> Grant {
    let subjects = [RequestedSubject::Url { argument: "url".to_owned(), url: url.to_owned() }];
    decide(policy, &tool(name, SafetyTier::ReadOnly), &subjects).expect("granted")
}

#[test]
fn a_secret_is_in_the_grants_of_its_tools_alone() {
    let policy = load(&operator(""));
    let grant = fetch(&policy, "t", "https://api.example.com/v1");
    assert_eq!(grant.secrets_of_subjects().map(|secret| secret.name.as_str()).collect::<Vec<_>>(), ["api"]);
    for (url, attaches) in [
        ("https://api.example.com/v1?x", true),
        ("https://API.example.com.:443/", true),
        ("http://127.0.0.1:8080/", true),
        ("http://0x7f.1:8080/", true),
        ("https://api.example.com:8443/", false),
        ("http://api.example.com/", false),
        ("http://127.0.0.1:8081/", false),
        ("https://x.example.org/", false),
        ("https://api.example.com.evil.test/", false),
        ("https://api.example.com@evil.test/", false),
        ("https://evil.test/https://api.example.com/", false),
        ("", false),
    ] {
        assert_eq!(grant.attaches_secret("api", url), attaches, "{url}");
        assert!(!grant.attaches_secret("other", url), "{url}");
    }
    let other = fetch(&policy, "u", "https://api.example.com/v1");
    assert!(other.secrets.is_empty() && !other.attaches_secret("api", "https://api.example.com/v1"));
    // A secret names this tool, but the tool has no network.
    let without = load(&operator("").replace("[tools.t]\nprofile = 'Net'", "[tools.t]\nprofile = 'R'"));
    assert!(decide(&without, &tool("t", SafetyTier::ReadOnly), &[]).expect("granted").secrets.is_empty());
}

#[test]
fn an_operation_includes_its_steps() {
    let text = operator("[tools.web_fetch_request]\nprofile = 'Net'").replace("['t']", "['web_fetch']");
    let policy = load(&text);
    let grant = fetch(&policy, "web_fetch_request", "https://api.example.com/");
    assert!(grant.attaches_secret("api", "https://api.example.com/"));
    assert!(
        decide(&policy, &tool("web_fetch_read", SafetyTier::ReadOnly), &[])
            .expect("granted")
            .secrets
            .is_empty()
    );
}

#[test]
fn an_overlay_narrows_a_secret_and_adds_none() {
    let url = "https://api.example.com/";
    let attaches = |overlay: &str| {
        let policy = load_with(
            &operator(
                "[secrets.b]\nfrom = 'env:B'\nhosts = ['https://*.example.org']\nheader = 'X-B'\ntools = ['t', 'u']",
            ),
            overlay,
        );
        let toml = policy.effective_toml();
        assert_eq!(load(&toml).digest(), policy.digest(), "{toml}");
        let t = fetch(&policy, "t", url);
        let u = fetch(&policy, "u", url);
        let b = "https://x.example.org/";
        [t.attaches_secret("api", url), t.attaches_secret("b", b), u.attaches_secret("b", b)]
    };
    assert_eq!(attaches(""), [true, true, true]);
    assert_eq!(attaches("[secrets.api]\nenabled = false"), [false, true, true]);
    assert_eq!(attaches("[secrets.api]\nhosts = ['http://127.0.0.1:8080']"), [false, true, true]);
    assert_eq!(attaches("[secrets.b]\nhosts = ['https://y.example.org']"), [true, false, false]);
    assert_eq!(attaches("[secrets.b]\ntools = ['u']"), [true, false, true]);
    for (overlay, fault) in [
        (
            "[secrets.new]\nfrom = 'env:A'\nhosts = ['https://api.example.com']\nheader = 'X-A'\ntools = ['t']",
            "only the operator's policy adds a secret",
        ),
        ("[secrets.apo]\nenabled = false", "did you mean `api`?"),
        (
            "[secrets.api]\nfrom = 'env:OTHER'",
            "secrets.api.from: only the operator's policy may set this key",
        ),
        ("[secrets.api]\nheader = 'X-A'", "secrets.api.header: only the operator's policy may set this key"),
        (
            "[secrets.api]\nhosts = ['https://api.example.com', 'https://x.example.org']",
            "secrets.api.hosts[1]: `https://x.example.org` is not within the operator's list",
        ),
        ("[secrets.api]\nhosts = ['https://*.example.com']", "is not within the operator's list"),
        ("[secrets.api]\ntools = ['t', 'u']", "secrets.api.tools[1]: `u` is not within the operator's list"),
        ("[secrets.api]\nhosts = []", "an empty list"),
        ("[secrets.api]\nhost = ['https://api.example.com']", "unknown key; did you mean `hosts`?"),
    ] {
        let error = try_load(&operator(""), Some(overlay)).expect_err(overlay).to_string();
        assert!(error.contains(fault), "{overlay}\n{error}");
    }
    let disabled = operator("").replace("header =", "enabled = false\nheader =");
    let error = try_load(&disabled, Some("[secrets.api]\nenabled = true")).expect_err("widens").to_string();
    assert!(error.contains("would widen"), "{error}");
    for overlay in ["[secrets.api]\nenabled = true", "[secrets.api]\ntools = ['t']"] {
        let warnings = load_with(&operator(""), overlay).warnings().len();
        assert_eq!(warnings, load(&operator("")).warnings().len() + 1, "{overlay}");
    }
}

#[test]
fn a_secret_is_shown_and_changes_the_digest() {
    let policy = load(&operator(""));
    assert_ne!(policy.digest(), load(&operator("").replace("env:API_TOKEN", "env:OTHER")).digest());
    assert_ne!(policy.digest(), load(&operator("").replace("Bearer ", "Token ")).digest());
    let summary = policy.summary();
    let line = "api                      \"env:API_TOKEN\", in `authorization` to http://127.0.0.1:8080, \
                https://api.example.com, for t";
    assert!(summary.contains(line), "{summary}");
}

#[test]
fn a_flow_rule_applies_after_a_secret_was_sent() {
    let rule = "[[flow]]\nafter = ['secret:api']\nthen = ['write:shared']\napproval = 'deny'";
    let policy = load(&operator(rule));
    assert_eq!(load(&policy.effective_toml()).digest(), policy.digest());
    let after = |label: FlowLabel| {
        let labels = BTreeMap::from([(label, "c1".to_owned())]).into();
        let run = RunContext { labels, ..RunContext::default() };
        let writer = tool("w", SafetyTier::SideEffecting);
        policy.authorize(&CallRequest { tool: &writer, subjects: &[], run: &run })
    };
    let secret = |name| FlowLabel::Secret(SecretName::parse(name).expect("a name"));
    let denial = after(secret("api")).expect_err("denied");
    assert_eq!(
        (denial.code, denial.rule.as_str()),
        (DenialCode::FlowDenied, "flow[secret:api -> write:shared]")
    );
    after(secret("other")).expect("granted");
    after(FlowLabel::Web).expect("granted");
    let error = try_load(&operator(&rule.replace("api", "apo")), None).expect_err("unknown").to_string();
    assert!(error.contains("unknown secret; did you mean `api`?"), "{error}");
}
