//! A tool as the policy sees it, and what the policy assigns to it.

use std::time::Duration;

use portcullis_types::{ArgumentRole, RoleKind, SafetyTier, ToolName, ToolPolicy};

use crate::{Approval, MemoryBytes, OutputBytes, ProfileName};

/// The declarations of a tool, and its origin. Policy trusts the origin, and a declaration only where it asks
/// for less.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolFacts {
    /// Its registered name.
    pub name: ToolName,
    /// The declared tier; none counts as [`SafetyTier::SideEffecting`].
    pub declared_tier: Option<SafetyTier>,
    /// Whether the tool asks for approval of every call.
    pub declared_policy: ToolPolicy,
    /// The declared time of a call; none means 30 seconds.
    pub declared_timeout: Option<Duration>,
    /// The declared maximum of text returned to a model; none leaves it to the policy.
    pub declared_max_output: Option<OutputBytes>,
    /// Which of its arguments are paths, addresses or commands.
    pub roles: Vec<ArgumentRole>,
    /// Where it comes from.
    pub origin: ToolOrigin,
    /// Its standing with the operator's approvals.
    pub standing: Standing,
}

impl ToolFacts {
    /// Whether a call may run a command where the policy has a shell: the tool declares an argument that is
    /// one, and is our own tool of the shell. A guest never has a shell, even if it declares
    /// such an argument.
    #[must_use]
    pub fn may_run_commands(&self) -> bool {
        let declares = self.roles.iter().any(|role| role.role == RoleKind::Command);
        declares && self.origin == ToolOrigin::ShippedShell
    }
}

/// The origin of a tool. It decides what the tool gets without an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ToolOrigin {
    /// A tool of ours in this process: it runs, with profile `Nothing` unless the policy names another.
    ShippedNative,
    /// A tool of ours whose calls are commands at the sidecar: profile `Shell` if the policy has a shell.
    ShippedShell,
    /// An embedder's tool in this process, outside the sandbox: only with `enabled = true`.
    Native,
    /// A shipped module.
    ShippedModule,
    /// A shipped operation or one of its steps: profile `Nothing` unless the policy names another, since no
    /// tier's profile is meant for one.
    ShippedOperation,
    /// A foreign module: profile `Nothing` and approval `ask` unless the policy has an entry.
    ForeignModule,
}

portcullis_types::words! {
    /// A tool's standing: whether its module and its declarations are those that `portcullis tool approve`
    /// pinned.
    #[derive(serde::Serialize, Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub enum Standing {
        /// Nothing is pinned under the tool's name. Holds for every tool that is not a foreign module.
        Unpinned = "unpinned",
        /// The tool equals what is pinned.
        Approved = "approved",
        /// The tool differs from what is pinned: calls are refused until it is approved again.
        Quarantined = "quarantined",
    }
}

/// The policy's assignment to a tool, the same for each of its calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolAssignment {
    /// The effective tier.
    pub tier: SafetyTier,
    /// The profile with the mounts of a call.
    pub profile: ProfileName,
    /// Whether calls run, are asked about or are refused.
    pub approval: Approval,
    /// The time limit of a call; never above `limits.max_timeout`.
    pub timeout: Duration,
    /// The limit on a call's memories together; with the profile `Shell`, on a command with its jobs.
    pub memory: MemoryBytes,
    /// The limit on the text that a call returns to the model.
    pub max_output: OutputBytes,
    /// Whether the tool may be called. Always true in the result of
    /// [`crate::WorkspaceSecurityPolicy::assign`].
    pub enabled: bool,
}
