//! The invariants of every policy. A policy that breaks one is rejected.

use portcullis_types::Access;

use crate::{
    HostRule, MountName, Operation, ProfileName,
    file::{Faults, PlacedValue, PolicyFile, ProfileEntry},
    mount::folders_overlap,
    secrets::{check_environment, check_headers},
    shipped::SHELL_EXEC,
};

/// Checks every invariant except one: that no shell has the vault is checked where `[shell]` is resolved. A
/// reduction cannot break an invariant, since it only takes mounts and access away.
pub(crate) fn check(file: &PolicyFile, faults: &mut Faults<'_>) {
    mounts_are_disjoint(file, faults);
    nothing_is_nothing(file, faults);
    no_profile_is_called_shell(file, faults);
    no_two_profiles_differ_in_case_only(file, faults);
    the_vault_is_never_writable(file, faults);
    the_vault_is_never_beside_a_writable_mount(file, faults);
    no_tier_reaches_the_vault(file, faults);
    no_profile_has_vault_and_hosts(file, faults);
    no_shell_has_hosts_of_a_profile(file, faults);
    check_headers(file, faults);
    check_environment(file, faults);
    for operation in Operation::ALL {
        an_operation_has_nothing_itself(operation, file, faults);
        steps_share_no_mount(operation, file, faults);
        no_step_beside_the_vault_has_hosts(operation, file, faults);
    }
}

/// Two mounts on one folder would expose the files of one profile with the access of another. This compares
/// names; the code that opens the folders detects links.
fn mounts_are_disjoint(file: &PolicyFile, faults: &mut Faults<'_>) {
    for (index, later) in file.mounts.iter().enumerate() {
        for earlier in &file.mounts[..index] {
            let (folder, other) = (&later.value.folder, &earlier.value.folder);
            if folders_overlap(folder, other) {
                let name = &earlier.value.name;
                faults.add_at(
                    later,
                    format!("`{folder}` overlaps `{other}` of mount `{name}`; mounts must be disjoint"),
                );
            }
        }
    }
}

/// Foreign modules and tools without a profile run with `Nothing`, so it must not have mounts.
fn nothing_is_nothing(file: &PolicyFile, faults: &mut Faults<'_>) {
    for profile in &file.profiles {
        if profile.value.name.as_str() == ProfileName::NOTHING {
            for (mount, _) in &profile.value.mounts {
                faults.add_at(mount, "the profile `Nothing` has no mounts; use one of another name");
            }
            if let Some(hosts) = hosts_of(&profile.value) {
                faults.add_at(hosts, "the profile `Nothing` has no hosts; use one of another name");
            }
        }
    }
}

/// The grants of a shell stand in `[shell]`; a profile called `Shell` would be taken for them.
fn no_profile_is_called_shell(file: &PolicyFile, faults: &mut Faults<'_>) {
    for profile in file.profiles.iter().filter(|profile| profile.value.name.is_shell()) {
        faults.add_at(profile, "the mounts of a shell stand in `[shell]`; use another name for a profile");
    }
}

/// Readers of the policy and authors of entries would confuse such names.
fn no_two_profiles_differ_in_case_only(file: &PolicyFile, faults: &mut Faults<'_>) {
    for (index, later) in file.profiles.iter().enumerate() {
        let name = later.value.name.as_str();
        let earlier = file.profiles[..index].iter().map(|earlier| earlier.value.name.as_str());
        let mut others = earlier.chain([ProfileName::NOTHING, ProfileName::SHELL]);
        if let Some(other) = others.find(|other| *other != name && other.eq_ignore_ascii_case(name)) {
            faults.add_at(later, format!("`{name}` and `{other}` differ in case only; use another name"));
        }
    }
}

fn the_vault_is_never_writable(file: &PolicyFile, faults: &mut Faults<'_>) {
    for profile in &file.profiles {
        for (mount, access) in &profile.value.mounts {
            if mount.value == MountName::VAULT && *access == Access::Write {
                faults.add_at(mount, "the vault is never writable; write `vault = \"read\"`");
            }
        }
    }
}

/// A call that reads the vault and can write elsewhere could leak secrets in one step.
fn the_vault_is_never_beside_a_writable_mount(file: &PolicyFile, faults: &mut Faults<'_>) {
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
                format!("the vault is never together with a writable mount, and `{writable}` is one"),
            );
        }
    }
}

