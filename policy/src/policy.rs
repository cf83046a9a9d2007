//! [`WorkspaceSecurityPolicy`]: a loaded policy, ready to decide.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use portcullis_types::{SandboxTier, ToolName};

use crate::{
    AuditSettings, EgressSettings, GrantedMount, HiddenNames, HostRule, Limits, LoadOptions, MountName,
    MountSpec, NetworkGrant, NotifySettings, PathPattern, PolicyDigest, PolicyError, PolicyFault,
    ProfileName, ProtectedKinds, ProtectedPaths, RequiredLayer, SearchSettings, SecretName, SecretRule,
    ShellAbsence, ShellNetwork, ShellPolicy,
    effective::{EffectivePolicy, resolve},
    file::{Faults, Reduction, read_overlay, read_policy},
    invariants,
    known::ToolMention,
    reduce::reduce,
    warnings,
};

/// A loaded policy: complete, valid and immutable. Its [`PolicyDigest`] identifies it.
#[derive(Debug, Clone)]
pub struct WorkspaceSecurityPolicy {
    effective: EffectivePolicy,
    /// The mounts of the policy, in the form that callers open.
    mounts: Vec<MountSpec>,
    /// The mounts of every profile, in the form of a grant.
    profiles: BTreeMap<ProfileName, Arc<[GrantedMount]>>,
    /// The mounts of the shell, in the form of a grant. `None` without a shell.
    shell_mounts: Option<Arc<[GrantedMount]>>,
    /// The network of the shell, in the form of a grant. `None` without a shell or without hosts.
    shell_network: Option<Arc<ShellNetwork>>,
    kinds: Arc<ProtectedKinds>,
    /// The networks of the profiles that have hosts, in the form of a grant.
    networks: BTreeMap<ProfileName, Arc<NetworkGrant>>,
    digest: PolicyDigest,
    text_findings: TextFindings,
}

/// The properties of the texts that do not change what the policy permits.
#[derive(Debug, Clone)]
struct TextFindings {
    /// Suspicious but valid lines of the texts.
    warnings: Arc<[PolicyFault]>,
    /// Every entry for a tool, and every tool of a secret, in all texts.
    tool_mentions: Arc<[ToolMention]>,
    sandbox_sections: Arc<[SandboxSection]>,
}

/// The section of a sandbox tier in the operator's policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SandboxSection {
    /// The sandbox tier that the section is for.
    pub tier: SandboxTier,
    /// Whether the policy was loaded for this tier, so that the section was applied.
    pub is_applied: bool,
}

impl WorkspaceSecurityPolicy {
    /// Loads a policy: reads the operator's text, then applies the section of the sandbox tier and the workspace's
    /// overlay as reductions.
    ///
    /// # Errors
    /// [`PolicyError`] with the faults of both texts, at most 50 for each. Sections of other sandbox tiers
    /// are checked too.
    pub fn load(options: &LoadOptions<'_>) -> Result<Self, PolicyError> {
        let mut faults = Faults::new(options.operator);
        let file = read_policy(&mut faults);
        let mut effective = resolve(&file, &mut faults);
        invariants::check(&file, &mut faults);
        warnings::collect_warnings(&file, &mut faults);
        let mut mentions: Vec<ToolMention> =
            file.tools.iter().map(|entry| ToolMention::new(&entry.name, entry.optional, &faults)).collect();
        let of_secrets = file.secrets.iter().flat_map(|secret| &secret.tools);
        mentions.extend(of_secrets.map(|tool| ToolMention::of_secret(tool, &faults)));
        for (tier, reduction) in &file.sandbox {
            if *tier == options.sandbox_tier {
                reduce(&mut effective, reduction, &mut faults);
            } else {
                // The section of another tier is only checked, so its reduced copy is dropped.
                reduce(&mut effective.clone(), reduction, &mut faults);
            }
            mentions.extend(tool_mentions(reduction, &faults));
        }
        let sandbox_section =
            |tier: SandboxTier| SandboxSection { tier, is_applied: tier == options.sandbox_tier };
        let sandbox_sections = file.sandbox.iter().map(|(tier, _)| sandbox_section(*tier)).collect();
        // Read this before taking the faults, because the overlay is applied only to a policy without faults.
        let is_usable = faults.is_empty();
        let mut warnings = faults.take_warnings();
        let (mut all_faults, mut omitted) = faults.into_parts();

        if let Some(overlay) = options.overlay {
            let mut faults = Faults::new(overlay);
            let reduction = read_overlay(&mut faults);
            // Do not reduce a faulty policy, because every comparison with it would add a fault.
            if is_usable {
                reduce(&mut effective, &reduction, &mut faults);
            }
            mentions.extend(tool_mentions(&reduction, &faults));
            warnings.extend(faults.take_warnings());
            let (overlay_faults, overlay_omitted) = faults.into_parts();
            all_faults.extend(overlay_faults);
            omitted += overlay_omitted;
        }
        if all_faults.is_empty() {
            let text_findings =
                TextFindings { warnings: warnings.into(), tool_mentions: mentions.into(), sandbox_sections };
            Ok(Self::from_effective(effective, text_findings))
        } else {
            Err(PolicyError { faults: all_faults, omitted })
        }
    }

