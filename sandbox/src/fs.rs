//! Decides what a guest may reach through its directory descriptors, before the stock WASI function runs.
//!
//! The kernel resolves every path, on `O_PATH` handles beneath the guest's descriptor. Symlinks are
//! therefore followed exactly as the later open follows them, and the decision is made on the resolved
//! target. An escape, or a write to a protected path, is a violation: the whole call is `denied`, even if
//! the guest reports success. A FIFO, socket or device is refused before an open could block on it.

mod entry;
#[cfg(test)]
mod fixture;
mod lock;
mod plain_path;
mod record_changes;
mod refusals;
mod touches;

pub use touches::MountTouches;
pub(super) use touches::Touch;

use std::{
    collections::BTreeMap,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::{Component, Path},
    sync::Arc,
};

use portcullis_policy::HiddenNames;
use portcullis_types::{Access, ChangeScope};
use rustix::{
    fs::{FileType, OFlags, Stat},
    io::Errno as HostErrno,
};

use self::touches::Touches;
use super::{
    fs_result::{Errno, FsResult, Violation, split},
    permissions::{self, SavedPermissions},
    readdir::DirectoryCursor,
};
use crate::{
    before_change::BeforeChangeFn,
    hard_links::ExposedFiles,
    mount_use::MountUse,
    mounts::{MountHandle, resolve_beneath as resolve},
    protection::Protection,
};

/// The first descriptor of a preopen. Descriptors 0 to 2 are the standard streams.
const FIRST_PREOPEN: u32 = 3;

/// The maximum number of a guest's open descriptors, including its streams and preopens: 128. A directory
/// takes up to three descriptors of this process, which needs more for its own work.
const MAX_OPEN_DESCRIPTORS: usize = 128;

/// A mount, with the access that one pool of workers grants.
#[derive(Debug, Clone)]
pub(super) struct Preopen {
    pub(super) handle: MountHandle,
    pub(super) access: Access,
}

/// The descriptors of a call, and the state that this layer keeps for them.
#[derive(Debug)]
pub(super) struct GuestFs {
    /// All open descriptors.
    descriptors: BTreeMap<u32, Descriptor>,
    preopens: Arc<[Preopen]>,
    protection: Protection,
    exposed_files: Arc<ExposedFiles>,
    mount_use: MountUse,
    before_change: Option<BeforeChangeFn>,
    touches: Touches,
    violation: Option<Violation>,
}

/// The kind of a descriptor.
#[derive(Debug)]
pub(super) enum Descriptor {
    Stdin,
    Stdout,
    Stderr,
    Directory(Directory),
    /// A file that was judged for writing.
    Written,
    /// A file that was judged for reading.
    Read,
}

/// An open directory.
#[derive(Debug)]
pub(super) struct Directory {
    preopen: usize,
    handle: Arc<OwnedFd>,
    /// Boxed: the map of descriptors is made for each call, and with large entries its nodes would exceed the sizes
    /// that the allocator serves fast.
    cursor: Option<Box<DirectoryCursor>>,
    /// The path under which the directory was last found visible to the guest (`entry.rs`).
    visible_path: Option<entry::VisiblePath>,
}

impl Directory {
    fn new(preopen: usize, handle: Arc<OwnedFd>) -> Self {
        Self { preopen, handle, cursor: None, visible_path: None }
    }
}

/// The purpose of a `path_open`.
#[derive(Debug, Clone, Copy)]
pub(super) struct OpenIntent {
    pub(super) follow: bool,
    pub(super) create: bool,
    /// Whether the file is opened for writing, truncated, or created.
    pub(super) writes: bool,
}

/// The target of a `path_open`, which the caller passes on to [`GuestFs::record_opened`].
#[derive(Debug)]
pub(super) struct OpenTarget {
    preopen: usize,
    directory: Option<OwnedFd>,
    writes: bool,
    touch: Touch,
    /// The guest path, if there is room to record it.
    path: Option<String>,
}

