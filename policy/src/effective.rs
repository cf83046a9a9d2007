//! The effective policy: every name resolved, every default filled in, everything sorted. The evaluator uses
//! it for every decision, and the policy digest is its hash.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::LazyLock,
    time::Duration,
};

use portcullis_types::{Access, SafetyTier, ToolName};
use serde::Serialize;

use crate::{
    Approval, AuditSettings, AuditSync, HiddenNames, Limits, LintCode, MemoryBytes, MountName, OutputBytes,
    PolicySource, ProfileName, ProtectedKinds, ProtectedPaths, RequiredLayer, SecretName, SecretRule,
    file::{Faults, LimitEntries, Located, PolicyFile, ProtectEntries, ToolEntry, did_you_mean, read_policy},
    flow::{FlowRule, resolve_flow},
    limits::{as_millis, as_optional_millis},
    network::{EgressSettings, ProfileNetwork, resolve_egress, resolve_networks},
    notify::NotifySettings,
    path_rules::PathRules,
    protected_kinds::KindPattern,
    search::SearchSettings,
    secrets::resolve_secrets,
    shell::{ShellOrAbsence, resolve_shell, serialize_shell},
    source::DEFAULT_POLICY,
};

/// The meaning of a policy. Two texts with the same meaning give equal values.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct EffectivePolicy {
    pub(crate) version: u32,
    pub(crate) require: BTreeSet<RequiredLayer>,
    /// The mount where relative paths start.
    #[serde(skip_serializing_if = "is_default_home")]
    pub(crate) home: MountName,
    /// The folder of the project whose policy this is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) project: Option<String>,
    /// The folder of each mount.
    pub(crate) mounts: BTreeMap<MountName, String>,
    /// The mounts whose changes are kept so that they can be undone.
    pub(crate) with_undo: BTreeSet<MountName>,
    /// Always contains [`ProfileName::NOTHING`].
    pub(crate) profiles: BTreeMap<ProfileName, BTreeMap<MountName, Access>>,
    /// The networks of the profiles that have hosts.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) networks: BTreeMap<ProfileName, ProfileNetwork>,
    pub(crate) tiers: Tiers,
    pub(crate) tools: BTreeMap<ToolName, ToolRule>,
    pub(crate) protect: ProtectedPaths,
    pub(crate) kinds: ProtectedKinds,
    #[serde(skip_serializing_if = "HiddenNames::is_empty")]
    pub(crate) hide: HiddenNames,
    pub(crate) audit_sync: AuditSync,
    #[serde(skip_serializing_if = "AuditSettings::is_default_but_sync")]
    pub(crate) audit: AuditSettings,
    #[serde(serialize_with = "serialize_shell")]
    pub(crate) shell: ShellOrAbsence,
    pub(crate) egress: EgressSettings,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) secrets: BTreeMap<SecretName, SecretRule>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) search: Option<SearchSettings>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) notify: Option<NotifySettings>,
    pub(crate) limits: Limits,
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub(crate) flow: BTreeSet<FlowRule>,
    /// The folder of foreign modules, as the operator wrote it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) modules_dir: Option<String>,
    /// The hash of each module, in hexadecimal, by the module's name.
    pub(crate) modules: BTreeMap<String, String>,
}

/// Returns whether this is the default. The JSON then omits it, so that policies without the key `home` keep
/// the digest from before the key existed.
fn is_default_home(home: &MountName) -> bool {
    *home == MountName::shared()
}

/// One rule for each tier.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Tiers {
    pub(crate) read_only: TierRule,
    pub(crate) side_effecting: TierRule,
    pub(crate) privileged: TierRule,
}

/// The rule for tools of a tier that have no entry of their own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct TierRule {
    pub(crate) profile: ProfileName,
    pub(crate) approval: Approval,
    /// The minimum approval that reductions demand for every tool of the tier, whatever approval the tool's
    /// entry sets.
    pub(crate) approval_floor: Approval,
}

