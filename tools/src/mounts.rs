//! The only place that opens host folders for tools: the policy's mounts, once, as directory handles.
//!
//! Everything later goes through these handles; nothing outside this file turns a host path into access.

use std::{
    ffi::OsStr,
    fs::{self, File},
    io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::{Path, PathBuf},
    sync::Arc,
};

use portcullis_policy::{MountName, MountSpec};
use rustix::{
    fs::{Mode, OFlags, ResolveFlags},
    io::Errno,
};
use thiserror::Error;

/// How often a resolution is repeated when something else renames directories meanwhile (`openat2(2)`,
/// `EAGAIN`).
const RESOLVE_ATTEMPTS: u32 = 16;

/// A mount's directory, open.
#[derive(Debug, Clone)]
pub struct MountHandle {
    name: MountName,
    directory: Arc<OwnedFd>,
}

impl MountHandle {
    /// The mount's name; the guest sees it as `/name`.
    #[must_use]
    pub fn name(&self) -> &MountName {
        &self.name
    }

    /// The directory. Opened with `O_PATH`, so it grants nothing by itself.
    #[must_use]
    pub fn directory(&self) -> &Arc<OwnedFd> {
        &self.directory
    }
}

/// All mounts of a policy, open, and proven to be apart from each other and from what is private.
#[derive(Debug, Default)]
pub struct MountTable {
    mounts: Vec<MountHandle>,
}

impl MountTable {
    /// Opens the policy's mounts below a workspace, making folders that are missing.
    ///
    /// `private` are the host paths that no mount may contain, equal or lie in: the state folder and the
    /// policy file. Links are resolved before the comparison.
    ///
    /// # Errors
    /// [`MountError`] when a mount is a link, is no folder, cannot be opened, or touches another mount or a
    /// private path.
    pub fn open(workspace: &Path, specs: &[MountSpec], private: &[PathBuf]) -> Result<Self, MountError> {
        let root = open_workspace(workspace)?;
        let mut mounts = Vec::with_capacity(specs.len());
        let mut places: Vec<(String, PathBuf)> = Vec::new();
        for path in private {
            if let Some(place) = real_path_of(path) {
                places.push((format!("the private path `{}`", path.display()), place));
            }
        }
        for spec in specs {
            let directory = open_mount(root.as_fd(), spec)?;
            let place = real_path(directory.as_fd()).map_err(|source| MountError::open(spec, source))?;
            let what = format!("mount `{}`", spec.name);
            if let Some((other, _)) = places.iter().find(|(_, other)| nested(other, &place)) {
                return Err(MountError::Overlap { mount: what, other: other.clone() });
            }
            places.push((what, place));
            mounts.push(MountHandle { name: spec.name.clone(), directory: Arc::new(directory) });
        }
        Ok(Self { mounts })
    }

    /// The mount of a name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&MountHandle> {
        self.mounts.iter().find(|mount| mount.name.as_str() == name)
    }
}

/// Why the mounts of a policy cannot be used.
#[derive(Debug, Error)]
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
    /// Two places that must be apart are not.
    #[error("{mount} and {other} are the same folder or lie in one another")]
    Overlap {
        /// The mount.
        mount: String,
        /// What it touches.
        other: String,
    },
}

impl MountError {
    fn open(spec: &MountSpec, source: impl Into<io::Error>) -> Self {
        Self::Open { mount: spec.name.to_string(), folder: spec.folder.clone(), source: source.into() }
    }
}

/// The host path that a handle stands for now.
///
/// # Errors
/// When `/proc` is not there.
pub(crate) fn real_path(handle: BorrowedFd<'_>) -> io::Result<PathBuf> {
    use std::os::fd::AsRawFd;
    let link = format!("/proc/self/fd/{}", handle.as_raw_fd());
    let target = rustix::fs::readlink(link, Vec::with_capacity(256))?;
    Ok(PathBuf::from(OsStr::from_bytes(target.as_bytes())))
}