/// How an operation affects the name at the end of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NameChange {
    /// The name is created or removed, or its metadata change.
    Entry,
    /// A link, file or directory takes the name, or loses it. A directory's whole content appears or
    /// disappears below the name.
    Subtree,
}

impl GuestFs {
    pub(super) fn new(
        preopens: Arc<[Preopen]>,
        protection: Protection,
        exposed: Arc<ExposedFiles>,
        used: MountUse,
        before_change: Option<BeforeChangeFn>,
    ) -> Self {
        let mut descriptors =
            BTreeMap::from([(0, Descriptor::Stdin), (1, Descriptor::Stdout), (2, Descriptor::Stderr)]);
        for (number, (index, preopen)) in (FIRST_PREOPEN..).zip(preopens.iter().enumerate()) {
            let handle = Arc::clone(preopen.handle.directory());
            descriptors.insert(number, Descriptor::Directory(Directory::new(index, handle)));
        }
        Self {
            descriptors,
            preopens,
            protection,
            exposed_files: exposed,
            mount_use: used,
            before_change,
            touches: Touches::default(),
            violation: None,
        }
    }

    /// Returns the first violation of the call.
    pub(super) fn violation(&self) -> Option<&Violation> {
        self.violation.as_ref()
    }

    /// Returns the names of the mounts that the guest has used.
    pub(super) fn mounts_used(&self) -> Vec<String> {
        let used = self.preopens.iter().enumerate().filter(|(index, _)| self.mount_use.is_used(*index));
        used.map(|(_, preopen)| preopen.handle.name().to_string()).collect()
    }

    pub(super) fn descriptor(&self, fd: u32) -> Option<&Descriptor> {
        self.descriptors.get(&fd)
    }

    /// Returns the cursor that lists a directory. The cursor skips hidden names.
    pub(super) fn cursor(&mut self, fd: u32) -> FsResult<&mut DirectoryCursor> {
        let hidden = match self.directory_of(fd) {
            Ok((preopen, _)) => self.hidden_in(preopen).cloned(),
            Err(Errno::NOTDIR) => return Err(Errno::BADF),
            Err(error) => return Err(error),
        };
        match self.descriptors.get_mut(&fd) {
            Some(Descriptor::Directory(directory)) => directory.cursor(hidden).map_err(|_cause| Errno::ACCES),
            _ => Err(Errno::BADF),
        }
    }

    /// Records an `fd_close`.
    pub(super) fn record_closed(&mut self, fd: u32) {
        self.descriptors.remove(&fd);
    }

    /// Records an `fd_renumber`.
    pub(super) fn record_renumbered(&mut self, from: u32, to: u32) {
        if from == to {
            return;
        }
        if let Some(descriptor) = self.descriptors.remove(&from) {
            self.descriptors.insert(to, descriptor);
        }
    }

    /// Judges a `path_open`.
    pub(super) fn judge_open(&mut self, fd: u32, path: &str, intent: OpenIntent) -> FsResult<OpenTarget> {
        let (preopen, base) = self.directory_of(fd)?;
        if self.descriptors.len() < MAX_OPEN_DESCRIPTORS
            && let Some(target) = self.judge_entry(fd, preopen, &base, path, intent)?
        {
            return Ok(target);
        }
        let follow = if intent.follow { OFlags::empty() } else { OFlags::NOFOLLOW };
        let open_target = match self.resolve_to_open(preopen, &base, path, follow, intent.writes) {
            Ok((target, below)) => {
                let below = below.map_or_else(|| self.below_mount(preopen, target.as_fd(), None), Ok)?;
                self.judge_visibility(preopen, &below, path, intent.writes)?;
                let stat = stat(target.as_fd())?;
                let kind = FileType::from_raw_mode(stat.st_mode);
                self.judge_existing(preopen, &below, kind, &base, path, intent)?;
                if kind == FileType::RegularFile {
                    self.judge_hard_links(preopen, &below, &stat, intent.writes)?;
                    if intent.writes {
                        self.record_before_change(preopen, target.as_fd(), None, ChangeScope::Path)?;
                    }
                }
                let touch = if intent.writes { Touch::Written } else { Touch::Read };
                let path = self.touches.has_room().then(|| self.guest_path(preopen, &below));
                let directory = (kind == FileType::Directory).then_some(target);
                OpenTarget { preopen, directory, writes: intent.writes, touch, path }
            }
            Err(HostErrno::NOENT) if intent.create => {
                self.judge_missing(preopen, &base, path)?;
                let path = self.entry_to_note(preopen, &base, path);
                OpenTarget { preopen, directory: None, writes: true, touch: Touch::Created, path }
            }
            Err(error) => return Err(self.refusal(error, preopen, &base, path)),
        };
        if self.descriptors.len() >= MAX_OPEN_DESCRIPTORS {
            return Err(Errno::MFILE);
        }
        Ok(open_target)
    }

