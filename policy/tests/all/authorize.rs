//! Allowed calls, denied calls, and attempts to evade the rules.

use portcullis_policy::{
    Approval, DEFAULT_MAX_OUTPUT_BYTES, DEFAULT_POLICY, Denial, Grant, RequestedSubject, ToolDescriptor,
};
use portcullis_types::{Access, SafetyTier};
use serde_json::json;

use crate::support::{BASE, decide, load, load_with, path, tool};

fn reader() -> ToolDescriptor {
    tool("file_read", SafetyTier::ReadOnly)
}

fn writer() -> ToolDescriptor {
    tool("file_write", SafetyTier::SideEffecting)
}

#[track_caller]
fn allowed(tool: &ToolDescriptor, subjects: &[RequestedSubject]) -> Grant {
    match decide(&load(DEFAULT_POLICY), tool, subjects) {
        Ok(grant) => grant,
        Err(denial) => panic!("allowed, but: {denial}"),
    }
}

#[track_caller]
fn denied(tool: &ToolDescriptor, subjects: &[RequestedSubject]) -> Denial {
    match decide(&load(DEFAULT_POLICY), tool, subjects) {
        Ok(grant) => panic!("denied, but: {grant:?}"),
        Err(denial) => denial,
    }
}

#[track_caller]
fn check_denied(tool: &ToolDescriptor, subject: RequestedSubject, code: &str, rule: &str, expected: &str) {
    let denial = denied(tool, &[subject]);
    assert_eq!((denial.code.as_str(), denial.rule.as_str()), (code, rule));
    assert_eq!(denial.to_string(), expected);
}

#[test]
fn a_tool_reads_and_writes_where_its_profile_says() {
    for text in
        ["/shared/a", "/tmp/a/b", "/vault/key", "/shared", "a", "/shared/a/../b", "/shared/.git/hooks/x"]
    {
        allowed(&reader(), &[path(text, Access::Read)]);
    }
    for text in ["/shared/a", "/tmp/a/b", "/shared/.git/index", "/shared/.gitignore", "/shared/profile"] {
        allowed(&writer(), &[path(text, Access::Write)]);
        allowed(&writer(), &[path(text, Access::Read)]);
    }
}

#[test]
fn a_grant_is_stable_json_of_profile_mounts_and_limits() {
    let grant = allowed(&reader(), &[path("/vault/a", Access::Read)]);
    assert_eq!(grant.access_to("vault"), Some(Access::Read));
    assert_eq!(grant.access_to("home"), None);
    let wire = json!({
        "profile": "FileReadOnly",
        "mounts": [
            {"name": "shared", "access": "read"},
            {"name": "tmp", "access": "read"},
            {"name": "vault", "access": "read"},
        ],
        "approval": "allow",
        "limits": {"timeout_ms": 10_000, "memory_bytes": 67_108_864, "max_output_bytes": DEFAULT_MAX_OUTPUT_BYTES},
        "subjects": [{"kind": "path", "argument": "path", "path": "/vault/a", "access": "read"}],
    });
    assert_eq!(serde_json::to_value(&grant).expect("serializes"), wire);
    let without = allowed(&writer(), &[]);
    assert_eq!(without.mounts.len(), 2);
    assert!(without.subjects.is_empty());
}

