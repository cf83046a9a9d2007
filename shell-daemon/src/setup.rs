//! Makes a session's setup message and the handles that are sent with it.

use std::{
    fs::File,
    io,
    os::fd::{AsRawFd as _, OwnedFd},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
};

use portcullis_confine::{GroupProof, LayerStatus, PathAccess, ProcessUser, SeparateUser};
use rustix::{
    fs::{Mode, OFlags},
    thread::CapabilitySet,
};

use crate::{
    SessionMount, SessionSpec, ShellError,
    caches::{self, SessionCache},
    network::MAX_CERTIFICATES_BYTES,
    prepared::memory_file,
    protected::SessionProtectedPaths,
    toolchain::{self, paths_outside_system},
    wire::{LayerPlan, SessionSetup, SetupPath},
};

/// Makes the setup message and its handles, in this order: the canary; each path; the certificates, if the session has
/// a network; the control group, if there is one.
pub(crate) fn build_setup(
    spec: &SessionSpec,
    plan: LayerPlan,
    protected: SessionProtectedPaths,
    hidden: Vec<PathBuf>,
    group: Result<(OwnedFd, GroupProof), LayerStatus>,
) -> Result<(SessionSetup, Vec<OwnedFd>), ShellError> {
    let canary = spec.canary.state_folder().try_clone_to_owned();
    let mut handles = vec![canary.map_err(|source| ShellError::Start { source })?];
    let mut paths = Vec::new();
    let state = real_path(&handles[0]).map_err(|source| ShellError::Start { source })?;
    for mount in &spec.mounts {
        require_name(mount)?;
        let handle = open_mount(&mount.path)?;
        let resolved_path = real_path(&handle)
            .map_err(|source| ShellError::MountOpen { path: mount.path.clone(), source })?;
        // The canary cannot reveal a mount that holds the state folder if the session's user may not enter that
        // folder anyway, so compare the paths.
        if state.starts_with(&resolved_path) || resolved_path.starts_with(&state) {
            return Err(ShellError::MountTooWide { path: mount.path.clone() });
        }
        handles.push(handle);
        let target = Path::new("/").join(&mount.name);
        paths.push(SetupPath { path: mount.path.clone(), target, access: mount.access });
    }
    let system = SYSTEM.iter().map(|path| (path, PathAccess::Read));
    let devices = DEVICES.iter().map(|path| (path, PathAccess::Device));
    for (path, access) in system.chain(devices) {
        // Leave out missing paths: not every machine has all of them.
        if let Ok(handle) = toolchain::open(Path::new(path)) {
            handles.push(handle);
            paths.push(SetupPath { path: path.into(), target: path.into(), access });
        }
    }
    // Only a file tree can show a copy in the place of a cache. Without one, a cache is one more path to read.
    let may_have_tree = plan.may_have_tree();
    let read_caches = spec.toolchain.caches.iter().map(PathBuf::as_path).filter(|_| !may_have_tree);
    let before_toolchain = paths.len();
    for path in paths_outside_system(&spec.toolchain).chain(read_caches) {
        let handle = toolchain::open(path)
            .map_err(|source| ShellError::MountOpen { path: path.to_owned(), source })?;
        handles.push(handle);
        paths.push(SetupPath { path: path.into(), target: path.into(), access: PathAccess::Read });
    }
    let toolchain = paths.len() - before_toolchain;
    let home = spec.mounts.iter().position(|mount| mount.name == spec.home);
    let home = home.ok_or_else(|| ShellError::HomeUnknown { name: spec.home.clone() })?;
    let (user, separate_user) = users(&spec.mounts[home].path)?;
    let owner = separate_user.map(|user| user.owner).or(user);
    let caches = if may_have_tree { caches::refresh(&spec.toolchain, owner)? } else { Vec::new() };
    let cache_count = caches.len();
    for SessionCache { path, original, copy, copy_path } in caches {
        handles.extend([copy, original]);
        paths.push(SetupPath { path: copy_path, target: path.clone(), access: PathAccess::Write });
        paths.push(SetupPath { path: path.clone(), target: path, access: PathAccess::Read });
    }
    if let Some(network) = &spec.network {
        let certificates = certificates(&network.certificates);
        handles.push(certificates.map_err(|source| ShellError::Start { source })?);
    }
    let group = group.map(|(handle, proof)| {
        handles.push(handle);
        proof
    });
    let setup = SessionSetup {
        user,
        separate_user,
        group,
        mounts: spec.mounts.iter().map(|mount| mount.name.clone()).collect(),
        home,
        paths,
        toolchain,
        caches: cache_count,
        limits: spec.limits,
        search_path: spec.toolchain.path.clone(),
        environment: spec.environment.clone(),
        plan,
        protected: protected.read_only,
        fixed: protected.fixed,
        hidden,
        network: spec.network.is_some(),
        watch_changes: spec.watch_changes,
    };
    Ok((setup, handles))
}

