//! Flow rules: labels, sinks, and the strictest of several.

use std::collections::BTreeMap;

use portcullis_policy::{
    Approval, CallRequest, Denial, DenialCode, FlowLabel, Grant, MountName, RunFacts, WorkspaceSecurityPolicy,
};
use portcullis_types::SafetyTier;

use super::support::{BASE, load, load_with, tool, try_load};

const ASKS: &str = "[[flow]]\nafter = [\"vault\"]\nthen = [\"write:shared\"]\napproval = \"ask\"\n";
const DENIES: &str =
    "[[flow]]\nafter = [\"mount:tmp\", \"vault\"]\nthen = [\"write:shared\"]\napproval = \"deny\"\n";

/// Decides a call of a tool that may write `shared`, in a run with these labels.
fn write_after(policy: &WorkspaceSecurityPolicy, labels: &[&str]) -> Result<Grant, Denial> {
    let label = |name: &&str| match *name {
        "vault" => (FlowLabel::Vault, "c1".to_owned()),
        name => (FlowLabel::of_mount(&MountName::parse(name).expect("a name")), "c2".to_owned()),
    };
    let labels = labels.iter().map(label).collect::<BTreeMap<_, _>>();
    let run = RunFacts { agent: "a", run: "r", labels: labels.into() };
    let tool = tool("t", SafetyTier::SideEffecting);
    policy.authorize(&CallRequest { tool: &tool, subjects: &[], run: &run })
}

#[test]
fn a_call_is_asked_about_after_what_a_rule_names() {
    let policy = load(&format!("{BASE}{ASKS}"));
    for labels in [&[][..], &["tmp"], &["shared"]] {
        let grant = write_after(&policy, labels).expect("granted");
        assert_eq!((grant.approval, grant.flow), (Approval::Allow, None), "{labels:?}");
    }
    let grant = write_after(&policy, &["tmp", "vault"]).expect("granted");
    assert_eq!(grant.approval, Approval::Ask);
    let met = grant.flow.expect("a rule");
    assert_eq!((met.rule.as_str(), met.call_id.as_str()), ("flow[vault -> write:shared]", "c1"));
}

#[test]
fn a_call_without_the_sink_meets_no_rule() {
    let policy = load(&format!("{BASE}{DENIES}"));
    let run = RunFacts {
        labels: BTreeMap::from([(FlowLabel::Vault, "c1".to_owned())]).into(),
        ..RunFacts::default()
    };
    let tool = tool("t", SafetyTier::ReadOnly);
    let grant = policy.authorize(&CallRequest { tool: &tool, subjects: &[], run: &run }).expect("granted");
    assert_eq!(grant.flow, None);
}

#[test]
fn the_strictest_rule_counts() {
    let policy = load(&format!("{BASE}{ASKS}{DENIES}"));
    let denial = write_after(&policy, &["vault"]).expect_err("denied");
    assert_eq!((denial.code, denial.rule.as_str()), (DenialCode::FlowDenied, "flow[vault -> write:shared]"));
    assert!(denial.hint.contains("`c1`"), "{}", denial.hint);
    let denial = write_after(&policy, &["tmp"]).expect_err("denied");
    assert_eq!(denial.rule, "flow[mount:tmp -> write:shared]");
}

#[test]
fn an_overlay_adds_rules_and_takes_none() {
    let policy = load_with(&format!("{BASE}{ASKS}"), DENIES);
    assert_eq!(write_after(&policy, &["vault"]).expect_err("denied").code, DenialCode::FlowDenied);
    let policy = load_with(&format!("{BASE}{DENIES}"), "flow = []");
    assert_eq!(write_after(&policy, &["vault"]).expect_err("denied").code, DenialCode::FlowDenied);
    let policy = load_with(&format!("{BASE}{ASKS}"), ASKS);
    assert_eq!(policy.warnings().len(), 1 + load(&format!("{BASE}{ASKS}")).warnings().len());
}

#[test]
fn the_order_of_rules_does_not_change_the_digest() {
    let one = load(&format!("{BASE}{ASKS}{DENIES}"));
    let other = load(&format!("{BASE}{DENIES}{ASKS}"));
    assert_eq!(one.digest(), other.digest());
    assert_ne!(one.digest(), load(BASE).digest());
    assert_eq!(load(&one.effective_toml()).digest(), one.digest());
}

#[test]
fn a_rule_that_would_do_nothing_is_a_fault() {
    for (rule, fault) in [
        ("after = [\"vaults\"]\nthen = [\"shell\"]\napproval = \"ask\"", "unknown label"),
        ("after = [\"mount:tpm\"]\nthen = [\"shell\"]\napproval = \"ask\"", "did you mean `tmp`?"),
        (
            "after = [\"mount:vault\"]\nthen = [\"shell\"]\napproval = \"ask\"",
            "the label of this mount is `vault`",
        ),
        ("after = [\"vault\"]\nthen = [\"shel\"]\napproval = \"ask\"", "unknown sink"),
        ("after = [\"vault\"]\nthen = [\"write:share\"]\napproval = \"ask\"", "did you mean `shared`?"),
        ("after = []\nthen = [\"shell\"]\napproval = \"ask\"", "would do nothing"),
        ("after = [\"vault\"]\nthen = []\napproval = \"ask\"", "would do nothing"),
        ("after = [\"vault\"]\nthen = [\"shell\"]\napproval = \"allow\"", "only takes away"),
        ("after = [\"vault\"]\nthen = [\"shell\"]", "missing key"),
        ("then = [\"shell\"]\napproval = \"ask\"", "missing key"),
        ("after = [\"vault\"]\nthen = [\"shell\"]\napproval = \"ask\"\nalways = true", "unknown key"),
    ] {
        let error = try_load(&format!("{BASE}[[flow]]\n{rule}\n"), None).expect_err(rule).to_string();
        assert!(error.contains(fault), "{rule}\n{error}");
    }
    let error = try_load("version = 1\nflow = 1\n", None).expect_err("no list").to_string();
    assert!(error.contains("expected a list"), "{error}");
}
