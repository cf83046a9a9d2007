//! A policy's shell: plain data that can be sent to a sidecar.

use std::{collections::BTreeSet, time::Duration};

use portcullis_types::{Access, ShellPosture};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

use crate::{
    CommandRules, FileBytes, GrantedMount, MemoryBytes, MountName, OutputBytes, Toolchain, TunnelRule,
    VariableName,
    limits::{as_millis, from_millis},
};

/// `[shell]`, with every default filled in and every reduction applied.
///
/// A sidecar can receive the JSON. Deserializing runs two checks of a policy file: no vault among the mounts,
/// and no posture below [`ShellPosture::Minimal`]. It does not check the ranges of numbers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShellPolicy {
    /// The minimum posture. A session that cannot reach it does not start. Never [`ShellPosture::None`]. Default:
    /// [`ShellPosture::Contained`].
    #[serde(deserialize_with = "confined")]
    pub posture: ShellPosture,
    /// The mounts of a session, sorted by name. Never the vault. A session sees no other mounts. Default:
    /// none.
    #[serde(deserialize_with = "without_vault")]
    pub mounts: Vec<GrantedMount>,
    /// The time of one command; never above `limits.max_timeout`. JSON has whole milliseconds. Default: 60 s.
    #[serde(rename = "timeout_ms", serialize_with = "as_millis", deserialize_with = "from_millis")]
    pub timeout: Duration,
    /// The memory of a command and its jobs together, in bytes; 16 MiB to 1 TiB. Default: 1 GiB.
    #[serde(rename = "memory_bytes")]
    pub memory: MemoryBytes,
    /// The maximum number of concurrent processes of a command, including its background jobs; 8 to 32,768. Default:
    /// 256.
    pub processes: u32,
    /// The maximum size of each file that a command writes, in bytes; 1 MiB to 1 TiB. Default: 1 GiB.
    #[serde(rename = "file_size_bytes")]
    pub file_size: FileBytes,
    /// The maximum size of one command's output that is kept, in bytes; 1 KiB to 1 GiB. `max_output_bytes` limits how
    /// much of it a model gets. Default: 16 MiB.
    #[serde(rename = "output_bytes")]
    pub output: OutputBytes,
    /// The names of variables that the shell may take from the operator's environment. Default: none.
    pub environment: BTreeSet<VariableName>,
    /// The hosts that commands can reach, only in sessions of the posture `strong`. Default: none.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub hosts: BTreeSet<TunnelRule>,
    /// The parts of the host that commands see besides the mounts and the system. Default: none.
    #[serde(default, skip_serializing_if = "Toolchain::is_empty")]
    pub toolchain: Toolchain,
    /// The rules about commands. Default: all commands may run.
    pub commands: CommandRules,
}

/// The reason why a policy has no shell.
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

/// A shell, or the reason why there is none.
pub(crate) type ShellOrAbsence = Result<ShellPolicy, ShellAbsence>;

/// Serializes the shell for the digest. The reason of an absence is left out, because it does not change any
/// permission.
pub(crate) fn serialize_shell<S: Serializer>(
    shell: &ShellOrAbsence,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    shell.as_ref().ok().serialize(serializer)
}

impl ShellPolicy {
    /// Returns the granted access to a mount, or `None` if the shell does not have the mount.
    #[must_use]
    pub fn access_to(&self, mount: &str) -> Option<Access> {
        self.mounts.iter().find(|granted| granted.name.as_str() == mount).map(|granted| granted.access)
    }
}

impl ShellAbsence {
    /// Returns how an operator would enable the shell, or why no setting would.
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
        ShellPosture::None => Err(D::Error::custom("the posture of a shell cannot be `none`")),
        posture @ (ShellPosture::Minimal | ShellPosture::Contained | ShellPosture::Strong) => Ok(posture),
    }
}

fn without_vault<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<GrantedMount>, D::Error> {
    let mounts = Vec::<GrantedMount>::deserialize(deserializer)?;
    if mounts.iter().any(|mount| mount.name.is_vault()) {
        return Err(D::Error::custom(NO_VAULT));
    }
    if !mounts.is_sorted_by(|left, right| left.name < right.name) {
        return Err(D::Error::custom("mounts are sorted by name, each once"));
    }
    Ok(mounts)
}

/// The message for a shell that has the vault.
pub(crate) const NO_VAULT: &str = "no shell ever has the vault; leave it out";

/// Returns whether a shell may have this mount.
pub(crate) fn may_have(mount: &str) -> bool {
    mount != MountName::VAULT
}
