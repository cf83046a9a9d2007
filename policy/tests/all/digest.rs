//! Policies with the same meaning have the same digest, and all others have different digests.

use std::collections::BTreeMap;

use portcullis_policy::DEFAULT_POLICY;

use crate::support::{BASE, load, load_with};

const FULL: &str = r#"
version = 1
require = ["landlock"]
[mounts]
shared = "shared"
vault = "vault"
[profiles.P]
mounts = { shared = "read", vault = "read" }
[profiles.Q]
mounts = { shared = "read" }
[profiles.N]
hosts = ["https://a.example", "https://*.b.example:8443"]
methods = ["GET", "POST"]
[tiers]
read_only = { profile = "Q", approval = "allow" }
[tools.t]
profile = "P"
approval = "ask"
timeout = "5s"
memory = "1MiB"
max_output_bytes = "1KiB"
enabled = true
[protect]
paths = ["a/hooks", "makefile"]
[egress]
allow_private = ["127.0.0.1:8080"]
ca = "ca.pem"
proxy = "http://p.example:3128"
max_response = "9MiB"
max_redirects = 4
[audit]
sync = "interval"
[limits]
concurrency = 9
calls_per_minute = 599
max_output_bytes = "15KiB"
wasm_memory = "63MiB"
max_timeout = "9m"
"#;

/// The meaning of [`FULL`] in another order, in other notations and with comments.
const FULL_OTHERWISE: &str = r#"
limits = { max_timeout = "540s", wasm_memory = 66060288, max_output_bytes = "15 KiB", calls_per_minute = 599, concurrency = 0x9 }
audit = {}  # the default
egress = { max_redirects = 4, max_response = "9216KiB", ca = "ca.pem", proxy = "HTTP://p.example:3128/", allow_private = ["127.0.0.1:8080", "127.0.0.1:8080"] }
protect.paths = [ "Makefile", "a/hooks/", "makefile" ]
tools.t = { enabled = true, max_output_bytes = 1024, memory = "1024KiB", timeout = "5000ms", approval = "ask", profile = "P" }
tiers.privileged = { approval = "ask", profile = "Nothing" }
tiers.read_only = { approval = "allow", profile = "Q" }
require = ['landlock', 'landlock']
version = 1
[sandbox.container]
[profiles]
Q.mounts.shared = "read"
N = { methods = ["POST", "GET"], hosts = ["https://*.B.example.:8443", "https://A.example:443"] }
P = { mounts = { vault = "read", shared = "read" } }
Nothing = {}
[mounts]
vault = "./vault/"
shared = "shared"
"#;

#[test]
fn order_notation_and_comments_do_not_change_the_digest() {
    assert_eq!(load(FULL).digest(), load(FULL_OTHERWISE).digest());
}

