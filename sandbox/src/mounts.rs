//! Opens the policy's mounts once, as directory handles.
//!
//! All later access uses these handles. [`portcullis_confine::mounts`] documents how a folder is opened, and from which
//! paths it must be disjoint.

use std::{
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
    path::Path,
    sync::Arc,
};

use portcullis_confine::mounts::{MountFolder, open_mounts};
use portcullis_policy::{MountName, MountSpec};
use rustix::{
    fs::{Mode, OFlags, ResolveFlags},
    io::Errno,
};

use crate::hard_links::{PrivateHardLinks, PrivatePaths};

pub use portcullis_confine::mounts::MountError;
pub use portcullis_confine::mounts::real_path;

/// The number of attempts to resolve a path while directories are renamed concurrently (`openat2(2)`,
/// `EAGAIN`).
const RESOLVE_ATTEMPTS: u32 = 16;

/// A mount's open directory.
#[derive(Debug, Clone)]
pub struct MountHandle {
    name: MountName,
    directory: Arc<OwnedFd>,
}

impl MountHandle {
    /// Returns the mount's name. The guest sees the mount as `/name`.
    #[must_use]
    pub fn name(&self) -> &MountName {
        &self.name
    }

    /// Returns the directory, opened with `O_PATH`. The handle itself gives no access to content.
    #[must_use]
    pub fn directory(&self) -> &Arc<OwnedFd> {
        &self.directory
    }
}

/// All mounts of a policy, opened and proven to be disjoint from each other and from private paths.
#[derive(Debug, Default)]
pub struct MountTable {
    mounts: Vec<MountHandle>,
    links: PrivateHardLinks,
}

impl MountTable {
    /// Opens the policy's mounts, and creates missing folders of the workspace.
    ///
    /// The `private` host paths must be disjoint from every mount. Links are resolved before the comparison.
    ///
    /// # Errors
    /// As in [`open_mounts`].
    pub fn open(workspace: &Path, specs: &[MountSpec], private: &PrivatePaths) -> Result<Self, MountError> {
        let folders: Vec<_> =
            specs.iter().map(|spec| MountFolder { name: spec.name.as_str(), folder: &spec.folder }).collect();
        let missing: Vec<&MountSpec> =
            specs.iter().filter(|spec| workspace.join(&spec.folder).symlink_metadata().is_err()).collect();
        let relative_count = specs.iter().filter(|spec| !spec.is_absolute()).count();
        let directories = open_mounts(workspace, &folders, &private.all())?;
        // On first use all folders are missing. Later, a missing folder can mean a typo in the policy.
        if missing.len() < relative_count {
            for MountSpec { name, folder, .. } in missing {
                tracing::warn!(mount = %name, folder = %folder.escape_debug(), "the folder of a mount did not exist and was created");
            }
        }
        let mounts = specs
            .iter()
            .zip(directories)
            .map(|(spec, directory)| MountHandle { name: spec.name.clone(), directory: Arc::new(directory) });
        let mounts: Vec<MountHandle> = mounts.collect();
        for (spec, mount) in specs.iter().zip(&mounts).filter(|(spec, _)| spec.is_absolute()) {
            if let Ok(resolved_path) = real_path(mount.directory.as_fd())
                && resolved_path != Path::new(&spec.folder)
            {
                tracing::info!(mount = %spec.name, folder = %spec.folder.escape_debug(), real = %resolved_path.display(), "the folder of a mount is reached by a link");
            }
        }
        let vault =
            mounts.iter().find(|mount| mount.name.is_vault()).map(|vault| Arc::clone(&vault.directory));
        Ok(Self { mounts, links: PrivateHardLinks::new(vault, private) })
    }

    /// Iterates over all mounts in the order of the policy.
    pub fn iter(&self) -> impl Iterator<Item = &MountHandle> {
        self.mounts.iter()
    }

    /// Returns the search for private files that have names elsewhere.
    #[must_use]
    pub fn private_links(&self) -> &PrivateHardLinks {
        &self.links
    }

    /// Returns the mount with this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&MountHandle> {
        self.mounts.iter().find(|mount| mount.name.as_str() == name)
    }
}

/// Resolves a path beneath a directory, without opening its target.
///
/// # Errors
/// The system's error, which is [`Errno::XDEV`] for a path that leaves the folder.
pub fn resolve_beneath(base: BorrowedFd<'_>, path: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
    resolve(base, path, flags, ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS)
}

/// Resolves a path beneath a directory as [`resolve_beneath`] does, but follows no symlink.
///
/// # Errors
/// The system's error, which is [`Errno::LOOP`] for a path that leads through a symlink.
pub(crate) fn resolve_without_symlinks(
    base: BorrowedFd<'_>,
    path: &str,
    flags: OFlags,
) -> Result<OwnedFd, Errno> {
    resolve(base, path, flags, ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS)
}

fn resolve(base: BorrowedFd<'_>, path: &str, flags: OFlags, beneath: ResolveFlags) -> Result<OwnedFd, Errno> {
    let flags = flags | OFlags::PATH | OFlags::CLOEXEC;
    let path = if path.is_empty() { "." } else { path };
    for _ in 0..RESOLVE_ATTEMPTS {
        match rustix::fs::openat2(base, path, flags, Mode::empty(), beneath) {
            Err(Errno::AGAIN | Errno::INTR) => {}
            // `openat2(2)` returns `EXDEV` for an absolute path, as for every escape.
            other => return other,
        }
    }
    Err(Errno::AGAIN)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn spec(name: &str, folder: &str) -> MountSpec {
        let name = MountName::parse(name).expect("a name");
        MountSpec { name, folder: folder.to_owned(), has_undo: false }
    }

    #[test]
    fn mounts_are_made_on_first_use_and_found_by_name() {
        let dir = tempfile::tempdir().expect("a folder");
        let specs = [spec("shared", "shared"), spec("tmp", "deep/er/tmp")];
        let table = MountTable::open(dir.path(), &specs, &PrivatePaths::default()).expect("opens");
        assert!(dir.path().join("deep/er/tmp").is_dir());
        assert_eq!(table.get("tmp").expect("the mount exists").name().as_str(), "tmp");
        assert!(table.get("vault").is_none());
    }

    #[test]
    fn a_mount_that_is_or_passes_a_link_is_refused() {
        let dir = tempfile::tempdir().expect("a folder");
        let outside = tempfile::tempdir().expect("a folder");
        std::os::unix::fs::symlink(outside.path(), dir.path().join("shared")).expect("links");
        for folder in ["shared", "shared/below"] {
            let error = MountTable::open(dir.path(), &[spec("shared", folder)], &PrivatePaths::default())
                .expect_err("a link");
            assert!(matches!(error, MountError::Open { .. }), "{error}");
        }
        assert_eq!(fs::read_dir(outside.path()).expect("readable").count(), 0);
    }

    #[test]
    fn a_mount_may_not_touch_a_private_path_even_through_links() {
        let dir = tempfile::tempdir().expect("a folder");
        let state = dir.path().join("shared/state");
        fs::create_dir_all(&state).expect("the folder can be made");
        let alias = dir.path().join("alias");
        std::os::unix::fs::symlink(&state, &alias).expect("links");
        for path in [state, alias.clone(), alias.join("not/yet/there"), dir.path().to_owned()] {
            let private = PrivatePaths { overlay: Some(path), ..PrivatePaths::default() };
            let error =
                MountTable::open(dir.path(), &[spec("shared", "shared")], &private).expect_err("they touch");
            assert!(matches!(error, MountError::Overlap { .. }), "{error}");
        }
    }
}
