//! Access to the files that a call was granted.
//!
//! In a module the operating system's calls go through the sandbox, so a tool uses `std::fs` like any
//! program. This module provides four more things:
//!
//! - [`locate`]: the host path of a guest path, which a test can set.
//! - [`tool_error`]: error messages that name only the guest path.
//! - [`write_atomic`]: an atomic write.
//! - [`lock`]: a lock of a path.
//!
//! # Reading a file and writing it back
//! Calls of one process need no lock. A module's call that may write a mount never runs concurrently with
//! another such call, so no other call writes between its reading and its writing.
//!
//! Calls that only read, commands of the shell and other processes do run concurrently. Write with
//! [`write_atomic`], so that none of them reads a half-written file. [`lock`] excludes the tools of another process
//! of Portcullis that take the same lock. A program that does not take the lock, such as a command of the
//! shell, is not excluded: reserve a name with [`replace::create_new`], which succeeds for only one of them.

use std::{io, path::PathBuf};

use portcullis_types::{GuestPath, ToolError};

/// Returns the path to give to `std::fs`.
///
/// # Errors
/// Only natively: `unavailable` outside [`crate::testing::with_root`], because a native tool has no sandbox to
/// open paths in; `denied` if `..` leads out of the mount.
#[cfg(not(target_family = "wasm"))]
pub fn locate(path: &GuestPath) -> Result<PathBuf, ToolError> {
    let Some(root) = crate::testing::root() else {
        return Err(ToolError::unavailable("no sandbox to open paths in"));
    };
    if path.climbs_out() {
        return Err(ToolError::denied(format!("`{path}` leads out of its mount")));
    }
    Ok(root.join(&path.as_str()[1..]))
}

/// Returns the path to give to `std::fs`: the guest path itself.
///
/// # Errors
/// None in a module; for native errors see the native function.
#[cfg(target_family = "wasm")]
pub fn locate(path: &GuestPath) -> Result<PathBuf, ToolError> {
    Ok(PathBuf::from(path.as_str()))
}

mod lock;
pub mod replace;

pub use lock::{PathLock, lock};

/// Writes or replaces a file atomically: a concurrent reader sees either the old content or the new content, never a
/// part. Missing parent directories are created. A replaced file keeps its permissions.
///
/// The content is written to a new file `.portcullis-tmp-…` beside the target, synced to the disk (`fsync`),
/// and renamed. After a crash of the machine the target has the old content or the new content. If an error
/// ends the write, the temporary file is removed. A call that is killed while it writes leaves the temporary
/// file behind, and the old content unchanged.
///
/// ```
/// use portcullis_sdk::{GuestPath, fs, testing};
///
/// # let folder = std::env::temp_dir().join(format!("portcullis-doc-{}", std::process::id()));
/// # testing::with_root(&folder, || {
/// let path = GuestPath::parse("/shared/list.txt").expect("a path");
/// fs::write_atomic(&path, "one\n").expect("written");
/// let before = std::fs::read_to_string(fs::locate(&path).expect("a place")).expect("readable");
/// fs::write_atomic(&path, before + "two\n").expect("written");
/// # });
/// # assert_eq!(std::fs::read_to_string(folder.join("shared/list.txt")).expect("readable"), "one\ntwo\n");
/// # std::fs::remove_dir_all(folder).expect("removed");
/// ```
///
/// # Errors
/// `invalid_arguments` if the path names no file; `failed` if the path is a link, a directory or a special file;
/// otherwise the system's error in the words of [`tool_error`].
pub fn write_atomic(path: &GuestPath, content: impl AsRef<[u8]>) -> Result<(), ToolError> {
    let target = locate(path)?;
    if target.file_name().is_none() {
        return Err(ToolError::invalid_arguments(format!("field 'path': `{path}` names no file")));
    }
    let replaced = replace::regular_file_metadata(&target, replace::Replacement::Write, path)?;
    replace::retry_with_parents(&target, || replace::replace(&target, content.as_ref(), replaced.as_ref()))
        .map_err(|failure| tool_error(failure, "write", path))
}

/// Parses a path argument. A relative path starts at `/shared`.
///
/// # Errors
/// `invalid_arguments`, with the reason.
pub fn parse(path: &str) -> Result<GuestPath, ToolError> {
    GuestPath::parse(path).map_err(|error| ToolError::invalid_arguments(format!("field 'path': {error}")))
}