#[test]
fn every_change_of_a_value_changes_the_digest() {
    let mut seen = BTreeMap::from([(load(FULL).digest().to_string(), "nothing")]);
    for (from, to) in [
        (r#"["landlock"]"#, r#"["seccomp"]"#),
        (r#"["landlock"]"#, r#"[]"#),
        (r#"shared = "shared""#, r#"shared = "other""#),
        (r#"[profiles.P]"#, "[profiles.New]\n[profiles.P]"),
        (r#"shared = "read", vault"#, r#"vault"#),
        (r#"{ shared = "read" }"#, r#"{ shared = "write" }"#),
        (r#"{ shared = "read" }"#, r#"{ }"#),
        (r#""Q", approval = "allow""#, r#""Nothing", approval = "allow""#),
        (r#""Q", approval = "allow""#, r#""Q", approval = "ask""#),
        (r#"[tools.t]"#, r#"[tools.u]"#),
        (r#"[tools.t]"#, "[tools.u]\n[tools.t]"),
        (r#"profile = "P""#, r#"profile = "Q""#),
        (r#"profile = "P""#, ""),
        (r#"approval = "ask""#, r#"approval = "deny""#),
        (r#"approval = "ask""#, ""),
        (r#"timeout = "5s""#, r#"timeout = "5001ms""#),
        (r#"timeout = "5s""#, ""),
        (r#"memory = "1MiB""#, r#"memory = "2MiB""#),
        (r#"max_output_bytes = "1KiB""#, r#"max_output_bytes = "1025B""#),
        (r#"enabled = true"#, r#"enabled = false"#),
        (r#"enabled = true"#, ""),
        (r#", "makefile""#, ""),
        (r#""makefile""#, r#""justfile""#),
        (r#"paths = ["#, "except = ['.bashrc']\npaths = ["),
        (r#"enabled = true"#, "enabled = true\noptional = true"),
        (r#""https://a.example", "#, ""),
        (r#""https://a.example""#, r#""http://a.example""#),
        (r#""https://a.example""#, r#""https://a.example:444""#),
        (r#""https://a.example""#, r#""https://*.a.example""#),
        (r#""https://a.example""#, r#""https://*""#),
        (r#"methods = ["GET", "POST"]"#, ""),
        (r#"["GET", "POST"]"#, r#"["GET"]"#),
        (r#"["127.0.0.1:8080"]"#, "[]"),
        (r#"["127.0.0.1:8080"]"#, r#"["127.0.0.1:8081"]"#),
        (r#"["127.0.0.1:8080"]"#, r#"["127.0.0.1:8080", "metadata.google.internal:80"]"#),
        (r#"ca = "ca.pem""#, ""),
        (r#""ca.pem""#, r#""cb.pem""#),
        (r#"proxy = "http://p.example:3128""#, ""),
        (r#""http://p.example:3128""#, r#""http://p.example:3129""#),
        ("9MiB", "8MiB"),
        ("max_redirects = 4", "max_redirects = 3"),
        ("max_redirects = 4", ""),
        (r#""interval""#, r#""always""#),
        ("concurrency = 9", "concurrency = 8"),
        ("599", "598"),
        ("15KiB", "14KiB"),
        ("63MiB", "62MiB"),
        ("9m", "8m"),
    ] {
        let changed = FULL.replacen(from, to, 1);
        assert_ne!(changed, FULL, "{from} is not in the text");
        if let Some(other) = seen.insert(load(&changed).digest().to_string(), from) {
            panic!("{from} -> {to} has the digest of {other}");
        }
    }
}

#[test]
fn every_reduction_changes_the_digest() {
    let mut seen = BTreeMap::from([(load(BASE).digest().to_string(), "nothing")]);
    for overlay in [
        "tools.t.approval = 'ask'",
        "tools.t.approval = 'deny'",
        "tools.t.enabled = false",
        "tools.t.timeout = '5s'",
        "tiers.read_only.approval = 'ask'",
        "tiers.privileged.approval = 'ask'",
        "profiles.R.mounts.tmp = 'none'",
        "protect.paths = ['x']",
        "limits.concurrency = 1",
    ] {
        if let Some(other) = seen.insert(load_with(BASE, overlay).digest().to_string(), overlay) {
            panic!("{overlay} has the digest of {other}");
        }
    }
}

#[test]
fn module_hashes_count_by_name_and_not_by_order() {
    let bind = |modules: &[(&str, u8)]| {
        let modules = modules.iter().map(|(name, byte)| ((*name).to_owned(), [*byte; 32]));
        load(BASE).with_modules(modules).digest().clone()
    };
    assert_eq!(bind(&[]), *load(BASE).digest());
    assert_eq!(bind(&[("a", 1), ("b", 2)]), bind(&[("b", 2), ("a", 1)]));
    assert_eq!(bind(&[("a", 3), ("a", 1)]), bind(&[("a", 1)]));
    assert_ne!(bind(&[("a", 1)]), bind(&[("a", 2)]));
    assert_ne!(bind(&[("a", 1)]), bind(&[("b", 1)]));
    assert_ne!(bind(&[("a", 1)]), bind(&[]));
}

#[test]
fn a_policy_that_was_reduced_means_the_same_as_text() {
    let shell = format!("{BASE}\n[shell]\nallow = ['git', 'ls']\n[tools.own]\nprofile = \"R\"\n");
    for overlay in [
        "tiers.read_only.approval = \"ask\"",
        "tiers.privileged.approval = \"deny\"",
        // As an operator's entry, this would make a foreign module count as known.
        "tools.strangers = { enabled = false, memory = \"7MiB\", max_output_bytes = \"1KiB\" }",
        "tools.strangers = { approval = \"ask\", timeout = \"7s\" }",
        "tools.strangers = { optional = true }",
        "tools.own = { approval = \"deny\", timeout = \"7s\" }",
        "limits.max_timeout = \"9s\"\n[tools.own]\ntimeout = \"7s\"",
        "shell.allow = ['git status']",
        "shell.enabled = false",
        "protect.paths = ['Makefile']\n[profiles.W]\nmounts = { shared = \"none\" }",
    ] {
        let policy = load_with(&shell, overlay);
        let text = policy.effective_toml();
        assert_eq!(load(&text).digest(), policy.digest(), "{overlay}\n{text}");
    }
}

#[test]
fn the_effective_policy_as_text_means_the_same() {
    for text in [DEFAULT_POLICY, BASE, FULL, "version = 1", "version = 1\nmounts.a = \"x\\u202e\\\"y\""] {
        let policy = load(text);
        assert_eq!(load(&policy.effective_toml()).digest(), policy.digest(), "{}", policy.effective_toml());
    }
}

#[test]
fn a_digest_is_the_hexadecimal_of_sha_256() {
    let digest = load(DEFAULT_POLICY).digest().to_string();
    assert_eq!(digest.len(), 64);
    assert!(digest.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')));
}

#[test]
fn the_listing_names_profiles_tiers_and_tools() {
    let policy = load_with(FULL, "tools.t.enabled = false\ntools.u.approval = 'deny'");
    assert_eq!(
        policy.summary(),
        "required layers: landlock

profiles
  N                        no mounts, https://a.example, https://*.b.example:8443 by GET, POST
  Nothing                  no mounts
  P                        /shared read, /vault read
  Q                        /shared read
  Shell                    no shell

tools without an entry, by tier
  read_only                Q, approval allow
  side_effecting           Nothing, approval ask
  privileged               Nothing, approval ask
  foreign modules          Nothing, approval ask

entries for tools, as they are written
  t                        P, approval ask, timeout 5s, disabled
  u                        profile by tier, approval deny

proxy of all connections, which resolves their names
  http://p.example:3128
"
    );
}
