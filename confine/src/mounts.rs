//! Opens folders below a workspace without following symlinks, and other folders of the host by their
//! absolute paths. Checks that they overlap neither each other nor a private path.
//!
//! All later access goes through the returned handles. The caller passes the list of folders as values.

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
    /// The folder's path below the workspace, or an absolute path.
    pub folder: &'a str,
}

impl MountFolder<'_> {
    fn is_absolute(&self) -> bool {
        self.folder.starts_with('/')
    }
}

/// Opens folders, in order. The handles are `O_PATH`: they identify a folder and grant no access to its
/// content by themselves.
///
/// A missing folder below the workspace is created, and no part of its path may be a symlink. A folder with
/// an absolute path must exist. Symlinks on its path are followed once, at this point.
///
/// `private` are host paths that must be disjoint from every mount: neither may equal or contain the other.
/// Symlinks in them are resolved before the comparison.
///
/// # Errors
/// [`MountError`] if a mount is a symlink below the workspace or not a folder, cannot be opened, overlaps
/// another mount or a private path, or is in a kernel file system.
pub fn open_mounts(
    workspace: &Path,
    mounts: &[MountFolder<'_>],
    private: &[PathBuf],
) -> Result<Vec<OwnedFd>, MountError> {
    let root = open_workspace(workspace)?;
    let mut handles = Vec::with_capacity(mounts.len());
    let mut real_paths: Vec<(String, PathBuf)> = Vec::new();
    for path in private {
        if let Some(resolved_path) = real_path_of(path) {
            real_paths.push((format!("the private path `{}`", path.display()), resolved_path));
        }
    }
    for mount in mounts {
        let directory =
            if mount.is_absolute() { open_absolute(*mount)? } else { open_mount(root.as_fd(), *mount)? };
        // Compare real paths, because a name does not show where a symlink leads.
        let resolved_path =
            real_path(directory.as_fd()).map_err(|source| MountError::open(*mount, source))?;
        let description = format!("mount `{}`", mount.name);
        if let Some((existing, _)) =
            real_paths.iter().find(|(_, existing)| are_nested(existing, &resolved_path))
        {
            return Err(MountError::Overlap { mount: description, other_mount: existing.clone() });
        }
        real_paths.push((description, resolved_path));
        handles.push(directory);
    }
    Ok(handles)
}

/// The reason why mounts cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// The workspace cannot be created or opened.
    #[error("cannot open the workspace `{}`", path.display())]
    Workspace {
        /// The host path.
        path: PathBuf,
        /// The system's reason.
        #[source]
        source: io::Error,
    },
    /// A mount's folder cannot be created or opened.
    #[error(
        "cannot open mount `{mount}` at `{folder}` below the workspace (a mount must be a real folder, not a link)"
    )]
    Open {
        /// The mount's name.
        mount: String,
        /// The mount's folder below the workspace.
        folder: String,
        /// The system's reason.
        #[source]
        source: io::Error,
    },
    /// A mount's folder outside the workspace cannot be opened.
    #[error("cannot open mount `{mount}` at `{folder}`, which must be an existing folder")]
    OpenAbsolute {
        /// The mount's name.
        mount: String,
        /// The mount's absolute path.
        folder: String,
        /// The system's reason.
        #[source]
        source: io::Error,
    },
    /// A mount's folder is on a kernel file system, such as `/proc`. Its files act on the machine or show
    /// other processes.
    #[error(
        "mount `{mount}` at `{folder}` is a kernel file system, such as `/proc`, which cannot be mounted; name an ordinary folder"
    )]
    Kernel {
        /// The mount's name.
        mount: String,
        /// The mount's absolute path.
        folder: String,
    },
    /// Two paths that must be separate overlap.
    #[error(
        "{mount} and {other_mount} are the same folder, or one contains the other; mount only the outer folder, or folders beside each other"
    )]
    Overlap {
        /// The mount's name.
        mount: String,
        /// The mount or private path that it overlaps.
        other_mount: String,
    },
}

impl MountError {
    fn open(mount: MountFolder<'_>, source: impl Into<io::Error>) -> Self {
        let (name, folder, source) = (mount.name.to_owned(), mount.folder.to_owned(), source.into());
        if mount.is_absolute() {
            Self::OpenAbsolute { mount: name, folder, source }
        } else {
            Self::Open { mount: name, folder, source }
        }
    }
}

/// Returns the current host path of a handle.
///
/// # Errors
/// The system's error, for example if `/proc` is not mounted.
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

/// Opens a mount's folder by its absolute path. The kernel follows symlinks on the path, except the magic
/// links of `/proc`, which lead to files of processes.
fn open_absolute(mount: MountFolder<'_>) -> Result<OwnedFd, MountError> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::NO_MAGICLINKS;
    let handle = rustix::fs::openat2(rustix::fs::CWD, mount.folder, flags, Mode::empty(), resolve)
        .map_err(|source| MountError::open(mount, source))?;
    let kind = rustix::fs::fstatfs(&handle).map_err(|source| MountError::open(mount, source))?.f_type;
    let resolved_path = real_path(handle.as_fd()).map_err(|source| MountError::open(mount, source))?;
    // `/dev` is a tmpfs, as `/tmp` often is, so only its path distinguishes it.
    if KERNEL_FILE_SYSTEMS.contains(&kind)
        || resolved_path.starts_with("/dev") && !resolved_path.starts_with("/dev/shm")
    {
        return Err(MountError::Kernel { mount: mount.name.to_owned(), folder: mount.folder.to_owned() });
    }
    Ok(handle)
}

