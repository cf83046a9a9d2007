//! What holds in every policy, whatever its author wanted. A policy that breaks one of these is not used.

use portcullis_types::Access;

use crate::{
    MountName, ProfileName,
    file::{Faults, PolicyFile, ProfileEntry},
    mount::folders_overlap,
};

/// Checks every invariant. A reduction cannot break one: it only takes mounts and access away.
pub(crate) fn check(file: &PolicyFile, faults: &mut Faults<'_>) {
    mounts_are_disjoint(file, faults);
    nothing_is_nothing(file, faults);
    the_vault_is_never_writable(file, faults);
    the_vault_is_never_beside_a_writable_mount(file, faults);
    no_tier_reaches_the_vault(file, faults);
}

/// Two mounts on one folder would give one profile's files another profile's access. Links are for the
/// opener to find out.
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

/// Strangers' modules and tools without a profile run with `Nothing`; it must be what it is called.
fn nothing_is_nothing(file: &PolicyFile, faults: &mut Faults<'_>) {
    for profile in &file.profiles {
        if profile.value.name.as_str() == ProfileName::NOTHING {
            for (mount, _) in &profile.value.mounts {
                faults.add_at(mount, "the profile `Nothing` has no mounts; use one of another name");
            }
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

/// A call that reads the vault and writes elsewhere carries secrets out in one step.
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

/// A tool that names no profile must not get at secrets by saying that it is harmless.
fn no_tier_reaches_the_vault(file: &PolicyFile, faults: &mut Faults<'_>) {
    for tier in &file.tiers {
        let profile = file.profiles.iter().find(|profile| profile.value.name.as_str() == tier.profile.value);
        if profile.is_some_and(|profile| reaches_vault(&profile.value)) {
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

fn reaches_vault(profile: &ProfileEntry) -> bool {
    profile.mounts.iter().any(|(mount, _)| mount.value == MountName::VAULT)
}
