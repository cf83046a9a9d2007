//! [`WorkspaceSecurityPolicy`]: a loaded policy, ready to decide.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use portcullis_types::SandboxTier;

use crate::{
    AuditSync, EgressSettings, GrantedMount, HostRule, Limits, LoadOptions, MountSpec, NetworkGrant,
    PolicyDigest, PolicyError, PolicyFault, ProfileName, ProtectedKinds, ProtectedPaths, RequiredLayer,
    SearchSettings, SecretName, SecretRule, ShellAbsence, ShellNetwork, ShellPolicy,
    effective::{EffectivePolicy, resolve},
    file::{Faults, Reduction, read_overlay, read_policy},
    invariants,
    known::ToolPlace,
    overlay::reduce,
    warnings,
};

/// A policy that was read completely, breaks no invariant and is ready to decide. It is immutable: another
/// policy is another value with another [`PolicyDigest`].
#[derive(Debug, Clone)]
pub struct WorkspaceSecurityPolicy {
    effective: EffectivePolicy,
    /// The mounts of the policy, in the form in which callers open them.
    mounts: Vec<MountSpec>,
    /// The mounts of every profile, in the form of a grant.
    profiles: BTreeMap<ProfileName, Arc<[GrantedMount]>>,
    /// The mounts of the shell in the form of a grant; none without a shell.
    shell_mounts: Option<Arc<[GrantedMount]>>,
    /// The network of the shell, likewise.
    shell_network: Option<Arc<ShellNetwork>>,
    kinds: Arc<ProtectedKinds>,
    /// The networks of the profiles that have hosts, in the form of a grant.
    networks: BTreeMap<ProfileName, Arc<NetworkGrant>>,
    digest: PolicyDigest,
    /// Suspicious but valid lines of the texts.
    warnings: Arc<[PolicyFault]>,
    /// Every entry for a tool, of all texts.
    tool_places: Arc<[ToolPlace]>,
    /// The sandbox sections, and which of them was applied.
    sandbox: Arc<[(SandboxTier, bool)]>,
}

impl WorkspaceSecurityPolicy {
    /// Loads a policy: reads the operator's text, then applies the reductions of the sandbox tier's section
    /// and of the workspace's overlay.
    ///
    /// # Errors
    /// [`PolicyError`] with every fault of both texts. Sections of other sandbox tiers are checked as well.
    pub fn load(options: &LoadOptions<'_>) -> Result<Self, PolicyError> {
        let mut faults = Faults::new(options.operator);
        let file = read_policy(&mut faults);
        let mut effective = resolve(&file, &mut faults);
        invariants::check(&file, &mut faults);
        warnings::look(&file, &mut faults);
        let mut places: Vec<ToolPlace> =
            file.tools.iter().map(|entry| ToolPlace::new(&entry.name, entry.optional, &faults)).collect();
        let of_secrets = file.secrets.iter().flat_map(|secret| &secret.tools);
        places.extend(of_secrets.map(|tool| ToolPlace::of_secret(tool, &faults)));
        for (tier, reduction) in &file.sandbox {
            if *tier == options.sandbox_tier {
                reduce(&mut effective, reduction, &mut faults);
            } else {
                // A section of another tier is only checked: its result is dropped.
                reduce(&mut effective.clone(), reduction, &mut faults);
            }
            places.extend(tool_places(reduction, &faults));
        }
        let sandbox = file.sandbox.iter().map(|(tier, _)| (*tier, *tier == options.sandbox_tier)).collect();
        // Before the faults are taken: it decides on the overlay below.
        let usable = faults.is_empty();
        let mut warnings = faults.take_warnings();
        let (mut found, mut left_out) = faults.into_parts();

        if let Some(overlay) = options.overlay {
            let mut faults = Faults::new(overlay);
            let reduction = read_overlay(&mut faults);
            // Skipped for a faulty policy: every comparison with it would add a fault.
            if usable {
                reduce(&mut effective, &reduction, &mut faults);
            }
            places.extend(tool_places(&reduction, &faults));
            warnings.extend(faults.take_warnings());
            let (found_here, left_out_here) = faults.into_parts();
            found.extend(found_here);
            left_out += left_out_here;
        }
        if found.is_empty() {
            let mut policy = Self::from_effective(effective);
            policy.warnings = warnings.into();
            policy.tool_places = places.into();
            policy.sandbox = sandbox;
            Ok(policy)
        } else {
            Err(PolicyError { faults: found, left_out })
        }
    }

