//! The grant of an allowed call: everything the call may access, and its limits.

use std::{sync::Arc, time::Duration};

use portcullis_types::{Access, ToolName};
use serde::{Deserialize, Serialize};

use crate::{
    Approval, FlowLabel, GrantedSecret, MatchedFlowRule, MemoryBytes, MountName, NetworkGrant, OutputBytes,
    ProfileName, RequestedSubject, ShellGrant, limits::as_millis,
};

/// The permissions of an allowed call. Only [`crate::WorkspaceSecurityPolicy::authorize`] creates grants.
///
/// The JSON of a grant is stable, because approvals hash it and audit rows contain it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Grant {
    /// The tool, for hints that name it. It is not part of the JSON, because an approval stores the name
    /// beside the grant.
    #[serde(skip)]
    pub tool: ToolName,
    /// The profile that grants the mounts.
    pub profile: ProfileName,
    /// The granted mounts, sorted by name. The call sees no other mounts.
    pub mounts: Arc<[GrantedMount]>,
    /// Whether the call may run immediately or must be approved first. Never `deny`.
    pub approval: Approval,
    /// The limits of the call.
    pub limits: GrantLimits,
    /// The subjects of the call's arguments, in the order of the request.
    pub subjects: Vec<RequestedSubject>,
    /// The hosts that the call's requests may reach. `None` for a profile without hosts. A grant never
    /// combines a network with the vault or a shell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<Arc<NetworkGrant>>,
    /// The secrets that the call's requests carry, each to its own hosts, sorted by name. Empty for a grant
    /// without a network.
    #[serde(skip_serializing_if = "has_none")]
    pub secrets: Arc<[GrantedSecret]>,
    /// Whether the tool is external: the arguments leave this host, and the result comes from outside.
    #[serde(rename = "is_external", skip_serializing_if = "std::ops::Not::not")]
    pub sends_arguments_out: bool,
    /// The shell that the call's command may run in. `None` for a call that runs no command.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shell: Option<ShellGrant>,
    /// The rules that exempt the call from approval, as paths in the policy, such as `shell.unasked["ls *"]`.
    /// Empty if the call needs no approval anyway, or still needs one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unasked: Vec<String>,
    /// The flow rule that asks about the call, if any. [`Self::approval`] is then `ask`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flow: Option<MatchedFlowRule>,
}

impl Grant {
    /// Withdraws the rules that exempt the call from approval, because a path of the call leads to another
    /// file than its text shows.
    pub fn ask_despite_rules(&mut self) {
        if !self.unasked.is_empty() {
            self.unasked.clear();
            self.approval = Approval::Ask;
        }
    }
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
    /// The limit on all memories of the call together.
    #[serde(rename = "memory_bytes")]
    pub memory: MemoryBytes,
    /// The limit on the text that the call returns to the model.
    #[serde(rename = "max_output_bytes")]
    pub max_output: OutputBytes,
}

impl Grant {
    /// Returns the labels that the call adds to its run if it uses everything that it is granted.
    pub fn possible_labels(&self) -> impl Iterator<Item = FlowLabel> {
        let has_network = self.reaches_network();
        let mounts = self.mounts.iter().map(|mount| FlowLabel::of_mount(&mount.name));
        let secrets = self.secrets.iter().map(|secret| FlowLabel::Secret(secret.name.clone()));
        mounts.chain(has_network.then_some(FlowLabel::Web)).chain(secrets)
    }

    /// Returns whether the call can send data away: it has a network, its command has one, or it is external.
    #[must_use]
    pub fn reaches_network(&self) -> bool {
        self.network.is_some()
            || self.sends_arguments_out
            || self.shell.as_ref().is_some_and(|shell| shell.network.is_some())
    }

    /// Returns the granted access to a mount, or `None` if the mount is not granted.
    #[must_use]
    pub fn access_to(&self, mount: &str) -> Option<Access> {
        self.mounts.iter().find(|granted| granted.name.as_str() == mount).map(|granted| granted.access)
    }
}
