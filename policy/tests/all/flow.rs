//! Flow rules: labels, sinks, and the strictest of several.

use std::collections::BTreeMap;

use portcullis_policy::{
    Approval, CallRequest, Denial, DenialCode, FlowLabel, Grant, MountName, RequestedSubject, RunContext,
    ToolDescriptor, ToolOrigin, WorkspaceSecurityPolicy,
};
use portcullis_types::{Access, GuestPath, SafetyTier};

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
    let run = RunContext { agent: "a", run: "r", labels: labels.into() };
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
    let run = RunContext {
        labels: BTreeMap::from([(FlowLabel::Vault, "c1".to_owned())]).into(),
        ..RunContext::default()
    };
    let tool = tool("t", SafetyTier::ReadOnly);
    let grant = policy.authorize(&CallRequest { tool: &tool, subjects: &[], run: &run }).expect("granted");
    assert_eq!(grant.flow, None);
}

/// The arguments of an external call, and a message in a space of a gateway, leave the machine.
#[test]
fn a_call_that_leaves_the_machine_is_one_to_the_network() {
    let rule = "[[flow]]\nafter = [\"vault\"]\nthen = [\"network\"]\napproval = \"deny\"\n";
    let policy = load(&format!("{BASE}{rule}"));
    let labels = BTreeMap::from([(FlowLabel::Vault, "c1".to_owned())]);
    let run = RunContext { labels: labels.into(), ..RunContext::default() };
    for (origin, is_denied) in [
        (ToolOrigin::External, true),
        (ToolOrigin::ShippedGateway, true),
        (ToolOrigin::Internal, false),
        (ToolOrigin::ShippedNative, false),
    ] {
        let tool = ToolDescriptor { origin, ..tool("t", SafetyTier::ReadOnly) };
        let decision = policy.authorize(&CallRequest { tool: &tool, subjects: &[], run: &run });
        let code = decision.err().map(|denial| denial.code);
        assert_eq!(code, is_denied.then_some(DenialCode::FlowDenied), "{origin:?}");
    }
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

const KINDS: &str = "[[flow]]\nafter = [\"mount:tmp\"]\nthen = [\"write:protected\"]\napproval = \"ask\"\n";

/// Decides a call of the tool `t` of this tier that writes these paths, in a run that has read `tmp`.
fn write_kinds(policy: &WorkspaceSecurityPolicy, tier: SafetyTier, paths: &[&str]) -> (Grant, bool) {
    let label = FlowLabel::of_mount(&MountName::parse("tmp").expect("a name"));
    let run = RunContext { agent: "a", run: "r", labels: BTreeMap::from([(label, "c1".to_owned())]).into() };
    let subjects: Vec<RequestedSubject> = paths
        .iter()
        .map(|path| RequestedSubject::Path {
            argument: "target".to_owned(),
            path: GuestPath::parse(path).expect("a path"),
            access: Access::Write,
        })
        .collect();
    let tool = tool("t", tier);
    let request = CallRequest { tool: &tool, subjects: &subjects, run: &run };
    let grant = policy.authorize(&request).expect("granted");
    let are_kinds_forbidden = policy.forbidden_kinds(&grant, &run).is_some();
    (grant, are_kinds_forbidden)
}

#[test]
fn a_call_that_may_write_a_kind_is_asked_about() {
    let policy = load(&format!("{BASE}{KINDS}"));
    let writes = SafetyTier::SideEffecting;
    for paths in [
        &["/shared/Makefile"][..],
        &["/shared/a/AGENTS.md"],
        &["/shared/x.SH"],
        &["/shared/.github"],
        &["/shared/notes", "/shared/.github/workflows/x"],
        // No argument names a file to write.
        &[],
    ] {
        let (grant, are_kinds_forbidden) = write_kinds(&policy, writes, paths);
        assert_eq!((grant.approval, are_kinds_forbidden), (Approval::Ask, false), "{paths:?}");
        assert_eq!(grant.flow.expect("a rule").rule, "flow[mount:tmp -> write:protected]");
    }
    let (grant, are_kinds_forbidden) = write_kinds(&policy, writes, &["/shared/notes"]);
    assert_eq!((grant.approval, grant.flow, are_kinds_forbidden), (Approval::Allow, None, true));
    // A call that writes nothing meets no rule.
    let (grant, _) = write_kinds(&policy, SafetyTier::ReadOnly, &[]);
    assert_eq!((grant.approval, grant.flow), (Approval::Allow, None));
    // Without a rule, nothing is withheld.
    let (grant, are_kinds_forbidden) = write_kinds(&load(BASE), writes, &["/shared/Makefile"]);
    assert_eq!((grant.flow, are_kinds_forbidden), (None, false));
}

#[test]
fn a_call_asked_about_for_another_sink_still_writes_no_kind() {
    let other = "[[flow]]\nafter = [\"mount:tmp\"]\nthen = [\"write:shared\"]\napproval = \"ask\"\n";
    let policy = load(&format!("{BASE}{KINDS}{other}"));
    let (grant, are_kinds_forbidden) = write_kinds(&policy, SafetyTier::SideEffecting, &["/shared/notes"]);
    assert_eq!(
        (grant.flow.expect("a rule").rule.as_str(), are_kinds_forbidden),
        ("flow[mount:tmp -> write:shared]", true)
    );
}

#[test]
fn kinds_add_to_the_shipped_ones_and_except_takes_one_step() {
    let rule = |text: &str| load(&format!("{BASE}{text}\n{KINDS}"));
    let asks = |policy: &WorkspaceSecurityPolicy, path: &str| {
        write_kinds(policy, SafetyTier::SideEffecting, &[path]).0.approval == Approval::Ask
    };
    let policy = rule("[protect]\nkinds = [\"*.tex\", \"Own/Name\"]");
    for path in ["/shared/a.tex", "/shared/own/name/x", "/shared/Makefile"] {
        assert!(asks(&policy, path), "{path}");
    }
    let policy = rule("[protect]\nexcept = [\".envrc\", \"Makefile\", \"*.sh\"]");
    for (path, is_asked) in [("/shared/.envrc", true), ("/shared/Makefile", false), ("/shared/x.sh", false)] {
        assert_eq!(asks(&policy, path), is_asked, "{path}");
    }
    assert_eq!(load(&policy.effective_toml()).digest(), policy.digest(), "{}", policy.effective_toml());
    for (text, fault) in [
        ("except = [\"Makefile\"]\nkinds = [\"makefile\"]", "this name is in `kinds` as well"),
        ("except = [\".envrc\"]\npaths = [\".envrc\"]", "this name is in `paths` as well"),
        ("except = [\".envrc\", \".ENVRC\"]", "this name is listed twice"),
        ("except = [\"*.tex\"]", "this is not one of the shipped names"),
        ("kinds = [\"a/*.sh\"]", "wildcards are not supported"),
        ("paths = [\"*.sh\"]", "wildcards are not supported"),
    ] {
        let error = try_load(&format!("{BASE}[protect]\n{text}\n"), None).expect_err(text).to_string();
        assert!(error.contains(fault), "{text}\n{error}");
    }
}

#[test]
fn an_overlay_adds_kinds_and_takes_none() {
    let policy = load_with(&format!("{BASE}{KINDS}"), "[protect]\nkinds = [\"*.tex\", \"Makefile\"]");
    let (grant, _) = write_kinds(&policy, SafetyTier::SideEffecting, &["/shared/a.tex"]);
    assert_eq!(grant.approval, Approval::Ask);
    assert_eq!(policy.warnings().len(), load(&format!("{BASE}{KINDS}")).warnings().len() + 1);
    let error = try_load(BASE, Some("[protect]\nexcept = [\"Makefile\"]\nkinds = []")).expect_err("widens");
    assert!(error.to_string().contains("this section only adds"), "{error}");
}

/// `write:protected` means the protected kinds, whatever mounts there are.
#[test]
fn a_mount_with_the_name_of_the_sink_is_a_fault() {
    let text = BASE.replace("[profiles.R]", "protected = \"p\"\n[profiles.R]");
    load(&text);
    let error = try_load(&format!("{text}{KINDS}"), None).expect_err("ambiguous").to_string();
    assert!(error.contains("not the mount `protected`; give the mount another name"), "{error}");
}

#[test]
fn each_label_and_each_sink_of_a_rule_counts() {
    let rule = |then: &str| {
        format!(
            "{BASE}[[flow]]\nafter = ['mount:shared', 'mount:tmp', 'vault']\nthen = [{then}]\napproval = 'deny'\n"
        )
    };
    let policy = load(&rule("'network', 'shell', 'write:tmp', 'write:shared'"));
    for label in ["shared", "tmp", "vault"] {
        let denial = write_after(&policy, &[label]).expect_err("denied");
        assert!(denial.rule.ends_with(" -> write:shared]"), "{label}: {}", denial.rule);
    }
    // The tool may read `tmp`, which is not a sink.
    let policy = load(&rule("'network', 'shell', 'write:tmp'"));
    write_after(&policy, &["vault"]).expect("granted");
}