/// Makes a memory file with the certificates, which are too long for the message.
fn certificates(text: &str) -> io::Result<OwnedFd> {
    let bytes = text.len() as u64;
    if bytes > MAX_CERTIFICATES_BYTES {
        return Err(io::Error::other(format!(
            "the certificates are larger than {MAX_CERTIFICATES_BYTES} bytes"
        )));
    }
    let file = memory_file("certificates", bytes)?;
    let mut written = 0;
    while written < text.len() {
        written += rustix::io::pwrite(&file, &text.as_bytes()[written..], written as u64)?;
    }
    Ok(file)
}

/// Checks a mount's name. The name becomes a folder in the session's root folder, and a part of a variable's name.
fn require_name(mount: &SessionMount) -> Result<(), ShellError> {
    let is_allowed_byte =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_' || byte == b'-';
    let is_usable = !mount.name.is_empty()
        && mount.name.len() <= 64
        && mount.name.bytes().all(is_allowed_byte)
        && !RESERVED_NAMES.contains(&mount.name.as_str());
    if is_usable { Ok(()) } else { Err(ShellError::MountName { name: mount.name.clone() }) }
}

/// Returns the users of a session whose sidecar is root: the owner of the home, and a user that no other
/// process has. The second user is for a file tree in which the files appear to belong to that user.
///
/// The session cannot run as root: without capabilities, root has no special access to another user's workspace, and
/// new files would belong to root. `None` if this process is not root, or lacks the capabilities to change a process's
/// user and to kill that process.
fn users(home: &Path) -> Result<(Option<ProcessUser>, Option<SeparateUser>), ShellError> {
    let open_error = |source| ShellError::MountOpen { path: home.to_owned(), source };
    let owner = rustix::fs::stat(home).map_err(|errno| open_error(errno.into()))?;
    let owner = ProcessUser { uid: owner.st_uid, gid: owner.st_gid };
    let needed = CapabilitySet::SETUID | CapabilitySet::SETGID | CapabilitySet::KILL | CapabilitySet::CHOWN;
    let has_all =
        rustix::thread::capabilities(None).is_ok_and(|capabilities| capabilities.effective.contains(needed));
    if !rustix::process::geteuid().is_root() || !has_all {
        return Ok((None, None));
    }
    let session_uid = next_user();
    let separate_user = SeparateUser { owner, other: ProcessUser { uid: session_uid, gid: session_uid } };
    let is_higher = owner.uid < session_uid && owner.gid < session_uid;
    Ok(((owner.uid != 0).then_some(owner), is_higher.then_some(separate_user)))
}

/// Returns a user number that no other session of this machine has. The numbers come from a range that
/// nothing else uses. Each sidecar uses its own part of the range.
fn next_user() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let process = rustix::process::getpid().as_raw_pid().unsigned_abs() % USERS_PARTS;
    USERS + process * USERS_PART + NEXT.fetch_add(1, Ordering::Relaxed) % USERS_PART
}

/// The first user number of the range. From here to the largest signed number, nothing assigns users (systemd, "Users,
/// Groups, UIDs and GIDs").
const USERS: u32 = 0x7000_0000;
const USERS_PARTS: u32 = 1 << 17;
const USERS_PART: u32 = 1 << 10;

fn real_path(handle: &OwnedFd) -> io::Result<PathBuf> {
    std::fs::read_link(format!("/proc/self/fd/{}", handle.as_raw_fd()))
}

pub(crate) fn open_mount(path: &Path) -> Result<OwnedFd, ShellError> {
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
    for forbidden in TOO_WIDE {
        let Ok(folder) = rustix::fs::open(forbidden, flags - OFlags::NOFOLLOW, Mode::empty()) else {
            continue;
        };
        if identity(&File::from(folder)).is_ok_and(|folder| folder == mount) {
            return Err(ShellError::MountTooWide { path: path.to_owned() });
        }
    }
    Ok(file.into())
}

/// System paths that sessions can read and execute but never write. From `/etc`, the list has only public
/// files that programs look up.
const SYSTEM: [&str; 23] = [
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
    // Node ends immediately if this file is there and cannot be read.
    "/etc/ssl/openssl.cnf",
];

/// Whether sessions see a path as a part of the system.
pub(crate) fn is_system_path(path: &Path) -> bool {
    SYSTEM.iter().any(|system| path.starts_with(system))
}

const DEVICES: [&str; 5] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"];

/// Folders that are too wide for a mount: they hold more than a workspace.
const TOO_WIDE: [&str; 9] = ["/", "/home", "/run", "/proc", "/sys", "/dev", "/etc", "/root", "/var"];

/// Names that the session's root folder uses for system folders.
const RESERVED_NAMES: [&str; 9] = ["bin", "dev", "etc", "lib", "lib32", "lib64", "proc", "sbin", "usr"];
