//! Reductions: the allowed content and the effect of an overlay or a sandbox section.

use std::time::Duration;

use portcullis_policy::{
    Approval, DEFAULT_MAX_OUTPUT_BYTES, DEFAULT_POLICY, LoadOptions, OutputBytes, PolicySource,
    RequiredLayer, ToolDescriptor, ToolOrigin, WorkspaceSecurityPolicy,
};
use portcullis_types::{Access, SafetyTier, SandboxTier};

use crate::support::{BASE, decide, load, load_with, path, tool, try_load};

/// The operator's policy in these tests: one tool with an entry that sets every key.
fn operator() -> String {
    format!(
        "{BASE}\n[tools.full]\nprofile = 'W'\napproval = 'ask'\ntimeout = '20s'\nmemory = '32MiB'\n\
         max_output_bytes = '8KiB'\nenabled = true\n[tools.off]\nenabled = false\n[tools.free]\napproval = 'allow'"
    )
}

#[track_caller]
fn check_refused(overlay: &str, fault: &str) {
    let error = try_load(&operator(), Some(overlay)).expect_err("is refused");
    assert_eq!(error.to_string(), format!("workspace.toml:{fault}"));
}

#[test]
fn an_overlay_lowers_access_and_removes_mounts() {
    let policy = load_with(BASE, "version = 1\n[profiles.W]\nmounts = { shared = 'read', tmp = 'none' }");
    let writer = tool("t", SafetyTier::SideEffecting);
    let Ok(grant) = decide(&policy, &writer, &[path("/shared/a", Access::Read)]) else {
        panic!("reading is still allowed")
    };
    assert_eq!((grant.mounts.len(), grant.access_to("shared")), (1, Some(Access::Read)));
    for (subject, code) in [
        (path("/shared/a", Access::Write), "mount_read_only"),
        (path("/tmp/a", Access::Read), "mount_not_granted"),
    ] {
        let Err(denial) = decide(&policy, &writer, &[subject]) else { panic!("denied") };
        assert_eq!(denial.code.as_str(), code);
    }
}

#[test]
fn an_overlay_makes_approvals_stricter_and_switches_tools_off() {
    let policy = load_with(
        &operator(),
        "[tiers.read_only]\napproval = 'ask'\n[tools.full]\napproval = 'deny'\n[tools.new]\napproval = 'deny'\n\
         [tools.gone]\nenabled = false",
    );
    let approval =
        |name: &str, tier| policy.assign(&tool(name, tier)).map(|assignment| assignment.approval).ok();
    assert_eq!(approval("full", SafetyTier::SideEffecting), Some(Approval::Deny));
    assert_eq!(approval("new", SafetyTier::SideEffecting), Some(Approval::Deny));
    assert_eq!(approval("gone", SafetyTier::ReadOnly), None);
    assert_eq!(approval("other", SafetyTier::ReadOnly), Some(Approval::Ask));
    assert_eq!(approval("other", SafetyTier::SideEffecting), Some(Approval::Allow));
    // A tier's floor applies even to tools whose entry is less strict.
    assert_eq!(approval("free", SafetyTier::ReadOnly), Some(Approval::Ask));
    assert_eq!(approval("free", SafetyTier::SideEffecting), Some(Approval::Allow));
}

#[test]
fn an_overlays_limits_hold_for_every_tool() {
    let policy = load_with(
        &operator(),
        "[limits]\nconcurrency = 2\ncalls_per_minute = 5\nmax_output_bytes = '1KiB'\nwasm_memory = '1MiB'\n\
         max_timeout = '9s'\n[tools.full]\nmemory = '16MiB'\n[tools.new]\ntimeout = '5s'",
    );
    assert_eq!((policy.limits().concurrency, policy.limits().calls_per_minute), (2, 5));
    for (name, seconds) in [("full", 9), ("other", 9), ("free", 9), ("new", 5)] {
        let assignment = policy.assign(&tool(name, SafetyTier::ReadOnly)).expect("enabled");
        assert_eq!(assignment.timeout, Duration::from_secs(seconds), "{name}");
        assert_eq!((assignment.memory.0, assignment.max_output.0), (1 << 20, 1 << 10), "{name}");
    }
    // A tool that declares a shorter time keeps it.
    let quick = ToolDescriptor {
        declared_timeout: Some(Duration::from_secs(1)),
        ..tool("new", SafetyTier::ReadOnly)
    };
    assert_eq!(policy.assign(&quick).expect("enabled").timeout, Duration::from_secs(1));
}

