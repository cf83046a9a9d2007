//! Loading `[shell]`: values, defaults and faults.

use std::{collections::BTreeSet, time::Duration};

use portcullis_policy::{DEFAULT_POLICY, ShellAbsence, ShellPolicy};
use portcullis_types::{Access, ShellPosture};
use serde_json::json;

use crate::support::{BASE, load, try_load};

use super::SECTION;

#[track_caller]
fn shell(section: &str) -> ShellPolicy {
    load(&format!("{BASE}\n{section}")).shell().expect("a shell").clone()
}

/// Checks for faults of `[shell]` in line 5.
#[track_caller]
fn check(line: &str, fault: &str) {
    let text = format!("version = 1\nmounts.shared = 's'\nmounts.vault = 'v'\n[shell]\n{line}\n");
    let error = try_load(&text, None).expect_err("is refused");
    assert_eq!(error.to_string(), format!("portcullis.toml:5:{fault}"));
}

#[test]
fn a_policy_without_the_section_has_no_shell_and_says_why() {
    for (section, absence) in [
        ("", ShellAbsence::NotGranted),
        ("[shell]\nenabled = false", ShellAbsence::DisabledByOperator),
        ("[shell]\nenabled = false\nmounts = { shared = 'write' }", ShellAbsence::DisabledByOperator),
        ("[shell]\n[sandbox.process.shell]\nenabled = false", ShellAbsence::TakenAway),
    ] {
        let policy = load(&format!("{BASE}\n{section}"));
        assert_eq!((policy.shell(), policy.shell_absence()), (None, Some(absence)), "{section}");
    }
    assert_eq!(load(DEFAULT_POLICY).shell_absence(), None);
}

#[test]
fn the_shipped_policy_has_a_contained_shell_with_the_defaults() {
    let policy = load(DEFAULT_POLICY);
    let shipped = policy.shell().expect("a shell");
    assert_eq!(shipped.access_to("shared"), Some(Access::Write));
    assert_eq!(shipped.access_to("tmp"), Some(Access::Write));
    assert_eq!((shipped.mounts.len(), shipped.access_to("vault")), (2, None));
    let defaults = shell("[shell]\nmounts = { shared = 'write', tmp = 'write' }");
    assert_eq!(*shipped, defaults);
    assert_eq!(shipped.posture, ShellPosture::Contained);
    assert_eq!((shipped.timeout, shipped.processes), (Duration::from_secs(60), 256));
    assert_eq!((shipped.memory.0, shipped.file_size.0, shipped.output.0), (1 << 30, 1 << 30, 16 << 20));
    assert!(shipped.environment.is_empty() && shipped.commands.is_empty());
}

#[test]
fn a_section_that_names_no_mounts_has_none() {
    assert!(shell("[shell]").mounts.is_empty());
}

#[test]
fn every_key_says_what_the_shell_gets() {
    let shell = shell(SECTION);
    assert_eq!(shell.posture, ShellPosture::Strong);
    let mounts: Vec<_> = shell.mounts.iter().map(|mount| (mount.name.as_str(), mount.access)).collect();
    assert_eq!(mounts, [("shared", Access::Read), ("tmp", Access::Write)]);
    assert_eq!((shell.timeout, shell.processes), (Duration::from_secs(50), 64));
    assert_eq!((shell.memory.0, shell.file_size.0, shell.output.0), (2 << 30, 10 << 20, 1 << 20));
    assert_eq!(shell.environment.iter().map(|name| name.as_str()).collect::<Vec<_>>(), ["CI", "LANG"]);
    assert_eq!(shell.commands.allowed().collect::<Vec<_>>(), [["git", "ls"]]);
    assert_eq!(shell.commands.denied().collect::<Vec<_>>(), ["curl", "git push"]);
    assert_eq!(shell.commands.operators().map(BTreeSet::len), Some(2));
}

#[test]
fn the_time_is_never_above_the_limit_of_all_calls() {
    let seconds = |section: &str| {
        let policy = load(&format!("{BASE}\n[limits]\nmax_timeout = '30s'\n[shell]\n{section}"));
        policy.shell().expect("a shell").timeout.as_secs()
    };
    assert_eq!((seconds(""), seconds("timeout = '2m'"), seconds("timeout = '9s'")), (30, 30, 9));
}

