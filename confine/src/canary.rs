//! The canary of a confined thread or process: the things that it must not reach, and the attempts to reach
//! them.
//!
//! This file makes the attempts, reports their outcomes and knows the right ones. `thread.rs` and
//! `process.rs` decide what follows from them.

use std::{
    ffi::CStr,
    fs::File,
    io::{self, Write as _},
    os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd},
    path::{Path, PathBuf},
    sync::Arc,
};

use rustix::{
    fs::{FileType, Mode, OFlags},
    net::{AddressFamily, SocketFlags, SocketType},
};

use crate::{
    ConfineError, Layer, ProcessUser, SyscallOutcome,
    landlock::CONNECT_ABI,
    sys::{self, HarmlessCall},
};

mod network;
pub(crate) use network::{NetworkProbe, OtherPort};

/// A file in the state folder, outside every mount: an unconfined thread can open it, a thread under Landlock
/// must not. Cheap to clone.
///
/// It is opened through a handle of the state folder, so that the proof still works after the folder was
/// moved. It must be opened for reading: Landlock lets `O_PATH` opens through.
#[derive(Clone, Debug)]
pub struct Canary {
    state_dir: Arc<OwnedFd>,
    /// The root folder that must not be opened, if it is another one than `/`.
    root: Option<Arc<OwnedFd>>,
}

impl Canary {
    /// Makes the canary file in `state_dir`, or takes the existing one, and opens it once.
    ///
    /// The file is never removed: several processes may share the folder. If it is removed while they run,
    /// their calls are refused until they start again.
    ///
    /// # Errors
    /// If the folder cannot be opened, the file can be neither made nor read, or something else is in its
    /// place (a link, a FIFO, another user's file).
    pub fn create(state_dir: &Path) -> Result<Self, ConfineError> {
        let path = state_dir.join(FILE_NAME.to_string_lossy().as_ref());
        let failed = |source: io::Error| ConfineError::CanaryCreate { path: path.clone(), source };
        let dir =
            rustix::fs::open(state_dir, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
                .map_err(|errno| failed(errno.into()))?;
        let file = rustix::fs::openat(
            &dir,
            FILE_NAME,
            // Non-blocking, so that a FIFO in its place is an error and not a hang.
            OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC,
            Mode::RUSR | Mode::WUSR,
        )
        .map_err(|errno| failed(errno.into()))?;
        let stat = rustix::fs::fstat(&file).map_err(|errno| failed(errno.into()))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile
            || stat.st_uid != rustix::process::geteuid().as_raw()
        {
            return Err(ConfineError::CanaryForeign { path });
        }
        if stat.st_size == 0 {
            File::from(file).write_all(TEXT).map_err(&failed)?;
        }
        Ok(Self { state_dir: Arc::new(dir), root: None })
    }

    /// Takes the state folder's handle, for a process that got it from another process.
    #[must_use]
    pub fn from_state_dir(state_dir: Arc<OwnedFd>) -> Self {
        Self { state_dir, root: None }
    }

    /// Adds the handle of the machine's root folder, for a process that will get another root.
    #[must_use]
    pub fn with_root(self, root: Arc<OwnedFd>) -> Self {
        Self { root: Some(root), ..self }
    }

    /// The canary file's path, as the calling process sees it now.
    pub(crate) fn path(&self) -> io::Result<PathBuf> {
        let folder = std::fs::read_link(format!("/proc/self/fd/{}", self.state_dir.as_raw_fd()))?;
        Ok(folder.join(FILE_NAME.to_string_lossy().as_ref()))
    }

    /// The handle of the state folder, for a process that is going to be confined.
    #[must_use]
    pub fn state_dir(&self) -> BorrowedFd<'_> {
        self.state_dir.as_fd()
    }

