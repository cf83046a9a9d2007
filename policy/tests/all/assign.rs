//! The assignment of a tool, by its entry, its tier and its origin.

use std::time::Duration;

use portcullis_policy::{Approval, DenialCode, OutputBytes, PinStatus, ToolDescriptor, ToolOrigin};
use portcullis_types::{SafetyTier, ToolPolicy};

use crate::support::{BASE, load, load_with, tool};

use SafetyTier::{Privileged, ReadOnly, SideEffecting};
use ToolOrigin::{ForeignModule, Native, ShippedModule, ShippedNative, ShippedOperation, ShippedShell};

fn of(origin: ToolOrigin, tier: SafetyTier) -> ToolDescriptor {
    ToolDescriptor { origin, ..tool("t", tier) }
}

#[track_caller]
fn check(entry: &str, tool: &ToolDescriptor, profile: &str, approval: Approval) {
    let assignment = load(&format!("{BASE}\n[tools.t]\n{entry}")).assign(tool).expect("enabled");
    assert_eq!((assignment.profile.as_str(), assignment.approval), (profile, approval), "{entry}");
}

#[track_caller]
fn check_without_entry(tool: &ToolDescriptor, profile: &str, approval: Approval) {
    let assignment = load(BASE).assign(tool).expect("enabled");
    assert_eq!((assignment.profile.as_str(), assignment.approval), (profile, approval));
}

#[test]
fn a_tool_without_an_entry_gets_what_its_tier_and_origin_allow() {
    check_without_entry(&of(ShippedModule, ReadOnly), "R", Approval::Allow);
    check_without_entry(&of(ShippedModule, SideEffecting), "W", Approval::Allow);
    check_without_entry(&of(ShippedModule, Privileged), "Nothing", Approval::Ask);
    check_without_entry(&of(ShippedNative, ReadOnly), "Nothing", Approval::Allow);
    check_without_entry(&of(ShippedOperation, ReadOnly), "Nothing", Approval::Allow);
    check_without_entry(&of(ShippedOperation, SideEffecting), "Nothing", Approval::Allow);
    check_without_entry(&of(ForeignModule, ReadOnly), "Nothing", Approval::Ask);
    check_without_entry(&of(ForeignModule, Privileged), "Nothing", Approval::Ask);
    let undeclared = ToolDescriptor { declared_tier: None, ..of(ShippedModule, ReadOnly) };
    check_without_entry(&undeclared, "W", Approval::Allow);
    assert_eq!(load(BASE).assign(&undeclared).expect("enabled").tier, SideEffecting);
}

#[test]
fn an_entry_replaces_the_tiers_approval_for_shipped_tools() {
    check("profile = 'V'", &of(ShippedModule, ReadOnly), "V", Approval::Allow);
    check("approval = 'allow'", &of(ShippedModule, Privileged), "Nothing", Approval::Allow);
    check("approval = 'deny'", &of(ShippedModule, ReadOnly), "R", Approval::Deny);
    check("profile = 'R'", &of(ShippedNative, ReadOnly), "R", Approval::Allow);
    check("profile = 'V'", &of(ShippedOperation, ReadOnly), "V", Approval::Allow);
    check("approval = 'ask'", &of(ShippedOperation, ReadOnly), "Nothing", Approval::Ask);
}

#[test]
fn a_tool_can_raise_its_approval_and_never_lower_it() {
    for (entry, approval) in
        [("", Approval::Ask), ("approval = 'allow'", Approval::Ask), ("approval = 'deny'", Approval::Deny)]
    {
        let careful =
            ToolDescriptor { declared_policy: ToolPolicy::RequiresApproval, ..of(ShippedModule, ReadOnly) };
        check(entry, &careful, "R", approval);
    }
}

#[test]
fn a_foreign_module_gets_only_what_its_entry_grants() {
    check("profile = 'R'", &of(ForeignModule, ReadOnly), "R", Approval::Allow);
    check("timeout = '5s'", &of(ForeignModule, ReadOnly), "Nothing", Approval::Allow);
    check("approval = 'allow'", &of(ForeignModule, Privileged), "Nothing", Approval::Ask);
    check("approval = 'deny'", &of(ForeignModule, ReadOnly), "Nothing", Approval::Deny);
    check("profile = 'V'\napproval = 'ask'", &of(ForeignModule, ReadOnly), "V", Approval::Ask);
}

