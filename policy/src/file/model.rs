//! The values of a policy text, each with its position. Other modules resolve names and fill in defaults.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use portcullis_types::{Access, SafetyTier, SandboxTier, ShellPosture, ToolName};

use crate::{
    Approval, AuditSettings, FileBytes, HostPath, HostRule, HttpMethod, MemoryBytes, MountName,
    NotifySettings, Operator, OutputBytes, PrivateEndpoint, ProfileName, ProxyAddress, RequiredLayer,
    ResponseBytes, Robots, SearchSettings, SecretHeader, SecretName, SecretSource, TunnelRule, VariableName,
    commands::CommandPattern, hidden::HiddenPattern, path_rules::PathRules, protect::Pattern,
    protected_kinds::KindPattern,
};

/// A value and its position in the text.
#[derive(Debug, Clone)]
pub(crate) struct Located<T> {
    pub(crate) value: T,
    /// The byte offset in the policy's text.
    pub(crate) offset: usize,
    /// The key's path.
    pub(crate) key: String,
}

impl<T> Located<T> {
    /// Returns another value with the same position.
    pub(crate) fn with_value<U>(&self, value: U) -> Located<U> {
        Located { value, offset: self.offset, key: self.key.clone() }
    }
}

/// An operator's policy.
#[derive(Debug, Default)]
pub(crate) struct PolicyFile {
    pub(crate) require: Option<Vec<Located<RequiredLayer>>>,
    /// The mount where relative paths start.
    pub(crate) home: Option<Located<String>>,
    /// The folder of `[project]`.
    pub(crate) project: Option<String>,
    pub(crate) mounts: Vec<Located<MountEntry>>,
    pub(crate) profiles: Vec<Located<ProfileEntry>>,
    pub(crate) tiers: Vec<TierEntry>,
    pub(crate) tools: Vec<ToolEntry>,
    pub(crate) protect: ProtectEntries,
    /// The patterns of `[hide]`.
    pub(crate) hide: Vec<Located<HiddenPattern>>,
    pub(crate) sandbox: Vec<(SandboxTier, Reduction)>,
    pub(crate) audit: AuditSettings,
    pub(crate) modules_dir: Option<String>,
    pub(crate) shell: Option<ShellEntries<Access>>,
    pub(crate) egress: EgressEntries,
    pub(crate) secrets: Vec<SecretEntry>,
    /// Placed at the key `provider`.
    pub(crate) search: Option<Located<SearchSettings>>,
    pub(crate) notify: Option<NotifySettings>,
    pub(crate) limits: LimitEntries,
    pub(crate) flow: Vec<FlowEntry>,
}

/// One `[[flow]]` section, of a policy or of a reduction.
#[derive(Debug)]
pub(crate) struct FlowEntry {
    pub(crate) after: Vec<Located<LabelWord>>,
    pub(crate) then: Vec<Located<SinkWord>>,
    /// `ask` or `deny`.
    pub(crate) approval: Approval,
    /// The position of the rule.
    pub(crate) location: Located<()>,
}

/// A label as the text writes it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum LabelWord {
    Vault,
    Web,
    Secret(String),
    Mount(String),
}

/// A sink as the text writes it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum SinkWord {
    Network,
    Shell,
    Write(String),
    WriteKinds,
}

/// One line of `[mounts]`.
#[derive(Debug)]
pub(crate) struct MountEntry {
    pub(crate) name: MountName,
    pub(crate) folder: String,
    /// Whether the mount's changes are recorded so that they can be undone.
    pub(crate) has_undo: bool,
}

/// `[profiles.NAME]`.
#[derive(Debug)]
pub(crate) struct ProfileEntry {
    pub(crate) name: ProfileName,
    pub(crate) mounts: Vec<(Located<String>, Access)>,
    pub(crate) network: NetworkEntries,
}

