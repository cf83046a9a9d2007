//! The grant of an allowed call: what it may touch.

use std::{sync::Arc, time::Duration};

use portcullis_types::{Access, ToolName};
use serde::{Deserialize, Serialize};

use crate::{
    Approval, GrantedSecret, MatchedFlowRule, MemoryBytes, MountName, NetworkGrant, OutputBytes, ProfileName,
    RequestedSubject, ShellGrant, limits::as_millis,
};

/// All that an allowed call gets. Only [`crate::WorkspaceSecurityPolicy::authorize`] makes grants.
///
/// Its JSON is stable: it is hashed into approvals and written into audit rows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Grant {
    /// The tool, for hints that name it. An approval has the name beside the grant.
    #[serde(skip)]
    pub tool: ToolName,
    /// The profile whose mounts these are.
    pub profile: ProfileName,
    /// The granted mounts, sorted by name; the call sees no others.
    pub mounts: Arc<[GrantedMount]>,
    /// Whether the call may run at once or must be approved first; never `deny`.
    pub approval: Approval,
    /// The limits of the call.
    pub limits: GrantLimits,
    /// The subjects of the call's arguments, in the order of the request.
    pub subjects: Vec<RequestedSubject>,
    /// Where the call's requests may go; none for a profile without hosts. Never together with the vault or a
    /// shell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<Arc<NetworkGrant>>,
    /// The secrets that the call's requests carry where their hosts cover them, sorted by name; none for a grant
    /// without a network.
    #[serde(skip_serializing_if = "has_none")]
    pub secrets: Arc<[GrantedSecret]>,
    /// The shell that the call's command may run in; none for a call that runs no command.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shell: Option<ShellGrant>,
    /// The flow rule that asks about the call, if one does; [`Self::approval`] is `ask` then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flow: Option<MatchedFlowRule>,
}

fn has_none(secrets: &Arc<[GrantedSecret]>) -> bool {
    secrets.is_empty()
}

/// One mount of a grant.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GrantedMount {
    /// The mount's name, the first part of its guest paths.
    pub name: MountName,
    /// Read or write access.
    pub access: Access,
}

/// The limits of one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub struct GrantLimits {
    /// The call's time limit.
    #[serde(rename = "timeout_ms", serialize_with = "as_millis")]
    pub timeout: Duration,
    /// The limit on all memories of a call together.
    #[serde(rename = "memory_bytes")]
    pub memory: MemoryBytes,
    /// The limit on the text that the call returns to the model.
    #[serde(rename = "max_output_bytes")]
    pub max_output: OutputBytes,
}

impl Grant {
    /// The granted access to a mount; none if it is not granted.
    #[must_use]
    pub fn access_to(&self, mount: &str) -> Option<Access> {
        self.mounts.iter().find(|granted| granted.name.as_str() == mount).map(|granted| granted.access)
    }
}
