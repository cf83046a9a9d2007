//! The canary of a confined thread or process: objects that must be out of its reach, and the attempts to
//! reach them.
//!
//! This module makes the attempts, reports their outcomes, and knows the expected outcomes. `thread.rs` and
//! `process.rs` decide the consequences.

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
    sys::{self, ProbeSyscall},
};

mod network;
pub(crate) use network::{NetworkProbe, OtherPort};

/// A file in the state folder, outside every mount. An unconfined thread can open it; under Landlock the open must
/// fail. Clones are cheap.
///
/// The file is opened through a handle of the state folder, so the proof still works after the folder was moved. The
/// attempt must ask for reading or writing, because Landlock allows `O_PATH` opens.
#[derive(Clone, Debug)]
pub struct CanaryFile {
    state_folder: Arc<OwnedFd>,
    /// The root folder that must be out of reach. `None` means `/`.
    root: Option<Arc<OwnedFd>>,
}

impl CanaryFile {
    /// Opens the canary file in `state_folder` once, and creates it if it is missing.
    ///
    /// The file is never removed, because several processes may share the folder. If another program removes
    /// it while they run, their calls are refused until they restart.
    ///
    /// # Errors
    /// [`ConfineError`] if the folder cannot be opened, if the file can be neither created nor read, or if
    /// its name belongs to something else (a symlink, a FIFO, another user's file).
    pub fn create(state_folder: &Path) -> Result<Self, ConfineError> {
        let path = state_folder.join(FILE_NAME.to_string_lossy().as_ref());
        let failed = |source: io::Error| ConfineError::CanaryCreate { path: path.clone(), source };
        let dir = rustix::fs::open(
            state_folder,
            OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        )
        .map_err(|errno| failed(errno.into()))?;
        let file = rustix::fs::openat(
            &dir,
            FILE_NAME,
            // Non-blocking, so that a FIFO in the file's place cannot block the open.
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
            File::from(file).write_all(FILE_TEXT).map_err(&failed)?;
        }
        Ok(Self { state_folder: Arc::new(dir), root: None })
    }

    /// Creates the canary for a process that received the handle of the state folder from another process.
    #[must_use]
    pub fn from_state_folder(state_folder: Arc<OwnedFd>) -> Self {
        Self { state_folder, root: None }
    }

    /// Adds the handle of the machine's root folder, for a process that will get another root folder.
    #[must_use]
    pub fn with_root(self, root: Arc<OwnedFd>) -> Self {
        Self { root: Some(root), ..self }
    }

    /// Returns the canary file's current path.
    pub(crate) fn path(&self) -> io::Result<PathBuf> {
        let folder = std::fs::read_link(format!("/proc/self/fd/{}", self.state_folder.as_raw_fd()))?;
        Ok(folder.join(FILE_NAME.to_string_lossy().as_ref()))
    }

    /// Returns the handle of the state folder, for a process that is about to be confined.
    #[must_use]
    pub fn state_folder(&self) -> BorrowedFd<'_> {
        self.state_folder.as_fd()
    }

    /// Makes one attempt, and returns its outcome.
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
                Probe::Capability => return sys::attempt(ProbeSyscall::DropUnknownCapability),
                Probe::ListRoot => {
                    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
                    match &self.root {
                        Some(root) => rustix::fs::openat(root, c".", flags, Mode::empty()),
                        None => rustix::fs::open("/", flags, Mode::empty()),
                    }
                    .map(drop)
                }
                Probe::Execute => return sys::attempt(ProbeSyscall::Execve),
                Probe::Clone => return sys::attempt(ProbeSyscall::Clone3),
                Probe::Network(probe) => probe.attempt(&*self.state_folder),
            };
            return match result {
                Ok(()) => SyscallOutcome::Succeeded,
                // Retry: on a slow file system, the signal that interrupts a guest may interrupt this attempt
                // instead.
                Err(rustix::io::Errno::INTR) => continue,
                Err(errno) => SyscallOutcome::Failed(errno.raw_os_error()),
            };
        }
    }

    fn open(&self, name: &CStr, flags: OFlags) -> rustix::io::Result<()> {
        rustix::fs::openat(
            &*self.state_folder,
            name,
            flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC,
            Mode::empty(),
        )
        .map(drop)
    }
}

