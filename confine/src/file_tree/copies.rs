//! Copies the mounts that contain the binds of a tree. A copy is not attached to any tree.

use std::{
    io,
    os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd},
    path::PathBuf,
};

use rustix::{
    fs::{Mode, OFlags},
    mount::{MountAttrFlags, OpenTreeFlags},
};

use super::{Bind, BindSource, TreePart, attributes};
use crate::{PathAccess, namespaces::id_map, sys};

pub(super) fn copy_all(binds: &[Bind], map: Option<&OwnedFd>) -> io::Result<Vec<TreePart>> {
    binds.iter().map(|bind| Ok(TreePart { target: bind.target.clone(), source: copy(bind, map)? })).collect()
}

/// Copies the mount of a bind, with the bind's attributes. The copy is not attached yet.
pub(super) fn copy(bind: &Bind, map: Option<&OwnedFd>) -> io::Result<BindSource> {
    let reopened = reopen_by_path(&bind.handle)?;
    let is_folder = stat_kind(&reopened)? == rustix::fs::FileType::Directory;
    let mut mount_flags = MountAttrFlags::MOUNT_ATTR_NOSUID;
    if bind.access != PathAccess::Device {
        mount_flags |= MountAttrFlags::MOUNT_ATTR_NODEV;
    }
    if matches!(bind.access, PathAccess::List | PathAccess::Read) {
        mount_flags |= MountAttrFlags::MOUNT_ATTR_RDONLY;
    }
    let copy = copy_mount(reopened.as_fd(), mount_flags)?;
    if let Some(map) = map {
        id_map::apply(&copy, map)?;
    }
    Ok(if is_folder { BindSource::Folder(copy) } else { BindSource::File(copy) })
}

pub(super) fn copy_mount(source: BorrowedFd<'_>, mount_flags: MountAttrFlags) -> io::Result<OwnedFd> {
    // Recursive, because the kernel lets only the creator of the mounts below leave them out of a copy.
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_EMPTY_PATH
        | OpenTreeFlags::AT_RECURSIVE;
    let copy = rustix::mount::open_tree(source, "", flags)?;
    sys::set_mount_attributes(copy.as_fd(), attributes(mount_flags), sys::MountDepth::All)?;
    Ok(copy)
}

/// Opens the file behind a handle again, in this mount namespace.
fn reopen_by_path(handle: &OwnedFd) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let reopened = rustix::fs::open(handle_path(handle)?, flags, Mode::empty())?;
    let (current, original) = (rustix::fs::fstat(&reopened)?, rustix::fs::fstat(handle)?);
    if (current.st_dev, current.st_ino) != (original.st_dev, original.st_ino) {
        return Err(io::Error::other("something else has taken its place"));
    }
    Ok(reopened)
}

pub(super) fn handle_path(handle: &OwnedFd) -> io::Result<PathBuf> {
    std::fs::read_link(format!("/proc/self/fd/{}", handle.as_raw_fd()))
}

pub(super) fn stat_kind(handle: &OwnedFd) -> io::Result<rustix::fs::FileType> {
    Ok(rustix::fs::FileType::from_raw_mode(rustix::fs::fstat(handle)?.st_mode))
}
