//! Decides what a guest may reach through its directory descriptors, before the stock WASI function runs.
//!
//! The kernel resolves every path, on `O_PATH` handles beneath the guest's descriptor, so links are followed
//! exactly as the later open will follow them. The result decides. An escape, or a write to a protected path,
//! is a violation: the whole call is `denied`, whatever the guest reports. A FIFO, socket or device is
//! refused before an open could hang on it.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::{Component, Path},
    sync::Arc,
};

use portcullis_types::Access;
use rustix::{
    fs::{FileType, OFlags, Stat},
    io::Errno as HostErrno,
};

use super::{
    mode::{self, SavedMode},
    path_verdict::{Errno, PathVerdict, Violation, split},
    readdir::DirectoryCursor,
};
use crate::{
    links::ExposedFiles,
    mount_use::MountUse,
    mounts::{MountHandle, real_path, resolve_beneath as resolve},
    protection::Protection,
};

/// The first descriptor of a preopen; 0 to 2 are the standard streams.
const FIRST_PREOPEN: u32 = 3;

/// Limit of a guest's open descriptors, including its streams and preopens. A directory takes up to three
/// descriptors of this process, which needs some for other work.
const MAX_OPEN_DESCRIPTORS: usize = 128;

/// A mount with the access that one pool of workers grants.
#[derive(Debug, Clone)]
pub(super) struct Preopen {
    pub(super) handle: MountHandle,
    pub(super) access: Access,
}

/// The descriptors of a call, with the state that this layer needs.
#[derive(Debug)]
pub(super) struct GuestFs {
    /// All open descriptors.
    slots: BTreeMap<u32, Slot>,
    preopens: Arc<[Preopen]>,
    protection: Protection,
    exposed: Arc<ExposedFiles>,
    used: MountUse,
    violation: Option<Violation>,
}

/// Kind of a descriptor.
#[derive(Debug)]
pub(super) enum Slot {
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
    cursor: Option<DirectoryCursor>,
}

/// The purpose of a `path_open`.
#[derive(Debug, Clone, Copy)]
pub(super) struct OpenIntent {
    pub(super) follow: bool,
    pub(super) create: bool,
    /// Whether the file is opened for writing, truncated, or created.
    pub(super) writes: bool,
}

/// The target of a `path_open`; passed on to [`GuestFs::opened`].
#[derive(Debug)]
pub(super) struct OpenTarget {
    preopen: usize,
    directory: Option<OwnedFd>,
    writes: bool,
}

/// Effect of an operation on the name at the end of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NameChange {
    /// The name is created or removed, or its metadata change.
    Alter,
    /// The name is given to a link or to an existing file or directory, or taken from it. With a directory,
    /// its whole content appears or vanishes below the name.
    Whole,
}

impl GuestFs {
    pub(super) fn new(
        preopens: Arc<[Preopen]>,
        protection: Protection,
        exposed: Arc<ExposedFiles>,
        used: MountUse,
    ) -> Self {
        let mut slots = BTreeMap::from([(0, Slot::Stdin), (1, Slot::Stdout), (2, Slot::Stderr)]);
        for (number, (index, preopen)) in (FIRST_PREOPEN..).zip(preopens.iter().enumerate()) {
            let handle = Arc::clone(preopen.handle.directory());
            slots.insert(number, Slot::Directory(Directory { preopen: index, handle, cursor: None }));
        }
        Self { slots, preopens, protection, exposed, used, violation: None }
    }

    /// The first violation of the call.
    pub(super) fn violation(&self) -> Option<&Violation> {
        self.violation.as_ref()
    }

    /// The names of the mounts that the guest actually used.
    pub(super) fn mounts_used(&self) -> Vec<String> {
        let used = self.preopens.iter().enumerate().filter(|(index, _)| self.used.is_used(*index));
        used.map(|(_, preopen)| preopen.handle.name().to_string()).collect()
    }

    pub(super) fn slot(&self, fd: u32) -> Option<&Slot> {
        self.slots.get(&fd)
    }

