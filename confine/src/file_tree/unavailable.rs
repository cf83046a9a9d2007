//! [`TreeUnavailable`]: why no tree was built, with the step that failed, in words for an operator.

use std::{fmt, io};

/// The reason why no tree was built. Nothing has changed, so the process may continue in its old tree.
#[derive(Debug)]
pub(crate) struct TreeUnavailable {
    pub(crate) step: TreeStep,
    pub(crate) source: io::Error,
}

/// A step of creating a tree's parts, which may fail because of the environment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TreeStep {
    PartMounts,
    MountProc,
    MountRoot,
    MountSharedMemory,
    MountTmp,
    CopyMount,
    NameSystemFolder,
    CopySystemFolder,
}

/// Worded to follow "to" in a message.
impl fmt::Display for TreeStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::PartMounts => "make the mounts private",
            Self::MountProc => "mount a separate /proc",
            Self::MountRoot => "mount a root folder of its own",
            Self::MountSharedMemory => "mount a separate /dev/shm",
            Self::MountTmp => "mount a separate /tmp",
            Self::CopyMount => "copy a mount",
            Self::NameSystemFolder => "name a system folder",
            Self::CopySystemFolder => "copy a system folder",
        })
    }
}
