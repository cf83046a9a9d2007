//! Asks the host to record a path's state before a guest changes it.

use std::{
    os::{
        fd::{AsFd as _, BorrowedFd},
        unix::ffi::OsStrExt as _,
    },
    path::{Component, PathBuf},
};

use portcullis_types::ChangeScope;
use rustix::fs::OFlags;

use super::GuestFs;
use crate::{
    before_change::GuestChangeScope,
    fs_result::{Errno, FsResult, Violation, split},
    mounts::{real_path, resolve_beneath},
};

impl GuestFs {
    /// Asks the host to record the state of a handle's path, or of a name in the handle's directory. If the
    /// host refuses, the change is refused and the call fails.
    pub(super) fn record_before_change(
        &mut self,
        preopen: usize,
        handle: BorrowedFd<'_>,
        name: Option<&str>,
        scope: GuestChangeScope<'_>,
    ) -> FsResult {
        let Some(before_change) = self.before_change.clone() else { return Ok(()) };
        let below = self.exact_path(preopen, handle, name)?;
        let path = components(&below);
        if before_change.record(self.preopens[preopen].handle.name().as_str(), &path, scope).is_ok() {
            return Ok(());
        }
        let below: Vec<String> = path.iter().map(|part| String::from_utf8_lossy(part).into_owned()).collect();
        let violation = Violation::NotRecorded { path: self.guest_path(preopen, &below) };
        self.violation.get_or_insert(violation);
        Err(Errno::IO)
    }

    /// Records the state of every destination path of a rename of `from`, before the rename. The caller has judged both
    /// names.
    pub(crate) fn record_arrival(&mut self, from: (u32, &str), to: (u32, &str)) -> FsResult {
        if self.before_change.is_none() {
            return Ok(());
        }
        let Some((from_preopen, from_parent, from_name)) = self.parent_of(from)? else { return Ok(()) };
        let Some((to_preopen, to_parent, to_name)) = self.parent_of(to)? else { return Ok(()) };
        let below = self.exact_path(from_preopen, from_parent.as_fd(), Some(from_name))?;
        let mount = self.preopens[from_preopen].handle.name().clone();
        let scope: GuestChangeScope<'_> =
            ChangeScope::MovedHere { mount: mount.as_str(), from: &components(&below) };
        self.record_before_change(to_preopen, to_parent.as_fd(), Some(to_name), scope)
    }

    /// Returns the directory of a name, or `None` if the path does not end in a name.
    fn parent_of<'p>(
        &mut self,
        (fd, path): (u32, &'p str),
    ) -> FsResult<Option<(usize, std::os::fd::OwnedFd, &'p str)>> {
        let (preopen, base) = self.directory_of(fd)?;
        let Some((parent, name)) = split(path) else { return Ok(None) };
        let parent = resolve_beneath(base.as_fd(), parent, OFlags::DIRECTORY)
            .map_err(|error| self.refusal(error, preopen, &base, path))?;
        Ok(Some((preopen, parent, name)))
    }

    /// Returns the path below its mount, byte for byte.
    fn exact_path(&self, preopen: usize, handle: BorrowedFd<'_>, name: Option<&str>) -> FsResult<PathBuf> {
        let failed = |_cause| Errno::IO;
        let root = real_path(self.preopens[preopen].handle.directory().as_fd()).map_err(failed)?;
        let real = real_path(handle).map_err(failed)?;
        let below = real.strip_prefix(&root).map_err(|_cause| Errno::IO)?;
        Ok(name.map_or_else(|| below.to_owned(), |name| below.join(name)))
    }
}

fn components(path: &std::path::Path) -> Vec<&[u8]> {
    let names = path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(name.as_bytes()),
        // A real path below its mount has only normal components.
        _ => None,
    });
    names.collect()
}
