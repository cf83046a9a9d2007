//! Decides whether a tool could move a task into the folder of approved tasks, and so approve its own calls.

use std::{
    collections::BTreeSet,
    os::fd::AsFd,
    path::{Path, PathBuf},
};

use portcullis_tools::{
    ToolRegistry,
    policy::{GrantedMount, ProfileName},
};
use portcullis_types::Access;
use rustix::fs::{Mode, OFlags, fstat, openat};

/// Returns why some tool may write in one of the folders, or `None` if none may. Only mounts are considered:
/// a protected path or a question for each call does not change the answer.
pub(super) fn writable(
    registry: &ToolRegistry,
    folders: &[PathBuf],
    is_shell_unconfined: bool,
) -> Option<String> {
    let policy = registry.policy();
    if is_shell_unconfined && policy.shell().is_some() {
        return Some("commands run unconfined (`--shell host`), and can write everywhere".to_owned());
    }
    let shell = ProfileName::parse(ProfileName::SHELL).ok();
    let shell_mounts = shell.as_ref().map(|shell| policy.mounts_of(shell));
    let granted = policy.profiles().map(|(_, mounts)| mounts).chain(shell_mounts).flatten();
    let written: BTreeSet<&str> = granted
        .filter(|mount: &&GrantedMount| mount.access == Access::Write)
        .map(|mount| mount.name.as_str())
        .collect();
    for mount in registry.mounts().iter().filter(|mount| written.contains(mount.name().as_str())) {
        for folder in folders {
            let is_reached =
                match (identity(mount.directory()), find_ancestry(folder), ancestors_of(mount.directory())) {
                    // The folder is in the mount, or the mount in the folder.
                    (Some(mount), Some(folder), Some(above_mount)) => {
                        folder.ancestors.contains(&mount)
                            || folder.own_identity.is_some_and(|folder| above_mount.contains(&folder))
                    }
                    // A mount or a folder that cannot be examined counts as reachable.
                    _ => true,
                };
            if is_reached {
                let name = mount.name();
                return Some(format!(
                    "tools can write in the mount `{name}`, which contains it; keep tasks in a folder that tools cannot write, or give --approve"
                ));
            }
        }
    }
    None
}

/// The identity of a folder: device and inode.
type Identity = (u64, u64);

fn identity(folder: impl AsFd) -> Option<Identity> {
    let stat = fstat(folder).ok()?;
    Some((stat.st_dev, stat.st_ino))
}

/// A folder with its ancestors.
struct Ancestry {
    /// The folder itself. `None` if it does not exist yet: in that case no mount is in it.
    own_identity: Option<Identity>,
    /// The existing ancestors of the folder, and the folder itself.
    ancestors: Vec<Identity>,
}

fn find_ancestry(folder: &Path) -> Option<Ancestry> {
    let absolute = std::path::absolute(folder).ok()?;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let open = |path: &Path| rustix::fs::open(path, flags, Mode::empty()).ok();
    let own = open(&absolute).and_then(identity);
    // A missing folder will be created in its nearest existing ancestor.
    let ancestors = ancestors_of(absolute.ancestors().find_map(open)?)?;
    Some(Ancestry { own_identity: own, ancestors })
}

/// Returns the identities of a folder and of all its ancestors.
fn ancestors_of(folder: impl AsFd) -> Option<Vec<Identity>> {
    let mut found = vec![identity(&folder)?];
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut parent = openat(&folder, "..", flags, Mode::empty()).ok()?;
    for _level in 0..MAX_LEVELS {
        let next = identity(&parent)?;
        // The root is its own parent.
        if found.last() == Some(&next) {
            return Some(found);
        }
        found.push(next);
        parent = openat(&parent, "..", flags, Mode::empty()).ok()?;
    }
    None
}

/// More levels than a path can have, to bound the loop.
const MAX_LEVELS: usize = 4_096;
