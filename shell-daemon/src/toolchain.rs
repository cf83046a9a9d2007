//! The operator's toolchain: files and folders of the host that sessions read besides the mounts and the system.

use std::{
    fs, io,
    os::fd::{AsFd as _, OwnedFd},
    path::{Path, PathBuf},
};

use portcullis_confine::mounts::real_path;
use rustix::fs::{Mode, OFlags};
use serde::{Deserialize, Serialize};

use crate::setup::is_system_path;

/// The part of the host that sessions see besides the mounts and the system. Default: nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SessionToolchain {
    /// Absolute paths of files and folders that sessions read and run, and never write. Every session has them at the
    /// same path. Never name a folder that holds secrets.
    pub read: Vec<PathBuf>,
    /// Absolute paths of folders whose content sessions find at the same path, in copies that they may write. Only a
    /// session with its own file tree has the copies; any other session reads the caches themselves.
    #[serde(default)]
    pub caches: Vec<PathBuf>,
    /// The folder of the copies. It is made if it is missing, in a folder that exists.
    #[serde(default)]
    pub copies: PathBuf,
    /// Folders that are searched for programs before the system's.
    pub path: Vec<PathBuf>,
    /// Variables of every command.
    pub variables: Vec<(String, String)>,
    /// The home of the user who runs Portcullis. No path of [`Self::read`] may be this folder or contain it. This is
    /// a field because a sidecar that a parent starts has no environment variables.
    pub home: Option<PathBuf>,
}

/// The maximum number of paths of a toolchain: 64. Each takes a descriptor of the message that starts a session.
pub(crate) const MAX_READ: usize = 64;

/// File names under which toolchains keep credentials in their folders.
const CREDENTIALS: [&str; 12] = [
    "credentials",
    "credentials.toml",
    "credentials.json",
    ".credentials.json",
    ".git-credentials",
    ".netrc",
    ".npmrc",
    ".pypirc",
    "auth.json",
    "token",
    "id_rsa",
    "id_ed25519",
];

/// Folders that hold more than a toolchain.
const TOO_WIDE: [&str; 8] = ["/home", "/root", "/var", "/tmp", "/etc", "/mnt", "/media", "/srv"];

/// Folders of the kernel's file systems and of sockets.
const KERNEL: [&str; 4] = ["/proc", "/sys", "/dev", "/run"];

/// The reason why a toolchain cannot be used. Its text follows the name of the setting.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UnusableToolchain {
    #[error("has {0} paths; at most {MAX_READ} are allowed")]
    TooMany(usize),
    #[error("has `{}`, which cannot be used", path.display())]
    Path { path: PathBuf, source: UnusablePath },
}

