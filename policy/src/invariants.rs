//! The invariants of every policy. A policy that violates one is rejected.

use portcullis_types::Access;

use crate::{
    HostRule, LintCode, MountName, Operation, ProfileName,
    file::{Faults, Located, PolicyFile, ProfileEntry},
    mount::folders_overlap,
    secrets::{check_environment, check_headers},
    shipped::SHELL_EXEC,
};

/// Checks every invariant except one: the code that resolves `[shell]` checks that no shell has the vault. A
/// reduction cannot violate an invariant, because it only takes mounts and access away.
pub(crate) fn check(file: &PolicyFile, faults: &mut Faults<'_>) {
    check_mounts_are_disjoint(file, faults);
    check_nothing_profile(file, faults);
    check_shell_profile(file, faults);
    check_case_of_profiles(file, faults);
    check_vault_is_read_only(file, faults);
    check_vault_is_alone(file, faults);
    check_tiers(file, faults);
    check_hosts_of_vault_profiles(file, faults);
    check_hosts_of_shell(file, faults);
    check_headers(file, faults);
    check_environment(file, faults);
    for operation in Operation::ALL {
        check_operation_profile(operation, file, faults);
        check_mounts_of_steps(operation, file, faults);
        check_hosts_of_steps(operation, file, faults);
    }
}

/// Checks that mounts are disjoint. Two mounts on one folder would give the files of one profile the access
/// of another. This check compares names. The code that opens the folders detects symlinks.
fn check_mounts_are_disjoint(file: &PolicyFile, faults: &mut Faults<'_>) {
    for (index, later) in file.mounts.iter().enumerate() {
        for earlier in &file.mounts[..index] {
            let (later_folder, earlier_folder) = (&later.value.folder, &earlier.value.folder);
            if folders_overlap(later_folder, earlier_folder) {
                let name = &earlier.value.name;
                faults.add_at(
                    later,
                    format!("`{later_folder}` overlaps `{earlier_folder}` of mount `{name}`; mounts must be disjoint: name only the outer folder, or two folders beside each other"),
                );
            }
        }
    }
}

/// Checks that `Nothing` has no mounts and no hosts, because foreign modules and tools without a profile run
/// with it.
fn check_nothing_profile(file: &PolicyFile, faults: &mut Faults<'_>) {
    for profile in &file.profiles {
        if profile.value.name.as_str() == ProfileName::NOTHING {
            for (mount, _) in &profile.value.mounts {
                faults.add_at(
                    mount,
                    "the profile `Nothing` cannot have mounts; give this profile another name",
                );
            }
            if let Some(hosts) = hosts_of(&profile.value) {
                faults
                    .add_at(hosts, "the profile `Nothing` cannot have hosts; give this profile another name");
            }
        }
    }
}

/// Refuses a profile called `Shell`: the grants of a shell are in `[shell]`, and readers would mistake the
/// profile for them.
fn check_shell_profile(file: &PolicyFile, faults: &mut Faults<'_>) {
    for profile in file.profiles.iter().filter(|profile| profile.value.name.is_shell()) {
        faults.add_at(profile, "the mounts of a shell belong in `[shell]`; use another name for a profile");
    }
}

/// Refuses names that differ only in case, because readers of the policy would confuse them.
fn check_case_of_profiles(file: &PolicyFile, faults: &mut Faults<'_>) {
    for (index, later) in file.profiles.iter().enumerate() {
        let name = later.value.name.as_str();
        let earlier = file.profiles[..index].iter().map(|earlier| earlier.value.name.as_str());
        let mut others = earlier.chain([ProfileName::NOTHING, ProfileName::SHELL]);
        if let Some(earlier_name) = others.find(|other| *other != name && other.eq_ignore_ascii_case(name)) {
            faults.add_coded(
                LintCode::DiffersInCase,
                later,
                format!("`{name}` and `{earlier_name}` differ in case only; use another name"),
            );
        }
    }
}

fn check_vault_is_read_only(file: &PolicyFile, faults: &mut Faults<'_>) {
    for profile in &file.profiles {
        for (mount, access) in &profile.value.mounts {
            if mount.value == MountName::VAULT && *access == Access::Write {
                faults.add_at(mount, "the vault cannot be writable; write `vault = \"read\"`");
            }
        }
    }
}

/// Refuses a profile that can read the vault and write elsewhere, because one call could leak secrets.
fn check_vault_is_alone(file: &PolicyFile, faults: &mut Faults<'_>) {
    for profile in &file.profiles {
        let writable = profile
            .value
            .mounts
            .iter()
            .find(|(mount, access)| mount.value != MountName::VAULT && *access == Access::Write);
        if let (true, Some((mount, _))) = (reaches_vault(&profile.value), writable) {
            let writable = &mount.value;
            faults.add_at(
                profile,
                format!("a profile with the vault cannot have a writable mount; make `{writable}` read-only, or use two profiles"),
            );
        }
    }
}