    /// Records the result of a `path_open`.
    pub(super) fn record_opened(&mut self, fd: u32, target: OpenTarget) {
        self.touches.add(&self.preopens, target.preopen, target.touch, target.path);
        let descriptor = match target.directory {
            Some(handle) => Descriptor::Directory(Directory::new(target.preopen, Arc::new(handle))),
            None if target.writes => Descriptor::Written,
            None => Descriptor::Read,
        };
        self.descriptors.insert(fd, descriptor);
    }

    /// Judges an operation that only reads the target of a path. The path must not leave its mount.
    pub(super) fn judge_read_only(&mut self, fd: u32, path: &str, follow: bool) -> FsResult {
        let (preopen, base) = self.directory_of(fd)?;
        let flags = if follow { OFlags::empty() } else { OFlags::NOFOLLOW };
        match resolve(base.as_fd(), path, flags) {
            Err(error @ HostErrno::XDEV) => Err(self.refusal(error, preopen, &base, path)),
            // The stock function reports all other errors.
            Err(_) => Ok(()),
            // Without hidden names there is nothing to judge. Skip the lookup, because `file_list` asks about each entry.
            Ok(_) if self.hidden_in(preopen).is_none() => Ok(()),
            Ok(target) => {
                let below = self.below_mount(preopen, target.as_fd(), None)?;
                self.judge_visibility(preopen, &below, path, false)
            }
        }
    }

    /// Judges a change of the times of an open descriptor. A file that was opened for reading was never checked for
    /// protection, so it is refused.
    pub(super) fn judge_set_times(&mut self, fd: u32) -> FsResult {
        match self.descriptors.get(&fd) {
            None | Some(Descriptor::Stdin | Descriptor::Stdout | Descriptor::Stderr) => Err(Errno::BADF),
            Some(Descriptor::Read) => Err(Errno::PERM),
            Some(Descriptor::Written) => Ok(()),
            Some(Descriptor::Directory(directory)) => {
                let (preopen, handle) = (directory.preopen, Arc::clone(&directory.handle));
                let below = self.below_mount(preopen, handle.as_fd(), None)?;
                self.refuse_protected(preopen, &below)
            }
        }
    }

    /// Judges one path of an operation that changes a directory.
    pub(super) fn judge_name_change(&mut self, fd: u32, path: &str, change: NameChange) -> FsResult {
        let (preopen, base) = self.directory_of(fd)?;
        let Some((parent, name)) = split(path) else {
            // A path that is empty or ends in `.` or `..` has no name to change. The stock function reports
            // that, but an escape is still a violation.
            return match resolve(base.as_fd(), path, OFlags::empty()) {
                Err(error @ HostErrno::XDEV) => Err(self.refusal(error, preopen, &base, path)),
                _ => Ok(()),
            };
        };
        let parent = resolve(base.as_fd(), parent, OFlags::DIRECTORY)
            .map_err(|error| self.refusal(error, preopen, &base, path))?;
        let below = self.below_mount(preopen, parent.as_fd(), Some(name))?;
        self.refuse_protected(preopen, &below)?;
        if self.preopens[preopen].access != Access::Write {
            return Err(Errno::PERM);
        }
        let scope = match change {
            NameChange::Entry => ChangeScope::Path,
            NameChange::Subtree => {
                self.refuse_stand_in(preopen, &below)?;
                ChangeScope::Tree
            }
        };
        self.record_before_change(preopen, parent.as_fd(), Some(name), scope)
    }

