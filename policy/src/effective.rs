//! The effective policy: every name resolved, every default filled in, everything sorted. Decisions are
//! made from it and the digest is made of it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::LazyLock,
    time::Duration,
};

use portcullis_types::{Access, SafetyTier, ToolName};
use serde::Serialize;

use crate::{
    Approval, AuditSync, Layer, Limits, MemoryBytes, MountName, OutputBytes, PolicySource, ProfileName,
    ProtectedPaths,
    file::{Faults, LimitEntries, Placed, PolicyFile, ProtectEntries, ToolEntry, did_you_mean, read_policy},
    limits::{as_millis, as_optional_millis},
    shell::{Shell, resolve_shell, serialize_shell},
    source::DEFAULT_POLICY,
};

/// What a policy means. Two texts that mean the same have equal values of this type.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Effective {
    pub(crate) version: u32,
    pub(crate) require: BTreeSet<Layer>,
    /// The folder of each mount.
    pub(crate) mounts: BTreeMap<MountName, String>,
    /// Always holds [`ProfileName::NOTHING`].
    pub(crate) profiles: BTreeMap<ProfileName, BTreeMap<MountName, Access>>,
    pub(crate) tiers: Tiers,
    pub(crate) tools: BTreeMap<ToolName, ToolRule>,
    pub(crate) protect: ProtectedPaths,
    pub(crate) audit_sync: AuditSync,
    #[serde(serialize_with = "serialize_shell")]
    pub(crate) shell: Shell,
    pub(crate) limits: Limits,
    /// Where modules from outside lie, as the operator wrote it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) modules_dir: Option<String>,
    /// The hash of each module, in hexadecimal, by the module's name.
    pub(crate) modules: BTreeMap<String, String>,
}

/// One rule for each tier.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Tiers {
    pub(crate) read_only: TierRule,
    pub(crate) side_effecting: TierRule,
    pub(crate) privileged: TierRule,
}

/// What tools of a tier get that have no entry of their own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct TierRule {
    pub(crate) profile: ProfileName,
    pub(crate) approval: Approval,
    /// What a reduction demands of every tool of the tier, whatever its own entry says.
    pub(crate) approval_floor: Approval,
}

/// What a tool's own entry says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct ToolRule {
    /// Whether the operator has an entry for the tool. A reduction may have one as well, but that must not
    /// make a stranger's module a known one.
    pub(crate) by_operator: bool,
    pub(crate) enabled: Option<bool>,
    pub(crate) profile: Option<ProfileName>,
    pub(crate) approval: Option<Approval>,
    /// What a reduction demands where the operator's entry sets no approval.
    pub(crate) approval_floor: Approval,
    #[serde(rename = "timeout_ms", serialize_with = "as_optional_millis")]
    pub(crate) timeout: Option<Duration>,
    /// The most that a call may take; below `limits.max_timeout` where a reduction shortened a tool without
    /// a `timeout` of its own in the operator's policy.
    #[serde(rename = "timeout_cap_ms", serialize_with = "as_millis")]
    pub(crate) timeout_cap: Duration,
    /// What a guest's memories may hold together, or a command with its jobs; none leaves the first to
    /// `limits.wasm_memory` and the second to `shell.memory`.
    pub(crate) memory: Option<MemoryBytes>,
    pub(crate) max_output_bytes: OutputBytes,
    /// Whether the operator's entry may stand without its tool. It changes nothing where the tool is there.
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
    /// What holds for a tier that the policy does not name: no mounts, and somebody has to approve.
    fn unnamed() -> Self {
        Self { profile: ProfileName::nothing(), approval: Approval::Ask, approval_floor: Approval::Allow }
    }
}

impl ToolRule {
    /// The rule of a tool that only a reduction has an entry for.
    pub(crate) fn unnamed(limits: &Limits) -> Self {
        Self {
            by_operator: false,
            enabled: None,
            profile: None,
            approval: None,
            approval_floor: Approval::Allow,
            timeout: None,
            timeout_cap: limits.max_timeout,
            memory: None,
            max_output_bytes: limits.max_output_bytes,
            optional: false,
        }
    }
}