    pub(crate) fn attempt(&self, probe: Probe) -> SyscallOutcome {
        loop {
            let result = match probe {
                Probe::ReadState => self.open(FILE_NAME, OFlags::RDONLY),
                Probe::WriteState => self.open(FILE_NAME, OFlags::WRONLY),
                Probe::ListState => self.open(c".", OFlags::RDONLY | OFlags::DIRECTORY),
                Probe::Socket => rustix::net::socket_with(
                    AddressFamily::UNIX,
                    SocketType::DGRAM,
                    SocketFlags::CLOEXEC,
                    None,
                )
                .map(drop),
                Probe::InternetSocket => rustix::net::socket_with(
                    AddressFamily::INET,
                    SocketType::DGRAM,
                    SocketFlags::CLOEXEC,
                    None,
                )
                .map(drop),
                Probe::SignalParent => match rustix::process::getppid() {
                    Some(parent) => rustix::process::test_kill_process(parent),
                    None => Err(rustix::io::Errno::SRCH),
                },
                Probe::Capability => return sys::attempt(HarmlessCall::DropUnknownCapability),
                Probe::ListRoot => {
                    let how = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
                    match &self.root {
                        Some(root) => rustix::fs::openat(root, c".", how, Mode::empty()),
                        None => rustix::fs::open("/", how, Mode::empty()),
                    }
                    .map(drop)
                }
                Probe::Execute => return sys::attempt(HarmlessCall::Execve),
                Probe::Clone => return sys::attempt(HarmlessCall::Clone3),
                Probe::Network(probe) => probe.attempt(&*self.state_dir),
            };
            return match result {
                Ok(()) => SyscallOutcome::Succeeded,
                // Retry: on a file system that blocks, the interrupting signal may hit the proof itself.
                Err(rustix::io::Errno::INTR) => continue,
                Err(errno) => SyscallOutcome::Failed(errno.raw_os_error()),
            };
        }
    }

    fn open(&self, name: &CStr, how: OFlags) -> rustix::io::Result<()> {
        rustix::fs::openat(
            &*self.state_dir,
            name,
            how | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC,
            Mode::empty(),
        )
        .map(drop)
    }
}

/// One attempt. It changes nothing, whether it is refused or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Probe {
    ReadState,
    WriteState,
    ListState,
    Socket,
    Execute,
    Clone,
    InternetSocket,
    SignalParent,
    Capability,
    ListRoot,
    Network(NetworkProbe),
}

impl Probe {
    /// The attempts on a new thread. Deliberately few: a container's own filter may answer an unusual call by
    /// killing the process.
    pub(crate) const ALL: [Self; 6] =
        [Self::ReadState, Self::WriteState, Self::ListState, Self::Socket, Self::Execute, Self::Clone];

    /// The attempts before every call, one for each layer.
    pub(crate) const PER_CALL: [Self; 2] = [Self::ReadState, Self::Socket];

    /// The attempts on a new thread with a network. `port` is one that it must not reach. `abi` is the kernel's Landlock version.
    pub(crate) fn of_network(port: u16, abi: u32) -> Vec<Self> {
        let holds_ports = (abi >= CONNECT_ABI).then_some(Self::Network(NetworkProbe::OtherPort(port)));
        let filtered = NetworkProbe::of_filter(port).map(Self::Network);
        Self::ALL.into_iter().chain(holds_ports).chain(filtered).collect()
    }

    /// The attempts of such a thread before every call. Its filter refuses to open files before Landlock is
    /// asked, so the port stands for Landlock.
    pub(crate) fn of_network_per_call(port: u16, abi: u32) -> Vec<Self> {
        let holds_ports = (abi >= CONNECT_ABI).then_some(Self::Network(NetworkProbe::OtherPort(port)));
        holds_ports.into_iter().chain([Self::Socket, Self::Network(NetworkProbe::Udp)]).collect()
    }