    /// Judges a path that an operation follows to an existing file, such as the source of a hard link. The
    /// file's real name must not be protected either.
    pub(super) fn judge_existing_target(&mut self, fd: u32, path: &str, follow: bool) -> FsResult {
        let (preopen, base) = self.directory_of(fd)?;
        let flags = if follow { OFlags::empty() } else { OFlags::NOFOLLOW };
        match resolve(base.as_fd(), path, flags) {
            Ok(target) => {
                // The stock function opens the target, and would block on a FIFO.
                if !matches!(
                    file_type(target.as_fd())?,
                    FileType::RegularFile | FileType::Directory | FileType::Symlink
                ) {
                    return Err(Errno::ACCES);
                }
                let below = self.below_mount(preopen, target.as_fd(), None)?;
                self.refuse_protected(preopen, &below)
            }
            Err(error) => Err(self.refusal(error, preopen, &base, path)),
        }
    }

    /// Judges an in-place change of a path's target, such as a change of its times. Such a change shows
    /// under every name of the file.
    pub(super) fn judge_change_in_place(&mut self, fd: u32, path: &str, follow: bool) -> FsResult {
        let (preopen, base) = self.directory_of(fd)?;
        let flags = if follow { OFlags::empty() } else { OFlags::NOFOLLOW };
        let target =
            resolve(base.as_fd(), path, flags).map_err(|error| self.refusal(error, preopen, &base, path))?;
        let stat = stat(target.as_fd())?;
        if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile {
            if stat.st_nlink > 1 {
                let below = self.below_mount(preopen, target.as_fd(), None)?;
                self.judge_hard_links(preopen, &below, &stat, true)?;
            }
            self.record_before_change(preopen, target.as_fd(), None, ChangeScope::Path)?;
        }
        Ok(())
    }

    /// Judges a hard link. Both names must be in the same mount.
    pub(super) fn judge_hard_link(&mut self, from: u32, to: u32) -> FsResult {
        let ((from, _), (to, _)) = (self.directory_of(from)?, self.directory_of(to)?);
        if from == to { Ok(()) } else { Err(Errno::XDEV) }
    }

    /// Judges the target of a new symlink. It must stay in the mount, without following other symlinks.
    pub(super) fn judge_symlink_target(&mut self, fd: u32, target: &str, link: &str) -> FsResult {
        let (preopen, base) = self.directory_of(fd)?;
        let Some((parent, _)) = split(link) else { return Ok(()) };
        let parent = resolve(base.as_fd(), parent, OFlags::DIRECTORY)
            .map_err(|error| self.refusal(error, preopen, &base, link))?;
        let mut depth = self.below_mount(preopen, parent.as_fd(), None)?.len();
        for component in Path::new(target).components() {
            match component {
                Component::Normal(_) => depth += 1,
                Component::CurDir => {}
                Component::ParentDir if depth > 0 => depth -= 1,
                Component::ParentDir | Component::RootDir | Component::Prefix(_) => {
                    return Err(self.record_escape(preopen, &base, target));
                }
            }
        }
        Ok(())
    }

    /// Copies the permissions of the replaced file, after both names of a `path_rename` were allowed.
    pub(super) fn copy_permissions(
        &mut self,
        from: (u32, &str),
        to: (u32, &str),
    ) -> FsResult<Option<SavedPermissions>> {
        let ((_, from_fd), (_, to_fd)) = (self.directory_of(from.0)?, self.directory_of(to.0)?);
        let from = permissions::HeldName { directory: from_fd.as_fd(), path: from.1 };
        let to = permissions::HeldName { directory: to_fd.as_fd(), path: to.1 };
        permissions::copy_permissions(from, to).map_err(|_cause| Errno::IO)
    }