#[test]
fn a_lowered_limit_does_not_raise_a_smaller_entry() {
    let policy = load_with(
        &format!("{BASE}\n[tools.t]\nmemory = '256KiB'\nmax_output_bytes = '1KiB'\ntimeout = '2s'"),
        "[limits]\nwasm_memory = '1MiB'\nmax_output_bytes = '2KiB'\nmax_timeout = '9s'",
    );
    let assignment = policy.assign(&tool("t", SafetyTier::ReadOnly)).expect("enabled");
    assert_eq!((assignment.memory.0, assignment.max_output.0), (256 << 10, 1 << 10));
    assert_eq!(assignment.timeout, Duration::from_secs(2));
}

#[test]
fn an_overlay_only_adds_layers_and_protected_paths() {
    let base = format!("require = ['seccomp']\n{BASE}\n[protect]\nexcept = ['.bashrc']");
    let shipped = load(BASE).protected().patterns().count();
    let policy = load_with(&base, "require = ['landlock']\n[protect]\npaths = ['Makefile']");
    assert!(policy.requires(RequiredLayer::Landlock) && policy.requires(RequiredLayer::Seccomp));
    assert!(
        policy.protected().covers(["makefile"]).is_some() && policy.protected().covers([".bashrc"]).is_none()
    );
    assert_eq!(policy.protected().patterns().count(), shipped);
    let policy = load_with(&base, "require = []\n[protect]\npaths = []");
    assert!(policy.requires(RequiredLayer::Seccomp));
    assert_eq!(policy.protected().patterns().count(), shipped - 1);
    let error =
        try_load(BASE, Some("[protect]\npaths = []\nexcept = ['.bashrc']")).expect_err("takes a name away");
    assert!(error.to_string().contains("only the operator's policy may take a shipped name away"), "{error}");
}

#[test]
fn widening_overlay_is_refused_with_both_values() {
    let widens = |after: &str, before: &str| {
        format!("`{after}` would widen the operator's `{before}`; this section may only reduce")
    };
    let output = |bytes| OutputBytes(bytes).to_string();
    let (default, longer) = (output(DEFAULT_MAX_OUTPUT_BYTES), output(DEFAULT_MAX_OUTPUT_BYTES + 1024));
    for (overlay, location, after, before) in [
        ("[profiles.R]\nmounts.shared = 'write'", "2:17: profiles.R.mounts.shared", "write", "read"),
        ("[profiles.R]\nmounts.vault = 'read'", "2:16: profiles.R.mounts.vault", "read", "none"),
        ("[tiers.privileged]\napproval = 'allow'", "2:12: tiers.privileged.approval", "allow", "ask"),
        ("[tools.full]\napproval = 'allow'", "2:12: tools.full.approval", "allow", "ask"),
        ("[tools.full]\ntimeout = '21s'", "2:11: tools.full.timeout", "21s", "20s"),
        ("[tools.other]\ntimeout = '11m'", "2:11: tools.other.timeout", "11m", "10m"),
        ("[tools.full]\nmemory = '33MiB'", "2:10: tools.full.memory", "33MiB", "32MiB"),
        ("[tools.other]\nmemory = '65MiB'", "2:10: tools.other.memory", "65MiB", "64MiB"),
        ("[tools.full]\nmax_output_bytes = '9KiB'", "2:20: tools.full.max_output_bytes", "9KiB", "8KiB"),
        ("[tools.off]\nenabled = true", "2:11: tools.off.enabled", "true", "false"),
        ("[egress]\nmax_response = '11MiB'", "2:16: egress.max_response", "11MiB", "10MiB"),
        ("[egress]\nmax_redirects = 6", "2:17: egress.max_redirects", "6", "5"),
        ("[limits]\nconcurrency = 11", "2:15: limits.concurrency", "11", "10"),
        ("[limits]\ncalls_per_minute = 601", "2:20: limits.calls_per_minute", "601", "600"),
        (
            &*format!("[limits]\nmax_output_bytes = '{longer}'"),
            "2:20: limits.max_output_bytes",
            &*longer,
            &*default,
        ),
        ("[limits]\nwasm_memory = '65MiB'", "2:15: limits.wasm_memory", "65MiB", "64MiB"),
        ("[limits]\nmax_timeout = '11m'", "2:15: limits.max_timeout", "11m", "10m"),
    ] {
        check_refused(overlay, &format!("{location}: {}", widens(after, before)));
    }
}

