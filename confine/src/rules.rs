//! What a caller asks for: which layers, which mounts, which canary.
//!
//! Values only, equal on every platform; nothing here touches the kernel.

use std::{os::fd::OwnedFd, sync::Arc};

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
    /// What is asked of one layer.
    #[must_use]
    pub fn requirement(&self, layer: Layer) -> Requirement {
        match layer {
            Layer::Landlock => self.landlock,
            Layer::Seccomp => self.seccomp,
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