    /// Returns the preopen and the directory of a descriptor. A descriptor that was judged as a file stays
    /// a file, even if the stock function then opened a directory, so no path can be resolved from it.
    fn directory_of(&mut self, fd: u32) -> FsResult<(usize, Arc<OwnedFd>)> {
        let (preopen, handle) = match self.descriptors.get(&fd) {
            Some(Descriptor::Directory(directory)) => (directory.preopen, Arc::clone(&directory.handle)),
            Some(_) => return Err(Errno::NOTDIR),
            None => return Err(Errno::BADF),
        };
        self.enter(preopen)?;
        Ok((preopen, handle))
    }

    /// Marks a mount as used. This happens before a path in the mount is resolved, because even a missing
    /// name reveals something about the mount.
    fn enter(&mut self, preopen: usize) -> FsResult {
        self.mount_use.enter(preopen).map_err(|refusal| {
            let path = format!("/{}", self.preopens[preopen].handle.name());
            self.violation.get_or_insert(Violation::Withheld { path, refusal });
            Errno::ACCES
        })
    }

    fn judge_existing(
        &mut self,
        preopen: usize,
        below: &[String],
        kind: FileType,
        base: &OwnedFd,
        path: &str,
        intent: OpenIntent,
    ) -> FsResult {
        let is_file = match kind {
            FileType::RegularFile => true,
            FileType::Directory => false,
            // A symlink that is not followed. The open itself fails.
            FileType::Symlink => false,
            // Opening a FIFO waits for its other end, and opening a device can have any effect.
            _ => return Err(Errno::ACCES),
        };
        if intent.writes {
            self.refuse_protected(preopen, below)?;
            if is_file {
                self.refuse_stand_in(preopen, below)?;
            }
            // Check the name as well as its target: a protected name stays protected if it is a symlink.
            if let Some((parent, name)) = split(path) {
                let parent = resolve(base.as_fd(), parent, OFlags::DIRECTORY)
                    .map_err(|error| self.refusal(error, preopen, base, path))?;
                let below = self.below_mount(preopen, parent.as_fd(), Some(name))?;
                self.refuse_protected(preopen, &below)?;
            }
        }
        Ok(())
    }

    /// Judges a file that will be created. Its parent must exist. Its name must not be a dangling symlink,
    /// which would create the file under a name that was not checked.
    fn judge_missing(&mut self, preopen: usize, base: &OwnedFd, path: &str) -> FsResult {
        let Some((parent, name)) = split(path) else { return Err(Errno::NOENT) };
        let parent = match resolve(base.as_fd(), parent, OFlags::DIRECTORY) {
            Ok(parent) => parent,
            Err(error) => return Err(self.refusal(error, preopen, base, path)),
        };
        match resolve(parent.as_fd(), name, OFlags::NOFOLLOW) {
            Err(HostErrno::NOENT) => {}
            Err(error) => return Err(self.refusal(error, preopen, base, path)),
            Ok(_) => return Err(Errno::ACCES),
        }
        let below = self.below_mount(preopen, parent.as_fd(), Some(name))?;
        self.refuse_protected(preopen, &below)?;
        self.refuse_stand_in(preopen, &below)?;
        self.record_before_change(preopen, parent.as_fd(), Some(name), ChangeScope::Path)
    }
}

impl Directory {
    /// Returns the directory's cursor, which is opened on first use.
    fn cursor(&mut self, hidden: Option<Arc<HiddenNames>>) -> Result<&mut DirectoryCursor, HostErrno> {
        match &mut self.cursor {
            Some(cursor) => Ok(cursor),
            none => Ok(none.insert(Box::new(DirectoryCursor::open(&self.handle, hidden)?))),
        }
    }
}

fn stat(handle: BorrowedFd<'_>) -> FsResult<Stat> {
    rustix::fs::fstat(handle).map_err(|_cause| Errno::IO)
}

fn file_type(handle: BorrowedFd<'_>) -> FsResult<FileType> {
    Ok(FileType::from_raw_mode(stat(handle)?.st_mode))
}
