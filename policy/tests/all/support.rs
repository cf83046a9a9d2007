//! Policies and tools for the tests.

use std::time::Duration;

use portcullis_policy::{
    CallRequest, Denial, Grant, LoadOptions, PinStatus, PolicyError, PolicySource, RequestedSubject,
    RunContext, ToolDescriptor, ToolOrigin, WorkspaceSecurityPolicy,
};
use portcullis_types::{Access, ArgumentRole, GuestPath, SafetyTier, SandboxTier, ToolName, ToolPolicy};

/// A small policy that tests add sections to.
pub(crate) const BASE: &str = r#"
version = 1
[mounts]
shared = "shared"
tmp = "tmp"
vault = "vault"
[profiles.R]
mounts = { shared = "read", tmp = "read" }
[profiles.W]
mounts = { shared = "write", tmp = "read" }
[profiles.V]
mounts = { vault = "read" }
[tiers]
read_only = { profile = "R", approval = "allow" }
side_effecting = { profile = "W", approval = "allow" }
privileged = { profile = "Nothing", approval = "ask" }
"#;

pub(crate) fn try_load(
    operator: &str,
    overlay: Option<&str>,
) -> Result<WorkspaceSecurityPolicy, PolicyError> {
    WorkspaceSecurityPolicy::load(&LoadOptions {
        operator: PolicySource { name: "portcullis.toml", text: operator },
        overlay: overlay.map(|text| PolicySource { name: "workspace.toml", text }),
        sandbox_tier: SandboxTier::Process,
    })
}

#[track_caller]
pub(crate) fn load(operator: &str) -> WorkspaceSecurityPolicy {
    try_load(operator, None).unwrap_or_else(|error| panic!("loads, but:\n{error}"))
}

#[track_caller]
pub(crate) fn load_with(operator: &str, overlay: &str) -> WorkspaceSecurityPolicy {
    try_load(operator, Some(overlay)).unwrap_or_else(|error| panic!("loads, but:\n{error}"))
}

/// A shipped module of a tier that declares nothing else.
pub(crate) fn tool(name: &str, tier: SafetyTier) -> ToolDescriptor {
    ToolDescriptor {
        name: ToolName::parse(name).expect("a name"),
        declared_tier: Some(tier),
        declared_policy: ToolPolicy::Auto,
        declared_timeout: Some(Duration::from_secs(10)),
        declared_max_output: None,
        roles: vec![ArgumentRole::path("path", Access::Read), ArgumentRole::path("target", Access::Write)],
        origin: ToolOrigin::ShippedModule,
        pin_status: PinStatus::Unpinned,
    }
}

/// A path to read, in the argument `path`, or a path to write, in `target`.
pub(crate) fn path(text: &str, access: Access) -> RequestedSubject {
    let argument = match access {
        Access::Read => "path",
        Access::Write => "target",
    };
    let path = GuestPath::parse(text).expect("a path");
    RequestedSubject::Path { argument: argument.into(), path, access }
}

pub(crate) fn decide(
    policy: &WorkspaceSecurityPolicy,
    tool: &ToolDescriptor,
    subjects: &[RequestedSubject],
) -> Result<Grant, Denial> {
    policy.authorize(&CallRequest { tool, subjects, run: &RunContext::default() })
}