#[test]
fn operator_only_key_in_an_overlay_is_refused() {
    for (overlay, fault) in [
        ("version = 2", "1:11: version: version 2; this build reads version 1"),
        (
            "mounts = {}",
            "1:1: mounts: only the operator's policy may set this key; a workspace's policy may only reduce",
        ),
        (
            "home = 'vault'",
            "1:1: home: only the operator's policy may set this key; a workspace's policy may only reduce",
        ),
        (
            "[project]\npath = '/'",
            "1:2: project: only the operator's policy may set this key; a workspace's policy may only reduce",
        ),
        (
            "[sandbox.process]",
            "1:2: sandbox: only the operator's policy may set this key; a workspace's policy may only reduce",
        ),
        (
            "audit.sync = 'always'",
            "1:1: audit: only the operator's policy may set this key; a workspace's policy may only reduce",
        ),
        (
            "[tiers]\nread_only = { profile = 'W' }",
            "2:15: tiers.read_only.profile: unknown key; known are `approval`",
        ),
        (
            "[tools.t]\nprofile = 'V'",
            "2:1: tools.t.profile: unknown key; known are `approval`, `timeout`, `memory`, `max_output_bytes`, \
             `enabled`, `optional`",
        ),
        ("[tools.t]\nenabled = true", "2:11: tools.t.enabled: only the operator's policy may enable a tool"),
        (
            "[tools.t]\napproval = 'allow'",
            "2:12: tools.t.approval: `allow` takes nothing away: the operator's policy sets no approval here",
        ),
        ("[profiles.New]", "1:11: profiles.New: unknown profile; known are `Nothing`, `R`, `V`, `W`"),
        (
            "[profiles.R]\nmounts.shred = 'none'",
            "2:8: profiles.R.mounts.shred: unknown mount; did you mean `shared`?",
        ),
    ] {
        check_refused(overlay, fault);
    }
}

#[test]
fn an_overlay_that_repeats_the_operator_changes_nothing() {
    let overlay = "[profiles.W]\nmounts = { shared = 'write', vault = 'none' }\n[tools.full]\napproval = 'ask'\n\
                   timeout = '20s'\nmemory = '32MiB'\nenabled = true\n[limits]\nconcurrency = 10";
    assert_eq!(load_with(&operator(), overlay).digest(), load(&operator()).digest());
    assert_eq!(load_with(DEFAULT_POLICY, "").digest(), load(DEFAULT_POLICY).digest());
}

#[test]
fn a_sandbox_section_holds_in_its_tier_alone() {
    let text = format!(
        "{BASE}\n[sandbox.container.limits]\nconcurrency = 3\n[sandbox.micro_vm.tools.t]\nenabled = false"
    );
    let load_in = |sandbox_tier| {
        let operator = PolicySource { name: "portcullis.toml", text: &text };
        let options = LoadOptions { operator, overlay: None, sandbox_tier };
        WorkspaceSecurityPolicy::load(&options).expect("loads")
    };
    let t = tool("t", SafetyTier::ReadOnly);
    for (tier, concurrency, enabled) in [
        (SandboxTier::Process, 10, true),
        (SandboxTier::Container, 3, true),
        (SandboxTier::MicroVm, 10, false),
    ] {
        let policy = load_in(tier);
        assert_eq!(
            (policy.limits().concurrency, policy.assign(&t).is_ok()),
            (concurrency, enabled),
            "{tier}"
        );
    }
    assert_eq!(load_in(SandboxTier::Process).digest(), load(BASE).digest());
}

#[test]
fn an_overlay_is_compared_with_what_the_sandbox_section_left() {
    let text = format!("{BASE}\n[sandbox.process.limits]\nconcurrency = 3");
    let error = try_load(&text, Some("[limits]\nconcurrency = 5")).expect_err("is refused");
    assert!(error.to_string().contains("`5` would widen the operator's `3`"), "{error}");
}

#[test]
fn a_section_of_another_sandbox_tier_is_checked_as_well() {
    let text = format!("{BASE}\n[sandbox.micro_vm.limits]\nconcurrency = 11");
    assert!(try_load(&text, None).is_err());
}

#[test]
fn approval_of_a_tier_applies_to_foreign_modules_too() {
    let policy = load_with(
        &format!("{BASE}\n[tools.t]\nprofile = 'R'\napproval = 'allow'"),
        "tiers.read_only.approval = 'deny'",
    );
    let module = ToolDescriptor { origin: ToolOrigin::ForeignModule, ..tool("t", SafetyTier::ReadOnly) };
    assert_eq!(policy.assign(&module).expect("enabled").approval, Approval::Deny);
}