    /// Binds modules to the policy: their SHA-256 hashes become part of the digest. A module replaces an
    /// earlier module of the same name.
    #[must_use]
    pub fn with_modules(self, modules: impl IntoIterator<Item = (String, [u8; 32])>) -> Self {
        let Self { mut effective, text_findings, .. } = self;
        effective.modules.extend(modules.into_iter().map(|(name, hash)| (name, hex::encode(hash))));
        // The digest covers the modules, so derive the policy again.
        Self::from_effective(effective, text_findings)
    }

    /// Returns valid lines that probably do not express their author's intent: unused names, lines without
    /// effect, variables whose names look like secrets. They are in the order of the texts, at most 50 for
    /// each text, then the number of further ones.
    #[must_use]
    pub fn warnings(&self) -> &[PolicyFault] {
        &self.text_findings.warnings
    }

    /// Returns the sections of sandbox tiers in the operator's policy.
    #[must_use]
    pub fn sandbox_sections(&self) -> &[SandboxSection] {
        &self.text_findings.sandbox_sections
    }

    /// Returns the paths of a file tool that need no approval: arguments with patterns.
    pub fn unasked_patterns(&self, tool: &ToolName) -> impl Iterator<Item = (&str, &PathPattern)> {
        self.effective.tools.get(tool).into_iter().flat_map(|rule| rule.unasked.rules())
    }

    /// Returns the tools with an entry of the operator, sorted.
    pub fn tools_with_entries(&self) -> impl Iterator<Item = &ToolName> {
        self.effective.tools.iter().filter(|(_, rule)| rule.by_operator).map(|(name, _)| name)
    }

    pub(crate) fn tool_mentions(&self) -> &[ToolMention] {
        &self.text_findings.tool_mentions
    }

    /// Returns the folder of foreign modules, as the operator wrote it: absolute, or relative to the policy
    /// file.
    #[must_use]
    pub fn modules_dir(&self) -> Option<&str> {
        self.effective.modules_dir.as_deref()
    }

    /// Returns the mount where relative paths of tools start, and where a shell session begins. Default:
    /// `shared`, even if the policy has no mount of this name. Relative paths then cannot be resolved.
    #[must_use]
    pub fn home(&self) -> &MountName {
        &self.effective.home
    }

    /// Returns the folder of the project whose policy this is, as the operator wrote it: an absolute path.
    #[must_use]
    pub fn project(&self) -> Option<&str> {
        self.effective.project.as_deref()
    }

    /// Returns the mounts, sorted by name. Their folders have disjoint names. The code that opens the folders
    /// must check that no symlink joins them.
    #[must_use]
    pub fn mounts(&self) -> &[MountSpec] {
        &self.mounts
    }

    /// Returns whether every WASM call must have a layer.
    #[must_use]
    pub fn requires(&self, layer: RequiredLayer) -> bool {
        self.effective.require.contains(&layer)
    }

    /// Returns the layers that every WASM call must have.
    pub fn required_layers(&self) -> impl Iterator<Item = RequiredLayer> {
        self.effective.require.iter().copied()
    }

    /// Returns the protected paths, which no tool may write.
    #[must_use]
    pub fn protected(&self) -> &ProtectedPaths {
        &self.effective.protect
    }

    /// Returns the names of files and folders that no tool sees.
    #[must_use]
    pub fn hidden(&self) -> &HiddenNames {
        &self.effective.hide
    }

    /// Returns the protected kinds, to which flow rules with the sink `write:protected` apply.
    #[must_use]
    pub fn protected_kinds(&self) -> &ProtectedKinds {
        &self.kinds
    }

    /// Returns the settings of the audit log.
    #[must_use]
    pub fn audit(&self) -> &AuditSettings {
        &self.effective.audit
    }