/// The rule from one tool's entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct ToolRule {
    /// Whether the operator has an entry for the tool. An entry in a reduction must not make a foreign module count as
    /// known.
    pub(crate) by_operator: bool,
    pub(crate) enabled: Option<bool>,
    pub(crate) profile: Option<ProfileName>,
    pub(crate) approval: Option<Approval>,
    /// The minimum approval that a reduction demands if the operator's entry sets none.
    pub(crate) approval_floor: Approval,
    /// The paths that need no approval.
    #[serde(skip_serializing_if = "PathRules::is_empty")]
    pub(crate) unasked: PathRules,
    #[serde(rename = "timeout_ms", serialize_with = "as_optional_millis")]
    pub(crate) timeout: Option<Duration>,
    /// The maximum duration of a call: `limits.max_timeout`, or the shorter timeout of a reduction if the
    /// operator's entry sets no `timeout`.
    #[serde(rename = "timeout_cap_ms", serialize_with = "as_millis")]
    pub(crate) timeout_cap: Duration,
    /// The memory of a guest (all its memories together), or of a command with its jobs. `None` means
    /// `limits.wasm_memory` for a guest and `shell.memory` for a command.
    pub(crate) memory: Option<MemoryBytes>,
    pub(crate) max_output_bytes: OutputBytes,
    /// Whether the tool may be missing although the operator has an entry for it. The key has no effect if
    /// the tool is registered.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) optional: bool,
}

impl Tiers {
    pub(crate) fn rule(&self, tier: SafetyTier) -> &TierRule {
        match tier {
            SafetyTier::ReadOnly => &self.read_only,
            SafetyTier::SideEffecting => &self.side_effecting,
            SafetyTier::Privileged => &self.privileged,
        }
    }

    pub(crate) fn rule_mut(&mut self, tier: SafetyTier) -> &mut TierRule {
        match tier {
            SafetyTier::ReadOnly => &mut self.read_only,
            SafetyTier::SideEffecting => &mut self.side_effecting,
            SafetyTier::Privileged => &mut self.privileged,
        }
    }
}

impl TierRule {
    /// Returns the rule of a tier without an entry in the policy: no mounts, approval `ask`.
    fn default_rule() -> Self {
        Self { profile: ProfileName::nothing(), approval: Approval::Ask, approval_floor: Approval::Allow }
    }
}

impl ToolRule {
    /// Returns the rule of a tool whose only entry is in a reduction.
    pub(crate) fn unnamed(limits: &Limits) -> Self {
        Self {
            by_operator: false,
            enabled: None,
            profile: None,
            approval: None,
            approval_floor: Approval::Allow,
            unasked: PathRules::default(),
            timeout: None,
            timeout_cap: limits.max_timeout,
            memory: None,
            max_output_bytes: limits.max_output_bytes,
            optional: false,
        }
    }
}

