//! What a caller asks for: which layers, which mounts, which canary.
//!
//! Values only, equal on every platform; nothing here touches the kernel.

use std::{os::fd::OwnedFd, sync::Arc, time::Duration};

use crate::{Canary, Layer};

/// Everything that one worker thread is to be confined to.
#[derive(Clone, Debug)]
pub struct ThreadConfinement {
    /// Whether the thread must have Landlock.
    pub landlock: Requirement,
    /// Whether the thread must have the system-call filter.
    pub seccomp: Requirement,
    /// The only directories that the thread may open anything in; empty means no file at all.
    pub mounts: Vec<MountRule>,
    /// What the thread tries to reach, so that the refusal proves the layer.
    pub canary: Canary,
}

impl ThreadConfinement {
    /// What is asked of one layer; nothing, if a thread cannot have it.
    #[must_use]
    pub fn requirement(&self, layer: Layer) -> Requirement {
        match layer {
            Layer::Landlock => self.landlock,
            Layer::Seccomp => self.seccomp,
            _ => Requirement::Waived,
        }
    }
}

/// Whether a layer must hold. There is no third value "if it works": a layer that is on here and off
/// there, without anybody having decided so, is what a posture exists to prevent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requirement {
    /// The layer is applied and proven, or confinement fails.
    Required,
    /// The operator took the layer off the list: it is not applied, and every row says so.
    Waived,
}

/// One directory tree that the thread may reach.
#[derive(Clone, Debug)]
pub struct MountRule {
    /// The open directory. The Landlock rule is made from this handle, and the same handle should be the
    /// guest's preopen: a path that is looked up twice can name two directories.
    pub dir: Arc<OwnedFd>,
    /// What may be done below it.
    pub access: MountAccess,
}

/// What may be done below a mount. Neither value lets anything be executed, nor lets a device, FIFO or
/// socket be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MountAccess {
    /// Read files and list directories.
    Read,
    /// Also write, truncate, create, link, rename and remove files, directories and symbolic links.
    Write,
}

/// Everything that a process, and all that it starts, is to be confined to.
#[derive(Clone, Debug)]
pub struct ProcessConfinement {
    /// Whether the process must have Landlock.
    pub landlock: Requirement,
    /// Whether the process must have the system-call filter.
    pub seccomp: Requirement,
    /// Whom the process becomes, if it is root. `None` leaves it who it is.
    pub user: Option<ProcessUser>,
    /// The only files, folders and devices that anything may be opened in.
    pub paths: Vec<PathRule>,
    /// What it may use up.
    pub limits: ProcessLimits,
    /// What the process tries to reach, so that the refusal proves the layer.
    pub canary: Canary,
}

impl ProcessConfinement {
    /// What is asked of one layer. That of privileges and that of limits work everywhere and are never waived;
    /// namespaces are entered before, see [`crate::Namespaces`].
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

/// A user and its group, without further groups.
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
    /// What may be done with it and below it.
    pub access: PathAccess,
}

/// What a process may do with a path and what is below it. Programs may be started wherever files may be
/// read: a shell that can read a script can run it anyway.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PathAccess {
    /// List folders, and read no file.
    List,
    /// Read files, list folders, start programs.
    Read,
    /// Also all that [`MountAccess::Write`] has, and FIFOs.
    Write,
    /// Read and write a device, without its own requests.
    Device,
}

/// What a process and each process below it may use up. The kernel counts each process for itself, but for
/// [`Self::processes`], which it counts by user and does not apply to the machine's root.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ProcessLimits {
    /// Open descriptors, of each process.
    pub descriptors: u64,
    /// Private memory that can be written to, of each process. Memory that is shared is not counted.
    pub memory_bytes: u64,
    /// The size of any file that is written.
    pub file_bytes: u64,
    /// Processes and threads of this user, which must be no other process's: where the kernel turns out to count
    /// others as well, or not to hold the user to it, nothing is changed and no evidence of it given. `None` leaves
    /// what is.
    pub processes: Option<u64>,
    /// Processor time, of each process. `None` leaves what is.
    pub cpu: Option<Duration>,
}

/// What all processes of a session together may use up, where a control group can be made for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct GroupLimits {
    /// Memory, files in memory included. Beyond that one of the processes is killed.
    pub memory_bytes: u64,
    /// Processes at a time. Beyond that none is started.
    pub processes: u64,
    /// Processor time in percent of one processor. `None` leaves it unbounded.
    pub cpu_percent: Option<u32>,
}