    /// Binds modules to the policy: their SHA-256 hashes enter the digest. A module bound before under the
    /// same name is replaced.
    #[must_use]
    pub fn with_modules(self, modules: impl IntoIterator<Item = (String, [u8; 32])>) -> Self {
        let Self { mut effective, warnings, tool_places, sandbox, .. } = self;
        effective.modules.extend(modules.into_iter().map(|(name, hash)| (name, hex::encode(hash))));
        Self { warnings, tool_places, sandbox, ..Self::from_effective(effective) }
    }

    /// Valid lines that their author hardly meant: unused names, lines without effect, variables whose names
    /// look like secrets. In the order of the texts, at most 50 for each, then the number of the others.
    #[must_use]
    pub fn warnings(&self) -> &[PolicyFault] {
        &self.warnings
    }

    /// The sandbox tiers that the operator's policy has a section for, each with whether it was applied.
    #[must_use]
    pub fn sandbox_sections(&self) -> &[(SandboxTier, bool)] {
        &self.sandbox
    }

    pub(crate) fn tool_places(&self) -> &[ToolPlace] {
        &self.tool_places
    }

    /// The folder of foreign modules, as the operator wrote it: absolute, or relative to the policy file.
    #[must_use]
    pub fn modules_dir(&self) -> Option<&str> {
        self.effective.modules_dir.as_deref()
    }

    /// The mounts, sorted by name. Their folders have disjoint names; the code that opens them must check
    /// that no link joins them.
    #[must_use]
    pub fn mounts(&self) -> &[MountSpec] {
        &self.mounts
    }

    /// Whether every WASM call must have a layer.
    #[must_use]
    pub fn requires(&self, layer: RequiredLayer) -> bool {
        self.effective.require.contains(&layer)
    }

    /// The layers that every WASM call must have.
    pub fn required_layers(&self) -> impl Iterator<Item = RequiredLayer> {
        self.effective.require.iter().copied()
    }

    /// The protected paths, which no tool writes.
    #[must_use]
    pub fn protected(&self) -> &ProtectedPaths {
        &self.effective.protect
    }

    /// The protected kinds, which flow rules with the sink `write:protected` are about.
    #[must_use]
    pub fn protected_kinds(&self) -> &ProtectedKinds {
        &self.kinds
    }

    /// When audit rows are synced to disk.
    #[must_use]
    pub fn audit_sync(&self) -> AuditSync {
        self.effective.audit_sync
    }