/// Resolves the names of a policy and fills in defaults. Unknown names are faults.
///
/// Defaults never grant: a missing tier gets no mounts and the approval `ask`, a missing `require` means all
/// layers, and the shipped protected names apply unless the operator excepts one by name.
pub(crate) fn resolve(file: &PolicyFile, faults: &mut Faults<'_>) -> EffectivePolicy {
    let limits = resolve_limits(&file.limits);
    let mounts: BTreeMap<MountName, String> =
        file.mounts.iter().map(|mount| (mount.value.name.clone(), mount.value.folder.clone())).collect();
    let with_undo = file.mounts.iter().filter(|mount| mount.value.has_undo);
    let with_undo: BTreeSet<MountName> = with_undo.map(|mount| mount.value.name.clone()).collect();
    let profiles = resolve_profiles(file, &mounts, faults);
    let home = file.home.as_ref().and_then(|home| find_mount(&mounts, home, faults));

    let mut tiers = Tiers {
        read_only: TierRule::default_rule(),
        side_effecting: TierRule::default_rule(),
        privileged: TierRule::default_rule(),
    };
    for entry in &file.tiers {
        if let Some(profile) = find_profile(&profiles, &entry.profile, faults) {
            let rule = tiers.rule_mut(entry.tier);
            rule.profile = profile;
            rule.approval = entry.approval;
        }
    }

    let mut tools = BTreeMap::new();
    for entry in &file.tools {
        let profile = entry.profile.as_ref().and_then(|name| find_profile(&profiles, name, faults));
        tools.insert(entry.name.value.clone(), resolve_tool(entry, profile, &limits));
    }

    let shell = resolve_shell(file.shell.as_ref(), &mounts, &limits, faults);
    let (protect, kinds) = resolve_protection(&file.protect, faults);
    let networks = resolve_networks(file);
    let secrets = resolve_secrets(file, &networks, faults);
    let flow =
        resolve_flow(&file.flow, &mounts, &secrets, faults).into_iter().map(|rule| rule.value).collect();
    EffectivePolicy {
        version: 1,
        require: match &file.require {
            Some(layers) => layers.iter().map(|layer| layer.value).collect(),
            // By default all layers are required. Only the operator can leave one out.
            None => RequiredLayer::ALL.into_iter().collect(),
        },
        home: home.unwrap_or_else(MountName::shared),
        project: file.project.clone(),
        mounts,
        with_undo,
        profiles,
        networks,
        tiers,
        tools,
        protect,
        kinds,
        hide: HiddenNames::new(file.hide.iter().map(|name| name.value.clone()).collect()),
        audit_sync: file.audit.sync,
        audit: file.audit.clone(),
        shell,
        egress: resolve_egress(&file.egress),
        secrets,
        notify: file.notify.clone(),
        search: file.search.as_ref().map(|located| located.value.clone()),
        limits,
        flow,
        modules_dir: file.modules_dir.clone(),
        modules: BTreeMap::new(),
    }
}

/// Finds the profile that a name refers to.
pub(crate) fn find_profile(
    profiles: &BTreeMap<ProfileName, BTreeMap<MountName, Access>>,
    name: &Located<String>,
    faults: &mut Faults<'_>,
) -> Option<ProfileName> {
    let profile = profiles.get_key_value(name.value.as_str()).map(|(name, _)| name.clone());
    if name.value == ProfileName::SHELL {
        faults.add_at(name, "`Shell` is assigned automatically to tools that run commands; remove `profile`");
    } else if profile.is_none() && !faults.is_excused(&name.value) {
        let suggestion = did_you_mean(&name.value, profiles.keys().map(ProfileName::as_str));
        faults.add_at(name, format!("unknown profile; {suggestion}"));
    }
    profile
}

/// Finds the mount that a name refers to.
pub(crate) fn find_mount(
    mounts: &BTreeMap<MountName, String>,
    name: &Located<String>,
    faults: &mut Faults<'_>,
) -> Option<MountName> {
    let mount = mounts.get_key_value(name.value.as_str()).map(|(name, _)| name.clone());
    if mount.is_none() && !faults.is_excused(&name.value) {
        let suggestion = did_you_mean(&name.value, mounts.keys().map(MountName::as_str));
        faults.add_at(name, format!("unknown mount; {suggestion}"));
    }
    mount
}

fn resolve_profiles(
    file: &PolicyFile,
    mounts: &BTreeMap<MountName, String>,
    faults: &mut Faults<'_>,
) -> BTreeMap<ProfileName, BTreeMap<MountName, Access>> {
    let mut profiles = BTreeMap::from([(ProfileName::nothing(), BTreeMap::new())]);
    for profile in &file.profiles {
        let mut granted = BTreeMap::new();
        for (name, access) in &profile.value.mounts {
            if let Some(mount) = find_mount(mounts, name, faults) {
                granted.insert(mount, *access);
            }
        }
        profiles.insert(profile.value.name.clone(), granted);
    }
    profiles
}

fn resolve_tool(entry: &ToolEntry, profile: Option<ProfileName>, limits: &Limits) -> ToolRule {
    ToolRule {
        by_operator: true,
        enabled: entry.enabled,
        profile,
        approval: entry.approval,
        unasked: entry.unasked.clone(),
        timeout: entry.timeout.map(|timeout| timeout.min(limits.max_timeout)),
        memory: entry.memory,
        max_output_bytes: entry.max_output_bytes.unwrap_or(limits.max_output_bytes),
        optional: entry.optional,
        ..ToolRule::unnamed(limits)
    }
}

