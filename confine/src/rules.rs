//! The configuration of a confinement: layers, mounts and canary. This module makes no system call.

use std::{collections::BTreeSet, os::fd::OwnedFd, sync::Arc, time::Duration};

use crate::{CanaryFile, Layer};

/// The confinement of one worker thread.
#[derive(Clone, Debug)]
pub struct ThreadConfinement {
    /// Whether the thread must have Landlock.
    pub landlock: Requirement,
    /// Whether the thread must have the system-call filter.
    pub seccomp: Requirement,
    /// The only directories below which the thread may open files. Empty means that it opens no file at all.
    pub mounts: Vec<MountRule>,
    /// The connections that the thread may make. `None` means no socket at all. A thread with a network has
    /// no mounts, and its filter refuses to open files.
    pub network: Option<NetworkRules>,
    /// The target of the attempts whose refusal proves each layer.
    pub canary: CanaryFile,
}

impl ThreadConfinement {
    /// Returns the requirement on one layer. A layer that a thread cannot have is waived.
    #[must_use]
    pub fn requirement(&self, layer: Layer) -> Requirement {
        match layer {
            Layer::Landlock => self.landlock,
            Layer::Seccomp => self.seccomp,
            Layer::Privileges
            | Layer::Limits
            | Layer::MountNamespace
            | Layer::PidNamespace
            | Layer::IpcNamespace
            | Layer::UtsNamespace
            | Layer::NetNamespace
            | Layer::Cgroup => Requirement::Waived,
        }
    }
}

/// Whether a layer must be enforced. There is no third value "if it works": the operator must decide whether
/// a layer is on or off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requirement {
    /// The layer is applied and proven, or confinement fails.
    Required,
    /// The operator waived the layer: it is not applied, and every audit row says so.
    Waived,
}

/// One directory tree that the thread may reach.
#[derive(Clone, Debug)]
pub struct MountRule {
    /// The open directory, from which the Landlock rule is made. Use the same handle for the guest's preopen,
    /// because two lookups of a path can lead to two directories (TOCTOU race).
    pub dir: Arc<OwnedFd>,
    /// The access below the directory.
    pub access: MountAccess,
}

/// The connections of a thread that may only connect: TCP over IPv4 and IPv6, to any address. The thread can neither
/// bind nor listen. It has no datagrams, because a system-call filter cannot see where a datagram goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetworkRules {
    /// The ports that the thread may connect to. Empty means none. Landlock enforces them from version 4 on
    /// (Linux 6.7). With an earlier version every port is open, and the posture lists `net_connect_tcp` as
    /// missing.
    pub ports: BTreeSet<u16>,
}

/// The access below a mount. Neither value allows executing a file, or creating a device, FIFO or socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MountAccess {
    /// Read files and list directories.
    Read,
    /// Also write, truncate, create, link, rename and remove files, directories and symlinks.
    Write,
}

/// The confinement of a process and all its children.
#[derive(Clone, Debug)]
pub struct ProcessConfinement {
    /// Whether the process must have Landlock.
    pub landlock: Requirement,
    /// Whether the process must have the system-call filter.
    pub seccomp: Requirement,
    /// The user that the process switches to, if it is root. `None` keeps its user.
    pub user: Option<ProcessUser>,
    /// The only files, folders and devices that may be opened, or below which files may be opened.
    pub paths: Vec<PathRule>,
    /// The connections that the process may make: IPv4 streams to these ports. `None` means that connected pairs are
    /// the only sockets. Set this only for a process in a network namespace with nothing but a loopback device, because
    /// neither layer restricts the address.
    pub network: Option<NetworkRules>,
    /// Whether changes of files wait for a [`ChangeListener`](crate::ChangeListener). Needs the system-call filter.
    pub watch_changes: bool,
    /// The limits of the process.
    pub limits: ProcessLimits,
    /// The target of the attempts whose refusal proves each layer.
    pub canary: CanaryFile,
}

impl ProcessConfinement {
    /// Returns the requirement on one layer. Privileges and limits work everywhere and are never waived.
    /// Namespaces are entered earlier, by [`crate::Namespaces`], and count as waived here.
    #[must_use]
    pub fn requirement(&self, layer: Layer) -> Requirement {
        match layer {
            Layer::Landlock => self.landlock,
            Layer::Seccomp => self.seccomp,
            Layer::Privileges | Layer::Limits => Requirement::Required,
            Layer::MountNamespace
            | Layer::PidNamespace
            | Layer::IpcNamespace
            | Layer::UtsNamespace
            | Layer::NetNamespace
            | Layer::Cgroup => Requirement::Waived,
        }
    }
}

/// A user and its group, without supplementary groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ProcessUser {
    /// The user's number.
    pub uid: u32,
    /// The group's number.
    pub gid: u32,
}

/// One file, folder or device that a process may reach.
#[derive(Clone, Debug)]
pub struct PathRule {
    /// The open handle. `O_PATH` is enough.
    pub handle: Arc<OwnedFd>,
    /// The access to the path and below it.
    pub access: PathAccess,
}

/// A process's access to a path and below it. A readable file is also executable, because a shell can run any script
/// that it can read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PathAccess {
    /// List folders, but read no file.
    List,
    /// Read files, list folders, execute programs.
    Read,
    /// In addition to [`PathAccess::Read`], everything of [`MountAccess::Write`], and creating FIFOs.
    Write,
    /// Read and write a device, without device-specific requests.
    Device,
}

/// Limits of a process and of each process below it. The kernel applies them to each process separately,
/// except [`Self::processes`], which it counts per user and does not apply to the machine's root.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ProcessLimits {
    /// Open descriptors of each process.
    pub descriptors: u64,
    /// Private writable memory of each process. Shared memory is not counted.
    pub memory_bytes: u64,
    /// The size of any file that is written.
    pub file_bytes: u64,
    /// Processes and threads of this user, which no other process may have. If an attempt shows that the
    /// kernel also counts other processes, or does not apply the limit to the user, the limit stays unchanged
    /// and has no evidence. `None` keeps the current limit.
    pub processes: Option<u64>,
    /// Processor time of each process. `None` keeps the current limit.
    pub cpu: Option<Duration>,
}

/// Limits of all processes of a session together, if a control group can be created for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct GroupLimits {
    /// Memory, including memory files. Beyond this limit one of the processes is killed.
    pub memory_bytes: u64,
    /// Concurrent processes. Beyond this limit none can be started.
    pub processes: u64,
    /// Processor time in percent of one processor. `None` means no limit.
    pub cpu_percent: Option<u32>,
}
