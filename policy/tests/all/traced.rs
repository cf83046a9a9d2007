//! The explained decision is the enforced one: both come from one function, and the trace names the deciding rules.

use std::{collections::BTreeMap, sync::Arc};

use portcullis_policy::{
    CallRequest, FlowLabel, LoadOptions, PolicyProvenance, PolicySource, RequestedSubject, RunContext, Trace,
};
use portcullis_types::{ArgumentRole, GuestPath, RoleKind, SandboxTier};
use proptest::prelude::*;

use crate::{
    random::{
        OPERATOR, OVERLAY, lines, operator_text, plain_text, some_command, some_path, some_tool, some_url,
    },
    support::{BASE, load, tool, try_load},
};

const FLOW: &str =
    "[[flow]]\nafter = ['mount:tmp', 'vault']\nthen = ['network', 'write:shared']\napproval = 'deny'\n";

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn a_trace_changes_no_decision(
        operator in lines(OPERATOR, 0.6),
        overlay in lines(OVERLAY, 0.1),
        descriptor in some_tool(),
        (path, access) in some_path(),
        url in some_url(),
        command in some_command(),
        kind in 0..4,
        has_read in any::<bool>(),
    ) {
        let (operator, overlay) = (format!("{}{FLOW}", operator_text(&operator)), plain_text(&overlay, ""));
        let policy = match try_load(&operator, Some(&overlay)).or_else(|_| try_load(&operator, None)) {
            Ok(policy) => policy,
            Err(_) => load(BASE),
        };
        let mut descriptor = descriptor;
        descriptor.roles.push(ArgumentRole { argument: "command".to_owned(), role: RoleKind::Command });
        let subjects = match (kind, GuestPath::parse(&path)) {
            (0, Ok(path)) => vec![RequestedSubject::Path { argument: "a".to_owned(), path, access }],
            (1, _) => vec![RequestedSubject::Url { argument: "url".to_owned(), url }],
            (2, _) => vec![RequestedSubject::Command { argument: "command".to_owned(), command }],
            _ => Vec::new(),
        };
        let labels: BTreeMap<FlowLabel, String> =
            if has_read { [(FlowLabel::Vault, "c".to_owned())].into() } else { BTreeMap::new() };
        let run = RunContext { agent: "a", run: "r", labels: Arc::new(labels) };
        let request = CallRequest { tool: &descriptor, subjects: &subjects, run: &run };
        let mut trace = Trace::default();
        let traced = policy.authorize_traced(&request, &mut trace);
        prop_assert_eq!(&traced, &policy.authorize(&request));
        let rules = trace.into_rules();
        // A tool that is not enabled is refused after its profile and approval were looked at.
        prop_assert!(rules.len() >= 2);
        if let Ok(grant) = traced {
            for rule in &grant.unasked {
                prop_assert!(rules.iter().any(|traced| traced.rule == *rule));
            }
            if let Some(flow) = &grant.flow {
                prop_assert!(rules.iter().any(|traced| traced.rule == flow.rule));
            }
        }
    }
}

#[test]
fn the_chain_names_each_rule_with_its_place() {
    let text = format!("{BASE}[hide]\npaths = ['*.pem']\n{FLOW}");
    let policy = load(&text);
    let descriptor = tool("t", portcullis_types::SafetyTier::SideEffecting);
    let path = GuestPath::parse("/shared/a").expect("a path");
    let subjects = [RequestedSubject::Path {
        argument: "target".to_owned(),
        path,
        access: portcullis_types::Access::Write,
    }];
    let run = RunContext::default();
    let mut trace = Trace::default();
    policy
        .authorize_traced(&CallRequest { tool: &descriptor, subjects: &subjects, run: &run }, &mut trace)
        .expect("granted");
    let rules: Vec<String> = trace.into_rules().into_iter().map(|rule| rule.rule).collect();
    assert_eq!(
        rules,
        [
            "tiers.side_effecting.profile",
            "tiers.side_effecting.approval",
            "mounts.shared",
            "profiles.W.mounts.shared",
            "hide.paths",
            "protect.paths",
            "flow[vault, mount:tmp -> network, write:shared]",
        ]
    );
    let options = LoadOptions {
        operator: PolicySource { name: "p", text: &text },
        overlay: None,
        sandbox_tier: SandboxTier::Process,
    };
    let provenance = PolicyProvenance::read(&options);
    for rule in rules.iter().filter(|rule| *rule != "protect.paths") {
        assert!(provenance.location_of(rule).is_some(), "{rule}");
    }
}
