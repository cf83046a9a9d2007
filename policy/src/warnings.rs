//! Warnings about an operator's policy: unused names, rules that never apply, secrets that a shell would get.
//! The warnings about a reduction are in `overlay` and its helpers.

use crate::{
    LintCode, ProfileName, TunnelRule,
    file::{Faults, Located, PolicyFile, ShellEntries},
    search::idle_search,
};

/// Adds all warnings of a policy.
pub(crate) fn collect_warnings(file: &PolicyFile, faults: &mut Faults<'_>) {
    warn_of_unused_profiles(file, faults);
    warn_of_unused_mounts(file, faults);
    warn_of_idle_network(file, faults);
    idle_search(file, faults);
    if let Some(shell) = &file.shell {
        warn_of_secret_variables(shell, faults);
        warn_of_shadowed_rules(shell, faults);
        warn_of_covered_hosts(shell, faults);
    }
}

fn warn_of_unused_profiles(file: &PolicyFile, faults: &mut Faults<'_>) {
    let tier_profiles = file.tiers.iter().map(|tier| &tier.profile);
    let tool_profiles = file.tools.iter().filter_map(|tool| tool.profile.as_ref());
    let used_profiles: Vec<&str> =
        tier_profiles.chain(tool_profiles).map(|profile| profile.value.as_str()).collect();
    for profile in &file.profiles {
        let name = profile.value.name.as_str();
        if name != ProfileName::NOTHING && !used_profiles.contains(&name) {
            faults.warn_at(LintCode::Unused, profile, "no tier and no tool has this profile");
        }
    }
}

fn warn_of_unused_mounts(file: &PolicyFile, faults: &mut Faults<'_>) {
    let profile_mounts =
        file.profiles.iter().flat_map(|profile| &profile.value.mounts).map(|(mount, _)| mount);
    let shell_mounts = file.shell.iter().flat_map(|shell| &shell.mounts).map(|(mount, _)| mount);
    let used_mounts: Vec<&str> =
        profile_mounts.chain(shell_mounts).map(|mount| mount.value.as_str()).collect();
    for mount in file.mounts.iter().filter(|mount| !used_mounts.contains(&mount.value.name.as_str())) {
        faults.warn_at(LintCode::Unused, mount, "no profile and no shell has this mount");
    }
}

/// Warns of lines about the network that grant nothing more than other lines do.
fn warn_of_idle_network(file: &PolicyFile, faults: &mut Faults<'_>) {
    for network in file.profiles.iter().map(|profile| &profile.value.network) {
        if let Some(methods) = network.methods.as_ref().filter(|_| network.rules().next().is_none()) {
            faults.warn_at(
                LintCode::IdleNetwork,
                methods,
                "without `hosts` no request is granted, whatever its method",
            );
        }
        for rule in network.rules() {
            let wider = network.rules().find(|other_rule| {
                other_rule.value != rule.value && other_rule.value.covers_rule(&rule.value)
            });
            if let Some(wider) = wider {
                faults.warn_at(LintCode::Covered, rule, format!("`{}` covers this", wider.value));
            }
        }
    }
    for endpoint in file.egress.allow_private.iter().filter(|endpoint| endpoint.value.is_public()) {
        faults.warn_at(
            LintCode::IdleNetwork,
            endpoint,
            "this address is public, so the entry allows nothing; write it in `hosts`",
        );
    }
}

/// Warns of secrets in the environment, because every command can read its environment and write the secret
/// to a mount.
fn warn_of_secret_variables<A>(shell: &ShellEntries<A>, faults: &mut Faults<'_>) {
    for name in shell.environment.iter().flatten().filter(|name| name.value.looks_secret()) {
        faults.warn_at(
            LintCode::SecretVariable,
            name,
            "this looks like the name of a secret: every command of the shell can read it and write it down",
        );
    }
}

/// Warns of a rule of `allow` that `deny` covers: `deny` takes precedence, so such a rule allows nothing.
fn warn_of_shadowed_rules<A>(shell: &ShellEntries<A>, faults: &mut Faults<'_>) {
    for allowed in shell.allow.iter().flatten() {
        if let Some(denied) = shell.deny.iter().find(|denied| denied.covers_rule(allowed)) {
            let Located { offset, key, .. } = &shell.location;
            let allow_list = Located { value: (), offset: *offset, key: format!("{key}.allow") };
            faults.warn_at(
                LintCode::Shadowed,
                &allow_list,
                format!("`{allowed}` allows nothing: `{denied}` in `deny` covers it"),
            );
        }
    }
}

/// Warns of rules of a shell's `hosts` that grant nothing more than other rules do.
fn warn_of_covered_hosts<A>(shell: &ShellEntries<A>, faults: &mut Faults<'_>) {
    for rule in shell.rules() {
        let covers_rule = |other_rule: &&Located<TunnelRule>| {
            other_rule.value != rule.value && other_rule.value.rule().covers_rule(rule.value.rule())
        };
        if let Some(wider) = shell.rules().find(covers_rule) {
            faults.warn_at(LintCode::Covered, rule, format!("`{}` covers this", wider.value));
        }
    }
}
