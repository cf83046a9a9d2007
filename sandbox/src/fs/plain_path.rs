//! Fast path for opening a file for reading by a path from the root of a mount.
//!
//! The path of an open handle takes two system calls that cost as much as the open itself (`readlink` of
//! `/proc/self/fd`). They are not needed for a plain path: if the kernel resolves it without a symlink, its own names
//! are the path of its target below the mount.

use std::{
    os::fd::{AsFd as _, OwnedFd},
    sync::Arc,
};

use rustix::{fs::OFlags, io::Errno};

use super::{GuestFs, resolve};
use crate::mounts::resolve_without_symlinks;

impl GuestFs {
    /// Opens the target of a path, and returns its path below the mount if that is known without a further look.
    ///
    /// Writes never take the fast path, because protection is judged by the target's real names only.
    ///
    /// # Errors
    /// As in [`resolve`].
    pub(super) fn resolve_to_open(
        &self,
        preopen: usize,
        base: &Arc<OwnedFd>,
        path: &str,
        flags: OFlags,
        writes: bool,
    ) -> Result<(OwnedFd, Option<Vec<String>>), Errno> {
        // Below any other directory, the directory's own path would have to be looked up.
        let is_root = Arc::ptr_eq(base, self.preopens[preopen].handle.directory());
        if is_root
            && !writes
            && path.split('/').all(is_plain)
            && let Ok(target) = resolve_without_symlinks(base.as_fd(), path, flags)
        {
            return Ok((target, Some(path.split('/').map(str::to_owned).collect())));
        }
        // Any failure is repeated here, where each error has its meaning.
        resolve(base.as_fd(), path, flags).map(|target| (target, None))
    }
}

/// Returns whether a directory entry of this name has exactly this name, apart from the case of its letters, which no
/// pattern of hidden names distinguishes. On FAT and NTFS other names are aliases: `GIT~1` of `.git`, `.git.` and
/// `.git::$INDEX_ALLOCATION` too.
fn is_plain(name: &str) -> bool {
    !matches!(name, "" | "." | "..")
        && !name.ends_with('.')
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-'))
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink, path::Path};

    use portcullis_types::Access;

    use super::*;
    use crate::{
        fs::{
            FIRST_PREOPEN, OpenIntent,
            fixture::{self, OPENED},
        },
        fs_result::{Errno, FsResult},
    };

    const READ: OpenIntent = OpenIntent { follow: true, create: false, writes: false };

    /// Creates a guest with the mount `shared`, whose root is open under another number too, for which the fast path
    /// is not taken.
    fn guest(workspace: &Path) -> GuestFs {
        fixture::guest(workspace, Access::Write, &[".env", "secret*"], ".")
    }

    /// Opens a path from the mount's root, and checks that the fast path agrees with the general one. Returns the path
    /// that the audit row would have.
    #[track_caller]
    fn open(guest: &mut GuestFs, path: &str, intent: OpenIntent) -> FsResult<Option<String>> {
        let general = guest.judge_open(OPENED, path, intent).map(|target| target.path);
        let from_root = guest.judge_open(FIRST_PREOPEN, path, intent).map(|target| target.path);
        assert_eq!(from_root, general, "{path}");
        from_root
    }

    #[test]
    fn a_path_from_the_root_is_judged_like_any_other() {
        let workspace = tempfile::tempdir().expect("a folder");
        let shared = workspace.path().join("shared");
        fs::create_dir_all(shared.join("folder/secrets")).expect("created");
        for name in ["file", ".env", "folder/file", "folder/secrets/key", "GIT~1", "dot."] {
            fs::write(shared.join(name), "").expect("written");
        }
        for (target, link) in [
            ("file", "link"),
            (".env", "link_to_hidden"),
            ("folder/secrets", "link_to_folder"),
            ("../outside", "escape"),
            ("file", ".env_link"),
        ] {
            symlink(target, shared.join(link)).expect("linked");
        }
        symlink("file", shared.join("secret_link")).expect("linked");
        let mut guest = guest(workspace.path());
        let found = |path: &str| Ok(Some(format!("/shared/{path}")));
        for (path, expected) in [
            ("file", found("file")),
            ("folder/file", found("folder/file")),
            ("folder", found("folder")),
            ("folder/", found("folder")),
            ("folder//file", found("folder/file")),
            ("folder/../file", found("file")),
            ("./file", found("file")),
            ("GIT~1", found("GIT~1")),
            ("dot.", found("dot.")),
            ("link", found("file")),
            (".env_link", found("file")),
            (".env", Err(Errno::NOENT)),
            (".ENV", Err(Errno::NOENT)),
            ("secret_link", Err(Errno::NOENT)),
            ("link_to_hidden", Err(Errno::NOENT)),
            ("link_to_folder/key", Err(Errno::NOENT)),
            ("folder/secrets", Err(Errno::NOENT)),
            ("folder/secrets/key", Err(Errno::NOENT)),
            ("absent", Err(Errno::NOENT)),
            ("file/below", Err(Errno::NOTDIR)),
        ] {
            assert_eq!(open(&mut guest, path, READ), expected, "{path}");
        }
        let itself = OpenIntent { follow: false, ..READ };
        assert_eq!(open(&mut guest, "link_to_hidden", itself), found("link_to_hidden"));
        assert!(guest.violation().is_none());
        for path in ["escape", "../outside", "/etc/passwd", "folder/../../outside"] {
            assert_eq!(open(&mut guest, path, READ), Err(Errno::PERM), "{path}");
        }
        assert!(guest.violation().is_some());
    }

    #[test]
    fn a_write_is_judged_by_the_names_that_the_kernel_knows() {
        let workspace = tempfile::tempdir().expect("a folder");
        fs::create_dir_all(workspace.path().join("shared")).expect("created");
        fs::write(workspace.path().join("shared/file"), "").expect("written");
        let guest = guest(workspace.path());
        let root = Arc::clone(guest.preopens[0].handle.directory());
        let known = |writes| {
            let resolved = guest.resolve_to_open(0, &root, "file", OFlags::empty(), writes);
            resolved.expect("exists").1
        };
        assert_eq!(known(false), Some(vec!["file".to_owned()]));
        assert_eq!(known(true), None);
    }
}
