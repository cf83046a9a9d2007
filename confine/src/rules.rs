//! The caller's request: layers, mounts and canary.
//!
//! Values only; nothing here touches the kernel.

use std::{collections::BTreeSet, os::fd::OwnedFd, sync::Arc, time::Duration};

use crate::{Canary, Layer};

/// The confinement of one worker thread.
#[derive(Clone, Debug)]
pub struct ThreadConfinement {
    /// Whether the thread must have Landlock.
    pub landlock: Requirement,
    /// Whether the thread must have the system-call filter.
    pub seccomp: Requirement,
    /// The only directories below which the thread may open files; empty means no file at all.
    pub mounts: Vec<MountRule>,
    /// The connections that the thread may make; `None` means no socket at all. A thread with a network has no
    /// mounts, and its filter refuses to open files.
    pub network: Option<NetworkRules>,
    /// The target of the thread's attempts, whose refusal proves the layer.
    pub canary: Canary,
}

impl ThreadConfinement {
    /// The requirement on one layer; waived if a thread cannot have it.
    #[must_use]
    pub fn requirement(&self, layer: Layer) -> Requirement {
        match layer {
            Layer::Landlock => self.landlock,
            Layer::Seccomp => self.seccomp,
            _ => Requirement::Waived,
        }
    }
}

/// Whether a layer must hold. There is no third value "if it works": no layer may be on or off without a
/// decision of the operator.
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
    /// The open directory. The Landlock rule is made from this handle, and the guest's preopen should be the
    /// same handle: a path that is looked up twice can name two directories (TOCTOU race).
    pub dir: Arc<OwnedFd>,
    /// The access below it.
    pub access: MountAccess,
}

/// The connections of a thread that may only connect: TCP over IPv4 and IPv6, to any address. It can neither
/// bind nor listen, and has no datagrams: no system-call filter sees where a datagram goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetworkRules {
    /// The ports that the thread may connect to; empty means none. Landlock holds them from version 4 on
    /// (Linux 6.7). Below it every port is open, and the posture lists `net_connect_tcp` as missing.
    pub ports: BTreeSet<u16>,
}

/// The access below a mount. Neither value allows executing a file, or making a device, FIFO or socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MountAccess {
    /// Read files and list directories.
    Read,
    /// Also write, truncate, create, link, rename and remove files, directories and symbolic links.
    Write,
}

/// The confinement of a process and all its children.
#[derive(Clone, Debug)]
pub struct ProcessConfinement {
    /// Whether the process must have Landlock.
    pub landlock: Requirement,
    /// Whether the process must have the system-call filter.
    pub seccomp: Requirement,
    /// The user that the process becomes, if it is root. `None` keeps its user.
    pub user: Option<ProcessUser>,
    /// The only files, folders and devices that may be opened, or below which files may be opened.
    pub paths: Vec<PathRule>,
    /// The connections that the process may make: streams of IPv4 to these ports. `None` means no socket but
    /// connected pairs. Meant for a process in a network namespace with nothing but a loopback device: neither layer
    /// bounds the address.
    pub network: Option<NetworkRules>,
    /// The limits of the process.
    pub limits: ProcessLimits,
    /// The target of the process's attempts, whose refusal proves the layer.
    pub canary: Canary,
}

impl ProcessConfinement {
    /// The requirement on one layer. Privileges and limits work everywhere and are never waived; namespaces
    /// are entered before, see [`crate::Namespaces`].
    #[must_use]
    pub fn requirement(&self, layer: Layer) -> Requirement {
        match layer {
            Layer::Landlock => self.landlock,
            Layer::Seccomp => self.seccomp,
            Layer::Privileges | Layer::Limits => Requirement::Required,
            _ => Requirement::Waived,
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
    /// The open handle; `O_PATH` is enough.
    pub handle: Arc<OwnedFd>,
    /// The access to it and below it.
    pub access: PathAccess,
}

/// A process's access to a path and below it. A readable file is also executable: a shell that can read a
/// script can run it anyway.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PathAccess {
    /// List folders, but read no file.
    List,
    /// Read files, list folders, execute programs.
    Read,
    /// Also everything of [`MountAccess::Write`], and making FIFOs.
    Write,
    /// Read and write a device, without device-specific requests.
    Device,
}

/// Limits of a process and of each process below it. The kernel counts each process separately, except for
/// [`Self::processes`], which it counts by user and does not apply to the machine's root.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ProcessLimits {
    /// Open descriptors of each process.
    pub descriptors: u64,
    /// Private writable memory of each process. Shared memory is not counted.
    pub memory_bytes: u64,
    /// The size of any file that is written.
    pub file_bytes: u64,
    /// Processes and threads of this user, which no other process may have: if an attempt shows that the
    /// kernel counts other processes too, or does not apply the limit to the user, nothing is changed and
    /// there is no evidence for it. `None` keeps the current limit.
    pub processes: Option<u64>,
    /// Processor time of each process. `None` keeps the current limit.
    pub cpu: Option<Duration>,
}

/// Limits of all processes of a session together, where a control group can be made for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct GroupLimits {
    /// Memory, memory files included. Beyond it one of the processes is killed.
    pub memory_bytes: u64,
    /// Processes at a time. Beyond it none can be started.
    pub processes: u64,
    /// Processor time in percent of one processor. `None` leaves it unbounded.
    pub cpu_percent: Option<u32>,
}
