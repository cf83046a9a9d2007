//! Folders below a workspace, opened without following a link and proved not to overlap each other or a
//! private path.
//!
//! All later access goes through the returned handles. The list of folders comes in as values.

use std::{
    ffi::OsStr,
    fs::{self, File},
    io,
    os::{
        fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd},
        unix::ffi::OsStrExt as _,
    },
    path::{Path, PathBuf},
};

use rustix::{
    fs::{Mode, OFlags, ResolveFlags},
    io::Errno,
};

/// A folder to open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MountFolder<'a> {
    /// The mount's name, for errors.
    pub name: &'a str,
    /// Its path below the workspace.
    pub folder: &'a str,
}

/// Opens folders below a workspace, in their order, and makes missing ones. The handles are `O_PATH`: they
/// grant nothing by themselves.
///
/// `private` are the host paths that no mount may contain, equal or lie in. Links are resolved before the
/// comparison.
///
/// # Errors
/// [`MountError`] if a mount is a link or no folder, cannot be opened, or overlaps another mount or a private
/// path.
pub fn open_mounts(
    workspace: &Path,
    mounts: &[MountFolder<'_>],
    private: &[PathBuf],
) -> Result<Vec<OwnedFd>, MountError> {
    let root = open_workspace(workspace)?;
    let mut handles = Vec::with_capacity(mounts.len());
    let mut places: Vec<(String, PathBuf)> = Vec::new();
    for path in private {
        if let Some(place) = real_path_of(path) {
            places.push((format!("the private path `{}`", path.display()), place));
        }
    }
    for mount in mounts {
        let directory = open_mount(root.as_fd(), *mount)?;
        let place = real_path(directory.as_fd()).map_err(|source| MountError::open(*mount, source))?;
        let what = format!("mount `{}`", mount.name);
        if let Some((other, _)) = places.iter().find(|(_, other)| nested(other, &place)) {
            return Err(MountError::Overlap { mount: what, other: other.clone() });
        }
        places.push((what, place));
        handles.push(directory);
    }
    Ok(handles)
}

/// The reason why mounts cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// The workspace cannot be made or opened.
    #[error("cannot open the workspace `{}`", path.display())]
    Workspace {
        /// The host path.
        path: PathBuf,
        /// The system's reason.
        #[source]
        source: io::Error,
    },
    /// A mount's folder cannot be made or opened.
    #[error(
        "cannot open mount `{mount}` at `{folder}` below the workspace (a mount must be a real folder, not a link)"
    )]
    Open {
        /// The mount's name.
        mount: String,
        /// Its folder below the workspace.
        folder: String,
        /// The system's reason.
        #[source]
        source: io::Error,
    },
    /// Two paths that must be separate overlap.
    #[error("{mount} and {other} are the same folder or lie in one another")]
    Overlap {
        /// The mount's name.
        mount: String,
        /// The mount or private path that it overlaps.
        other: String,
    },
}

impl MountError {
    fn open(mount: MountFolder<'_>, source: impl Into<io::Error>) -> Self {
        Self::Open { mount: mount.name.to_owned(), folder: mount.folder.to_owned(), source: source.into() }
    }
}

/// The current host path of a handle.
///
/// # Errors
/// Without `/proc`.
pub fn real_path(handle: BorrowedFd<'_>) -> io::Result<PathBuf> {
    let link = format!("/proc/self/fd/{}", handle.as_raw_fd());
    let target = rustix::fs::readlink(link, Vec::with_capacity(256))?;
    Ok(PathBuf::from(OsStr::from_bytes(target.as_bytes())))
}

fn open_workspace(path: &Path) -> Result<File, MountError> {
    let error = |source| MountError::Workspace { path: path.to_owned(), source };
    fs::create_dir_all(path).map_err(error)?;
    File::open(path).map_err(error)
}