    /// The attempts on a process for one layer. `abi` is the kernel's Landlock version.
    ///
    /// With another user, the state folder and a parent that stays root are out of reach with or without
    /// Landlock. Such a process is tried on the root folder instead, which is never granted.
    pub(crate) fn of_process(layer: Layer, abi: u32, user: Option<ProcessUser>) -> &'static [Self] {
        match layer {
            Layer::Landlock if user.is_some() => &[Self::ListRoot],
            Layer::Landlock if abi >= SIGNAL_SCOPE_ABI => {
                &[Self::ReadState, Self::WriteState, Self::ListState, Self::SignalParent]
            }
            Layer::Landlock => &[Self::ReadState, Self::WriteState, Self::ListState],
            Layer::Seccomp => &[Self::Socket, Self::InternetSocket, Self::Clone],
            Layer::Privileges => &[Self::Capability],
            // Proved elsewhere: limits in `limits.rs`, which knows the numbers, and namespaces in
            // `namespaces/`, where the targets of the attempts must be made first.
            _ => &[],
        }
    }

    pub(crate) fn layer(self) -> Layer {
        match self {
            Self::ReadState | Self::WriteState | Self::ListState | Self::ListRoot | Self::SignalParent => {
                Layer::Landlock
            }
            Self::Socket | Self::InternetSocket | Self::Execute | Self::Clone => Layer::Seccomp,
            Self::Capability => Layer::Privileges,
            Self::Network(probe) => probe.layer(),
        }
    }

    /// Completes "to …".
    pub(crate) fn describe(self) -> &'static str {
        match self {
            Self::ReadState => "open a file of the state folder for reading",
            Self::WriteState => "open a file of the state folder for writing",
            Self::ListState => "open the state folder",
            Self::Socket => "make a unix socket",
            Self::Execute => "execute a program",
            Self::Clone => "start a thread",
            Self::ListRoot => "open the machine's root folder",
            Self::InternetSocket => "make an internet socket",
            Self::SignalParent => "send a signal to the parent process",
            Self::Capability => "use the capability to give up capabilities",
            Self::Network(probe) => probe.describe(),
        }
    }

    /// The exact refusal that a confined thread must get: another error could have another cause.
    pub(crate) fn refusal(self) -> SyscallOutcome {
        SyscallOutcome::Failed(match self {
            Self::ReadState | Self::WriteState | Self::ListState | Self::ListRoot => libc::EACCES,
            Self::Socket | Self::Execute | Self::InternetSocket | Self::SignalParent | Self::Capability => {
                libc::EPERM
            }
            Self::Clone => libc::ENOSYS,
            Self::Network(probe) => probe.refusal(),
        })
    }

    /// Whether `outcome` on an unconfined thread makes a later refusal meaningful.
    pub(crate) fn is_free(self, outcome: SyscallOutcome) -> bool {
        match self {
            Self::ReadState
            | Self::WriteState
            | Self::ListState
            | Self::Socket
            | Self::ListRoot
            | Self::InternetSocket => outcome == SyscallOutcome::Succeeded,
            // The kernel got as far as the (invalid) arguments.
            Self::Execute => outcome != self.refusal(),
            // Docker's filter answers `ENOSYS` as ours does. Then this attempt proves nothing, and the others
            // have to.
            Self::Clone => true,
            // An ordinary user has no capability to begin with, and cannot signal a parent of another user in
            // any case.
            Self::Capability | Self::SignalParent => true,
            Self::Network(probe) => probe.is_free(outcome),
        }
    }
}

/// The first version of Landlock that restricts signals.
const SIGNAL_SCOPE_ABI: u32 = 6;

const FILE_NAME: &CStr = c"canary";
const TEXT: &[u8] = b"A worker thread of Portcullis that can open this file is not confined.\n";

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_canary_is_made_once_and_shared() {
        let dir = tempfile::tempdir().unwrap();
        Canary::create(dir.path()).unwrap();
        let canary = Canary::create(dir.path()).unwrap();
        assert_eq!(std::fs::read(dir.path().join("canary")).unwrap(), TEXT);
        for probe in Probe::ALL {
            assert!(probe.is_free(canary.attempt(probe)), "{probe:?}: {:?}", canary.attempt(probe));
        }
        assert_eq!(std::fs::read(dir.path().join("canary")).unwrap(), TEXT);
    }

    #[test]
    fn foreign_file_at_the_canary_path_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        assert!(matches!(Canary::create(&dir.path().join("absent")), Err(ConfineError::CanaryCreate { .. })));
        symlink("/etc/hostname", dir.path().join("canary")).unwrap();
        assert!(matches!(Canary::create(dir.path()), Err(ConfineError::CanaryCreate { .. })));
        std::fs::remove_file(dir.path().join("canary")).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            dir.path().join("canary"),
            FileType::Fifo,
            Mode::RUSR | Mode::WUSR,
            0,
        )
        .unwrap();
        assert!(matches!(Canary::create(dir.path()), Err(ConfineError::CanaryForeign { .. })));
    }
}
