//! What an allowed call may touch.

use std::{sync::Arc, time::Duration};

use portcullis_types::Access;
use serde::{Deserialize, Serialize};

use crate::{
    Approval, MemoryBytes, MountName, OutputBytes, ProfileName, RequestedSubject, ShellGrant,
    limits::as_millis,
};

/// Everything that an allowed call gets, and nothing that is not in here. Only
/// [`crate::WorkspaceSecurityPolicy::authorize`] makes these.
///
/// Its JSON is stable: it is hashed into approvals and written into audit rows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Grant {
    /// The profile that the mounts are of.
    pub profile: ProfileName,
    /// The mounts, sorted by name; a mount that is not here is not there.
    pub mounts: Arc<[GrantedMount]>,
    /// Whether the call may run at once or must be approved first; never `deny`.
    pub approval: Approval,
    /// The limits of the call.
    pub limits: GrantLimits,
    /// What the call's arguments name, in the order in which they were handed in.
    pub subjects: Vec<RequestedSubject>,
    /// The shell that the call's command may run in; none for a call that runs no command.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shell: Option<ShellGrant>,
}

/// One mount of a grant.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GrantedMount {
    /// Its name.
    pub name: MountName,
    /// What may be done with it.
    pub access: Access,
}

/// The limits of one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub struct GrantLimits {
    /// How long it may take.
    #[serde(rename = "timeout_ms", serialize_with = "as_millis")]
    pub timeout: Duration,
    /// What its memories may hold together.
    #[serde(rename = "memory_bytes")]
    pub memory: MemoryBytes,
    /// How much text it hands to the model.
    #[serde(rename = "max_output_bytes")]
    pub max_output: OutputBytes,
}

impl Grant {
    /// What may be done with a mount; none if it is not granted.
    #[must_use]
    pub fn access_to(&self, mount: &str) -> Option<Access> {
        self.mounts.iter().find(|granted| granted.name.as_str() == mount).map(|granted| granted.access)
    }
}