/// Describes for the model why an operation on a path failed: `error(e, "read", path)` may give
/// ``no such file `/shared/x` ``.
#[must_use]
#[expect(clippy::needless_pass_by_value, reason = "made for `map_err`, and the error ends here")]
pub fn tool_error(error: io::Error, verb: &str, path: &GuestPath) -> ToolError {
    use io::ErrorKind as Kind;
    if is_refusal(&error) {
        return ToolError::denied(format!("not allowed to {verb} `{path}`"));
    }
    match error.kind() {
        Kind::NotFound => ToolError::not_found(format!("no such file `{path}`")),
        Kind::NotADirectory => ToolError::failed(format!("cannot {verb} `{path}`: a part of it is a file")),
        Kind::IsADirectory => ToolError::failed(format!("cannot {verb} `{path}`: it is a directory")),
        Kind::AlreadyExists => ToolError::failed(format!("`{path}` already exists")),
        // The text of the kind is stable and short. The system's own text may contain numbers and details of the host.
        kind => ToolError::failed(format!("cannot {verb} `{path}`: {kind}"))
            .with_operator_detail(error.to_string()),
    }
}

/// Whether the sandbox or the file's permissions refused the operation.
fn is_refusal(error: &io::Error) -> bool {
    use io::ErrorKind as Kind;
    /// WASI's `ENOTCAPABLE`, for which the standard library has no kind.
    const NOT_CAPABLE: i32 = 76;
    matches!(error.kind(), Kind::PermissionDenied | Kind::ReadOnlyFilesystem)
        || (cfg!(target_family = "wasm") && error.raw_os_error() == Some(NOT_CAPABLE))
}

#[cfg(test)]
mod tests {
    use portcullis_types::ToolErrorKind;

    use super::*;

    #[test]
    fn natively_a_path_opens_only_below_a_root_that_a_test_set() {
        let path = GuestPath::parse("a.txt").expect("a path");
        assert_eq!(locate(&path).expect_err("no root").kind(), ToolErrorKind::Unavailable);
        crate::testing::with_root("/nowhere", || {
            assert_eq!(locate(&path), Ok(PathBuf::from("/nowhere/shared/a.txt")));
            let out = GuestPath::parse("../../etc/passwd").expect("a path");
            assert_eq!(locate(&out).expect_err("climbs").kind(), ToolErrorKind::Denied);
        });
        assert!(locate(&path).is_err(), "the root is gone again");
    }

    #[test]
    fn an_atomic_write_keeps_permissions_and_leaves_no_files() {
        use std::os::unix::fs::{PermissionsExt, symlink};

        let folder = tempfile::tempdir().expect("a folder");
        let shared = folder.path().join("shared");
        let path = |text: &str| GuestPath::parse(text).expect("a path");
        crate::testing::with_root(folder.path(), || {
            write_atomic(&path("new/a"), "one").expect("written");
            let file = shared.join("new/a");
            std::fs::set_permissions(&file, PermissionsExt::from_mode(0o640)).expect("set");
            write_atomic(&path("new/a"), b"two").expect("written");
            assert_eq!(std::fs::read(&file).expect("readable"), b"two");
            let mode = std::fs::metadata(&file).expect("the path exists").permissions().mode();
            assert_eq!(mode & 0o777, 0o640);

            symlink("a", shared.join("new/link")).expect("linked");
            std::fs::create_dir(shared.join("new/folder")).expect("the folder can be made");
            for name in ["new/link", "new/folder"] {
                let refused = write_atomic(&path(name), "three").expect_err(name);
                assert_eq!(refused.kind(), ToolErrorKind::Failed, "{name}");
            }
            // The name is too long for the file system, so the last step fails.
            let long_name = format!("new/{}", "x".repeat(300));
            write_atomic(&path(&long_name), "three").expect_err("too long");
            let mut names: Vec<_> = std::fs::read_dir(shared.join("new"))
                .expect("readable")
                .flatten()
                .map(|it| it.file_name())
                .collect();
            names.sort();
            assert_eq!(names, ["a", "folder", "link"]);
        });
    }

    #[track_caller]
    fn check(kind: io::ErrorKind, expected: ToolErrorKind, message: &str) {
        let path = GuestPath::parse("a").expect("a path");
        let error = tool_error(io::Error::new(kind, "/host/secret"), "read", &path);
        assert_eq!((error.kind(), error.to_string().as_str()), (expected, message));
    }

    #[test]
    fn errors_name_the_guest_path_and_nothing_of_the_host() {
        check(io::ErrorKind::NotFound, ToolErrorKind::NotFound, "no such file `/shared/a`");
        check(io::ErrorKind::PermissionDenied, ToolErrorKind::Denied, "not allowed to read `/shared/a`");
        check(io::ErrorKind::ReadOnlyFilesystem, ToolErrorKind::Denied, "not allowed to read `/shared/a`");
        check(io::ErrorKind::StorageFull, ToolErrorKind::Failed, "cannot read `/shared/a`: no storage space");
        check(io::ErrorKind::AlreadyExists, ToolErrorKind::Failed, "`/shared/a` already exists");
    }
}