    /// The directory behind a descriptor, for listing.
    pub(super) fn directory_mut(&mut self, fd: u32) -> PathVerdict<&mut Directory> {
        match (self.start(fd), self.slots.get_mut(&fd)) {
            (Ok(_), Some(Slot::Directory(directory))) => Ok(directory),
            (Ok(_) | Err(Errno::NOTDIR), _) => Err(Errno::BADF),
            (Err(error), _) => Err(error),
        }
    }

    /// Records an `fd_close`.
    pub(super) fn closed(&mut self, fd: u32) {
        self.slots.remove(&fd);
    }

    /// Records an `fd_renumber`.
    pub(super) fn renumbered(&mut self, from: u32, to: u32) {
        if from == to {
            return;
        }
        if let Some(slot) = self.slots.remove(&from) {
            self.slots.insert(to, slot);
        }
    }

    /// Judges a `path_open`.
    pub(super) fn judge_open(&mut self, fd: u32, path: &str, intent: OpenIntent) -> PathVerdict<OpenTarget> {
        let (preopen, from) = self.start(fd)?;
        let follow = if intent.follow { OFlags::empty() } else { OFlags::NOFOLLOW };
        let found = match resolve(from.as_fd(), path, follow) {
            Ok(target) => {
                let stat = stat(target.as_fd())?;
                let kind = FileType::from_raw_mode(stat.st_mode);
                self.judge_existing(preopen, (&target, kind), &from, path, intent)?;
                if kind == FileType::RegularFile {
                    self.judge_links(preopen, &target, &stat, intent.writes)?;
                }
                let directory = (kind == FileType::Directory).then_some(target);
                OpenTarget { preopen, directory, writes: intent.writes }
            }
            Err(HostErrno::NOENT) if intent.create => {
                self.judge_missing(preopen, &from, path)?;
                OpenTarget { preopen, directory: None, writes: true }
            }
            Err(error) => return Err(self.refusal(error, preopen, &from, path)),
        };
        if self.slots.len() >= MAX_OPEN_DESCRIPTORS {
            return Err(Errno::MFILE);
        }
        Ok(found)
    }

    /// Records the result of a `path_open`.
    pub(super) fn opened(&mut self, fd: u32, found: OpenTarget) {
        let slot = match found.directory {
            Some(handle) => {
                Slot::Directory(Directory { preopen: found.preopen, handle: Arc::new(handle), cursor: None })
            }
            None if found.writes => Slot::Written,
            None => Slot::Read,
        };
        self.slots.insert(fd, slot);
    }

    /// Judges an operation that only reads a path's target: the path must not leave its mount.
    pub(super) fn judge_read_only(&mut self, fd: u32, path: &str, follow: bool) -> PathVerdict {
        let (preopen, from) = self.start(fd)?;
        let flags = if follow { OFlags::empty() } else { OFlags::NOFOLLOW };
        if let Err(error @ HostErrno::XDEV) = resolve(from.as_fd(), path, flags) {
            return Err(self.refusal(error, preopen, &from, path));
        }
        Ok(())
    }

    /// Judges setting the times of an open descriptor. A file opened for reading was never checked for
    /// protection, so it is refused.
    pub(super) fn judge_set_times(&mut self, fd: u32) -> PathVerdict {
        match self.slots.get(&fd) {
            None | Some(Slot::Stdin | Slot::Stdout | Slot::Stderr) => Err(Errno::BADF),
            Some(Slot::Read) => Err(Errno::PERM),
            Some(Slot::Written) => Ok(()),
            Some(Slot::Directory(directory)) => {
                let (preopen, handle) = (directory.preopen, Arc::clone(&directory.handle));
                let below = self.below_mount(preopen, handle.as_fd(), None)?;
                self.refuse_protected(preopen, &below)
            }
        }
    }

