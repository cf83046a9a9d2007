//! Commands: which tools may run them, with which grants, and how other tools are denied.

use std::time::Duration;

use portcullis_policy::{
    Approval, CallRequest, DEFAULT_MAX_OUTPUT_BYTES, DEFAULT_POLICY, Denial, DenialCode, Grant, ProfileName,
    RequestedSubject, RunContext, ToolDescriptor, ToolOrigin, WorkspaceSecurityPolicy,
};
use portcullis_types::{Access, GuestPath, SafetyTier};
use serde_json::json;

use crate::support::{BASE, load, load_with, tool};

use super::{SECTION, shell_exec};

fn command(text: &str) -> RequestedSubject {
    RequestedSubject::Command { argument: "command".into(), command: text.into() }
}

fn workdir(text: &str) -> RequestedSubject {
    let path = GuestPath::parse(text).expect("a path");
    RequestedSubject::Path { argument: "workdir".into(), path, access: Access::Read }
}

#[track_caller]
fn granted(policy: &WorkspaceSecurityPolicy, tool: &ToolDescriptor, subjects: &[RequestedSubject]) -> Grant {
    match policy.authorize(&CallRequest { tool, subjects, run: &RunContext::default() }) {
        Ok(grant) => grant,
        Err(denial) => panic!("allowed, but: {denial}"),
    }
}

#[track_caller]
fn denied(policy: &WorkspaceSecurityPolicy, tool: &ToolDescriptor, subjects: &[RequestedSubject]) -> Denial {
    match policy.authorize(&CallRequest { tool, subjects, run: &RunContext::default() }) {
        Ok(grant) => panic!("denied, but: {grant:?}"),
        Err(denial) => denial,
    }
}

#[track_caller]
fn check_denied(section: &str, text: &str, code: DenialCode, rule: &str, hint: &str) {
    let denial = denied(&load(&format!("{BASE}\n{section}")), &shell_exec(), &[command(text)]);
    assert_eq!((denial.code, denial.rule.as_str(), denial.hint.as_str()), (code, rule, hint), "{text}");
    assert_eq!(denial.subject, text);
}

#[test]
fn a_shipped_tools_command_gets_the_shell_and_asks_first() {
    let grant =
        granted(&load(DEFAULT_POLICY), &shell_exec(), &[command("ls -l | wc"), workdir("/shared/src")]);
    let wire = json!({
        "profile": "Shell",
        "mounts": [{"name": "shared", "access": "write"}, {"name": "tmp", "access": "write"}],
        "approval": "ask",
        "limits": {"timeout_ms": 60_000, "memory_bytes": 1 << 30, "max_output_bytes": DEFAULT_MAX_OUTPUT_BYTES},
        "subjects": [
            {"kind": "command", "argument": "command", "command": "ls -l | wc"},
            {"kind": "path", "argument": "workdir", "path": "/shared/src", "access": "read"},
        ],
        "shell": {
            "posture": "contained",
            "processes": 256,
            "memory_bytes": 1 << 30,
            "file_size_bytes": 1 << 30,
            "output_bytes": 16 << 20,
        },
    });
    assert_eq!(serde_json::to_value(&grant).expect("serializes"), wire);
}

#[test]
fn a_grant_without_a_command_has_no_shell_in_its_json() {
    let grant = granted(&load(DEFAULT_POLICY), &tool("file_read", SafetyTier::ReadOnly), &[]);
    assert_eq!(grant.shell, None);
    assert!(serde_json::to_value(&grant).expect("serializes").get("shell").is_none());
}

#[test]
fn the_working_directory_is_in_a_mount_of_the_shell() {
    let policy = load(DEFAULT_POLICY);
    for (path, code, rule) in [
        ("/vault/a", "mount_not_granted", "shell.mounts.vault"),
        ("/etc", "unknown_mount", "mounts"),
        ("/shared/../vault", "path_escapes_mount", "mounts"),
    ] {
        let denial = denied(&policy, &shell_exec(), &[command("ls"), workdir(path)]);
        assert_eq!((denial.code.as_str(), denial.rule.as_str()), (code, rule));
    }
}