#[test]
fn faults_are_reported_with_their_location() {
    check("postur = 'strong'", "1: shell.postur: unknown key; did you mean `posture`?");
    check(
        "x = 1",
        "1: shell.x: unknown key; known are `enabled`, `posture`, `mounts`, `timeout`, `memory`, `processes`, \
         `file_size`, `output`, `environment`, `read`, `caches`, `path`, `variables`, `hosts`, `allow`, `deny`, `operators`, `unasked`",
    );
    check("enabled = 'no'", "11: shell.enabled: expected `true` or `false`, found string");
    check(
        "posture = 'none'",
        "11: shell.posture: the posture of a shell cannot be `none`; write `minimal`, `contained` or \
         `strong`",
    );
    check("posture = 'strng'", "11: shell.posture: unknown posture `strng`; did you mean `strong`?");
    check("mounts.vault = 'read'", "8: shell.mounts.vault: no shell ever has the vault; leave it out");
    check("mounts.vault = 'write'", "8: shell.mounts.vault: no shell ever has the vault; leave it out");
    check("mounts.share = 'read'", "8: shell.mounts.share: unknown mount; did you mean `shared`?");
    check(
        "mounts.shared = 'none'",
        "17: shell.mounts.shared: unknown access `none`; known are `read`, `write`",
    );
    check("timeout = 60", "11: shell.timeout: a duration has a unit: write \"60s\", \"60ms\" or \"60m\"");
    check("memory = '1MiB'", "10: shell.memory: 1MiB is out of bounds: 16MiB to 1024GiB are allowed");
    check("processes = 1", "13: shell.processes: 1 is out of bounds: 8 to 32768 are allowed");
    check("processes = '9'", "13: shell.processes: expected a whole number, found string");
    check("file_size = 1", "13: shell.file_size: 1B is out of bounds: 1MiB to 1024GiB are allowed");
    check("output = '2GiB'", "10: shell.output: 2GiB is out of bounds: 1KiB to 1GiB are allowed");
    check(
        "environment = ['A', 'PATH']",
        "21: shell.environment[1]: `PATH` is set by the session itself; leave it out",
    );
    check(
        "environment = ['BASH_ENV']",
        "16: shell.environment[0]: `BASH_ENV` changes what the shell runs; leave it out",
    );
    check(
        "environment = ['A=1']",
        "16: shell.environment[0]: `A=1` is not a variable name: letters, digits and `_` are allowed, no \
         digit first",
    );
    check(
        "allow = []",
        "9: shell.allow: an empty list allows no command; set `enabled = false` to disable the shell, or remove `allow` to allow all commands",
    );
    check(
        "deny = ['ls', 'rm | x']",
        "15: shell.deny[1]: `|` is shell syntax: a rule is a list of plain words, in which `*` matches anything",
    );
    check(
        "deny = ['/bin/rm']",
        "9: shell.deny[0]: `/bin/rm` is a path: a rule names a program, in any folder; write only its name",
    );
    check(
        "deny = ['r\u{200b}m']",
        "9: shell.deny[0]: `\\u{200b}` is an invisible character: a rule is a list of plain words",
    );
    check(
        "operators = ['|&']",
        "14: shell.operators[0]: `|&` is not an operator: write one of `&&`, `||`, `;`, `&`, `|`, `<`, `>`, `$()`, \
         `<()`, `()`",
    );
    let many = format!("deny = [{}]", "'a',".repeat(257));
    check(&many, "8: shell.deny: 257 elements; at most 256 are allowed");
}

#[test]
fn the_section_of_a_disabled_shell_is_checked_as_well() {
    let error = try_load(&format!("{BASE}\n[shell]\nenabled = false\nmounts.vault = 'read'"), None);
    assert!(
        error.expect_err("is refused").to_string().ends_with("no shell ever has the vault; leave it out")
    );
}

#[test]
fn a_policy_cannot_define_or_assign_the_shells_profile() {
    for (section, fault) in [
        ("[profiles.Shell]", "the mounts of a shell belong in `[shell]`; use another name for a profile"),
        (
            "[tools.t]\nprofile = 'Shell'",
            "`Shell` is assigned automatically to tools that run commands; remove `profile`",
        ),
    ] {
        let error = try_load(&format!("{BASE}\n[shell]\n{section}"), None).expect_err("is refused");
        assert!(error.to_string().ends_with(fault), "{error}");
    }
    let tier = BASE.replace("\"Nothing\", approval = \"ask\"", "\"Shell\", approval = \"ask\"");
    assert!(try_load(&format!("{tier}\n[shell]"), None).is_err());
    let policy = load(DEFAULT_POLICY);
    assert!(policy.profiles().all(|(name, _)| !name.is_shell()), "it has no pool of workers");
}

