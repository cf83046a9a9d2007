//! The values of a policy text, each with its place. Names and defaults are not resolved here.

use std::{collections::BTreeSet, time::Duration};

use portcullis_types::{Access, SafetyTier, SandboxTier, ShellPosture, ToolName};

use crate::{
    Approval, AuditSync, FileBytes, HostRule, HttpMethod, MemoryBytes, MountName, Operator, OutputBytes,
    PrivateEndpoint, ProfileName, ProxyAddress, RequiredLayer, ResponseBytes, SearchSettings, SecretHeader,
    SecretName, SecretSource, TunnelRule, VariableName, commands::CommandPattern, protect::Pattern,
};

/// A value and its place in the text.
#[derive(Debug, Clone)]
pub(crate) struct PlacedValue<T> {
    pub(crate) value: T,
    /// The byte offset in the policy's text.
    pub(crate) at: usize,
    /// The key's path.
    pub(crate) key: String,
}

impl<T> PlacedValue<T> {
    /// Another value in the same place.
    pub(crate) fn with<U>(&self, value: U) -> PlacedValue<U> {
        PlacedValue { value, at: self.at, key: self.key.clone() }
    }
}

/// An operator's policy.
#[derive(Debug, Default)]
pub(crate) struct PolicyFile {
    pub(crate) require: Option<Vec<PlacedValue<RequiredLayer>>>,
    pub(crate) mounts: Vec<PlacedValue<MountEntry>>,
    pub(crate) profiles: Vec<PlacedValue<ProfileEntry>>,
    pub(crate) tiers: Vec<TierEntry>,
    pub(crate) tools: Vec<ToolEntry>,
    pub(crate) protect: ProtectEntries,
    pub(crate) sandbox: Vec<(SandboxTier, Reduction)>,
    pub(crate) audit_sync: Option<AuditSync>,
    pub(crate) modules_dir: Option<String>,
    pub(crate) shell: Option<ShellEntries<Access>>,
    pub(crate) egress: EgressEntries,
    pub(crate) secrets: Vec<SecretEntry>,
    /// At the place of `provider`.
    pub(crate) search: Option<PlacedValue<SearchSettings>>,
    pub(crate) limits: LimitEntries,
    pub(crate) flow: Vec<FlowEntry>,
}

/// One `[[flow]]`, of a policy or of a reduction.
#[derive(Debug)]
pub(crate) struct FlowEntry {
    pub(crate) after: Vec<PlacedValue<LabelWord>>,
    pub(crate) then: Vec<PlacedValue<SinkWord>>,
    /// `ask` or `deny`.
    pub(crate) approval: Approval,
    /// The place of the rule.
    pub(crate) place: PlacedValue<()>,
}

/// A label as it is written.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum LabelWord {
    Vault,
    Web,
    Secret(String),
    Mount(String),
}

/// A sink as it is written.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum SinkWord {
    Network,
    Shell,
    Write(String),
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
    pub(crate) mounts: Vec<(PlacedValue<String>, Access)>,
    pub(crate) network: NetworkEntries,
}

/// `hosts` and `methods` of a profile, of a policy and of a reduction.
#[derive(Debug, Default)]
pub(crate) struct NetworkEntries {
    pub(crate) hosts: Option<PlacedValue<Vec<PlacedValue<HostRule>>>>,
    pub(crate) methods: Option<PlacedValue<Vec<PlacedValue<HttpMethod>>>>,
}

/// One line of `[tiers]`. Both keys must be there.
#[derive(Debug)]
pub(crate) struct TierEntry {
    pub(crate) tier: SafetyTier,
    pub(crate) profile: PlacedValue<String>,
    pub(crate) approval: Approval,
}

/// `[protect]`.
#[derive(Debug, Default)]
pub(crate) struct ProtectEntries {
    pub(crate) paths: Vec<PlacedValue<Pattern>>,
    /// Shipped names that do not hold; only an operator's policy may list them.
    pub(crate) except: Vec<PlacedValue<Pattern>>,
}

/// `[tools.NAME]`.
#[derive(Debug)]
pub(crate) struct ToolEntry {
    pub(crate) name: PlacedValue<ToolName>,
    pub(crate) optional: bool,
    pub(crate) profile: Option<PlacedValue<String>>,
    pub(crate) approval: Option<Approval>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) memory: Option<MemoryBytes>,
    pub(crate) max_output_bytes: Option<OutputBytes>,
    pub(crate) enabled: Option<bool>,
}

/// `[limits]`.
#[derive(Debug, Default)]
pub(crate) struct LimitEntries {
    pub(crate) concurrency: Option<PlacedValue<usize>>,
    pub(crate) calls_per_minute: Option<PlacedValue<u32>>,
    pub(crate) max_output_bytes: Option<PlacedValue<OutputBytes>>,
    pub(crate) wasm_memory: Option<PlacedValue<MemoryBytes>>,
    pub(crate) max_timeout: Option<PlacedValue<Duration>>,
}