/// Refuses a tier whose profile has the vault: a tool without a profile could otherwise reach secrets by
/// declaring that tier.
fn check_tiers(file: &PolicyFile, faults: &mut Faults<'_>) {
    for tier in &file.tiers {
        if find(&tier.profile, file).is_some_and(reaches_vault) {
            let name = &tier.profile.value;
            faults.add_at(
                &tier.profile,
                format!(
                    "`{name}` has the vault, so it cannot be the profile of a tier; name it in an entry `[tools.NAME]`"
                ),
            );
        }
    }
}

/// Refuses a profile with the vault and hosts, because one call could leak secrets.
fn check_hosts_of_vault_profiles(file: &PolicyFile, faults: &mut Faults<'_>) {
    for profile in file.profiles.iter().filter(|profile| reaches_vault(&profile.value)) {
        if let Some(hosts) = hosts_of(&profile.value) {
            faults.add_at(hosts, "a profile with the vault cannot have hosts; use two profiles");
        }
    }
}

/// Refuses hosts in the profile of a shell: the shell's hosts are in `[shell]`, and only the shell's
/// forwarder reaches them. A tool that runs commands gets the profile `Shell`, which no policy defines, so
/// only its entry could name a profile with hosts.
fn check_hosts_of_shell(file: &PolicyFile, faults: &mut Faults<'_>) {
    if let Some(profile_name) = stated_profile(SHELL_EXEC, file)
        && find(profile_name, file).is_some_and(|profile| hosts_of(profile).is_some())
    {
        faults.add_at(
            profile_name,
            "a tool that runs commands has only the hosts of `[shell]`; name no profile for it",
        );
    }
}

/// Refuses hosts for any step beside a step with the vault: the operation passes data between steps, and a
/// step with hosts could send it away.
fn check_hosts_of_steps(operation: &Operation, file: &PolicyFile, faults: &mut Faults<'_>) {
    let steps = operation.steps.iter().filter_map(|step| {
        let profile_name = stated_profile(step, file)?;
        Some((profile_name, find(profile_name, file)?))
    });
    let steps: Vec<_> = steps.collect();
    if !steps.iter().any(|(_, profile)| reaches_vault(profile)) {
        return;
    }
    for (profile_name, _) in
        steps.iter().filter(|(_, profile)| !reaches_vault(profile) && hosts_of(profile).is_some())
    {
        let name = operation.name;
        faults.add_at(
            profile_name,
            format!("a step of `{name}` reads the vault, so no other one has hosts; name a profile without `hosts`"),
        );
    }
}

/// Refuses a profile for an operation: an operation accesses only what its steps access, each with its own
/// grant. The profile would have no effect, but readers would expect one.
fn check_operation_profile(operation: &Operation, file: &PolicyFile, faults: &mut Faults<'_>) {
    if let Some(profile) = stated_profile(operation.name, file)
        && profile.value != ProfileName::NOTHING
    {
        let (name, steps) = (operation.name, operation.steps.join("` and `"));
        faults.add_at(
            profile,
            format!(
                "`{name}` has no mounts itself; write `profile = \"Nothing\"`, and name the profiles of its steps `{steps}`"
            ),
        );
    }
}

/// Refuses a mount that two steps share: data could pass from one grant to the other without the operation.
fn check_mounts_of_steps(operation: &Operation, file: &PolicyFile, faults: &mut Faults<'_>) {
    for (index, later) in operation.steps.iter().enumerate() {
        let Some(profile_name) = stated_profile(later, file) else { continue };
        let Some(profile) = find(profile_name, file) else { continue };
        for earlier in &operation.steps[..index] {
            let Some(earlier_profile) =
                stated_profile(earlier, file).and_then(|profile_name| find(profile_name, file))
            else {
                continue;
            };
            let shared = profile.mounts.iter().find(|(mount, _)| {
                earlier_profile.mounts.iter().any(|(earlier_mount, _)| earlier_mount.value == mount.value)
            });
            if let Some((mount, _)) = shared {
                let mount = &mount.value;
                faults.add_at(
                    profile_name,
                    format!(
                        "the steps of `{}` share no mount, and `{earlier}` has `{mount}` too; name profiles such as `VaultRead` and `VaultWrite`",
                        operation.name
                    ),
                );
            }
        }
    }
}

/// Returns the profile that a tool's entry names.
fn stated_profile<'a>(tool: &str, file: &'a PolicyFile) -> Option<&'a Located<String>> {
    file.tools.iter().find(|entry| entry.name.value.as_str() == tool)?.profile.as_ref()
}

fn find<'a>(profile: &Located<String>, file: &'a PolicyFile) -> Option<&'a ProfileEntry> {
    let entry = file.profiles.iter().find(|entry| entry.value.name.as_str() == profile.value);
    entry.map(|entry| &entry.value)
}

/// Returns the `hosts` of a profile, if it grants any.
fn hosts_of(profile: &ProfileEntry) -> Option<&Located<Vec<Located<HostRule>>>> {
    profile.network.hosts.as_ref().filter(|hosts| !hosts.value.is_empty())
}

fn reaches_vault(profile: &ProfileEntry) -> bool {
    profile.mounts.iter().any(|(mount, _)| mount.value == MountName::VAULT)
}
