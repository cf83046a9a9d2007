//! Reductions of a shell, and attempts to widen it.

use std::time::Duration;

use portcullis_policy::{ShellAbsence, WorkspaceSecurityPolicy};
use portcullis_types::{Access, ShellPosture};

use crate::support::{BASE, load, load_with, try_load};

use super::SECTION;

fn operator() -> String {
    format!("{BASE}\n{SECTION}")
}

#[track_caller]
fn check_refused(overlay: &str, fault: &str) {
    let error = try_load(&operator(), Some(overlay)).expect_err("is refused");
    assert_eq!(error.to_string(), format!("workspace.toml:2:{fault}"));
}

fn judges(policy: &WorkspaceSecurityPolicy, command: &str) -> bool {
    policy.shell().expect("a shell").commands.judge(command).is_ok()
}

#[test]
fn a_reduction_takes_the_shell_away() {
    let policy = load_with(&operator(), "shell.enabled = false");
    assert_eq!((policy.shell(), policy.shell_absence()), (None, Some(ShellAbsence::TakenAway)));
    // Reducing an absent shell has no effect and is not a fault.
    for operator in [BASE.to_owned(), format!("{BASE}\n[shell]\nenabled = false")] {
        let policy = load_with(&operator, "[shell]\nenabled = false\nposture = 'strong'\nmemory = '16MiB'");
        assert_eq!(policy.digest(), load(&operator).digest());
    }
}

#[test]
fn a_reduction_makes_every_value_smaller() {
    let base =
        format!("{BASE}\n[shell]\nmounts = {{ shared = 'write', tmp = 'write' }}\nenvironment = ['A', 'B']");
    let policy = load_with(
        &base,
        "[shell]\nenabled = true\nposture = 'strong'\nmounts = { shared = 'read', tmp = 'none' }\n\
         timeout = '5s'\nmemory = '16MiB'\nprocesses = 9\nfile_size = '1MiB'\noutput = '1KiB'\n\
         environment = ['B']\nallow = ['ls', 'cat']\ndeny = ['cat x']\noperators = ['|']",
    );
    let shell = policy.shell().expect("a shell");
    assert_eq!(shell.posture, ShellPosture::Strong);
    assert_eq!((shell.mounts.len(), shell.access_to("shared")), (1, Some(Access::Read)));
    assert_eq!((shell.timeout, shell.processes), (Duration::from_secs(5), 9));
    assert_eq!((shell.memory.0, shell.file_size.0, shell.output.0), (16 << 20, 1 << 20, 1 << 10));
    assert_eq!(shell.environment.iter().map(|name| name.as_str()).collect::<Vec<_>>(), ["B"]);
    for (command, runs) in [
        ("ls", true),
        ("cat y", true),
        ("cat x", false),
        ("rm x", false),
        ("ls | ls", true),
        ("ls; ls", false),
    ] {
        assert_eq!(judges(&policy, command), runs, "{command}");
    }
}

#[test]
fn each_allow_list_must_cover_a_command() {
    let base = format!(
        "{BASE}\n[shell]\nallow = ['git', 'ls', 'cat']\n[sandbox.process.shell]\nallow = ['git', 'cat']"
    );
    let policy = load_with(&base, "[shell]\nallow = ['git status', 'ls', 'rm']");
    for (command, runs) in
        [("git status", true), ("git log", false), ("ls", false), ("cat x", false), ("rm", false)]
    {
        assert_eq!(judges(&policy, command), runs, "{command}");
    }
    let text = policy.effective_toml();
    // One list becomes a section of each sandbox tier. The section has no room for a second list.
    assert_eq!(text.matches(".shell]\nallow = ").count(), 3, "{text}");
    assert_eq!(text.matches("# and: allow = ").count(), 3, "{text}");
    assert!(!judges(&load(&text), "git log") || !judges(&load(&text), "ls"), "{text}");
}

#[test]
fn the_limit_of_all_calls_lowers_the_time_of_commands() {
    let policy = load_with(&operator(), "limits.max_timeout = '7s'");
    assert_eq!(policy.shell().expect("a shell").timeout, Duration::from_secs(7));
}

#[test]
fn widening_shell_overlay_is_refused() {
    let widens = |after: &str, before: &str| {
        format!("`{after}` would widen the operator's `{before}`; this section may only reduce")
    };
    for (line, location, after, before) in [
        ("posture = 'contained'", "11: shell.posture", "contained", "strong"),
        ("mounts.shared = 'write'", "17: shell.mounts.shared", "write", "read"),
        ("mounts.vault = 'read'", "16: shell.mounts.vault", "read", "none"),
        ("timeout = '51s'", "11: shell.timeout", "51s", "50s"),
        ("memory = '3GiB'", "10: shell.memory", "3GiB", "2GiB"),
        ("processes = 65", "13: shell.processes", "65", "64"),
        ("file_size = '11MiB'", "13: shell.file_size", "11MiB", "10MiB"),
        ("output = '2MiB'", "10: shell.output", "2MiB", "1MiB"),
    ] {
        check_refused(&format!("[shell]\n{line}"), &format!("{location}: {}", widens(after, before)));
    }
    let more = "is not in the operator's list; this section may only remove elements";
    check_refused("[shell]\nenvironment = ['CI', 'TZ']", &format!("22: shell.environment[1]: `TZ` {more}"));
    check_refused("[shell]\noperators = ['|', ';']", &format!("19: shell.operators[1]: `;` {more}"));
    check_refused(
        "[shell]\nmounts.nope = 'none'",
        "8: shell.mounts.nope: unknown mount; known are `shared`, `tmp`, `vault`",
    );
    check_refused(
        "[shell]\nposture = 'none'",
        "11: shell.posture: the posture of a shell cannot be `none`; write `minimal`, `contained` or \
         `strong`",
    );
}

#[test]
fn only_the_operator_gives_a_shell() {
    for (section, fault) in [
        ("", "only the operator's policy may grant a shell"),
        (
            "[shell]\nenabled = false",
            "`true` would widen the operator's `false`; this section may only reduce",
        ),
        (
            "[shell]\n[sandbox.process.shell]\nenabled = false",
            "`true` would widen the operator's `false`; this section may only reduce",
        ),
    ] {
        let error =
            try_load(&format!("{BASE}\n{section}"), Some("shell.enabled = true")).expect_err("is refused");
        assert_eq!(error.to_string(), format!("workspace.toml:1:17: shell.enabled: {fault}"));
    }
}

#[test]
fn a_reduction_that_repeats_the_operator_changes_nothing() {
    let text = operator();
    assert_eq!(load_with(&text, SECTION).digest(), load(&text).digest());
    assert_eq!(load_with(&text, "[shell]\nmounts.vault = 'none'\ndeny = []").digest(), load(&text).digest());
}

#[test]
fn sandbox_sections_are_checked_against_the_shell_in_every_tier() {
    let text = format!("{BASE}\n{SECTION}\n[sandbox.micro_vm.shell]\nprocesses = 65");
    assert!(try_load(&text, None).is_err());
    let text = format!("{BASE}\n{SECTION}\n[sandbox.micro_vm.shell]\nenabled = false");
    assert!(load(&text).shell().is_some());
}