    /// Returns all limits.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.effective.limits
    }

    /// Returns the shell, or `None` if commands do not run. [`Self::shell_absence`] then gives the reason.
    #[must_use]
    pub fn shell(&self) -> Option<&ShellPolicy> {
        self.effective.shell.as_ref().ok()
    }

    /// Returns the reason why there is no shell, or `None` if there is one.
    #[must_use]
    pub fn shell_absence(&self) -> Option<ShellAbsence> {
        self.effective.shell.as_ref().err().copied()
    }

    /// Returns the profiles with their mounts, sorted by name. Each has its own worker pool. The shell's
    /// profile is not included.
    pub fn profiles(&self) -> impl Iterator<Item = (&ProfileName, &[GrantedMount])> {
        self.profiles.iter().map(|(name, mounts)| (name, &**mounts))
    }

    /// Returns the mounts of a profile, sorted by name. [`ProfileName::SHELL`] has the shell's mounts, and an
    /// unknown profile has none.
    #[must_use]
    pub fn mounts_of(&self, profile: &ProfileName) -> &[GrantedMount] {
        if profile.is_shell() {
            return self.shell_mounts.as_deref().unwrap_or_default();
        }
        self.profiles.get(profile).map_or(&[], |mounts| mounts)
    }

    /// Returns the network of a profile. `None` for a profile without hosts, for [`ProfileName::SHELL`], and
    /// for an unknown profile.
    #[must_use]
    pub fn network_of(&self, profile: &ProfileName) -> Option<&NetworkGrant> {
        self.networks.get(profile).map(Arc::as_ref)
    }

    /// Returns whether an entry `[tools.NAME]` of the operator says `enabled = true`.
    #[must_use]
    pub fn is_enabled_by_name(&self, tool: &str) -> bool {
        self.effective.tools.get(tool).is_some_and(|rule| rule.enabled == Some(true))
    }

    /// Returns whether any profile has hosts.
    #[must_use]
    pub fn has_network(&self) -> bool {
        !self.networks.is_empty()
    }

    /// Returns the ports of all rules of all profiles. A request under this policy never goes to another
    /// port.
    #[must_use]
    pub fn network_ports(&self) -> BTreeSet<u16> {
        self.networks.values().flat_map(|network| network.hosts.iter().map(HostRule::port)).collect()
    }

    /// Returns the network of the shell, or `None` if there is no shell or the shell has no hosts.
    #[must_use]
    pub fn shell_network(&self) -> Option<&ShellNetwork> {
        self.shell_network.as_deref()
    }

    /// Returns `[egress]`, with every default filled in.
    #[must_use]
    pub fn egress(&self) -> &EgressSettings {
        &self.effective.egress
    }

    /// Returns the secrets, sorted by name: their sources, hosts and tools, but never a value.
    pub fn secrets(&self) -> impl Iterator<Item = (&SecretName, &SecretRule)> {
        self.effective.secrets.iter()
    }

    /// Returns `[notify]`, or `None` without the section. No tool can send notifications in that case.
    #[must_use]
    pub fn notify(&self) -> Option<&NotifySettings> {
        self.effective.notify.as_ref()
    }

    /// Returns `[search]`, or `None` without a provider. No tool can search the web in that case.
    #[must_use]
    pub fn search(&self) -> Option<&SearchSettings> {
        self.effective.search.as_ref()
    }

    /// Returns the digest of the effective policy.
    #[must_use]
    pub fn digest(&self) -> &PolicyDigest {
        &self.digest
    }

    /// Returns the effective policy as canonical JSON. Its SHA-256 is [`Self::digest`], so anybody can verify
    /// a kept copy.
    #[must_use]
    pub fn canonical_json(&self) -> Vec<u8> {
        crate::digest::canonical_json(&self.effective)
    }

    pub(crate) fn effective(&self) -> &EffectivePolicy {
        &self.effective
    }

    pub(crate) fn shared_mounts_of(&self, profile: &ProfileName) -> Arc<[GrantedMount]> {
        let mounts = if profile.is_shell() { self.shell_mounts.as_ref() } else { self.profiles.get(profile) };
        mounts.cloned().unwrap_or_else(|| Arc::new([]))
    }

    pub(crate) fn shared_network_of(&self, profile: &ProfileName) -> Option<Arc<NetworkGrant>> {
        self.networks.get(profile).cloned()
    }

    pub(crate) fn shared_kinds(&self) -> Arc<ProtectedKinds> {
        Arc::clone(&self.kinds)
    }

    pub(crate) fn shared_shell_network(&self) -> Option<Arc<ShellNetwork>> {
        self.shell_network.clone()
    }

    fn from_effective(effective: EffectivePolicy, text_findings: TextFindings) -> Self {
        let mounts = effective
            .mounts
            .iter()
            .map(|(name, folder)| MountSpec {
                name: name.clone(),
                folder: folder.clone(),
                has_undo: effective.with_undo.contains(name),
            })
            .collect();
        let profiles = effective
            .profiles
            .iter()
            .map(|(name, mounts)| {
                let mounts = mounts
                    .iter()
                    .map(|(name, access)| GrantedMount { name: name.clone(), access: *access })
                    .collect();
                (name.clone(), mounts)
            })
            .collect();
        let shell_mounts = effective.shell.as_ref().ok().map(|shell| shell.mounts.as_slice().into());
        let shell_network = effective.shell.as_ref().ok();
        let shell_network =
            shell_network.and_then(|shell| ShellNetwork::resolve(&shell.hosts, &effective.egress));
        let shell_network = shell_network.map(Arc::new);
        let kinds = Arc::new(effective.kinds.clone());
        let networks = effective
            .networks
            .iter()
            .map(|(name, network)| {
                (name.clone(), Arc::new(NetworkGrant::resolve(network, &effective.egress)))
            })
            .collect();
        // Only the effective policy is hashed, because warnings and positions do not change any permission.
        let digest = PolicyDigest::compute(&effective);
        Self {
            effective,
            mounts,
            profiles,
            shell_mounts,
            shell_network,
            kinds,
            networks,
            digest,
            text_findings,
        }
    }
}

fn tool_mentions(reduction: &Reduction, faults: &Faults<'_>) -> Vec<ToolMention> {
    reduction.tools.iter().map(|entry| ToolMention::new(&entry.name, entry.optional, faults)).collect()
}