/// A tool without a profile must not reach secrets by declaring a harmless tier.
fn no_tier_reaches_the_vault(file: &PolicyFile, faults: &mut Faults<'_>) {
    for tier in &file.tiers {
        if find(&tier.profile, file).is_some_and(reaches_vault) {
            let name = &tier.profile.value;
            faults.add_at(
                &tier.profile,
                format!(
                    "no tier's profile reaches the vault, and `{name}` does; name it in `[tools]` instead"
                ),
            );
        }
    }
}

/// A call that reads the vault and can send a request could leak secrets in one step.
fn no_profile_has_vault_and_hosts(file: &PolicyFile, faults: &mut Faults<'_>) {
    for profile in file.profiles.iter().filter(|profile| reaches_vault(&profile.value)) {
        if let Some(hosts) = hosts_of(&profile.value) {
            faults.add_at(hosts, "the vault is never together with hosts; write two profiles");
        }
    }
}

/// The hosts of a shell stand in `[shell]`, and only its forwarder reaches them. Shells get `Shell`, which no policy
/// defines, so only an entry could name a profile with hosts.
fn no_shell_has_hosts_of_a_profile(file: &PolicyFile, faults: &mut Faults<'_>) {
    if let Some(stated) = stated_profile(SHELL_EXEC, file)
        && find(stated, file).is_some_and(|profile| hosts_of(profile).is_some())
    {
        faults.add_at(
            stated,
            "a tool that runs commands has the hosts of `[shell]` alone; name no profile for it",
        );
    }
}

/// The operation hands what one step read to the others. A step with hosts could send it.
fn no_step_beside_the_vault_has_hosts(operation: &Operation, file: &PolicyFile, faults: &mut Faults<'_>) {
    let steps = operation.steps.iter().filter_map(|step| {
        let stated = stated_profile(step, file)?;
        Some((stated, find(stated, file)?))
    });
    let steps: Vec<_> = steps.collect();
    if !steps.iter().any(|(_, profile)| reaches_vault(profile)) {
        return;
    }
    for (stated, _) in
        steps.iter().filter(|(_, profile)| !reaches_vault(profile) && hosts_of(profile).is_some())
    {
        let name = operation.name;
        faults.add_at(
            stated,
            format!("a step of `{name}` reads the vault, so no other one has hosts; name a profile without `hosts`"),
        );
    }
}

/// An operation touches only what its steps touch, each with its own grant. A profile of the operation itself
/// is refused: it would have no effect, but readers would expect one.
fn an_operation_has_nothing_itself(operation: &Operation, file: &PolicyFile, faults: &mut Faults<'_>) {
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

/// A mount shared by two steps would let data pass from one grant to the other without the operation.
fn steps_share_no_mount(operation: &Operation, file: &PolicyFile, faults: &mut Faults<'_>) {
    for (index, later) in operation.steps.iter().enumerate() {
        let Some(stated) = stated_profile(later, file) else { continue };
        let Some(profile) = find(stated, file) else { continue };
        for earlier in &operation.steps[..index] {
            let Some(other) = stated_profile(earlier, file).and_then(|stated| find(stated, file)) else {
                continue;
            };
            let shared = profile
                .mounts
                .iter()
                .find(|(mount, _)| other.mounts.iter().any(|(other, _)| other.value == mount.value));
            if let Some((mount, _)) = shared {
                let mount = &mount.value;
                faults.add_at(
                    stated,
                    format!(
                        "the steps of `{}` share no mount, and `{earlier}` has `{mount}` too; name profiles such as `VaultRead` and `VaultWrite`",
                        operation.name
                    ),
                );
            }
        }
    }
}

/// The profile that a tool's entry names.
fn stated_profile<'a>(tool: &str, file: &'a PolicyFile) -> Option<&'a PlacedValue<String>> {
    file.tools.iter().find(|entry| entry.name.value.as_str() == tool)?.profile.as_ref()
}

fn find<'a>(profile: &PlacedValue<String>, file: &'a PolicyFile) -> Option<&'a ProfileEntry> {
    let found = file.profiles.iter().find(|entry| entry.value.name.as_str() == profile.value);
    found.map(|entry| &entry.value)
}

/// The `hosts` of a profile, if it grants any.
fn hosts_of(profile: &ProfileEntry) -> Option<&PlacedValue<Vec<PlacedValue<HostRule>>>> {
    profile.network.hosts.as_ref().filter(|hosts| !hosts.value.is_empty())
}

fn reaches_vault(profile: &ProfileEntry) -> bool {
    profile.mounts.iter().any(|(mount, _)| mount.value == MountName::VAULT)
}
