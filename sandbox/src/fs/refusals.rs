//! Refuses hidden and protected names, files with several names, and paths that leave their mount. Each refusal
//! is a violation, except the read of a hidden name, which looks like a missing name.

use std::{
    ffi::OsStr,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    sync::Arc,
};

use portcullis_policy::HiddenNames;
use rustix::{fs::Stat, io::Errno as HostErrno};

use super::GuestFs;
use crate::{
    fs_result::{Errno, FsResult, Violation},
    mounts::real_path,
};

impl GuestFs {
    /// Judges whether the target of a path is hidden from the guest. `below` is the target's path below the mount, with
    /// links resolved. Reading a hidden name fails as if the name did not exist. Writing it is a violation that names
    /// the pattern, because the write could overwrite a hidden file.
    pub(super) fn judge_visibility(
        &mut self,
        preopen: usize,
        below: &[String],
        path: &str,
        writes: bool,
    ) -> FsResult {
        let Some(hidden) = self.hidden_in(preopen).cloned() else { return Ok(()) };
        // Compare the names on the path too: a hidden symlink stays hidden, wherever it leads.
        let pattern = hidden.covers(below).or_else(|| hidden.covers(path.split('/')));
        match (pattern, writes) {
            (None, _) => Ok(()),
            (Some(_), false) => Err(Errno::NOENT),
            (Some(pattern), true) => Err(self.violate_hidden(preopen, below, pattern)),
        }
    }

    /// Returns the names that are hidden from the guest in a mount.
    pub(super) fn hidden_in(&self, preopen: usize) -> Option<&Arc<HiddenNames>> {
        self.protection.hidden_in(self.preopens[preopen].handle.name().as_str())
    }

    fn refuse_hidden(&mut self, preopen: usize, below: &[String]) -> FsResult {
        let Some(hidden) = self.hidden_in(preopen).cloned() else { return Ok(()) };
        match hidden.covers(below) {
            Some(pattern) => Err(self.violate_hidden(preopen, below, pattern)),
            None => Ok(()),
        }
    }

    fn violate_hidden(&mut self, preopen: usize, below: &[String], pattern: &str) -> Errno {
        let violation =
            Violation::Hidden { path: self.guest_path(preopen, below), pattern: pattern.to_owned() };
        self.violation.get_or_insert(violation);
        Errno::PERM
    }

    /// Returns the path components of a handle below the root of its mount, with links resolved.
    pub(super) fn below_mount(
        &self,
        preopen: usize,
        handle: BorrowedFd<'_>,
        name: Option<&str>,
    ) -> FsResult<Vec<String>> {
        let failed = |_cause| Errno::IO;
        let root = real_path(self.preopens[preopen].handle.directory().as_fd()).map_err(failed)?;
        let real = real_path(handle).map_err(failed)?;
        // A handle outside its mount's root means that the mount was moved in the meantime, so its path
        // cannot be judged.
        let below = real.strip_prefix(&root).map_err(|_cause| Errno::IO)?;
        let text = |part: &OsStr| String::from_utf8_lossy(part.as_bytes()).into_owned();
        Ok(below.iter().map(text).chain(name.map(str::to_owned)).collect())
    }

    /// Refuses a change of a hidden or protected name.
    pub(super) fn refuse_protected(&mut self, preopen: usize, below: &[String]) -> FsResult {
        self.refuse_hidden(preopen, below)?;
        let mount = self.preopens[preopen].handle.directory().as_fd();
        let path = || self.guest_path(preopen, below);
        let Some(violation) = self.protection.violation(mount, below, path) else { return Ok(()) };
        self.violation.get_or_insert(violation);
        Err(Errno::PERM)
    }

    /// Refuses a name under which a directory or a link would bring its own content to a protected path,
    /// such as a prepared folder that is renamed to `.git`. A file there is refused too, because Git reads
    /// the repository's location from a file named `.git`.
    pub(super) fn refuse_stand_in(&mut self, preopen: usize, below: &[String]) -> FsResult {
        let path = || self.guest_path(preopen, below);
        let Some(violation) = self.protection.violation_of_stand_in(below, path) else { return Ok(()) };
        self.violation.get_or_insert(violation);
        Err(Errno::PERM)
    }

    /// Judges a file with several names. A handle does not tell where the other names are. The file must
    /// not be changed in place, because another name may be in a folder that this guest must not write.
    /// Replacing the file is allowed, because the other names keep the old content. A private file must not
    /// be read under a name outside its private folder.
    pub(super) fn judge_hard_links(
        &mut self,
        preopen: usize,
        below: &[String],
        stat: &Stat,
        writes: bool,
    ) -> FsResult {
        if stat.st_nlink <= 1 {
            return Ok(());
        }
        if !writes {
            return self.judge_read_of_links(preopen, stat);
        }
        let violation = Violation::HardLink { path: self.guest_path(preopen, below) };
        self.violation.get_or_insert(violation);
        Err(Errno::PERM)
    }

    /// Judges the read of a file that may have several names.
    pub(super) fn judge_read_of_links(&self, preopen: usize, stat: &Stat) -> FsResult {
        // Deny only this file to the guest: a violation would fail the search of a whole mount. A path that
        // the call itself names was judged earlier (`pipeline/authorize.rs`).
        let is_readable = stat.st_nlink <= 1
            || self.preopens[preopen].handle.name().is_vault()
            || self.exposed_files.suspicion_of(stat).is_none();
        if is_readable { Ok(()) } else { Err(Errno::PERM) }
    }

    /// Maps an error of the path resolution to the guest's error number. A call with such an error is never
    /// forwarded: the stock function resolves paths differently, drops superfluous components, and might
    /// succeed.
    pub(super) fn refusal(&mut self, error: HostErrno, preopen: usize, base: &OwnedFd, path: &str) -> Errno {
        match error {
            HostErrno::XDEV => self.record_escape(preopen, base, path),
            HostErrno::NOENT => Errno::NOENT,
            HostErrno::LOOP => Errno::LOOP,
            HostErrno::NOTDIR => Errno::NOTDIR,
            HostErrno::NAMETOOLONG => Errno(37), // `$errno.nametoolong`.
            HostErrno::ACCESS | HostErrno::PERM => Errno::ACCES,
            HostErrno::MFILE | HostErrno::NFILE => Errno::MFILE,
            HostErrno::INVAL => Errno::INVAL,
            // Directories were renamed too often during the resolution.
            HostErrno::AGAIN | HostErrno::INTR => Errno::AGAIN,
            // Fail closed: after an unexpected error, the stock function must not try the path again.
            _ => Errno::IO,
        }
    }

    pub(super) fn record_escape(&mut self, preopen: usize, base: &OwnedFd, path: &str) -> Errno {
        let mut below = self.below_mount(preopen, base.as_fd(), None).unwrap_or_default();
        below.push(path.to_owned());
        let violation = Violation::Escape { path: self.guest_path(preopen, &below) };
        self.violation.get_or_insert(violation);
        Errno::PERM
    }

    pub(super) fn guest_path(&self, preopen: usize, below: &[String]) -> String {
        format!("/{}/{}", self.preopens[preopen].handle.name(), below.join("/"))
    }
}