#[test]
fn denials_say_what_why_and_what_would_be_right() {
    check_denied(
        &writer(),
        path("/vault/key", Access::Read),
        "mount_not_granted",
        "profiles.FileReadWrite.mounts.vault",
        "`/vault/key` is in a mount that this tool does not have (readable here: /shared, /tmp)",
    );
    check_denied(
        &writer(),
        path("/vault/key", Access::Write),
        "mount_not_granted",
        "profiles.FileReadWrite.mounts.vault",
        "`/vault/key` is in a mount that this tool does not have (writable here: /shared, /tmp)",
    );
    check_denied(
        &reader(),
        path("/vault/key", Access::Write),
        "mount_read_only",
        "profiles.FileReadOnly.mounts.vault",
        "`/vault/key` is read-only for this tool (nothing is writable for this tool)",
    );
    check_denied(
        &reader(),
        path("/etc/passwd", Access::Read),
        "unknown_mount",
        "mounts",
        "`/etc/passwd` is not below any mount (readable here: /shared, /tmp, /vault)",
    );
    check_denied(
        &reader(),
        path("/", Access::Read),
        "unknown_mount",
        "mounts",
        "`/` is not below any mount (readable here: /shared, /tmp, /vault)",
    );
    check_denied(
        &writer(),
        path("/shared/a/.Git/Hooks/pre-commit", Access::Write),
        "protected_path",
        "protect.paths[\".git/hooks\"]",
        "`/shared/a/.Git/Hooks/pre-commit` is protected and never written by a tool \
         (`.git/hooks` is protected at any depth; choose another path)",
    );
    check_denied(
        &tool("shell_exec", SafetyTier::Privileged),
        path("/shared/a", Access::Read),
        "mount_not_granted",
        "profiles.Nothing.mounts.shared",
        "`/shared/a` is in a mount that this tool does not have (nothing is readable for this tool)",
    );
}

#[test]
fn nothing_climbs_out_of_a_mount() {
    for text in ["/shared/../vault/key", "../x", "/shared/a/../../etc", "/..", "/../shared/a", "/tmp/.."] {
        let denial = denied(&reader(), &[path(text, Access::Read)]);
        assert_eq!(denial.code.as_str(), "path_escapes_mount", "{text}");
        assert_eq!(denial.hint, "readable here: /shared, /tmp, /vault");
    }
}

#[test]
fn disguised_mounts_are_other_mounts() {
    for text in
        ["/Shared/a", "/shared-2/a", "/share", "/VAULT/key", "/shared\u{200b}/a", "/shared\\..\\vault"]
    {
        assert_eq!(denied(&reader(), &[path(text, Access::Read)]).code.as_str(), "unknown_mount", "{text}");
    }
}

#[test]
fn disguised_protected_paths_stay_protected() {
    for text in [
        "/shared/.git//hooks",
        "/shared/./.git/./hooks/x",
        "/shared/.git/x/../hooks/pre-commit",
        "/shared/a/b/.BASHRC",
        "/tmp/.vscode/Tasks.json",
        "/shared/x/../.envrc",
        "/shared/.mcp.json/",
        ".zshrc",
    ] {
        let denial = denied(&writer(), &[path(text, Access::Write)]);
        assert_eq!(denial.code.as_str(), "protected_path", "{text}");
    }
}

#[test]
fn one_denied_subject_denies_the_call() {
    let subjects = [path("/shared/a", Access::Read), path("/shared/.bashrc", Access::Write)];
    assert_eq!(denied(&writer(), &subjects).code.as_str(), "protected_path");
    let subjects = [path("/vault/a", Access::Read), path("/shared/a", Access::Write)];
    assert_eq!(denied(&writer(), &subjects).code.as_str(), "mount_not_granted");
}

#[test]
fn a_write_role_is_a_write_even_if_the_caller_asks_for_a_read() {
    let RequestedSubject::Path { path, .. } = path("/shared/a", Access::Read) else { unreachable!() };
    let disguised = RequestedSubject::Path { argument: "target".into(), path, access: Access::Read };
    assert_eq!(denied(&reader(), &[disguised]).code.as_str(), "mount_read_only");
}

#[test]
fn addresses_and_commands_are_granted_by_no_profile_of_a_policy() {
    let url = RequestedSubject::Url { argument: "url".into(), url: "https://example.com".into() };
    let denial = denied(&writer(), &[url]);
    assert_eq!(
        (denial.code.as_str(), denial.rule.as_str()),
        ("egress_not_granted", "profiles.FileReadWrite")
    );
    let command = RequestedSubject::Command { argument: "command".into(), command: "true".into() };
    let denial = denied(&writer(), &[command]);
    assert_eq!(
        denial.to_string(),
        "running `true` is not granted (only tools that this host ships for it run commands)"
    );
}