#[test]
fn the_smaller_of_shell_and_tool_limit_holds() {
    let limits = |shell: &str, entry: &str| {
        let text = format!("{BASE}\n[shell]\n{shell}\n[tools.shell_exec]\n{entry}");
        let grant = granted(&load(&text), &shell_exec(), &[command("ls")]);
        assert_eq!(grant.shell.expect("a shell").memory, grant.limits.memory);
        (grant.limits.timeout, grant.limits.memory.0 >> 20)
    };
    let (seconds, mib) = (Duration::from_secs, 1024);
    assert_eq!(limits("", ""), (seconds(60), mib));
    assert_eq!(limits("timeout = '5m'", ""), (seconds(300), mib));
    assert_eq!(limits("timeout = '1h'", ""), (seconds(600), mib));
    assert_eq!(limits("timeout = '5m'", "timeout = '20s'"), (seconds(20), mib));
    assert_eq!(limits("timeout = '5s'", "timeout = '20s'"), (seconds(5), mib));
    assert_eq!(limits("memory = '128MiB'", "memory = '32MiB'"), (seconds(60), 32));
    assert_eq!(limits("memory = '128MiB'", "memory = '1GiB'"), (seconds(60), 128));
    let policy = load_with(&format!("{BASE}\n[shell]"), "tools.shell_exec.timeout = '3s'");
    assert_eq!(granted(&policy, &shell_exec(), &[command("ls")]).limits.timeout, seconds(3));
}

#[test]
fn approval_is_as_for_every_tool() {
    let approval = |text: &str| {
        let assignment = load(&format!("{BASE}\n[shell]\n{text}")).assign(&shell_exec()).expect("enabled");
        assert_eq!(assignment.profile, ProfileName::shell());
        assignment.approval
    };
    assert_eq!(approval(""), Approval::Ask);
    assert_eq!(approval("[tools.shell_exec]\napproval = 'allow'"), Approval::Allow);
    let text = format!("{BASE}\n[shell]\n[tools.shell_exec]\napproval = 'deny'");
    assert_eq!(denied(&load(&text), &shell_exec(), &[command("ls")]).code, DenialCode::ApprovalDenied);
    let text = format!("{BASE}\n[shell]\n[tools.shell_exec]\nenabled = false");
    assert_eq!(denied(&load(&text), &shell_exec(), &[command("ls")]).code, DenialCode::ToolDisabled);
}

#[test]
fn no_tool_but_the_hosts_own_runs_commands_whatever_it_declares() {
    let policy = load(&format!("{BASE}\n[shell]\n[tools.shell_exec]\nenabled = true\napproval = 'allow'"));
    for origin in [
        ToolOrigin::Native,
        ToolOrigin::ShippedModule,
        ToolOrigin::ShippedOperation,
        ToolOrigin::ForeignModule,
    ] {
        let guest = ToolDescriptor { origin, ..shell_exec() };
        let denial = denied(&policy, &guest, &[command("ls")]);
        assert_eq!(denial.code, DenialCode::CommandsNotGranted, "{origin:?}");
        assert_eq!(denial.hint, "only tools that this host ships for it run commands");
        let assignment = policy.assign(&guest).expect("enabled");
        assert!(!assignment.profile.is_shell(), "{origin:?}");
        assert_eq!(granted(&policy, &guest, &[]).shell, None, "{origin:?}");
    }
    // The shipped tool with no command argument, or with another argument.
    let undeclared = ToolDescriptor { roles: Vec::new(), ..shell_exec() };
    assert_eq!(denied(&policy, &undeclared, &[command("ls")]).code, DenialCode::CommandsNotGranted);
    let other = RequestedSubject::Command { argument: "stdin".into(), command: "ls".into() };
    assert_eq!(denied(&policy, &shell_exec(), &[other]).code, DenialCode::CommandsNotGranted);
}