/// Resolves a path beneath a directory without opening what it leads to.
pub(crate) fn resolve_beneath(from: BorrowedFd<'_>, path: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
    let flags = flags | OFlags::PATH | OFlags::CLOEXEC;
    let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    let path = if path.is_empty() { "." } else { path };
    for _ in 0..RESOLVE_ATTEMPTS {
        match rustix::fs::openat2(from, path, flags, Mode::empty(), beneath) {
            Err(Errno::AGAIN | Errno::INTR) => {}
            // An absolute path beneath a directory is an escape, as `openat2(2)` says with EXDEV.
            other => return other,
        }
    }
    Err(Errno::AGAIN)
}

fn open_workspace(path: &Path) -> Result<File, MountError> {
    let error = |source| MountError::Workspace { path: path.to_owned(), source };
    fs::create_dir_all(path).map_err(error)?;
    File::open(path).map_err(error)
}

/// Opens a mount's folder step by step from the workspace, refusing links at each.
fn open_mount(root: BorrowedFd<'_>, spec: &MountSpec) -> Result<OwnedFd, MountError> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let open = |folder: &str| rustix::fs::openat2(root, folder, flags, Mode::empty(), resolve);
    match open(&spec.folder) {
        Err(Errno::NOENT) => {}
        other => return other.map_err(|source| MountError::open(spec, source)),
    }
    let mut made = String::new();
    for part in spec.folder.split('/').filter(|part| !part.is_empty()) {
        if !made.is_empty() {
            made.push('/');
        }
        made.push_str(part);
        match rustix::fs::mkdirat(root, made.as_str(), Mode::RWXU | Mode::RGRP | Mode::XGRP) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(source) => return Err(MountError::open(spec, source)),
        }
        // Each step is opened without links before the next is made below it.
        open(&made).map_err(|source| MountError::open(spec, source))?;
    }
    open(&spec.folder).map_err(|source| MountError::open(spec, source))
}

/// The real path of something that may not exist yet: then that of its nearest parent that does, with the
/// rest appended.
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

    fn spec(name: &str, folder: &str) -> MountSpec {
        MountSpec { name: MountName::parse(name).expect("a name"), folder: folder.to_owned() }
    }

    #[test]
    fn mounts_are_made_on_first_use_and_found_by_name() {
        let dir = tempfile::tempdir().expect("a folder");
        let specs = [spec("shared", "shared"), spec("tmp", "deep/er/tmp")];
        let table = MountTable::open(dir.path(), &specs, &[]).expect("opens");
        assert!(dir.path().join("deep/er/tmp").is_dir());
        assert_eq!(table.get("tmp").expect("there").name().as_str(), "tmp");
        assert!(table.get("vault").is_none());
    }

    #[test]
    fn a_mount_that_is_or_passes_a_link_is_refused() {
        let dir = tempfile::tempdir().expect("a folder");
        let outside = tempfile::tempdir().expect("a folder");
        std::os::unix::fs::symlink(outside.path(), dir.path().join("shared")).expect("links");
        for folder in ["shared", "shared/below"] {
            let error = MountTable::open(dir.path(), &[spec("shared", folder)], &[]).expect_err("a link");
            assert!(matches!(error, MountError::Open { .. }), "{error}");
        }
        assert_eq!(fs::read_dir(outside.path()).expect("readable").count(), 0);
    }

    #[test]
    fn a_mount_may_not_touch_a_private_path_even_through_links() {
        let dir = tempfile::tempdir().expect("a folder");
        let state = dir.path().join("shared/state");
        fs::create_dir_all(&state).expect("made");
        let alias = dir.path().join("alias");
        std::os::unix::fs::symlink(&state, &alias).expect("links");
        for private in [state, alias.clone(), alias.join("not/yet/there"), dir.path().to_owned()] {
            let error = MountTable::open(dir.path(), &[spec("shared", "shared")], &[private])
                .expect_err("they touch");
            assert!(matches!(error, MountError::Overlap { .. }), "{error}");
        }
    }
}
