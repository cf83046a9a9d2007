//! What a policy gives a shell. Plain data, so that it can be sent to a daemon.

use std::{collections::BTreeSet, time::Duration};

use portcullis_types::{Access, ShellPosture};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

use crate::{
    CommandRules, FileBytes, GrantedMount, MemoryBytes, MountName, OutputBytes, VariableName,
    limits::{as_millis, from_millis},
};

/// `[shell]`, with every default filled in and everything taken away that a reduction took.
///
/// As JSON it can be handed to a daemon. What is read from JSON is checked like a policy file: it has no vault
/// among its mounts and no posture below [`ShellPosture::Minimal`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShellPolicy {
    /// The least confinement that will do; where it cannot be had there is no shell. Never
    /// [`ShellPosture::None`]. Default: [`ShellPosture::Contained`].
    #[serde(deserialize_with = "confined")]
    pub posture: ShellPosture,
    /// The mounts that a session sees, sorted by name; one that is not here is not there, and the vault never
    /// is. Default: none.
    #[serde(deserialize_with = "without_vault")]
    pub mounts: Vec<GrantedMount>,
    /// How long one command may take; never above `limits.max_timeout`. In JSON whole milliseconds. Default:
    /// 60 s.
    #[serde(rename = "timeout_ms", serialize_with = "as_millis", deserialize_with = "from_millis")]
    pub timeout: Duration,
    /// How much memory a command and its jobs may have together, in bytes; 16 MiB to 1 TiB. Default: 1 GiB.
    #[serde(rename = "memory_bytes")]
    pub memory: MemoryBytes,
    /// How many processes a command may have at a time, its background jobs among them; 8 to 32 768. Default:
    /// 256.
    pub processes: u32,
    /// How large a file may get that a command writes, in bytes; 1 MiB to 1 TiB. Default: 1 GiB.
    #[serde(rename = "file_size_bytes")]
    pub file_size: FileBytes,
    /// How much is kept of what one command writes to its streams, in bytes; 1 KiB to 1 GiB. The text that a
    /// model gets of it has a limit of its own, `max_output_bytes`. Default: 16 MiB.
    #[serde(rename = "output_bytes")]
    pub output: OutputBytes,
    /// The names of variables that may come in from the operator's environment. Default: none.
    pub environment: BTreeSet<VariableName>,
    /// Which commands may run. Default: all.
    pub commands: CommandRules,
}

/// Why a policy has no shell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ShellAbsence {
    /// The operator's policy has no section `[shell]`.
    NotGranted,
    /// The operator's policy says `enabled = false` in `[shell]`.
    DisabledByOperator,
    /// The section of the sandbox tier or the workspace's overlay says `enabled = false` in `[shell]`.
    TakenAway,
}

/// A shell, or why there is none.
pub(crate) type Shell = Result<ShellPolicy, ShellAbsence>;

/// For the digest: why there is no shell does not change what anybody may do.
pub(crate) fn serialize_shell<S: Serializer>(shell: &Shell, serializer: S) -> Result<S::Ok, S::Error> {
    shell.as_ref().ok().serialize(serializer)
}

impl ShellPolicy {
    /// What may be done with a mount; none if the shell does not have it.
    #[must_use]
    pub fn access_to(&self, mount: &str) -> Option<Access> {
        self.mounts.iter().find(|granted| granted.name.as_str() == mount).map(|granted| granted.access)
    }
}

impl ShellAbsence {
    /// What an operator would have to write for there to be a shell.
    #[must_use]
    pub const fn remedy(self) -> &'static str {
        match self {
            Self::NotGranted => "an operator grants a shell with a section `[shell]` in the policy",
            Self::DisabledByOperator => {
                "an operator allows it with `enabled = true` under `[shell]` in the policy"
            }
            Self::TakenAway => {
                "`[shell] enabled = false` in the workspace's policy or in the section of the sandbox tier took it away"
            }
        }
    }
}

fn confined<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ShellPosture, D::Error> {
    match ShellPosture::deserialize(deserializer)? {
        ShellPosture::None => Err(D::Error::custom("a policy never asks for a shell that nothing confines")),
        posture @ (ShellPosture::Minimal | ShellPosture::Contained | ShellPosture::Strong) => Ok(posture),
    }
}

fn without_vault<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<GrantedMount>, D::Error> {
    let mounts = Vec::<GrantedMount>::deserialize(deserializer)?;
    if mounts.iter().any(|mount| mount.name.is_vault()) {
        return Err(D::Error::custom(NO_VAULT));
    }
    if !mounts.is_sorted_by(|one, other| one.name < other.name) {
        return Err(D::Error::custom("mounts are sorted by name, each once"));
    }
    Ok(mounts)
}

/// What is said of a shell with the vault.
pub(crate) const NO_VAULT: &str = "no shell ever has the vault; leave it out";

/// Whether a mount may be a shell's.
pub(crate) fn may_have(mount: &str) -> bool {
    mount != MountName::VAULT
}
