//! Warnings of an operator's policy: unused names, rules that never apply, secrets that a shell would get.
//! Lines of a reduction without effect are noticed where the reduction is applied.

use crate::{
    ProfileName, TunnelRule,
    file::{Faults, PlacedValue, PolicyFile, ShellEntries},
    search::idle_search,
};

/// Adds all warnings of a policy.
pub(crate) fn look(file: &PolicyFile, faults: &mut Faults<'_>) {
    unused_profiles(file, faults);
    unused_mounts(file, faults);
    idle_network(file, faults);
    idle_search(file, faults);
    if let Some(shell) = &file.shell {
        secrets(shell, faults);
        shadowed(shell, faults);
        covered(shell, faults);
    }
}

fn unused_profiles(file: &PolicyFile, faults: &mut Faults<'_>) {
    let by_tier = file.tiers.iter().map(|tier| &tier.profile);
    let by_tool = file.tools.iter().filter_map(|tool| tool.profile.as_ref());
    let used: Vec<&str> = by_tier.chain(by_tool).map(|profile| profile.value.as_str()).collect();
    for profile in &file.profiles {
        let name = profile.value.name.as_str();
        if name != ProfileName::NOTHING && !used.contains(&name) {
            faults.warn_at(profile, "no tier and no tool has this profile");
        }
    }
}

fn unused_mounts(file: &PolicyFile, faults: &mut Faults<'_>) {
    let by_profile = file.profiles.iter().flat_map(|profile| &profile.value.mounts).map(|(mount, _)| mount);
    let by_shell = file.shell.iter().flat_map(|shell| &shell.mounts).map(|(mount, _)| mount);
    let used: Vec<&str> = by_profile.chain(by_shell).map(|mount| mount.value.as_str()).collect();
    for mount in file.mounts.iter().filter(|mount| !used.contains(&mount.value.name.as_str())) {
        faults.warn_at(mount, "no profile and no shell has this mount");
    }
}

/// Lines about the network that grant nothing more than the others do.
fn idle_network(file: &PolicyFile, faults: &mut Faults<'_>) {
    for network in file.profiles.iter().map(|profile| &profile.value.network) {
        if let Some(methods) = network.methods.as_ref().filter(|_| network.rules().next().is_none()) {
            faults.warn_at(methods, "without `hosts` no request is granted, whatever its method");
        }
        for rule in network.rules() {
            let wider = network
                .rules()
                .find(|other| other.value != rule.value && other.value.covers_rule(&rule.value));
            if let Some(wider) = wider {
                faults.warn_at(rule, format!("`{}` covers this", wider.value));
            }
        }
    }
    for endpoint in file.egress.allow_private.iter().filter(|endpoint| endpoint.value.is_public()) {
        faults.warn_at(endpoint, "this address is public, so the entry allows nothing; write it in `hosts`");
    }
}

/// Every command can read its environment and write the secret into a mount.
fn secrets<A>(shell: &ShellEntries<A>, faults: &mut Faults<'_>) {
    for name in shell.environment.iter().flatten().filter(|name| name.value.looks_secret()) {
        faults.warn_at(
            name,
            "this looks like the name of a secret: every command of the shell can read it and write it down",
        );
    }
}

/// `deny` beats `allow`, so a rule of `allow` that `deny` covers allows nothing.
fn shadowed<A>(shell: &ShellEntries<A>, faults: &mut Faults<'_>) {
    for allowed in shell.allow.iter().flatten() {
        if let Some(denied) = shell.deny.iter().find(|denied| denied.covers_rule(allowed)) {
            let PlacedValue { at, key, .. } = &shell.place;
            let place = PlacedValue { value: (), at: *at, key: format!("{key}.allow") };
            faults.warn_at(&place, format!("`{allowed}` allows nothing: `{denied}` in `deny` covers it"));
        }
    }
}

/// Rules of a shell's `hosts` that grant nothing more than the others do.
fn covered<A>(shell: &ShellEntries<A>, faults: &mut Faults<'_>) {
    for rule in shell.rules() {
        let covers = |other: &&PlacedValue<TunnelRule>| {
            other.value != rule.value && other.value.rule().covers_rule(rule.value.rule())
        };
        if let Some(wider) = shell.rules().find(covers) {
            faults.warn_at(rule, format!("`{}` covers this", wider.value));
        }
    }
}