    /// Judges one path of an operation that changes a directory.
    pub(super) fn judge_name_change(&mut self, fd: u32, path: &str, change: NameChange) -> PathVerdict {
        let (preopen, from) = self.start(fd)?;
        let Some((parent, name)) = split(path) else {
            // `.`, `..` or nothing: there is no name to change, which the stock function reports. An escape
            // is still a violation.
            return match resolve(from.as_fd(), path, OFlags::empty()) {
                Err(error @ HostErrno::XDEV) => Err(self.refusal(error, preopen, &from, path)),
                _ => Ok(()),
            };
        };
        let parent = resolve(from.as_fd(), parent, OFlags::DIRECTORY)
            .map_err(|error| self.refusal(error, preopen, &from, path))?;
        let below = self.below_mount(preopen, parent.as_fd(), Some(name))?;
        self.refuse_protected(preopen, &below)?;
        if self.preopens[preopen].access != Access::Write {
            return Err(Errno::PERM);
        }
        if change == NameChange::Whole {
            self.refuse_stand_in(preopen, &below)?;
        }
        Ok(())
    }

    /// Judges a path that an operation follows to an existing file, such as a hard link's source: the file
    /// must not be protected under its real name either.
    pub(super) fn judge_existing_target(&mut self, fd: u32, path: &str, follow: bool) -> PathVerdict {
        let (preopen, from) = self.start(fd)?;
        let flags = if follow { OFlags::empty() } else { OFlags::NOFOLLOW };
        match resolve(from.as_fd(), path, flags) {
            Ok(target) => {
                // The stock function opens the target, and would hang on a FIFO.
                if !matches!(
                    file_type(target.as_fd())?,
                    FileType::RegularFile | FileType::Directory | FileType::Symlink
                ) {
                    return Err(Errno::ACCES);
                }
                let below = self.below_mount(preopen, target.as_fd(), None)?;
                self.refuse_protected(preopen, &below)
            }
            Err(error) => Err(self.refusal(error, preopen, &from, path)),
        }
    }

    /// Judges changing a path's target in place, such as its times: a file with other names changes under all
    /// of them.
    pub(super) fn judge_change_in_place(&mut self, fd: u32, path: &str, follow: bool) -> PathVerdict {
        let (preopen, from) = self.start(fd)?;
        let flags = if follow { OFlags::empty() } else { OFlags::NOFOLLOW };
        let target =
            resolve(from.as_fd(), path, flags).map_err(|error| self.refusal(error, preopen, &from, path))?;
        let stat = stat(target.as_fd())?;
        if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile {
            self.judge_links(preopen, &target, &stat, true)?;
        }
        Ok(())
    }

    /// Judges a hard link: it must stay in its file's mount, where both names are visible.
    pub(super) fn judge_link(&mut self, from: u32, to: u32) -> PathVerdict {
        let ((from, _), (to, _)) = (self.start(from)?, self.start(to)?);
        if from == to { Ok(()) } else { Err(Errno::XDEV) }
    }

    /// Judges the target of a new symbolic link: it must stay in its mount, counted without following links.
    pub(super) fn judge_link_target(&mut self, fd: u32, target: &str, link: &str) -> PathVerdict {
        let (preopen, from) = self.start(fd)?;
        let Some((parent, _)) = split(link) else { return Ok(()) };
        let parent = resolve(from.as_fd(), parent, OFlags::DIRECTORY)
            .map_err(|error| self.refusal(error, preopen, &from, link))?;
        let mut depth = self.below_mount(preopen, parent.as_fd(), None)?.len();
        for component in Path::new(target).components() {
            match component {
                Component::Normal(_) => depth += 1,
                Component::CurDir => {}
                Component::ParentDir if depth > 0 => depth -= 1,
                Component::ParentDir | Component::RootDir | Component::Prefix(_) => {
                    return Err(self.escape(preopen, &from, target));
                }
            }
        }
        Ok(())
    }

    /// Runs after both names of a `path_rename` were allowed: the new file takes over the permissions of the
    /// one it replaces.
    pub(super) fn replaces(&mut self, from: (u32, &str), to: (u32, &str)) -> PathVerdict<Option<SavedMode>> {
        let ((_, from_fd), (_, to_fd)) = (self.start(from.0)?, self.start(to.0)?);
        let from = mode::HeldName { directory: from_fd.as_fd(), path: from.1 };
        let to = mode::HeldName { directory: to_fd.as_fd(), path: to.1 };
        mode::take_over(from, to).map_err(|_cause| Errno::IO)
    }