/// An attempt. It changes nothing, even if it succeeds.
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
    /// The attempts on a new thread. There are few on purpose: a container's own filter may kill the process
    /// for a call that it does not expect.
    pub(crate) const ALL: [Self; 6] =
        [Self::ReadState, Self::WriteState, Self::ListState, Self::Socket, Self::Execute, Self::Clone];

    /// The attempts before every call, one for each layer.
    pub(crate) const PER_CALL: [Self; 2] = [Self::ReadState, Self::Socket];

    /// Returns the attempts on a new thread with a network. `port` is the port that the thread must not
    /// reach, and `abi` the kernel's Landlock version.
    pub(crate) fn network_probes(port: u16, abi: u32) -> Vec<Self> {
        let holds_ports = (abi >= CONNECT_ABI).then_some(Self::Network(NetworkProbe::OtherPort(port)));
        let filtered = NetworkProbe::filter_probes(port).map(Self::Network);
        Self::ALL.into_iter().chain(holds_ports).chain(filtered).collect()
    }

    /// Returns the attempts of a thread with a network before every call. The thread's filter refuses every
    /// open of a file before Landlock sees it, so the attempt on the port proves Landlock instead. Below ABI
    /// 4, Landlock has no rules for ports, and no attempt proves it.
    pub(crate) fn network_probes_per_call(port: u16, abi: u32) -> Vec<Self> {
        let holds_ports = (abi >= CONNECT_ABI).then_some(Self::Network(NetworkProbe::OtherPort(port)));
        holds_ports.into_iter().chain([Self::Socket, Self::Network(NetworkProbe::Udp)]).collect()
    }

    /// Returns the attempts on a process for one layer. `abi` is the kernel's Landlock version.
    ///
    /// A process with another user cannot reach the state folder or signal a parent that stays root, even without
    /// Landlock. Such a process tries the root folder instead, which no rule ever grants.
    pub(crate) fn process_probes(layer: Layer, abi: u32, user: Option<ProcessUser>) -> &'static [Self] {
        match layer {
            Layer::Landlock if user.is_some() => &[Self::ListRoot],
            Layer::Landlock if abi >= SIGNAL_SCOPE_ABI => {
                &[Self::ReadState, Self::WriteState, Self::ListState, Self::SignalParent]
            }
            Layer::Landlock => &[Self::ReadState, Self::WriteState, Self::ListState],
            Layer::Seccomp => &[Self::Socket, Self::InternetSocket, Self::Clone],
            Layer::Privileges => &[Self::Capability],
            // Other modules prove the rest: `limits.rs` knows the values of the limits, and `namespaces/`
            // must first create the targets of its attempts.
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

    /// Returns the attempt in words, to follow "to".
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

    /// Returns the exact refusal that a confined thread must get. Any other error could have another cause.
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

    /// Returns whether `outcome`, seen before the layer was applied, makes a later refusal meaningful.
    pub(crate) fn is_valid_control(self, outcome: SyscallOutcome) -> bool {
        match self {
            Self::ReadState
            | Self::WriteState
            | Self::ListState
            | Self::Socket
            | Self::ListRoot
            | Self::InternetSocket => outcome == SyscallOutcome::Succeeded,
            // Any other outcome means that the kernel examined the invalid arguments, so nothing refused the
            // call earlier.
            Self::Execute => outcome != self.refusal(),
            // Docker's filter answers `ENOSYS` as this crate's does. The attempt then proves nothing, and the
            // other attempts must.
            Self::Clone => true,
            // An ordinary user has no capability from the start, and can never signal another user's parent
            // process.
            Self::Capability | Self::SignalParent => true,
            Self::Network(probe) => probe.is_valid_control(outcome),
        }
    }
}

/// The first version of Landlock that restricts signals.
const SIGNAL_SCOPE_ABI: u32 = 6;

const FILE_NAME: &CStr = c"canary";
const FILE_TEXT: &[u8] = b"A worker thread of Portcullis that can open this file is not confined.\n";

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_canary_is_made_once_and_shared() {
        let dir = tempfile::tempdir().unwrap();
        CanaryFile::create(dir.path()).unwrap();
        let canary = CanaryFile::create(dir.path()).unwrap();
        assert_eq!(std::fs::read(dir.path().join("canary")).unwrap(), FILE_TEXT);
        for probe in Probe::ALL {
            assert!(probe.is_valid_control(canary.attempt(probe)), "{probe:?}: {:?}", canary.attempt(probe));
        }
        assert_eq!(std::fs::read(dir.path().join("canary")).unwrap(), FILE_TEXT);
    }

    #[test]
    fn foreign_file_at_the_canary_path_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        assert!(matches!(
            CanaryFile::create(&dir.path().join("absent")),
            Err(ConfineError::CanaryCreate { .. })
        ));
        symlink("/etc/hostname", dir.path().join("canary")).unwrap();
        assert!(matches!(CanaryFile::create(dir.path()), Err(ConfineError::CanaryCreate { .. })));
        std::fs::remove_file(dir.path().join("canary")).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            dir.path().join("canary"),
            FileType::Fifo,
            Mode::RUSR | Mode::WUSR,
            0,
        )
        .unwrap();
        assert!(matches!(CanaryFile::create(dir.path()), Err(ConfineError::CanaryForeign { .. })));
    }
}