/// Opens a mount's folder step by step from the workspace, refusing links at each.
fn open_mount(root: BorrowedFd<'_>, mount: MountFolder<'_>) -> Result<OwnedFd, MountError> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let open = |folder: &str| rustix::fs::openat2(root, folder, flags, Mode::empty(), resolve);
    match open(mount.folder) {
        Err(Errno::NOENT) => {}
        other => return other.map_err(|source| MountError::open(mount, source)),
    }
    let mut made = String::new();
    for part in mount.folder.split('/').filter(|part| !part.is_empty()) {
        if !made.is_empty() {
            made.push('/');
        }
        made.push_str(part);
        match rustix::fs::mkdirat(root, made.as_str(), Mode::RWXU | Mode::RGRP | Mode::XGRP) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(source) => return Err(MountError::open(mount, source)),
        }
        // Each step is opened without links before the next is made below it.
        open(&made).map_err(|source| MountError::open(mount, source))?;
    }
    open(mount.folder).map_err(|source| MountError::open(mount, source))
}

/// The real path of a path that may not exist yet: that of its nearest existing parent, with the rest
/// appended.
fn real_path_of(path: &Path) -> Option<PathBuf> {
    let mut rest = Vec::new();
    let mut existing = path;
    loop {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        if let Ok(handle) = rustix::fs::open(existing, flags, Mode::empty()) {
            let mut real = real_path(handle.as_fd()).ok()?;
            real.extend(rest.iter().rev());
            return Some(real);
        }
        rest.push(existing.file_name()?);
        existing = match existing.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
    }
}

fn nested(one: &Path, other: &Path) -> bool {
    one.starts_with(other) || other.starts_with(one)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(root: &Path, mounts: &[(&str, &str)], private: &[PathBuf]) -> Result<Vec<OwnedFd>, MountError> {
        let mounts: Vec<_> = mounts.iter().map(|(name, folder)| MountFolder { name, folder }).collect();
        open_mounts(root, &mounts, private)
    }

    #[test]
    fn folders_are_made_and_handles_come_in_their_order() {
        let dir = tempfile::tempdir().unwrap();
        let handles = open(dir.path(), &[("shared", "shared"), ("tmp", "deep/er/tmp")], &[]).unwrap();
        let places: Vec<_> = handles.iter().map(|handle| real_path(handle.as_fd()).unwrap()).collect();
        let root = real_path(File::open(dir.path()).unwrap().as_fd()).unwrap();
        assert_eq!(places, [root.join("shared"), root.join("deep/er/tmp")]);
    }

    #[test]
    fn mount_outside_the_workspace_or_through_a_link_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(outside.path(), dir.path().join("link")).unwrap();
        fs::write(dir.path().join("file"), "").unwrap();
        for folder in ["link", "link/below", "..", "../x", "file", "/tmp", ""] {
            let refused = open(dir.path(), &[("shared", folder)], &[]);
            assert!(matches!(refused, Err(MountError::Open { .. })), "{folder}: {refused:?}");
        }
        assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);
    }

    #[test]
    fn mounts_lie_apart_from_each_other_and_from_what_is_private() {
        let dir = tempfile::tempdir().unwrap();
        for mounts in [[("a", "x"), ("b", "x")], [("a", "x"), ("b", "x/y")], [("a", "x/y"), ("b", "x")]] {
            let refused = open(dir.path(), &mounts, &[]);
            assert!(matches!(refused, Err(MountError::Overlap { .. })), "{mounts:?}: {refused:?}");
        }
        open(dir.path(), &[("a", "x"), ("b", "xy")], &[dir.path().join("state")]).unwrap();
        let alias = dir.path().join("alias");
        std::os::unix::fs::symlink(dir.path().join("x"), &alias).unwrap();
        for private in [dir.path().join("x"), dir.path().join("x/not/yet"), dir.path().to_owned(), alias] {
            let refused = open(dir.path(), &[("a", "x")], &[private]);
            assert!(matches!(refused, Err(MountError::Overlap { .. })), "{refused:?}");
        }
    }
}