/// `hosts` and `methods` of a profile, in a policy or in a reduction.
#[derive(Debug, Default)]
pub(crate) struct NetworkEntries {
    pub(crate) hosts: Option<Located<Vec<Located<HostRule>>>>,
    pub(crate) methods: Option<Located<Vec<Located<HttpMethod>>>>,
}

/// One line of `[tiers]`. Both keys are required.
#[derive(Debug)]
pub(crate) struct TierEntry {
    pub(crate) tier: SafetyTier,
    pub(crate) profile: Located<String>,
    pub(crate) approval: Approval,
}

/// `[protect]`.
#[derive(Debug, Default)]
pub(crate) struct ProtectEntries {
    pub(crate) paths: Vec<Located<Pattern>>,
    pub(crate) kinds: Vec<Located<KindPattern>>,
    /// The shipped names and kinds that the operator excepts. Only an operator's policy may list them.
    pub(crate) except: Vec<Located<KindPattern>>,
}

/// `[tools.NAME]`.
#[derive(Debug)]
pub(crate) struct ToolEntry {
    pub(crate) name: Located<ToolName>,
    pub(crate) optional: bool,
    pub(crate) profile: Option<Located<String>>,
    pub(crate) approval: Option<Approval>,
    pub(crate) unasked: PathRules,
    pub(crate) timeout: Option<Duration>,
    pub(crate) memory: Option<MemoryBytes>,
    pub(crate) max_output_bytes: Option<OutputBytes>,
    pub(crate) enabled: Option<bool>,
}

/// `[limits]`.
#[derive(Debug, Default)]
pub(crate) struct LimitEntries {
    pub(crate) concurrency: Option<Located<usize>>,
    pub(crate) calls_per_minute: Option<Located<u32>>,
    pub(crate) max_output_bytes: Option<Located<OutputBytes>>,
    pub(crate) wasm_memory: Option<Located<MemoryBytes>>,
    pub(crate) max_timeout: Option<Located<Duration>>,
}

/// `[shell]` of a policy or of a reduction. The two differ only in the accesses that a mount can have.
#[derive(Debug)]
pub(crate) struct ShellEntries<A> {
    pub(crate) enabled: Option<Located<bool>>,
    pub(crate) posture: Option<Located<ShellPosture>>,
    pub(crate) mounts: Vec<(Located<String>, Located<A>)>,
    pub(crate) timeout: Option<Located<Duration>>,
    pub(crate) memory: Option<Located<MemoryBytes>>,
    pub(crate) processes: Option<Located<u32>>,
    pub(crate) file_size: Option<Located<FileBytes>>,
    pub(crate) output: Option<Located<OutputBytes>>,
    pub(crate) environment: Option<Vec<Located<VariableName>>>,
    pub(crate) read: Option<Located<Vec<Located<HostPath>>>>,
    pub(crate) caches: Option<Located<Vec<Located<HostPath>>>>,
    pub(crate) path: Option<Located<Vec<Located<HostPath>>>>,
    /// Placed at the key `variables`.
    pub(crate) variables: Option<Located<BTreeMap<VariableName, String>>>,
    pub(crate) hosts: Option<Located<Vec<Located<TunnelRule>>>>,
    pub(crate) allow: Option<BTreeSet<CommandPattern>>,
    pub(crate) deny: BTreeSet<CommandPattern>,
    pub(crate) operators: Option<Vec<Located<Operator>>>,
    pub(crate) unasked: Option<Located<Vec<Located<CommandPattern>>>>,
    /// The position of the section.
    pub(crate) location: Located<()>,
}

/// `[egress]`. The first three fields are empty in a reduction.
#[derive(Debug, Default)]
pub(crate) struct EgressEntries {
    pub(crate) allow_private: Vec<Located<PrivateEndpoint>>,
    pub(crate) ca: Option<String>,
    pub(crate) proxy: Option<Located<ProxyAddress>>,
    pub(crate) max_response: Option<Located<ResponseBytes>>,
    pub(crate) max_redirects: Option<Located<u32>>,
    pub(crate) robots: Option<Located<Robots>>,
}

