//! A tool as the policy sees it, and the policy's assignment to the tool.

use std::time::Duration;

use portcullis_types::{ArgumentRole, RoleKind, SafetyTier, ToolName, ToolPolicy};

use crate::{Approval, MemoryBytes, OutputBytes, ProfileName};

/// The origin of a tool and its declarations. The policy trusts the origin, and follows a declaration only if
/// it asks for less.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolDescriptor {
    /// The tool's registered name.
    pub name: ToolName,
    /// The declared tier; `None` counts as [`SafetyTier::SideEffecting`].
    pub declared_tier: Option<SafetyTier>,
    /// Whether the tool asks for approval of every call.
    pub declared_policy: ToolPolicy,
    /// The declared time of a call; `None` means 30 seconds.
    pub declared_timeout: Option<Duration>,
    /// The declared maximum of text that is returned to a model; `None` leaves the maximum to the policy.
    pub declared_max_output: Option<OutputBytes>,
    /// The arguments that are paths, addresses or commands.
    pub roles: Vec<ArgumentRole>,
    /// The origin of the tool.
    pub origin: ToolOrigin,
    /// Whether the operator has approved the tool's module.
    pub pin_status: PinStatus,
}

impl ToolDescriptor {
    /// Creates the descriptor of a tool that declares only its name. A module's tool counts as approved.
    #[must_use]
    pub fn undeclared(name: ToolName, origin: ToolOrigin) -> Self {
        Self {
            name,
            declared_tier: None,
            declared_policy: ToolPolicy::Auto,
            declared_timeout: None,
            declared_max_output: None,
            roles: Vec::new(),
            pin_status: match origin {
                ToolOrigin::ForeignModule => PinStatus::Approved,
                ToolOrigin::ShippedNative
                | ToolOrigin::ShippedShell
                | ToolOrigin::Native
                | ToolOrigin::External
                | ToolOrigin::ShippedGateway
                | ToolOrigin::Http
                | ToolOrigin::Mcp
                | ToolOrigin::Internal
                | ToolOrigin::ShippedModule
                | ToolOrigin::ShippedOperation => PinStatus::Unpinned,
            },
            origin,
        }
    }

    /// Returns whether a call may run a command if the policy has a shell: the tool is the shipped tool of
    /// the shell, and declares an argument as a command. A guest never gets a shell, even if it declares such
    /// an argument.
    #[must_use]
    pub fn may_run_commands(&self) -> bool {
        let declares = self.roles.iter().any(|role| role.role == RoleKind::Command);
        declares && self.origin == ToolOrigin::ShippedShell
    }
}

/// The origin of a tool. It determines the permissions of a tool without an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ToolOrigin {
    /// A shipped tool in this process: it runs with the profile `Nothing`, unless the policy names another.
    ShippedNative,
    /// A shipped tool whose calls are commands for the sidecar: it has the profile `Shell` if the policy has a shell.
    ShippedShell,
    /// An embedder's tool in this process, outside the sandbox: it runs only with `enabled = true`.
    Native,
    /// A tool whose results a person or another program submits. None of its code runs here. It has the
    /// profile `Nothing`, and at least the approval of a tool with effects. Flow rules treat its calls as
    /// network requests.
    External,
    /// A shipped tool of the gateway that reads or writes a space. Like [`ToolOrigin::ShippedNative`], but flow rules
    /// treat its calls as network requests, because the people of the space can read them.
    ShippedGateway,
    /// A tool whose calls are requests to one address, which its configuration names. The host makes the
    /// requests. It has the profile `Nothing`, and therefore no network, unless the policy names another
    /// profile. It has at least the approval of a tool with effects.
    Http,
    /// A tool of an MCP server, or the listing of the server's tools. The host makes the requests. Its
    /// profile is `Nothing` unless the policy names another. Its approval is `ask` unless its entry has one.
    /// The listing only reads, so it has the approval of its tier.
    Mcp,
    /// A tool without code: a call returns its arguments and has no effect. It has the profile `Nothing`.
    Internal,
    /// A shipped module.
    ShippedModule,
    /// A shipped operation or one of its steps: it has the profile `Nothing`, unless the policy names another
    /// profile. No tier's profile is intended for a step.
    ShippedOperation,
    /// A foreign module: it has the profile `Nothing` and at least the approval `ask`, unless the policy has an entry.
    ForeignModule,
}

impl ToolOrigin {
    /// Returns whether the tool is shipped with Portcullis.
    #[must_use]
    pub fn is_shipped(self) -> bool {
        match self {
            Self::ShippedNative
            | Self::ShippedShell
            | Self::ShippedModule
            | Self::ShippedGateway
            | Self::ShippedOperation => true,
            Self::Native | Self::External | Self::Http | Self::Mcp | Self::Internal | Self::ForeignModule => {
                false
            }
        }
    }

    /// Returns whether the embedding program has added the tool: it is neither shipped nor from a foreign
    /// module.
    #[must_use]
    pub fn is_added_by_program(self) -> bool {
        !self.is_shipped() && self != Self::ForeignModule
    }
}

portcullis_types::word_enum! {
    /// Whether a tool's module and declarations equal those that `portcullis tool approve` pinned.
    #[derive(serde::Serialize, Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub enum PinStatus {
        /// No pin exists for the tool's name. Every tool that is not from a foreign module is unpinned.
        Unpinned = "unpinned",
        /// The tool equals the pinned one.
        Approved = "approved",
        /// The tool differs from the pinned one. Calls are refused until the tool is approved again.
        Quarantined = "quarantined",
    }
}

/// The policy's assignment to a tool, equal for all calls of the tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolAssignment {
    /// The effective tier.
    pub tier: SafetyTier,
    /// The profile with the mounts of a call.
    pub profile: ProfileName,
    /// Whether calls run immediately, wait for a person's answer, or are refused.
    pub approval: Approval,
    /// The time limit of a call. Never above `limits.max_timeout`.
    pub timeout: Duration,
    /// The limit on all memories of a call together. With the profile `Shell`, it limits a command with its
    /// jobs.
    pub memory: MemoryBytes,
    /// The limit on the text that a call returns to the model.
    pub max_output: OutputBytes,
    /// Whether the tool may be called. Always `true` in the result of
    /// [`crate::WorkspaceSecurityPolicy::assign`].
    pub enabled: bool,
}