/// Opens a mount's folder below the workspace, and creates missing folders step by step. Symlinks are refused
/// at each step.
fn open_mount(root: BorrowedFd<'_>, mount: MountFolder<'_>) -> Result<OwnedFd, MountError> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let open = |folder: &str| rustix::fs::openat2(root, folder, flags, Mode::empty(), resolve);
    match open(mount.folder) {
        Err(Errno::NOENT) => {}
        other => return other.map_err(|source| MountError::open(mount, source)),
    }
    let mut created_path = String::new();
    for part in mount.folder.split('/').filter(|part| !part.is_empty()) {
        if !created_path.is_empty() {
            created_path.push('/');
        }
        created_path.push_str(part);
        match rustix::fs::mkdirat(root, created_path.as_str(), Mode::RWXU | Mode::RGRP | Mode::XGRP) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(source) => return Err(MountError::open(mount, source)),
        }
        // Open each step without following symlinks before creating the next folder below it.
        open(&created_path).map_err(|source| MountError::open(mount, source))?;
    }
    open(mount.folder).map_err(|source| MountError::open(mount, source))
}

/// Returns the real path of a path that may not exist yet: the real path of its nearest existing ancestor,
/// with the rest appended.
fn real_path_of(path: &Path) -> Option<PathBuf> {
    let mut rest = Vec::new();
    let mut existing = path;
    loop {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        if let Ok(handle) = rustix::fs::open(existing, flags, Mode::empty()) {
            let mut resolved_path = real_path(handle.as_fd()).ok()?;
            resolved_path.extend(rest.iter().rev());
            return Some(resolved_path);
        }
        rest.push(existing.file_name()?);
        existing = match existing.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            // The parent of a single relative name is the current folder.
            _ => Path::new("."),
        };
    }
}

/// The types of the kernel's own file systems (`statfs(2)`, `linux/magic.h`): proc, sysfs, cgroup and cgroup2, debugfs,
/// tracefs, securityfs, selinuxfs, bpf, devpts, pstore, efivarfs, configfs, binfmt_misc.
const KERNEL_FILE_SYSTEMS: [rustix::fs::FsWord; 14] = [
    0x9fa0,
    0x6265_6572,
    0x27_e0eb,
    0x6367_7270,
    0x6462_6720,
    0x7472_6163,
    0x7363_6673,
    0xf97c_ff8c,
    0xcafe_4a11,
    0x1cd1,
    0x6165_676c,
    0xde5e_81e4,
    0x6265_6570,
    0x4249_4e4d,
];

fn are_nested(left: &Path, right: &Path) -> bool {
    left.starts_with(right) || right.starts_with(left)
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
        let real_paths: Vec<_> = handles.iter().map(|handle| real_path(handle.as_fd()).unwrap()).collect();
        let root = real_path(File::open(dir.path()).unwrap().as_fd()).unwrap();
        assert_eq!(real_paths, [root.join("shared"), root.join("deep/er/tmp")]);
    }

    #[test]
    fn mount_outside_the_workspace_or_through_a_link_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(outside.path(), dir.path().join("link")).unwrap();
        fs::write(dir.path().join("file"), "").unwrap();
        for folder in ["link", "link/below", "..", "../x", "file", ""] {
            let refused = open(dir.path(), &[("shared", folder)], &[]);
            assert!(matches!(refused, Err(MountError::Open { .. })), "{folder}: {refused:?}");
        }
        assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);
    }

    #[test]
    fn an_absolute_folder_is_opened_where_its_links_lead() {
        let dir = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        let path = |name: &str| outside.path().join(name).to_str().unwrap().to_owned();
        fs::create_dir(path("code")).unwrap();
        fs::write(path("file"), "").unwrap();
        std::os::unix::fs::symlink(path("code"), path("link")).unwrap();
        let open_real_path = |mounts: &[(&str, &str)]| {
            open(dir.path(), mounts, &[]).map(|handles| real_path(handles[0].as_fd()).unwrap())
        };
        let code = real_path_of(Path::new(&path("code"))).unwrap();
        for folder in ["code", "link"] {
            assert_eq!(open_real_path(&[("project", &path(folder))]).unwrap(), code);
        }
        for folder in ["gone", "file", "file/below", "gone/below"] {
            let refused = open_real_path(&[("project", &path(folder))]);
            assert!(matches!(refused, Err(MountError::OpenAbsolute { .. })), "{folder}: {refused:?}");
            assert!(!Path::new(&path("gone")).exists());
        }
        for folder in ["/proc", "/proc/self/fd", "/sys/kernel", "/dev"] {
            let refused = open_real_path(&[("project", folder)]);
            assert!(matches!(refused, Err(MountError::Kernel { .. })), "{folder}: {refused:?}");
        }
        let inside = dir.path().to_str().unwrap();
        for mounts in [
            [("a", path("code").as_str()), ("b", path("link").as_str())],
            [("a", path("code").as_str()), ("b", outside.path().to_str().unwrap())],
            [("a", "x"), ("b", inside)],
        ] {
            let refused = open_real_path(&mounts);
            assert!(matches!(refused, Err(MountError::Overlap { .. })), "{mounts:?}: {refused:?}");
        }
    }

    #[test]
    fn mounts_are_disjoint_from_each_other_and_from_private_paths() {
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