    /// All limits.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.effective.limits
    }

    /// The number of calls that run concurrently.
    #[must_use]
    pub fn concurrency(&self) -> usize {
        self.effective.limits.concurrency
    }

    /// The number of calls that an agent may make of one tool in a minute.
    #[must_use]
    pub fn calls_per_minute(&self) -> u32 {
        self.effective.limits.calls_per_minute
    }

    /// The upper bound on the time of any call.
    #[must_use]
    pub fn max_timeout(&self) -> Duration {
        self.effective.limits.max_timeout
    }

    /// The shell; none if commands do not run, for the reason that [`Self::shell_absence`] gives.
    #[must_use]
    pub fn shell(&self) -> Option<&ShellPolicy> {
        self.effective.shell.as_ref().ok()
    }

    /// The reason why there is no shell; none if there is one.
    #[must_use]
    pub fn shell_absence(&self) -> Option<ShellAbsence> {
        self.effective.shell.as_ref().err().copied()
    }

    /// The profiles and their mounts, sorted by name: one worker pool each. The shell's profile is not
    /// included.
    pub fn profiles(&self) -> impl Iterator<Item = (&ProfileName, &[GrantedMount])> {
        self.profiles.iter().map(|(name, mounts)| (name, &**mounts))
    }

    /// The mounts of a profile, sorted by name; those of the shell for [`ProfileName::SHELL`]; empty for an
    /// unknown profile.
    #[must_use]
    pub fn mounts_of(&self, profile: &ProfileName) -> &[GrantedMount] {
        if profile.is_shell() {
            return self.shell_mounts.as_deref().unwrap_or_default();
        }
        self.profiles.get(profile).map_or(&[], |mounts| mounts)
    }

    /// The network of a profile; none for a profile without hosts, for [`ProfileName::SHELL`], and for an
    /// unknown profile.
    #[must_use]
    pub fn network_of(&self, profile: &ProfileName) -> Option<&NetworkGrant> {
        self.networks.get(profile).map(Arc::as_ref)
    }

    /// Whether any profile has hosts.
    #[must_use]
    pub fn has_network(&self) -> bool {
        !self.networks.is_empty()
    }

    /// The ports of all rules of all profiles: no request of this policy leads to another one.
    #[must_use]
    pub fn network_ports(&self) -> BTreeSet<u16> {
        self.networks.values().flat_map(|network| network.hosts.iter().map(HostRule::port)).collect()
    }

    /// The network of the shell; none if there is no shell, or it has no hosts.
    #[must_use]
    pub fn shell_network(&self) -> Option<&ShellNetwork> {
        self.shell_network.as_deref()
    }

    /// `[egress]`, with every default filled in.
    #[must_use]
    pub fn egress(&self) -> &EgressSettings {
        &self.effective.egress
    }

    /// The secrets, sorted by name: their sources and audiences, never a value.
    pub fn secrets(&self) -> impl Iterator<Item = (&SecretName, &SecretRule)> {
        self.effective.secrets.iter()
    }

    /// `[search]`; none without a provider, and then no tool searches the web.
    #[must_use]
    pub fn search(&self) -> Option<&SearchSettings> {
        self.effective.search.as_ref()
    }

    /// The digest of the effective policy.
    #[must_use]
    pub fn digest(&self) -> &PolicyDigest {
        &self.digest
    }

    pub(crate) fn effective(&self) -> &EffectivePolicy {
        &self.effective
    }

    pub(crate) fn shared_mounts_of(&self, profile: &ProfileName) -> Arc<[GrantedMount]> {
        let mounts = match profile.is_shell() {
            true => self.shell_mounts.as_ref(),
            false => self.profiles.get(profile),
        };
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

    fn from_effective(effective: EffectivePolicy) -> Self {
        let mounts = effective
            .mounts
            .iter()
            .map(|(name, folder)| MountSpec { name: name.clone(), folder: folder.clone() })
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
        let shell_network = shell_network.and_then(|shell| ShellNetwork::of(&shell.hosts, &effective.egress));
        let shell_network = shell_network.map(Arc::new);
        let kinds = Arc::new(effective.kinds.clone());
        let networks = effective
            .networks
            .iter()
            .map(|(name, network)| (name.clone(), Arc::new(NetworkGrant::of(network, &effective.egress))))
            .collect();
        // Of the effective policy alone: warnings and places do not change what is allowed.
        let digest = PolicyDigest::of(&effective);
        let (warnings, tool_places, sandbox) = Default::default();
        Self {
            effective,
            mounts,
            profiles,
            shell_mounts,
            shell_network,
            kinds,
            networks,
            digest,
            warnings,
            tool_places,
            sandbox,
        }
    }
}

fn tool_places(reduction: &Reduction, faults: &Faults<'_>) -> Vec<ToolPlace> {
    reduction.tools.iter().map(|entry| ToolPlace::new(&entry.name, entry.optional, faults)).collect()
}
