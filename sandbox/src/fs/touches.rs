//! Counts what a guest does in each mount, for the call's audit row.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::fs::OFlags;

use super::{GuestFs, Preopen, resolve};
use crate::fs_result::split;

/// The maximum number of paths that are recorded for one call: 40. The audit row has fewer, because it
/// leaves out the subjects of the arguments.
const MAX_NOTED_PATHS: usize = 40;

/// The number of a guest's operations in one mount. Only successful operations count.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MountTouches {
    /// The mount's name.
    pub mount: String,
    /// Files and folders that were opened for reading.
    pub read: u64,
    /// Existing files that were opened for writing, and names whose times were changed.
    pub written: u64,
    /// Names that were created: files, folders, links, and the new name of a moved file.
    pub created: u64,
    /// Names that were removed: deleted files and folders, and the old name of a moved file.
    pub removed: u64,
}

/// The kind of an operation on a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Touch {
    Read,
    Written,
    Created,
    Removed,
}

/// The mounts and paths that a guest has touched so far.
#[derive(Debug, Default)]
pub(super) struct Touches {
    /// One entry for each preopen that was touched, with its index.
    mounts: Vec<(usize, MountTouches)>,
    /// The first guest paths, without repetitions.
    paths: Vec<String>,
}

impl Touches {
    /// Returns whether there is room for another path. Computing a path takes system calls, so callers ask
    /// first.
    pub(super) fn has_room(&self) -> bool {
        self.paths.len() < MAX_NOTED_PATHS
    }

    pub(super) fn add(&mut self, preopens: &[Preopen], index: usize, touch: Touch, path: Option<String>) {
        let known = self.mounts.iter().position(|(known, _)| *known == index);
        let position = known.unwrap_or_else(|| {
            let mount = preopens[index].handle.name().to_string();
            self.mounts.push((index, MountTouches { mount, ..MountTouches::default() }));
            self.mounts.len() - 1
        });
        let counts = &mut self.mounts[position].1;
        *match touch {
            Touch::Read => &mut counts.read,
            Touch::Written => &mut counts.written,
            Touch::Created => &mut counts.created,
            Touch::Removed => &mut counts.removed,
        } += 1;
        if let Some(path) = path
            && self.has_room()
            && !self.paths.contains(&path)
        {
            self.paths.push(path);
        }
    }
}

impl GuestFs {
    /// Returns the touched mounts, in the order of their first use, and the first paths.
    pub(crate) fn touched(&self) -> (Vec<MountTouches>, Vec<String>) {
        (self.touches.mounts.iter().map(|(_, counts)| counts.clone()).collect(), self.touches.paths.clone())
    }

    /// Records a successful operation on the name at the end of a path.
    pub(crate) fn record_touch(&mut self, fd: u32, path: &str, touch: Touch) {
        // The operation succeeded, so the descriptor is a directory.
        let Ok((preopen, base)) = self.directory_of(fd) else { return };
        let guest_path = self.entry_to_note(preopen, &base, path);
        self.touches.add(&self.preopens, preopen, touch, guest_path);
    }

    /// Returns the guest path of the name at the end of a path, if there is room to record it.
    pub(super) fn entry_to_note(&self, preopen: usize, base: &OwnedFd, path: &str) -> Option<String> {
        if !self.touches.has_room() {
            return None;
        }
        let (parent, name) = split(path)?;
        let parent = resolve(base.as_fd(), parent, OFlags::DIRECTORY).ok()?;
        self.path_to_note(preopen, parent.as_fd(), Some(name))
    }

    /// Returns the guest path of a handle, or of a name in its directory, if there is room to record it.
    pub(super) fn path_to_note(
        &self,
        preopen: usize,
        handle: BorrowedFd<'_>,
        name: Option<&str>,
    ) -> Option<String> {
        if !self.touches.has_room() {
            return None;
        }
        Some(self.guest_path(preopen, &self.below_mount(preopen, handle, name).ok()?))
    }
}