    /// The preopen and directory of a descriptor. A descriptor judged as a file stays one, even if the stock
    /// function found a directory in its place, so nothing can be reached from it.
    fn start(&mut self, fd: u32) -> PathVerdict<(usize, Arc<OwnedFd>)> {
        let (preopen, handle) = match self.slots.get(&fd) {
            Some(Slot::Directory(directory)) => (directory.preopen, Arc::clone(&directory.handle)),
            Some(_) => return Err(Errno::NOTDIR),
            None => return Err(Errno::BADF),
        };
        // Before the path is looked at: also that a name is missing tells something of the mount.
        self.used.enter(preopen).map_err(|refusal| {
            let path = format!("/{}", self.preopens[preopen].handle.name());
            self.violation.get_or_insert(Violation::Withheld { path, refusal });
            Errno::ACCES
        })?;
        Ok((preopen, handle))
    }

    fn judge_existing(
        &mut self,
        preopen: usize,
        (target, kind): (&OwnedFd, FileType),
        from: &OwnedFd,
        path: &str,
        intent: OpenIntent,
    ) -> PathVerdict {
        let is_file = match kind {
            FileType::RegularFile => true,
            FileType::Directory => false,
            // A link that is not followed: the open itself will fail.
            FileType::Symlink => false,
            // Opening a FIFO would wait for its other end; opening a device may have any effect.
            _ => return Err(Errno::ACCES),
        };
        if intent.writes {
            let below = self.below_mount(preopen, target.as_fd(), None)?;
            self.refuse_protected(preopen, &below)?;
            if is_file {
                self.refuse_stand_in(preopen, &below)?;
            }
            // The name counts as well as its target: a protected name that is a link is still protected.
            if let Some((parent, name)) = split(path) {
                let parent = resolve(from.as_fd(), parent, OFlags::DIRECTORY)
                    .map_err(|error| self.refusal(error, preopen, from, path))?;
                let below = self.below_mount(preopen, parent.as_fd(), Some(name))?;
                self.refuse_protected(preopen, &below)?;
            }
        }
        Ok(())
    }

    /// Judges a file with several names. No handle tells where the other names are. It must not be changed in
    /// place, since a name may lie where this guest may not write; replacing it is allowed, since that leaves
    /// the other names alone. A private file must not be read outside its home.
    fn judge_links(&mut self, preopen: usize, target: &OwnedFd, stat: &Stat, writes: bool) -> PathVerdict {
        if stat.st_nlink <= 1 {
            return Ok(());
        }
        if !writes {
            // One such name must not cost a search of the whole mount: the guest is refused the file and goes
            // on. A path that the call itself names was judged before (`pipeline/authorize.rs`).
            let is_vault = self.preopens[preopen].handle.name().is_vault();
            let is_readable = is_vault || self.exposed.suspects(stat).is_none();
            return if is_readable { Ok(()) } else { Err(Errno::PERM) };
        }
        let below = self.below_mount(preopen, target.as_fd(), None)?;
        let violation = Violation::HardLink { path: self.guest_path(preopen, &below) };
        self.violation.get_or_insert(violation);
        Err(Errno::PERM)
    }

    /// Judges a file that is to be created: its parent must exist, and its name must not be a dangling link.
    /// Creating through such a link would create a file under a name that was not checked.
    fn judge_missing(&mut self, preopen: usize, from: &OwnedFd, path: &str) -> PathVerdict {
        let Some((parent, name)) = split(path) else { return Err(Errno::NOENT) };
        let parent = match resolve(from.as_fd(), parent, OFlags::DIRECTORY) {
            Ok(parent) => parent,
            Err(error) => return Err(self.refusal(error, preopen, from, path)),
        };
        match resolve(parent.as_fd(), name, OFlags::NOFOLLOW) {
            Err(HostErrno::NOENT) => {}
            Err(error) => return Err(self.refusal(error, preopen, from, path)),
            Ok(_) => return Err(Errno::ACCES),
        }
        let below = self.below_mount(preopen, parent.as_fd(), Some(name))?;
        self.refuse_protected(preopen, &below)?;
        self.refuse_stand_in(preopen, &below)
    }

