//! Commands that need no approval: the grant, the rules that still ask, and reductions.

use std::{collections::BTreeMap, sync::Arc};

use portcullis_policy::{
    Approval, CallRequest, FlowLabel, Grant, RequestedSubject, RunContext, WorkspaceSecurityPolicy,
};

use crate::support::{BASE, load, load_with, try_load};

use super::shell_exec;

const UNASKED: &str = "[shell]\nmounts = { shared = 'write' }\nunasked = ['ls *', 'git status']\n";

fn grant(policy: &WorkspaceSecurityPolicy, command: &str, run: &RunContext<'_>) -> Grant {
    let subjects = [RequestedSubject::Command { argument: "command".into(), command: command.into() }];
    let request = CallRequest { tool: &shell_exec(), subjects: &subjects, run };
    policy.authorize(&request).unwrap_or_else(|denial| panic!("{command}: {denial}"))
}

fn approval(policy: &WorkspaceSecurityPolicy, command: &str) -> Approval {
    grant(policy, command, &RunContext::default()).approval
}

#[test]
fn a_grant_names_the_rules_that_replace_an_approval() {
    let policy = load(&format!("{BASE}\n{UNASKED}"));
    let covered = grant(&policy, "git status && ls -l", &RunContext::default());
    assert_eq!(covered.approval, Approval::Allow);
    assert_eq!(covered.unasked, ["shell.unasked[\"git status\"]", "shell.unasked[\"ls *\"]"]);
    let other = grant(&policy, "git push", &RunContext::default());
    assert_eq!((other.approval, other.unasked.len()), (Approval::Ask, 0));
    assert!(serde_json::to_value(&other).expect("encodes").get("unasked").is_none());
    // An entry with `ask` means the same as the tier, so the operator's rules apply.
    let entry = load(&format!("{BASE}\n{UNASKED}[tools.shell_exec]\napproval = 'ask'\n"));
    assert_eq!(approval(&entry, "ls"), Approval::Allow);
    // With `allow` no approval is needed, so no rule is named.
    let allowed = load(&format!("{BASE}\n{UNASKED}[tools.shell_exec]\napproval = 'allow'\n"));
    assert_eq!(grant(&allowed, "ls", &RunContext::default()).unasked.len(), 0);
}

#[test]
fn a_denied_command_stays_denied_and_a_flow_rule_still_asks() {
    let subjects = [RequestedSubject::Command { argument: "command".into(), command: "ls x".into() }];
    let request = CallRequest { tool: &shell_exec(), subjects: &subjects, run: &RunContext::default() };
    let denied = load(&format!("{BASE}\n{UNASKED}deny = ['ls x']\n")).authorize(&request);
    assert_eq!(denied.expect_err("denied").rule, "shell.deny[\"ls x\"]");

    let flow = "[[flow]]\nafter = ['web']\nthen = ['shell']\napproval = 'ask'\n";
    let policy = load(&format!("{BASE}\n{UNASKED}{flow}"));
    let labels = Arc::new(BTreeMap::from([(FlowLabel::Web, "c1".to_owned())]));
    let run = RunContext { agent: "a", run: "r", labels };
    let asked = grant(&policy, "ls", &run);
    assert_eq!((asked.approval, asked.unasked.len()), (Approval::Ask, 0));
    assert_eq!(approval(&policy, "ls"), Approval::Allow);
}

#[test]
fn a_reduction_takes_rules_away_and_adds_none() {
    let operator = format!("{BASE}\n{UNASKED}");
    for (overlay, ls, status) in [
        ("shell.unasked = ['ls *']", Approval::Allow, Approval::Ask),
        ("shell.unasked = []", Approval::Ask, Approval::Ask),
        ("tools.shell_exec.approval = 'ask'", Approval::Ask, Approval::Ask),
        ("tiers.privileged.approval = 'ask'", Approval::Ask, Approval::Ask),
        ("tiers.side_effecting.approval = 'ask'", Approval::Allow, Approval::Allow),
        ("tools.file_write.approval = 'ask'", Approval::Allow, Approval::Allow),
    ] {
        let policy = load_with(&operator, overlay);
        assert_eq!((approval(&policy, "ls"), approval(&policy, "git status")), (ls, status), "{overlay}");
        // The printed policy grants the same.
        let again = load(&policy.effective_toml());
        assert_eq!((again.digest(), approval(&again, "ls")), (policy.digest(), ls), "{overlay}");
    }
    let error = try_load(&operator, Some("shell.unasked = ['ls', 'rm *']")).expect_err("wider");
    assert!(error.to_string().contains("`rm *` is not in the operator's list"), "{error}");
    assert!(error.to_string().contains("`ls` is not in the operator's list"), "{error}");
    let error = try_load(BASE, Some("shell.unasked = ['ls']"));
    assert!(error.is_ok(), "without a shell there is nothing to take away");
}

#[test]
fn an_invalid_rule_is_a_fault() {
    for rule in ["", "/bin/ls", "ls; rm", "ls $x", "ls > x", "a(b)", "ls\u{200b}"] {
        let error = try_load(&format!("{BASE}\n[shell]\nunasked = [\"{rule}\"]\n"), None);
        assert!(error.expect_err(rule).to_string().contains("shell.unasked"), "{rule}");
    }
}

#[test]
fn each_command_of_a_call_needs_a_rule() {
    let command = |text: &str| RequestedSubject::Command { argument: "command".into(), command: text.into() };
    let policy = load(&format!("{BASE}{UNASKED}"));
    for (commands, expected) in [
        (["ls", "git status"], Approval::Allow),
        (["ls", "rm x"], Approval::Ask),
        (["rm x", "ls"], Approval::Ask),
    ] {
        let subjects = commands.map(command);
        let run = RunContext::default();
        let request = CallRequest { tool: &shell_exec(), subjects: &subjects, run: &run };
        assert_eq!(policy.authorize(&request).expect("granted").approval, expected, "{commands:?}");
    }
}
