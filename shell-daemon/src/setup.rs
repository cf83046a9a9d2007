//! What a session is told before it confines itself, and the handles that go with it.

use std::{
    fs::File,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

use portcullis_confine::{PathAccess, ProcessUser};
use rustix::{
    fs::{Mode, OFlags},
    thread::CapabilitySet,
};

use crate::{
    SessionMount, SessionSpec, ShellError,
    wire::{Plan, Setup, SetupPath},
};

/// What the session is told, and the handles that go with it: the canary's first, then one for each path.
pub(crate) fn setup(
    spec: &SessionSpec,
    plan: Plan,
    protected: Vec<PathBuf>,
) -> Result<(Setup, Vec<OwnedFd>), ShellError> {
    let canary = spec.canary.state_dir().try_clone_to_owned();
    let mut handles = vec![canary.map_err(|source| ShellError::Start { source })?];
    let mut paths = Vec::new();
    for mount in &spec.mounts {
        require_name(mount)?;
        handles.push(open_mount(&mount.path)?);
        let place = Path::new("/").join(&mount.name);
        paths.push(SetupPath { path: mount.path.clone(), place, access: mount.access });
    }
    let system = SYSTEM.iter().map(|path| (path, PathAccess::Read));
    let devices = DEVICES.iter().map(|path| (path, PathAccess::Device));
    for (path, access) in system.chain(devices) {
        // Not every machine has all of them, and none is missed that is not there.
        if let Ok(handle) = rustix::fs::open(*path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()) {
            handles.push(handle);
            paths.push(SetupPath { path: path.into(), place: path.into(), access });
        }
    }
    let home = spec.mounts.iter().position(|mount| mount.name == spec.home);
    let home = home.ok_or_else(|| ShellError::HomeUnknown { name: spec.home.clone() })?;
    let setup = Setup {
        user: owner_instead_of_root(&spec.mounts[home].path)?,
        mounts: spec.mounts.iter().map(|mount| mount.name.clone()).collect(),
        home,
        paths,
        limits: spec.limits,
        environment: spec.environment.clone(),
        plan,
        protected,
    };
    Ok((setup, handles))
}

/// A mount's name is that of a folder in the session's root folder, and part of a variable's name.
fn require_name(mount: &SessionMount) -> Result<(), ShellError> {
    let is_plain =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_' || byte == b'-';
    let is_usable = !mount.name.is_empty()
        && mount.name.len() <= 64
        && mount.name.bytes().all(is_plain)
        && !TAKEN.contains(&mount.name.as_str());
    if is_usable { Ok(()) } else { Err(ShellError::MountName { name: mount.name.clone() }) }
}

/// Root without capabilities is a stranger in somebody else's workspace, and what it makes there would be
/// root's. `None` where this process is not root, or may not become somebody else and kill it afterwards.
fn owner_instead_of_root(home: &Path) -> Result<Option<ProcessUser>, ShellError> {
    let open_error = |source| ShellError::MountOpen { path: home.to_owned(), source };
    let owner = rustix::fs::stat(home).map_err(|errno| open_error(errno.into()))?;
    let needed = CapabilitySet::SETUID | CapabilitySet::SETGID | CapabilitySet::KILL | CapabilitySet::CHOWN;
    let has_all =
        rustix::thread::capabilities(None).is_ok_and(|capabilities| capabilities.effective.contains(needed));
    let becomes = rustix::process::geteuid().is_root() && has_all && owner.st_uid != 0;
    Ok(becomes.then_some(ProcessUser { uid: owner.st_uid, gid: owner.st_gid }))
}

fn open_mount(path: &Path) -> Result<OwnedFd, ShellError> {
    let open_error = |source| ShellError::MountOpen { path: path.to_owned(), source };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let handle = rustix::fs::open(path, flags, Mode::empty()).map_err(|errno| open_error(errno.into()))?;
    let identity = |handle: &File| {
        handle.metadata().map(|data| {
            use std::os::unix::fs::MetadataExt as _;
            (data.dev(), data.ino())
        })
    };
    let file = File::from(handle);
    let mount = identity(&file).map_err(open_error)?;
    for wide in TOO_WIDE {
        let Ok(folder) = rustix::fs::open(wide, flags - OFlags::NOFOLLOW, Mode::empty()) else { continue };
        if identity(&File::from(folder)).is_ok_and(|folder| folder == mount) {
            return Err(ShellError::MountTooWide { path: path.to_owned() });
        }
    }
    Ok(file.into())
}

/// Read and run, never written. Of `/etc` only what programs look up and everybody may know.
const SYSTEM: [&str; 22] = [
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/etc/alternatives",
    "/etc/bash.bashrc",
    "/etc/ca-certificates",
    "/etc/ca-certificates.conf",
    "/etc/debian_version",
    "/etc/group",
    "/etc/host.conf",
    "/etc/hosts",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/localtime",
    "/etc/nsswitch.conf",
    "/etc/os-release",
    "/etc/passwd",
    "/etc/ssl/certs",
];

const DEVICES: [&str; 5] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"];

/// Folders that hold more than any workspace.
const TOO_WIDE: [&str; 9] = ["/", "/home", "/run", "/proc", "/sys", "/dev", "/etc", "/root", "/var"];

/// Names that the session's root folder has for something else.
const TAKEN: [&str; 9] = ["bin", "dev", "etc", "lib", "lib32", "lib64", "proc", "sbin", "usr"];
