//! A tool as the policy sees it, and what the policy assigns to it.

use std::time::Duration;

use portcullis_types::{ArgumentRole, RoleKind, SafetyTier, ToolName, ToolPolicy};

use crate::{Approval, MemoryBytes, OutputBytes, ProfileName};

/// What a tool says of itself, and where it comes from. Policy trusts the second, and the first only where
/// it asks for less.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolFacts {
    /// The name that it is registered under.
    pub name: ToolName,
    /// The tier that it declares; none counts as [`SafetyTier::SideEffecting`].
    pub declared_tier: Option<SafetyTier>,
    /// Whether it wants every call approved.
    pub declared_policy: ToolPolicy,
    /// How long a call may take by its own account; none means 30 seconds.
    pub declared_timeout: Option<Duration>,
    /// How much text a call hands to a model at most by its own account; none leaves it to the policy.
    pub declared_max_output: Option<OutputBytes>,
    /// Which of its arguments are paths, addresses or commands.
    pub roles: Vec<ArgumentRole>,
    /// Where it comes from.
    pub origin: ToolOrigin,
    /// What the operator's approvals say of it.
    pub standing: Standing,
}

impl ToolFacts {
    /// Whether a call may run a command where the policy has a shell: the tool declares an argument that is
    /// one, and is our own tool of the shell. A guest has no shell whatever it declares.
    #[must_use]
    pub fn may_run_commands(&self) -> bool {
        let declares = self.roles.iter().any(|role| role.role == RoleKind::Command);
        declares && self.origin == ToolOrigin::ShippedShell
    }
}

/// Where a tool comes from; decides what it gets without an entry of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ToolOrigin {
    /// A tool of ours in this process: it runs, with profile `Nothing` unless the policy names another.
    ShippedNative,
    /// A tool of ours whose calls are commands at the sidecar: profile `Shell` if the policy has a shell.
    ShippedShell,
    /// An embedder's tool in this process, outside the sandbox: only with `enabled = true`.
    Native,
    /// A module of ours.
    ShippedModule,
    /// An operation of ours or one of its steps: profile `Nothing` unless the policy names another, since no
    /// tier's profile was meant for one.
    ShippedOperation,
    /// A module from outside: profile `Nothing` and approval `ask` unless the policy has an entry.
    ForeignModule,
}

/// What the operator's approvals say of a tool: whether its module and its declarations are those that
/// `portcullis tool approve` pinned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Standing {
    /// Nothing is pinned under the tool's name, as for every tool that is no module from outside.
    Unpinned,
    /// What is pinned is what is there.
    Approved,
    /// Something else is pinned than what is there: no call is served until it is approved again.
    Quarantined,
}

impl Standing {
    /// The name used in listings.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unpinned => "unpinned",
            Self::Approved => "approved",
            Self::Quarantined => "quarantined",
        }
    }
}

/// What the policy assigns to a tool: the same for each of its calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolAssignment {
    /// The tier that counts.
    pub tier: SafetyTier,
    /// The profile whose mounts a call gets.
    pub profile: ProfileName,
    /// Whether calls run, are asked about or are refused.
    pub approval: Approval,
    /// How long a call may take; never above `limits.max_timeout`.
    pub timeout: Duration,
    /// What a call's memories may hold together; with the profile `Shell`, what a command and its jobs may have.
    pub memory: MemoryBytes,
    /// How much text a call hands to the model.
    pub max_output: OutputBytes,
    /// Whether the tool may be called at all. Always true in what
    /// [`crate::WorkspaceSecurityPolicy::assign`] returns.
    pub enabled: bool,
}