    /// A handle's path components below its mount's root, with links resolved.
    fn below_mount(
        &self,
        preopen: usize,
        handle: BorrowedFd<'_>,
        name: Option<&str>,
    ) -> PathVerdict<Vec<String>> {
        let failed = |_cause| Errno::IO;
        let root = real_path(self.preopens[preopen].handle.directory().as_fd()).map_err(failed)?;
        let real = real_path(handle).map_err(failed)?;
        // The handle is outside its mount's root: the mount was moved meanwhile, so its path cannot be
        // judged.
        let below = real.strip_prefix(&root).map_err(|_cause| Errno::IO)?;
        let text = |part: &OsStr| String::from_utf8_lossy(part.as_bytes()).into_owned();
        Ok(below.iter().map(text).chain(name.map(str::to_owned)).collect())
    }

    fn refuse_protected(&mut self, preopen: usize, below: &[String]) -> PathVerdict {
        let mount = self.preopens[preopen].handle.directory().as_fd();
        let path = || self.guest_path(preopen, below);
        let Some(violation) = self.protection.violation(mount, below, path) else { return Ok(()) };
        self.violation.get_or_insert(violation);
        Err(Errno::PERM)
    }

    /// Refuses a name under which a directory or link would bring its own content to a protected place, such
    /// as a prepared folder renamed to `.git`. A file there is refused too: Git reads a file `.git` as the
    /// repository's location.
    fn refuse_stand_in(&mut self, preopen: usize, below: &[String]) -> PathVerdict {
        let path = || self.guest_path(preopen, below);
        let Some(violation) = self.protection.violation_of_stand_in(below, path) else { return Ok(()) };
        self.violation.get_or_insert(violation);
        Err(Errno::PERM)
    }

    /// Maps an error of the path resolution to the guest's error number. The call is never forwarded then:
    /// the stock function resolves paths in its own way, drops superfluous parts, and might succeed.
    fn refusal(&mut self, error: HostErrno, preopen: usize, from: &OwnedFd, path: &str) -> Errno {
        match error {
            HostErrno::XDEV => self.escape(preopen, from, path),
            HostErrno::NOENT => Errno::NOENT,
            HostErrno::LOOP => Errno::LOOP,
            HostErrno::NOTDIR => Errno::NOTDIR,
            HostErrno::NAMETOOLONG => Errno(37), // `$errno.nametoolong`.
            HostErrno::ACCESS | HostErrno::PERM => Errno::ACCES,
            HostErrno::MFILE | HostErrno::NFILE => Errno::MFILE,
            HostErrno::INVAL => Errno::INVAL,
            // Directories were renamed too often meanwhile.
            HostErrno::AGAIN | HostErrno::INTR => Errno::AGAIN,
            _ => Errno::IO,
        }
    }

    fn escape(&mut self, preopen: usize, from: &OwnedFd, path: &str) -> Errno {
        let mut below = self.below_mount(preopen, from.as_fd(), None).unwrap_or_default();
        below.push(path.to_owned());
        let violation = Violation::Escape { path: self.guest_path(preopen, &below) };
        self.violation.get_or_insert(violation);
        Errno::PERM
    }

    fn guest_path(&self, preopen: usize, below: &[String]) -> String {
        format!("/{}/{}", self.preopens[preopen].handle.name(), below.join("/"))
    }
}

impl Directory {
    /// The directory's cursor, opened on first use.
    pub(super) fn cursor(&mut self) -> Result<&mut DirectoryCursor, HostErrno> {
        match &mut self.cursor {
            Some(cursor) => Ok(cursor),
            none => Ok(none.insert(DirectoryCursor::open(&self.handle)?)),
        }
    }
}

fn stat(handle: BorrowedFd<'_>) -> PathVerdict<Stat> {
    rustix::fs::fstat(handle).map_err(|_cause| Errno::IO)
}

fn file_type(handle: BorrowedFd<'_>) -> PathVerdict<FileType> {
    Ok(FileType::from_raw_mode(stat(handle)?.st_mode))
}