/// `[shell]` of a policy or of a reduction; the two have different accesses to a mount.
#[derive(Debug)]
pub(crate) struct ShellEntries<A> {
    pub(crate) enabled: Option<PlacedValue<bool>>,
    pub(crate) posture: Option<PlacedValue<ShellPosture>>,
    pub(crate) mounts: Vec<(PlacedValue<String>, PlacedValue<A>)>,
    pub(crate) timeout: Option<PlacedValue<Duration>>,
    pub(crate) memory: Option<PlacedValue<MemoryBytes>>,
    pub(crate) processes: Option<PlacedValue<u32>>,
    pub(crate) file_size: Option<PlacedValue<FileBytes>>,
    pub(crate) output: Option<PlacedValue<OutputBytes>>,
    pub(crate) environment: Option<Vec<PlacedValue<VariableName>>>,
    pub(crate) hosts: Option<PlacedValue<Vec<PlacedValue<TunnelRule>>>>,
    pub(crate) allow: Option<BTreeSet<CommandPattern>>,
    pub(crate) deny: BTreeSet<CommandPattern>,
    pub(crate) operators: Option<Vec<PlacedValue<Operator>>>,
    /// The place of the section.
    pub(crate) place: PlacedValue<()>,
}

/// `[egress]`. In a reduction the first three are empty.
#[derive(Debug, Default)]
pub(crate) struct EgressEntries {
    pub(crate) allow_private: Vec<PlacedValue<PrivateEndpoint>>,
    pub(crate) ca: Option<String>,
    pub(crate) proxy: Option<PlacedValue<ProxyAddress>>,
    pub(crate) max_response: Option<PlacedValue<ResponseBytes>>,
    pub(crate) max_redirects: Option<PlacedValue<u32>>,
}

/// `[secrets.NAME]`. Every key but `enabled` must be there.
#[derive(Debug)]
pub(crate) struct SecretEntry {
    pub(crate) name: PlacedValue<SecretName>,
    pub(crate) source: SecretSource,
    pub(crate) hosts: Vec<PlacedValue<HostRule>>,
    pub(crate) header: PlacedValue<SecretHeader>,
    pub(crate) tools: Vec<PlacedValue<ToolName>>,
    pub(crate) enabled: Option<bool>,
}

/// The content of a `[sandbox.TIER]` section or of a workspace's overlay.
#[derive(Debug, Default)]
pub(crate) struct Reduction {
    pub(crate) require: Vec<PlacedValue<RequiredLayer>>,
    pub(crate) profiles: Vec<ReducedProfile>,
    pub(crate) tiers: Vec<ReducedTier>,
    pub(crate) tools: Vec<ReducedTool>,
    pub(crate) protect: Vec<PlacedValue<Pattern>>,
    pub(crate) shell: Option<ShellEntries<ReducedAccess>>,
    pub(crate) egress: EgressEntries,
    pub(crate) secrets: Vec<ReducedSecret>,
    /// The place where the provider of searches is taken away.
    pub(crate) search: Option<PlacedValue<()>>,
    pub(crate) limits: LimitEntries,
    pub(crate) flow: Vec<FlowEntry>,
}

/// `[profiles.NAME]` of a reduction.
#[derive(Debug)]
pub(crate) struct ReducedProfile {
    pub(crate) name: PlacedValue<String>,
    pub(crate) mounts: Vec<(PlacedValue<String>, PlacedValue<ReducedAccess>)>,
    pub(crate) network: NetworkEntries,
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
    pub(crate) approval: PlacedValue<Approval>,
}

/// `[tools.NAME]` of a reduction.
#[derive(Debug)]
pub(crate) struct ReducedTool {
    pub(crate) name: PlacedValue<ToolName>,
    pub(crate) optional: bool,
    pub(crate) approval: Option<PlacedValue<Approval>>,
    pub(crate) timeout: Option<PlacedValue<Duration>>,
    pub(crate) memory: Option<PlacedValue<MemoryBytes>>,
    pub(crate) max_output_bytes: Option<PlacedValue<OutputBytes>>,
    pub(crate) enabled: Option<PlacedValue<bool>>,
}

/// `[secrets.NAME]` of a reduction. The lists are those that stay.
#[derive(Debug)]
pub(crate) struct ReducedSecret {
    pub(crate) name: PlacedValue<String>,
    pub(crate) hosts: Option<PlacedValue<Vec<PlacedValue<HostRule>>>>,
    pub(crate) tools: Option<PlacedValue<Vec<PlacedValue<ToolName>>>>,
    pub(crate) enabled: Option<PlacedValue<bool>>,
}

impl NetworkEntries {
    /// The rules of `hosts`.
    pub(crate) fn rules(&self) -> impl Iterator<Item = &PlacedValue<HostRule>> {
        self.hosts.iter().flat_map(|hosts| &hosts.value)
    }

    /// Whether requests by this method are granted.
    pub(crate) fn grants_method(&self, method: HttpMethod) -> bool {
        match &self.methods {
            Some(methods) => methods.value.iter().any(|granted| granted.value == method),
            None => HttpMethod::DEFAULT.contains(&method),
        }
    }
}

impl<A> ShellEntries<A> {
    /// The rules of `hosts`.
    pub(crate) fn rules(&self) -> impl Iterator<Item = &PlacedValue<TunnelRule>> {
        self.hosts.iter().flat_map(|hosts| &hosts.value)
    }
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