#[test]
fn a_foreign_module_with_methods_that_change_is_not_read_only() {
    for (methods, tier) in [
        ("'GET'", ReadOnly),
        ("'GET', 'HEAD', 'OPTIONS'", ReadOnly),
        ("'GET', 'POST'", SideEffecting),
        ("'DELETE'", SideEffecting),
    ] {
        let network = format!("[profiles.N]\nhosts = ['https://a.example']\nmethods = [{methods}]\n");
        let policy = load(&format!("{BASE}{network}[tools.t]\nprofile = 'N'\n"));
        assert_eq!(policy.assign(&of(ForeignModule, ReadOnly)).expect("enabled").tier, tier, "{methods}");
        assert_eq!(policy.assign(&of(ShippedModule, ReadOnly)).expect("enabled").tier, ReadOnly, "{methods}");
    }
}

#[test]
fn a_foreign_module_gets_no_laxer_approval_by_claiming_harmless() {
    let strict =
        BASE.replace(r#"{ profile = "W", approval = "allow" }"#, r#"{ profile = "W", approval = "ask" }"#);
    let policy = load(&format!("{strict}\n[tools.t]\nprofile = 'R'"));
    let assignment = policy.assign(&of(ForeignModule, ReadOnly)).expect("enabled");
    assert_eq!(assignment.approval, Approval::Ask);
}

#[test]
fn a_foreign_module_that_may_write_is_side_effecting() {
    for (profile, origin, declared, tier) in [
        ("W", ForeignModule, ReadOnly, SideEffecting),
        ("R", ForeignModule, ReadOnly, ReadOnly),
        ("Nothing", ForeignModule, ReadOnly, ReadOnly),
        ("W", ForeignModule, Privileged, Privileged),
        // Shipped tools are trusted, and the operator vouches for a native tool.
        ("W", ShippedModule, ReadOnly, ReadOnly),
    ] {
        let policy = load(&format!("{BASE}\n[tools.t]\nprofile = '{profile}'\napproval = 'allow'"));
        let assignment = policy.assign(&of(origin, declared)).expect("enabled");
        assert_eq!(assignment.tier, tier, "{profile} {origin:?} {declared}");
        // The approval of the operator's entry applies.
        assert_eq!(assignment.approval == Approval::Allow, declared == ReadOnly, "{profile} {declared}");
    }
}

#[test]
fn a_module_that_may_write_is_asked_about_whatever_it_declares() {
    let asking =
        BASE.replace(r#"{ profile = "W", approval = "allow" }"#, r#"{ profile = "W", approval = "ask" }"#);
    for approval in ["approval = 'allow'", ""] {
        for (declared, tier) in
            [(Some(ReadOnly), SideEffecting), (Some(SideEffecting), SideEffecting), (None, SideEffecting)]
        {
            let policy = load(&format!("{asking}\n[tools.t]\nprofile = 'W'\n{approval}"));
            let module = ToolDescriptor { declared_tier: declared, ..of(ForeignModule, ReadOnly) };
            let assignment = policy.assign(&module).expect("enabled");
            assert_eq!(
                (assignment.tier, assignment.approval),
                (tier, Approval::Ask),
                "{approval} {declared:?}"
            );
            assert_eq!(policy.approval_rule(&module, &assignment), "tiers.side_effecting.approval");
        }
    }
}

#[test]
fn a_tiers_floor_holds_for_a_module_that_claims_another_tier() {
    let base = format!("{BASE}\n[tools.t]\nprofile = 'W'\napproval = 'allow'");
    let policy = load_with(&base, "[tiers]\nside_effecting = { approval = 'deny' }");
    assert_eq!(policy.assign(&of(ForeignModule, ReadOnly)).expect("enabled").approval, Approval::Deny);
}

#[test]
fn an_overlay_makes_no_module_known_and_enables_no_native_tool() {
    let policy = load_with(BASE, "[tools.t]\ntimeout = '5s'");
    let assignment = policy.assign(&of(ForeignModule, ReadOnly)).expect("enabled");
    assert_eq!((assignment.profile.as_str(), assignment.approval), ("Nothing", Approval::Ask));
    assert!(policy.assign(&of(Native, ReadOnly)).is_err());
}

#[test]
fn a_native_tool_is_enabled_by_name_or_not_at_all() {
    let denial = load(BASE).assign(&of(Native, ReadOnly)).expect_err("not enabled");
    assert_eq!(denial.code, DenialCode::NativeNotEnabled);
    assert_eq!(denial.rule, "tools.t.enabled");
    assert_eq!(
        denial.to_string(),
        "tool `t` runs outside the sandbox and is not enabled by policy \
         (an operator allows it with `enabled = true` under `[tools.t]` in the policy)"
    );
    let by_entry = load(&format!("{BASE}\n[tools.t]\nprofile = 'R'"));
    assert!(by_entry.assign(&of(Native, ReadOnly)).is_err());
    check("enabled = true", &of(Native, ReadOnly), "R", Approval::Allow);
    check("enabled = true\napproval = 'allow'", &of(Native, Privileged), "Nothing", Approval::Ask);
}

#[test]
fn a_disabled_tool_is_described_and_not_assigned() {
    let policy = load(&format!("{BASE}\n[tools.t]\nenabled = false"));
    for origin in [ShippedNative, ShippedShell, Native, ShippedModule, ShippedOperation, ForeignModule] {
        let denial = policy.assign(&of(origin, ReadOnly)).expect_err("disabled");
        assert_eq!(denial.code, DenialCode::ToolDisabled);
        assert!(!policy.describe(&of(origin, ReadOnly)).enabled);
    }
}

#[test]
fn the_timeout_is_the_entrys_else_the_tools_else_30_seconds() {
    let seconds = |entry: &str, declared: Option<u64>| {
        let declared_timeout = declared.map(Duration::from_secs);
        let policy = load(&format!("{BASE}\n[limits]\nmax_timeout = '1m'\n[tools.t]\n{entry}"));
        let tool = ToolDescriptor { declared_timeout, ..of(ShippedModule, ReadOnly) };
        policy.assign(&tool).expect("enabled").timeout.as_secs()
    };
    assert_eq!(seconds("timeout = '20s'", Some(5)), 20);
    assert_eq!(seconds("", Some(5)), 5);
    assert_eq!(seconds("", None), 30);
    assert_eq!(seconds("", Some(3600)), 60);
    assert_eq!(seconds("timeout = '1h'", None), 60);
}

#[test]
fn memory_and_output_are_the_entrys_else_the_policys() {
    let policy =
        load(&format!("{BASE}\n[limits]\nwasm_memory = '1MiB'\n[tools.t]\nmax_output_bytes = '1KiB'"));
    let assignment = policy.assign(&of(ShippedModule, ReadOnly)).expect("enabled");
    assert_eq!((assignment.memory.0, assignment.max_output.0), (1 << 20, 1 << 10));
    let policy = load(&format!("{BASE}\n[tools.t]\nmemory = '128MiB'"));
    let assignment = policy.assign(&of(ShippedModule, ReadOnly)).expect("enabled");
    assert_eq!((assignment.memory.0, assignment.max_output.0), (128 << 20, 16 << 10));
}

#[test]
fn a_tool_can_lower_its_output_limit_and_never_raise_it() {
    let max_output_of = |entry: &str, declared: u64| {
        let policy = load(&format!("{BASE}\n[tools.t]\n{entry}"));
        let tool = ToolDescriptor {
            declared_max_output: Some(OutputBytes(declared)),
            ..of(ShippedModule, ReadOnly)
        };
        policy.assign(&tool).expect("enabled").max_output.0
    };
    assert_eq!(max_output_of("", 1 << 10), 1 << 10);
    assert_eq!(max_output_of("", 1 << 20), 16 << 10);
    assert_eq!(max_output_of("max_output_bytes = '2KiB'", 1 << 20), 2 << 10);
    assert_eq!(max_output_of("max_output_bytes = '2KiB'", 1 << 10), 1 << 10);
}

#[test]
fn a_quarantined_tool_is_denied_whatever_its_entry_says() {
    let changed = ToolDescriptor { pin_status: PinStatus::Quarantined, ..of(ForeignModule, ReadOnly) };
    for entry in ["", "[tools.t]\napproval = \"allow\"\nenabled = true\nprofile = \"W\""] {
        let policy = load(&format!("{BASE}\n{entry}"));
        let denial = policy.assign(&changed).expect_err("quarantined");
        assert_eq!(
            (denial.code, denial.rule.as_str()),
            (DenialCode::ModuleChanged, "portcullis.lock: tools.t")
        );
        assert!(!policy.describe(&changed).enabled);
    }
    let disabled = load(&format!("{BASE}\n[tools.t]\nenabled = false"));
    assert_eq!(disabled.assign(&changed).expect_err("off").code, DenialCode::ToolDisabled);
}

#[test]
fn an_approved_tool_gets_no_more_than_one_that_is_not() {
    for entry in ["", "[tools.t]\napproval = \"allow\"", "[tools.t]\nprofile = \"W\""] {
        let policy = load(&format!("{BASE}\n{entry}"));
        for tier in SafetyTier::ALL {
            let unpinned = of(ForeignModule, tier);
            let approved = ToolDescriptor { pin_status: PinStatus::Approved, ..unpinned.clone() };
            assert_eq!(policy.assign(&approved), policy.assign(&unpinned), "{entry}");
        }
    }
}