fn resolve_limits(entries: &LimitEntries) -> Limits {
    let default = Limits::default();
    Limits {
        concurrency: entries.concurrency.as_ref().map_or(default.concurrency, |located| located.value),
        calls_per_minute: entries
            .calls_per_minute
            .as_ref()
            .map_or(default.calls_per_minute, |located| located.value),
        max_output_bytes: entries
            .max_output_bytes
            .as_ref()
            .map_or(default.max_output_bytes, |located| located.value),
        wasm_memory: entries.wasm_memory.as_ref().map_or(default.wasm_memory, |located| located.value),
        max_timeout: entries.max_timeout.as_ref().map_or(default.max_timeout, |located| located.value),
    }
}

/// Returns the shipped names and kinds, without those that the operator excepts, and with the operator's own.
/// `paths` and `kinds` add to the shipped lists: if they replaced them, the author of a new name would not
/// notice that the shipped names are gone.
///
/// Excepting a name of the shipped `paths` makes it a kind. Excepting a kind drops it.
fn resolve_protection(entries: &ProtectEntries, faults: &mut Faults<'_>) -> (ProtectedPaths, ProtectedKinds) {
    let (shipped, shipped_kinds) = &*SHIPPED_PROTECTION;
    let (mut protected, mut kinds) = (shipped.clone(), shipped_kinds.clone());
    for (index, exception) in entries.except.iter().enumerate() {
        let name = match &exception.value {
            KindPattern::Name(name) => Some(name),
            KindPattern::Ending(_) => None,
        };
        let is_protected = name.is_some_and(|name| shipped.has(name));
        // The same section would remove the name and add it again.
        let is_repeated = if is_protected {
            entries.paths.iter().any(|path| Some(&path.value) == name)
        } else {
            entries.kinds.iter().any(|kind| kind.value == exception.value)
        };
        if entries.except[..index].iter().any(|earlier| earlier.value == exception.value) {
            faults.add_at(
                exception,
                "this name is listed twice in `except`; remove one entry, because `except` weakens a name by one step only",
            );
        } else if is_repeated {
            let key = if is_protected { "paths" } else { "kinds" };
            faults.add_at(exception, format!("this name is in `{key}` as well; write it in one of the two"));
        } else if let Some(name) = name.filter(|_| is_protected) {
            protected.remove(name);
            kinds.insert(exception.value.clone());
            faults.warn_at(
                LintCode::ShippedNameDropped,
                exception,
                "a shipped name is no longer protected: tools may write files that other programs run",
            );
        } else if kinds.remove(&exception.value) {
            faults.warn_at(
                LintCode::ShippedNameDropped,
                exception,
                "a shipped kind is no longer protected: tools may write such files without approval, whatever their run has read",
            );
        } else {
            let names = shipped.patterns().map(str::to_owned).chain(shipped_kinds.patterns());
            let names: Vec<String> = names.collect();
            let suggestion = did_you_mean(&exception.value.to_string(), names.iter().map(String::as_str));
            faults.add_at(exception, format!("this is not one of the shipped names; {suggestion}"));
        }
    }
    protected.extend(entries.paths.iter().map(|path| path.value.clone()));
    entries.kinds.iter().for_each(|kind| kinds.insert(kind.value.clone()));
    (protected, kinds)
}

/// The protected names and kinds of the shipped policy.
pub(crate) static SHIPPED_PROTECTION: LazyLock<(ProtectedPaths, ProtectedKinds)> = LazyLock::new(|| {
    let mut faults = Faults::new(PolicySource { name: "default.toml", text: DEFAULT_POLICY });
    let ProtectEntries { paths, kinds, .. } = read_policy(&mut faults).protect;
    let paths = ProtectedPaths::new(paths.into_iter().map(|path| path.value).collect());
    (paths, ProtectedKinds::new(kinds.into_iter().map(|kind| kind.value)))
});