/// Resolves the names of a policy and fills in what it leaves out. Unknown names are faults.
///
/// What is left out never grants: a missing tier gets nothing and asks, a missing `require` means all
/// layers, and the shipped protected names hold unless one is taken away by name.
pub(crate) fn resolve(file: &PolicyFile, faults: &mut Faults<'_>) -> Effective {
    let limits = resolve_limits(&file.limits);
    let mounts: BTreeMap<MountName, String> =
        file.mounts.iter().map(|mount| (mount.value.name.clone(), mount.value.folder.clone())).collect();
    let profiles = resolve_profiles(file, &mounts, faults);

    let mut tiers = Tiers {
        read_only: TierRule::unnamed(),
        side_effecting: TierRule::unnamed(),
        privileged: TierRule::unnamed(),
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
    Effective {
        version: 1,
        require: match &file.require {
            Some(layers) => layers.iter().map(|layer| layer.value).collect(),
            None => Layer::ALL.into_iter().collect(),
        },
        mounts,
        profiles,
        tiers,
        tools,
        protect: resolve_protection(&file.protect, faults),
        audit_sync: file.audit_sync.unwrap_or_default(),
        shell,
        limits,
        modules_dir: file.modules_dir.clone(),
        modules: BTreeMap::new(),
    }
}

/// Finds the profile that a name refers to.
pub(crate) fn find_profile(
    profiles: &BTreeMap<ProfileName, BTreeMap<MountName, Access>>,
    name: &Placed<String>,
    faults: &mut Faults<'_>,
) -> Option<ProfileName> {
    let found = profiles.get_key_value(name.value.as_str()).map(|(name, _)| name.clone());
    if name.value == ProfileName::SHELL {
        faults.add_at(name, "tools that run commands get `Shell` by themselves; name no profile for them");
    } else if found.is_none() && !faults.is_excused(&name.value) {
        let right = did_you_mean(&name.value, profiles.keys().map(ProfileName::as_str));
        faults.add_at(name, format!("unknown profile; {right}"));
    }
    found
}

/// Finds the mount that a name refers to.
pub(crate) fn find_mount(
    mounts: &BTreeMap<MountName, String>,
    name: &Placed<String>,
    faults: &mut Faults<'_>,
) -> Option<MountName> {
    let found = mounts.get_key_value(name.value.as_str()).map(|(name, _)| name.clone());
    if found.is_none() && !faults.is_excused(&name.value) {
        let right = did_you_mean(&name.value, mounts.keys().map(MountName::as_str));
        faults.add_at(name, format!("unknown mount; {right}"));
    }
    found
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
        concurrency: entries.concurrency.as_ref().map_or(default.concurrency, |placed| placed.value),
        calls_per_minute: entries
            .calls_per_minute
            .as_ref()
            .map_or(default.calls_per_minute, |placed| placed.value),
        max_output_bytes: entries
            .max_output_bytes
            .as_ref()
            .map_or(default.max_output_bytes, |placed| placed.value),
        wasm_memory: entries.wasm_memory.as_ref().map_or(default.wasm_memory, |placed| placed.value),
        max_timeout: entries.max_timeout.as_ref().map_or(default.max_timeout, |placed| placed.value),
    }
}

/// The shipped names but those that the operator takes away by name, and the operator's own. A list of one's own does
/// not drop the shipped names: its author thinks of a name to add, and would not see what is gone.
fn resolve_protection(entries: &ProtectEntries, faults: &mut Faults<'_>) -> ProtectedPaths {
    let mut protected = SHIPPED_PROTECTION.clone();
    for except in &entries.except {
        if entries.paths.iter().any(|path| path.value == except.value) {
            faults.add_at(except, "this name is in `paths` as well; write it in one of the two");
        } else if !protected.remove(&except.value) {
            let right = did_you_mean(except.value.as_str(), SHIPPED_PROTECTION.patterns());
            faults.add_at(except, format!("this is none of the shipped names; {right}"));
        } else {
            faults
                .warn_at(except, "a shipped name is not protected: tools may write what other programs run");
        }
    }
    protected.extend(entries.paths.iter().map(|path| path.value.clone()));
    protected
}

/// The protected names of the shipped policy.
pub(crate) static SHIPPED_PROTECTION: LazyLock<ProtectedPaths> = LazyLock::new(|| {
    let mut faults = Faults::new(PolicySource { name: "default.toml", text: DEFAULT_POLICY });
    let shipped = read_policy(&mut faults);
    ProtectedPaths::new(shipped.protect.paths.into_iter().map(|path| path.value).collect())
});
