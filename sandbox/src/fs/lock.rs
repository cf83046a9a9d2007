//! Maps a guest's path to its lock, and decides whether the guest may take it.

use std::{os::fd::AsFd as _, sync::Arc};

use portcullis_types::GuestPath;
use rustix::{
    fs::{FileType, OFlags},
    io::Errno as HostErrno,
};

use super::{GuestFs, file_type, stat};
use crate::{
    fs_result::{Errno, FsResult, split},
    mounts::resolve_beneath as resolve,
    path_locks::LockKey,
};

impl GuestFs {
    /// Returns the lock of a path in any mount of the call. The path's directory must exist, but its last
    /// name need not. A symlink is refused, because its target has a separate lock. A hidden name gives the
    /// error of a missing name. A protected name can be locked, because a lock changes nothing.
    pub(crate) fn judge_lock(&mut self, path: &str) -> FsResult<LockKey> {
        let path = GuestPath::parse(path).map_err(|_invalid| Errno::INVAL)?;
        let is_named = |mount: &str| self.preopens.iter().position(|it| it.handle.name().as_str() == mount);
        let preopen = path.mount().and_then(is_named).ok_or(Errno::NOENT)?;
        self.enter(preopen)?;
        let base = Arc::clone(self.preopens[preopen].handle.directory());
        let path = path.below_mount();
        let (parent, name) = split(path).ok_or(Errno::INVAL)?;
        let parent = resolve(base.as_fd(), parent, OFlags::DIRECTORY)
            .map_err(|error| self.refusal(error, preopen, &base, path))?;
        if let Some(hidden) = self.hidden_in(preopen) {
            let below = self.below_mount(preopen, parent.as_fd(), Some(name))?;
            if hidden.covers(&below).or_else(|| hidden.covers(path.split('/'))).is_some() {
                return Err(Errno::NOENT);
            }
        }
        match resolve(parent.as_fd(), name, OFlags::NOFOLLOW) {
            Ok(target) if file_type(target.as_fd())? == FileType::Symlink => return Err(Errno::LOOP),
            Ok(_) | Err(HostErrno::NOENT) => {}
            Err(error) => return Err(self.refusal(error, preopen, &base, path)),
        }
        Ok(LockKey::new(&stat(parent.as_fd())?, name))
    }
}