#[test]
fn denial_without_a_shell_says_how_to_grant_one() {
    check_denied(
        "",
        "ls",
        DenialCode::CommandsNotGranted,
        "shell",
        "an operator grants a shell with a section `[shell]` in the policy",
    );
    check_denied(
        "[shell]\nenabled = false",
        "ls",
        DenialCode::ShellDisabled,
        "shell.enabled",
        "an operator allows it with `enabled = true` under `[shell]` in the policy",
    );
    check_denied(
        "[shell]\n[sandbox.process.shell]\nenabled = false",
        "ls",
        DenialCode::ShellDisabled,
        "shell.enabled",
        "`[shell] enabled = false` in the workspace's policy or in the section of the sandbox tier took it away",
    );
    check_denied(
        "[shell]\n[tools.shell_exec]\nprofile = 'W'",
        "ls",
        DenialCode::CommandsNotGranted,
        "tools.shell_exec.profile",
        "a tool that runs commands has the mounts of `[shell]`; an operator allows it by leaving `profile` out of \
         `[tools.shell_exec]`",
    );
    for section in ["", "[shell]\nenabled = false"] {
        let assignment = load(&format!("{BASE}\n{section}")).assign(&shell_exec()).expect("enabled");
        assert_eq!(assignment.profile, ProfileName::nothing());
    }
}

#[test]
fn a_rule_that_refuses_is_named_with_what_would_be_right() {
    let policy = format!("{BASE}\n{SECTION}");
    granted(&load(&policy), &shell_exec(), &[command("git log | ls && ls")]);
    for (text, rule, hint) in [
        (
            "git push origin",
            "shell.deny[\"git push\"]",
            "`git` may not run, by the rule `git push`; do without it",
        ),
        ("ls | curl x", "shell.deny[\"curl\"]", "`curl` may not run, by the rule `curl`; do without it"),
        ("rm x", "shell.allow", "`rm x` is not allowed; allowed: `git`, `ls`"),
        ("ls; ls", "shell.operators", "`;` is not allowed; allowed: `&&`, `|`"),
        (
            "$x",
            "shell.deny",
            "commands are judged by the programs that they run, and those of this command are unknown: the name of a program is \
             not in the text; name every program in plain words",
        ),
    ] {
        check_denied(SECTION, text, DenialCode::CommandDenied, rule, hint);
    }
    for (section, text, rule) in [
        ("[shell]\nallow = ['ls']", "$x", "shell.allow"),
        ("[shell]\noperators = []", "echo 'open", "shell.operators"),
    ] {
        let denial = denied(&load(&format!("{BASE}\n{section}")), &shell_exec(), &[command(text)]);
        assert_eq!((denial.code, denial.rule.as_str()), (DenialCode::CommandDenied, rule));
    }
    check_denied(
        "[shell]\noperators = []",
        "a | b",
        DenialCode::CommandDenied,
        "shell.operators",
        "`|` is not allowed; run one plain command per call",
    );
    // Without rules, no command is parsed, and none is refused.
    granted(&load(&format!("{BASE}\n[shell]")), &shell_exec(), &[command("$x; echo 'open")]);
}

#[test]
fn a_hint_is_escaped_and_does_not_list_all_rules() {
    let rules: Vec<String> = (0..30).map(|number| format!("'a{number:02}'")).collect();
    let section = format!("{BASE}\n[shell]\nallow = [{}]", rules.join(", "));
    let denial = denied(&load(&section), &shell_exec(), &[command("'\u{1b}[2J'")]);
    assert!(denial.hint.starts_with("`\\u{1b}[2J` is not allowed; allowed: `a00`, "), "{}", denial.hint);
    assert!(denial.hint.ends_with("`a19`, …"), "{}", denial.hint);
    assert!(!denial.message().contains('\u{1b}'));
}