#[test]
fn approval_deny_or_a_disabled_tool_denies_every_call() {
    let policy =
        load(&format!("{BASE}\n[tools.file_read]\napproval = 'deny'\n[tools.file_write]\nenabled = false"));
    for (tool, code, rule) in [
        (reader(), "approval_denied", "tools.file_read.approval"),
        (writer(), "tool_disabled", "tools.file_write.enabled"),
    ] {
        let Err(denial) = decide(&policy, &tool, &[]) else { panic!("denied") };
        assert_eq!((denial.code.as_str(), denial.rule.as_str()), (code, rule));
    }
    let by_tier = BASE.replace("\"ask\"", "\"deny\"");
    let Err(denial) = decide(&load(&by_tier), &tool("t", SafetyTier::Privileged), &[]) else {
        panic!("denied")
    };
    assert_eq!(denial.rule, "tiers.privileged.approval");
}

#[test]
fn a_call_that_must_be_approved_is_allowed_and_says_so() {
    let grant = allowed(&tool("t", SafetyTier::Privileged), &[]);
    assert_eq!(grant.approval.as_str(), "ask");
}

#[test]
fn listed_paths_of_a_file_tool_need_no_approval() {
    let entry = "\n[tools.file_write]\napproval = 'ask'\nunasked = { target = ['src/**', '/tmp/*.txt'] }\n";
    let text = format!("{DEFAULT_POLICY}{entry}");
    let policy = load(&text);
    for (written, rule) in [
        ("/shared/src/a/b", Some("tools.file_write.unasked.target[\"src/**\"]")),
        ("src/a", Some("tools.file_write.unasked.target[\"src/**\"]")),
        ("/tmp/a.txt", Some("tools.file_write.unasked.target[\"/tmp/*.txt\"]")),
        ("/shared/Makefile", None),
        ("/shared/src/../Makefile", None),
        ("/tmp/a/b.txt", None),
    ] {
        let grant = decide(&policy, &writer(), &[path(written, Access::Write)]).expect("granted");
        let expected = if rule.is_some() { Approval::Allow } else { Approval::Ask };
        assert_eq!(
            (grant.approval, grant.unasked),
            (expected, rule.map(str::to_owned).into_iter().collect()),
            "{written}"
        );
    }
    // The whole call must be covered.
    let both = [path("src/a", Access::Write), path("b", Access::Write)];
    assert_eq!(decide(&policy, &writer(), &both).expect("granted").approval, Approval::Ask);
    assert_eq!(decide(&policy, &writer(), &[]).expect("granted").approval, Approval::Ask);
    // A reduction's question is asked.
    for overlay in ["[tools.file_write]\napproval = 'ask'", "[tiers]\nside_effecting = { approval = 'ask' }"]
    {
        let reduced = load_with(&text, overlay);
        let grant = decide(&reduced, &writer(), &[path("src/a", Access::Write)]).expect("granted");
        assert_eq!(grant.approval, Approval::Ask, "{overlay}");
    }
}

#[test]
fn a_hidden_name_is_refused_outside_the_vault() {
    let policy = load(&format!("{BASE}[hide]\npaths = ['*.pem']\n"));
    let hidden = decide(&policy, &reader(), &[path("/shared/a/Key.PEM", Access::Read)]).expect_err("hidden");
    assert_eq!((hidden.code.as_str(), hidden.rule.as_str()), ("hidden_path", "hide.paths[\"*.pem\"]"));
    let hidden = decide(&policy, &writer(), &[path("/shared/k.pem/x", Access::Write)]).expect_err("hidden");
    assert_eq!(hidden.code.as_str(), "hidden_path");
    decide(&policy, &reader(), &[path("/shared/key.pem2", Access::Read)]).expect("another name");
    let with_vault = load(&format!("{BASE}[tools.file_read]\nprofile = 'V'\n[hide]\npaths = ['*.pem']\n"));
    decide(&with_vault, &reader(), &[path("/vault/key.pem", Access::Read)])
        .expect("the vault has its own rules");
}