/// `[secrets.NAME]`. Every key except `enabled` is required.
#[derive(Debug)]
pub(crate) struct SecretEntry {
    pub(crate) name: Located<SecretName>,
    pub(crate) source: SecretSource,
    pub(crate) hosts: Vec<Located<HostRule>>,
    pub(crate) header: Located<SecretHeader>,
    pub(crate) tools: Vec<Located<ToolName>>,
    pub(crate) enabled: Option<bool>,
}

/// The content of a `[sandbox.TIER]` section or of a workspace's overlay.
#[derive(Debug, Default)]
pub(crate) struct Reduction {
    pub(crate) require: Vec<Located<RequiredLayer>>,
    pub(crate) profiles: Vec<ReducedProfile>,
    pub(crate) tiers: Vec<ReducedTier>,
    pub(crate) tools: Vec<ReducedTool>,
    /// The protected names. `except` is always empty.
    pub(crate) protect: ProtectEntries,
    pub(crate) hide: Vec<Located<HiddenPattern>>,
    pub(crate) shell: Option<ShellEntries<ReducedAccess>>,
    pub(crate) egress: EgressEntries,
    pub(crate) secrets: Vec<ReducedSecret>,
    /// The position at which the reduction turns the search provider off.
    pub(crate) search: Option<Located<()>>,
    pub(crate) limits: LimitEntries,
    pub(crate) flow: Vec<FlowEntry>,
}

/// `[profiles.NAME]` of a reduction.
#[derive(Debug)]
pub(crate) struct ReducedProfile {
    pub(crate) name: Located<String>,
    pub(crate) mounts: Vec<(Located<String>, Located<ReducedAccess>)>,
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
    pub(crate) approval: Located<Approval>,
}

/// `[tools.NAME]` of a reduction.
#[derive(Debug)]
pub(crate) struct ReducedTool {
    pub(crate) name: Located<ToolName>,
    pub(crate) optional: bool,
    pub(crate) approval: Option<Located<Approval>>,
    pub(crate) timeout: Option<Located<Duration>>,
    pub(crate) memory: Option<Located<MemoryBytes>>,
    pub(crate) max_output_bytes: Option<Located<OutputBytes>>,
    pub(crate) enabled: Option<Located<bool>>,
}

/// `[secrets.NAME]` of a reduction. The lists contain the remaining hosts and tools.
#[derive(Debug)]
pub(crate) struct ReducedSecret {
    pub(crate) name: Located<String>,
    pub(crate) hosts: Option<Located<Vec<Located<HostRule>>>>,
    pub(crate) tools: Option<Located<Vec<Located<ToolName>>>>,
    pub(crate) enabled: Option<Located<bool>>,
}

impl NetworkEntries {
    /// Returns the rules of `hosts`.
    pub(crate) fn rules(&self) -> impl Iterator<Item = &Located<HostRule>> {
        self.hosts.iter().flat_map(|hosts| &hosts.value)
    }

    /// Returns whether requests with this method are granted.
    pub(crate) fn grants_method(&self, method: HttpMethod) -> bool {
        match &self.methods {
            Some(methods) => methods.value.iter().any(|granted| granted.value == method),
            None => HttpMethod::DEFAULT.contains(&method),
        }
    }
}

impl<A> ShellEntries<A> {
    /// Returns the rules of `hosts`.
    pub(crate) fn rules(&self) -> impl Iterator<Item = &Located<TunnelRule>> {
        self.hosts.iter().flat_map(|hosts| &hosts.value)
    }
}

impl ReducedAccess {
    pub(crate) const ALL: [Self; 3] = [Self::None, Self::Read, Self::Write];

    /// Returns the name used in policy files.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Read => "read",
            Self::Write => "write",
        }
    }
}
