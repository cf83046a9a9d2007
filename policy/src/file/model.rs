//! The values of a policy text, each with its place. Names and defaults are not resolved here.

use std::{collections::BTreeSet, time::Duration};

use portcullis_types::{Access, SafetyTier, SandboxTier, ShellPosture, ToolName};

use crate::{
    Approval, AuditSync, FileBytes, Layer, MemoryBytes, MountName, Operator, OutputBytes, ProfileName,
    VariableName, commands::CommandPattern, protect::Pattern,
};

/// A value and its place in the text.
#[derive(Debug, Clone)]
pub(crate) struct Placed<T> {
    pub(crate) value: T,
    /// The byte offset.
    pub(crate) at: usize,
    /// The key's path.
    pub(crate) key: String,
}

/// An operator's policy.
#[derive(Debug, Default)]
pub(crate) struct PolicyFile {
    pub(crate) require: Option<Vec<Placed<Layer>>>,
    pub(crate) mounts: Vec<Placed<MountEntry>>,
    pub(crate) profiles: Vec<Placed<ProfileEntry>>,
    pub(crate) tiers: Vec<TierEntry>,
    pub(crate) tools: Vec<ToolEntry>,
    pub(crate) protect: ProtectEntries,
    pub(crate) sandbox: Vec<(SandboxTier, Reduction)>,
    pub(crate) audit_sync: Option<AuditSync>,
    pub(crate) modules_dir: Option<String>,
    pub(crate) shell: Option<ShellEntries<Access>>,
    pub(crate) limits: LimitEntries,
}

/// One line of `[mounts]`.
#[derive(Debug)]
pub(crate) struct MountEntry {
    pub(crate) name: MountName,
    pub(crate) folder: String,
}

/// `[profiles.NAME]`.
#[derive(Debug)]
pub(crate) struct ProfileEntry {
    pub(crate) name: ProfileName,
    pub(crate) mounts: Vec<(Placed<String>, Access)>,
}

/// One line of `[tiers]`. Both keys must be there.
#[derive(Debug)]
pub(crate) struct TierEntry {
    pub(crate) tier: SafetyTier,
    pub(crate) profile: Placed<String>,
    pub(crate) approval: Approval,
}

/// `[protect]`.
#[derive(Debug, Default)]
pub(crate) struct ProtectEntries {
    pub(crate) paths: Vec<Placed<Pattern>>,
    /// Shipped names that do not hold; only an operator's policy may list them.
    pub(crate) except: Vec<Placed<Pattern>>,
}

/// `[tools.NAME]`.
#[derive(Debug)]
pub(crate) struct ToolEntry {
    pub(crate) name: Placed<ToolName>,
    pub(crate) optional: bool,
    pub(crate) profile: Option<Placed<String>>,
    pub(crate) approval: Option<Approval>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) memory: Option<MemoryBytes>,
    pub(crate) max_output_bytes: Option<OutputBytes>,
    pub(crate) enabled: Option<bool>,
}

/// `[limits]`.
#[derive(Debug, Default)]
pub(crate) struct LimitEntries {
    pub(crate) concurrency: Option<Placed<usize>>,
    pub(crate) calls_per_minute: Option<Placed<u32>>,
    pub(crate) max_output_bytes: Option<Placed<OutputBytes>>,
    pub(crate) wasm_memory: Option<Placed<MemoryBytes>>,
    pub(crate) max_timeout: Option<Placed<Duration>>,
}

/// `[shell]` of a policy or of a reduction; the two have different accesses to a mount.
#[derive(Debug)]
pub(crate) struct ShellEntries<A> {
    pub(crate) enabled: Option<Placed<bool>>,
    pub(crate) posture: Option<Placed<ShellPosture>>,
    pub(crate) mounts: Vec<(Placed<String>, Placed<A>)>,
    pub(crate) timeout: Option<Placed<Duration>>,
    pub(crate) memory: Option<Placed<MemoryBytes>>,
    pub(crate) processes: Option<Placed<u32>>,
    pub(crate) file_size: Option<Placed<FileBytes>>,
    pub(crate) output: Option<Placed<OutputBytes>>,
    pub(crate) environment: Option<Vec<Placed<VariableName>>>,
    pub(crate) allow: Option<BTreeSet<CommandPattern>>,
    pub(crate) deny: BTreeSet<CommandPattern>,
    pub(crate) operators: Option<Vec<Placed<Operator>>>,
    /// The place of the section.
    pub(crate) place: Placed<()>,
}

/// The content of a `[sandbox.TIER]` section or of a workspace's overlay.
#[derive(Debug, Default)]
pub(crate) struct Reduction {
    pub(crate) require: Vec<Placed<Layer>>,
    pub(crate) profiles: Vec<ReducedProfile>,
    pub(crate) tiers: Vec<ReducedTier>,
    pub(crate) tools: Vec<ReducedTool>,
    pub(crate) protect: Vec<Placed<Pattern>>,
    pub(crate) shell: Option<ShellEntries<ReducedAccess>>,
    pub(crate) limits: LimitEntries,
}

/// `[profiles.NAME]` of a reduction.
#[derive(Debug)]
pub(crate) struct ReducedProfile {
    pub(crate) name: Placed<String>,
    pub(crate) mounts: Vec<(Placed<String>, Placed<ReducedAccess>)>,
}

/// The access that a reduction leaves to a mount, ordered by power.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ReducedAccess {
    None,
    Read,
    Write,
}

/// `[tiers.NAME]` of a reduction.
#[derive(Debug)]
pub(crate) struct ReducedTier {
    pub(crate) tier: SafetyTier,
    pub(crate) approval: Placed<Approval>,
}

/// `[tools.NAME]` of a reduction.
#[derive(Debug)]
pub(crate) struct ReducedTool {
    pub(crate) name: Placed<ToolName>,
    pub(crate) optional: bool,
    pub(crate) approval: Option<Placed<Approval>>,
    pub(crate) timeout: Option<Placed<Duration>>,
    pub(crate) memory: Option<Placed<MemoryBytes>>,
    pub(crate) max_output_bytes: Option<Placed<OutputBytes>>,
    pub(crate) enabled: Option<Placed<bool>>,
}

impl ReducedAccess {
    pub(crate) const ALL: [Self; 3] = [Self::None, Self::Read, Self::Write];

    /// The name used in policy files.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Read => "read",
            Self::Write => "write",
        }
    }
}
