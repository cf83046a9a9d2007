//! Preserves permissions on a rename. WASI has no file modes, so a program that renames a new file over an
//! old one, as the core tools do, would make a script non-executable. The permissions of the replaced file
//! are therefore copied to the new one.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::{
    fs::{FileType, Mode, OFlags, ResolveFlags, Stat},
    io::Errno,
};

use crate::mounts::resolve_beneath;

/// A name in a directory that a guest holds open.
#[derive(Debug, Clone, Copy)]
pub(super) struct HeldName<'a> {
    pub(super) directory: BorrowedFd<'a>,
    pub(super) path: &'a str,
}

/// The permissions of a file before it received those of another file.
#[derive(Debug)]
pub(super) struct SavedPermissions {
    file: OwnedFd,
    before: Mode,
}

impl SavedPermissions {
    /// Restores the file's permissions after a failed rename.
    pub(super) fn restore(self) {
        // Ignore a failure: `fchmod` on this handle has just succeeded.
        let _ = rustix::fs::fchmod(&self.file, self.before);
    }
}

/// Gives the file at `source` the permissions of the file at `target`, if both are regular files. The set-id bits and
/// the sticky bit are left out. Returns `None` if nothing was changed.
///
/// # Errors
/// Errors of the kernel. A missing name or another file type is not an error here, because the rename itself reports
/// it. A file of another user keeps its mode, as it would without this step.
pub(super) fn copy_permissions(
    source: HeldName<'_>,
    target: HeldName<'_>,
) -> Result<Option<SavedPermissions>, Errno> {
    let Some(replaced) = regular(&target)? else { return Ok(None) };
    let Some(replacing) = regular(&source)? else { return Ok(None) };
    // A file with several names is left alone, because its mode would change under all of them.
    if replacing.st_nlink > 1 {
        return Ok(None);
    }
    let new_mode = Mode::from_raw_mode(replaced.st_mode) & (Mode::RWXU | Mode::RWXG | Mode::RWXO);
    let before = Mode::from_raw_mode(replacing.st_mode);
    if before == new_mode {
        return Ok(None);
    }
    // The name may lead elsewhere by now: the flags refuse a symlink, do not block on a FIFO, and stay in
    // the mount.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    let file = match rustix::fs::openat2(source.directory, source.path, flags, Mode::empty(), beneath) {
        Err(Errno::ACCESS) => return Ok(None),
        opened => opened?,
    };
    // Check again on the open handle, because another name may have been created in the meantime (TOCTOU
    // race).
    if rustix::fs::fstat(&file)?.st_nlink > 1 {
        return Ok(None);
    }
    match rustix::fs::fchmod(&file, new_mode) {
        Err(Errno::PERM) => Ok(None),
        changed => changed.map(|()| Some(SavedPermissions { file, before })),
    }
}

fn regular(name: &HeldName<'_>) -> Result<Option<Stat>, Errno> {
    let Ok(handle) = resolve_beneath(name.directory, name.path, OFlags::NOFOLLOW) else { return Ok(None) };
    let stat = rustix::fs::fstat(handle.as_fd())?;
    Ok((FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile).then_some(stat))
}

#[cfg(test)]
mod tests {
    use std::{
        fs::{File, Permissions},
        os::unix::fs::{PermissionsExt, symlink},
    };

    use super::*;

    #[test]
    fn permissions_are_copied_without_set_id_bits() {
        let folder = tempfile::tempdir().expect("a folder");
        let handle = File::open(folder.path()).expect("opens");
        let make = |name: &str, mode| {
            let path = folder.path().join(name);
            std::fs::write(&path, name).expect("writes");
            std::fs::set_permissions(&path, Permissions::from_mode(mode))
                .expect("the permissions can be set");
        };
        let mode = |name: &str| {
            std::fs::metadata(folder.path().join(name)).expect("the path exists").permissions().mode()
                & 0o7777
        };
        let name = |path| HeldName { directory: handle.as_fd(), path };
        make("new", 0o600);
        make("script", 0o4754);
        let saved_permissions = copy_permissions(name("new"), name("script")).expect("copies");
        assert_eq!(mode("new"), 0o754);
        saved_permissions.expect("changed").restore();
        assert_eq!(mode("new"), 0o600, "as before, where nothing was replaced");
        symlink("script", folder.path().join("link")).expect("a link");
        make("other", 0o600);
        copy_permissions(name("other"), name("link")).expect("nothing to do");
        copy_permissions(name("other"), name("missing")).expect("nothing to do");
        copy_permissions(name("missing"), name("script")).expect("nothing to do");
        assert_eq!(mode("other"), 0o600);
    }
}