/// The reason why a path of a toolchain cannot be used. It is the cause of [`UnusableToolchain::Path`].
#[derive(Debug, thiserror::Error)]
pub(crate) enum UnusablePath {
    #[error("it cannot be opened")]
    Unopened(#[source] io::Error),
    #[error("its real path is unknown")]
    UnknownPlace(#[source] io::Error),
    #[error("it holds more than a toolchain; name the folders that programs need")]
    TooWide,
    #[error("it is in a file system of the kernel, such as /proc or /sys")]
    OfTheKernel,
    #[error("it overlaps `{}`, a private path of Portcullis", .0.display())]
    Private(PathBuf),
    #[error("it overlaps the mount `{0}`; commands see the mount anyway")]
    Mount(String),
    #[error("it lies where commands see the mount `{0}`; give the mount another name")]
    MountPoint(String),
    #[error("it holds `{0}`, a file with a key; name the folders beside it instead")]
    HoldsKey(&'static str),
    #[error("it is a file with a key")]
    Key,
    #[error("it is not a folder")]
    NotAFolder,
    #[error("it is a folder of the system, which commands see anyway")]
    OfTheSystem,
}

impl SessionToolchain {
    /// Checks that each path exists, and contains no key of a tool, no private path and no mount. `mounts` are the
    /// names and real paths of the mounts.
    ///
    /// # Errors
    /// [`UnusableToolchain`] if there are too many paths, or one cannot be used.
    pub(crate) fn check(
        &self,
        mounts: &[(&str, PathBuf)],
        private: &[PathBuf],
    ) -> Result<(), UnusableToolchain> {
        if self.read.len() > MAX_READ {
            return Err(UnusableToolchain::TooMany(self.read.len()));
        }
        for path in &self.read {
            check_path(path, mounts, private, self.home.as_deref())
                .map_err(|source| UnusableToolchain::Path { path: path.clone(), source })?;
        }
        Ok(())
    }

    /// Checks that each cache is a folder outside the system's, and holds nothing that [`Self::check`] refuses.
    ///
    /// # Errors
    /// [`UnusableToolchain::Path`] for the first cache that cannot be used.
    pub(crate) fn check_caches(
        &self,
        mounts: &[(&str, PathBuf)],
        private: &[PathBuf],
    ) -> Result<(), UnusableToolchain> {
        for path in &self.caches {
            let source = match check_path(path, mounts, private, self.home.as_deref()) {
                Err(problem) => problem,
                Ok(()) if !path.is_dir() => UnusablePath::NotAFolder,
                Ok(()) if is_system_path(path) => UnusablePath::OfTheSystem,
                Ok(()) => continue,
            };
            return Err(UnusableToolchain::Path { path: path.clone(), source });
        }
        Ok(())
    }
}

fn check_path(
    path: &Path,
    mounts: &[(&str, PathBuf)],
    private: &[PathBuf],
    home: Option<&Path>,
) -> Result<(), UnusablePath> {
    let handle = open(path).map_err(UnusablePath::Unopened)?;
    // The checks apply to the opened folder, because a symlink's path does not show where it leads.
    let real = real_path(handle.as_fd()).map_err(UnusablePath::UnknownPlace)?;
    let same_place = |folder: &Path| folder.canonicalize().is_ok_and(|folder| folder == real);
    if real == Path::new("/")
        || TOO_WIDE.iter().any(|wide| same_place(Path::new(wide)))
        || home.is_some_and(|home| home.canonicalize().is_ok_and(|home| home.starts_with(&real)))
    {
        return Err(UnusablePath::TooWide);
    }
    if [path, &real].iter().any(|path| KERNEL.iter().any(|place| path.starts_with(place))) {
        return Err(UnusablePath::OfTheKernel);
    }
    for private in private {
        let private = private.canonicalize().unwrap_or_else(|_| private.clone());
        if private.starts_with(&real) || real.starts_with(&private) {
            return Err(UnusablePath::Private(private));
        }
    }
    for (name, folder) in mounts {
        if folder.starts_with(&real) || real.starts_with(folder) {
            return Err(UnusablePath::Mount((*name).to_owned()));
        }
        if path.starts_with(Path::new("/").join(name)) {
            return Err(UnusablePath::MountPoint((*name).to_owned()));
        }
    }
    // `symlink_metadata`, because a link to a key counts too, even if its target is missing.
    let credentials = CREDENTIALS.iter().find(|name| fs::symlink_metadata(real.join(name)).is_ok());
    let is_one =
        real.file_name().is_some_and(|name| CREDENTIALS.iter().any(|credentials| name == *credentials));
    match credentials {
        Some(name) => Err(UnusablePath::HoldsKey(name)),
        None if is_one => Err(UnusablePath::Key),
        None => Ok(()),
    }
}

/// Opens a path of a toolchain. Links are followed: a toolchain may be a link to another disk.
pub(crate) fn open(path: &Path) -> io::Result<OwnedFd> {
    Ok(rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?)
}

/// Returns the paths that sessions do not already see as a part of the system.
pub(crate) fn paths_outside_system(toolchain: &SessionToolchain) -> impl Iterator<Item = &Path> {
    toolchain.read.iter().map(PathBuf::as_path).filter(|path| !is_system_path(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(read: &Path, mounts: &[(&str, PathBuf)], private: &[PathBuf], home: &Path) -> Option<String> {
        let (read, home) = (vec![read.to_owned()], Some(home.to_owned()));
        let toolchain = SessionToolchain { read, home, ..SessionToolchain::default() };
        toolchain.check(mounts, private).err().map(|error| portcullis_types::error_chain(&error))
    }

    #[test]
    fn a_toolchain_holds_no_key_no_mount_and_no_private_path() {
        let home = tempfile::tempdir().expect("a folder");
        let home = home.path().canonicalize().expect("a path");
        for folder in ["tools/bin", "project/bin", "state/log", "keys", "more/deep"] {
            fs::create_dir_all(home.join(folder)).expect("the folder can be made");
        }
        fs::write(home.join("keys/credentials.toml"), "key").expect("written");
        std::os::unix::fs::symlink(home.join("keys"), home.join("link")).expect("linked");
        let (mounts, private) = ([("project", home.join("project"))], [home.join("state")]);
        let check = |path: &Path| problem(path, &mounts, &private, &home);
        assert_eq!(check(&home.join("tools")), None);
        assert_eq!(check(Path::new("/usr/bin")), None);
        for (path, expected) in [
            (home.join("gone"), "cannot be opened"),
            (home.clone(), "holds more than a toolchain"),
            (home.parent().expect("a parent").to_owned(), "holds more than a toolchain"),
            ("/".into(), "holds more than a toolchain"),
            ("/etc".into(), "holds more than a toolchain"),
            ("/proc/self".into(), "a file system of the kernel"),
            (home.join("state/log"), "overlaps"),
            (home.join("project/bin"), "overlaps the mount `project`"),
            ("/project/x".into(), "cannot be opened"),
            (home.join("keys"), "holds `credentials.toml`"),
            (home.join("link"), "holds `credentials.toml`"),
            (home.join("keys/credentials.toml"), "a file with a key"),
        ] {
            let problem = check(&path).unwrap_or_default();
            assert!(problem.contains(expected), "{}: {problem}", path.display());
        }
        let many =
            SessionToolchain { read: vec!["/usr".into(); MAX_READ + 1], ..SessionToolchain::default() };
        assert!(many.check(&[], &[]).is_err());
    }

    #[test]
    fn a_cache_lies_outside_system_folders_keys_and_mounts() {
        let home = tempfile::tempdir().expect("a folder");
        let home = home.path().canonicalize().expect("a path");
        for folder in ["cache", "project/cache", "state/log", "keys"] {
            fs::create_dir_all(home.join(folder)).expect("the folder can be made");
        }
        for file in ["file", "keys/credentials.toml"] {
            fs::write(home.join(file), "text").expect("written");
        }
        let (mounts, private) = ([("project", home.join("project"))], [home.join("state")]);
        let check = |path: &Path| {
            let (caches, home) = (vec![path.to_owned()], Some(home.clone()));
            let toolchain = SessionToolchain { caches, home, ..SessionToolchain::default() };
            toolchain.check_caches(&mounts, &private).map_err(|error| portcullis_types::error_chain(&error))
        };
        assert_eq!(check(&home.join("cache")), Ok(()));
        for (path, expected) in [
            (home.join("gone"), "cannot be opened"),
            (home.clone(), "holds more than a toolchain"),
            (home.join("file"), "not a folder"),
            ("/usr/lib".into(), "a folder of the system"),
            (home.join("state/log"), "overlaps"),
            (home.join("project/cache"), "overlaps the mount `project`"),
            (home.join("keys"), "holds `credentials.toml`"),
        ] {
            let problem = check(&path).expect_err("a problem");
            assert!(problem.contains(expected), "{}: {problem}", path.display());
        }
    }
}