#[test]
fn every_key_counts_for_the_digest_and_order_does_not() {
    let digest = |section: &str| load(&format!("{BASE}\n{section}")).digest().clone();
    let mut seen = vec![digest(""), digest(SECTION)];
    for (from, to) in [
        ("strong", "minimal"),
        ("shared = \"read\"", "shared = \"write\""),
        ("50s", "51s"),
        ("2GiB", "3GiB"),
        ("64", "65"),
        ("10MiB", "11MiB"),
        ("output = \"1MiB\"", "output = \"2MiB\""),
        ("\"CI\"", "\"CD\""),
        ("\"git\", \"ls\"", "\"git\""),
        ("allow =", "# allow ="),
        ("\"curl\"", "\"wget\""),
        ("\"|\", ", ""),
        ("operators =", "# operators ="),
    ] {
        let changed = SECTION.replacen(from, to, 1);
        assert_ne!(changed, SECTION, "{from} is not in the text");
        let digest = digest(&changed);
        assert!(!seen.contains(&digest), "{from} -> {to}");
        seen.push(digest);
    }
    let otherwise = SECTION
        .replace("\"git\", \"ls\"", "\"ls\", \"git\", \"ls\"")
        .replace("\"git push\", \"curl\"", "\"curl\", \"git   push\"")
        .replace("\"|\", \"&&\"", "\"&&\", \"|\"")
        .replace("\"LANG\", \"CI\"", "\"CI\", \"LANG\"");
    assert_ne!(otherwise, SECTION);
    assert_eq!(digest(&otherwise), digest(SECTION));
    assert_eq!(digest("[shell]\nenabled = false"), digest(""));
}

#[test]
fn the_effective_section_as_text_means_the_same() {
    for section in ["", "[shell]", SECTION, "[shell]\nenabled = false", "[shell]\noperators = []"] {
        let policy = load(&format!("{BASE}\n{section}"));
        let text = policy.effective_toml();
        let reloaded = load(&text);
        assert_eq!((reloaded.digest(), reloaded.shell()), (policy.digest(), policy.shell()), "{text}");
    }
    let summary = load(&format!("{BASE}\n{SECTION}")).summary();
    let line = "  Shell                    /shared read, /tmp write, at least strong, timeout 50s, commands by rules\n";
    assert!(summary.contains(line), "{summary}");
}

#[test]
fn a_shell_can_be_sent_as_json_and_is_checked_when_it_is_read() {
    let sent = shell(SECTION);
    let wire = json!({
        "posture": "strong",
        "mounts": [{"name": "shared", "access": "read"}, {"name": "tmp", "access": "write"}],
        "timeout_ms": 50_000,
        "memory_bytes": 2_147_483_648_u64,
        "processes": 64,
        "file_size_bytes": 10_485_760,
        "output_bytes": 1_048_576,
        "environment": ["CI", "LANG"],
        "commands": {"allow": [["git", "ls"]], "deny": ["curl", "git push"], "operators": ["&&", "|"]},
    });
    assert_eq!(serde_json::to_value(&sent).expect("serializes"), wire);
    assert_eq!(serde_json::from_value::<ShellPolicy>(wire.clone()).expect("is read"), sent);
    for (key, value) in [
        ("posture", json!("none")),
        ("mounts", json!([{"name": "vault", "access": "read"}])),
        ("mounts", json!([{"name": "../x", "access": "read"}])),
        ("mounts", json!([{"name": "tmp", "access": "read"}, {"name": "shared", "access": "read"}])),
        ("environment", json!(["LD_PRELOAD"])),
        ("commands", json!({"allow": [], "deny": ["a|b"], "operators": null})),
        ("commands", json!({"allow": [], "deny": [], "operators": ["|&"]})),
        ("more", json!(1)),
    ] {
        let mut changed = wire.clone();
        changed[key] = value.clone();
        assert!(serde_json::from_value::<ShellPolicy>(changed).is_err(), "{key}: {value}");
    }
}
