//! Access to the files that a call was granted.
//!
//! In a module the operating system's calls go through the sandbox, so a tool uses `std::fs` like any
//! program. This module provides three more things: the host path of a guest path ([`locate`]), which a test
//! can set; error messages ([`error`]) that name only the guest path; and an atomic write ([`write_atomic`]).
//!
//! # Reading a file and writing it back
//! Calls of one process need no lock. A module's call that may write a mount never runs concurrently with
//! another such call, so no other call writes between its reading and its writing. Calls that only read,
//! commands of the shell and other processes do run concurrently: write with [`write_atomic`], so that none
//! of them reads a half-written file. There is no lock against another process that writes the same file: use
//! a separate file for each process, or reserve a name with [`replace::create_new`], which succeeds for only
//! one of them.

use std::{io, path::PathBuf};

use portcullis_types::{GuestPath, ToolError};

/// The path to give to `std::fs`.
///
/// # Errors
/// Only natively: `unavailable` outside [`crate::testing::with_root`], since a native tool has no sandbox to
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

/// The path to give to `std::fs`: the guest path itself.
///
/// # Errors
/// None in a module; for native errors see the native function.
#[cfg(target_family = "wasm")]
pub fn locate(path: &GuestPath) -> Result<PathBuf, ToolError> {
    Ok(PathBuf::from(path.as_str()))
}

pub mod replace;

/// Writes or replaces a file atomically: a concurrent reader sees the old content or the new one, never a
/// part. Makes missing parent directories. A replaced file keeps its permissions.
///
/// The content is written to a file `.portcullis-tmp-…` beside the target and then renamed. A call that is
/// killed while it writes leaves that file, and the old content in place.
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
/// `invalid_arguments` if the path names no file; `failed` if there is a link, a directory or a special file;
/// else the system's error in the words of [`error`].
pub fn write_atomic(path: &GuestPath, content: impl AsRef<[u8]>) -> Result<(), ToolError> {
    let target = locate(path)?;
    if target.file_name().is_none() {
        return Err(ToolError::invalid_arguments(format!("field 'path': `{path}` names no file")));
    }
    let before = replace::regular(&target, "write", path)?;
    replace::with_parents(&target, || replace::replace(&target, content.as_ref(), before.as_ref()))
        .map_err(|failure| error(failure, "write", path))
}

/// Parses a path argument; relative ones start at `/shared`.
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
pub fn error(error: io::Error, verb: &str, path: &GuestPath) -> ToolError {
    use io::ErrorKind as Kind;
    if refused(&error) {
        return ToolError::denied(format!("not allowed to {verb} `{path}`"));
    }
    match error.kind() {
        Kind::NotFound => ToolError::not_found(format!("no such file `{path}`")),
        Kind::NotADirectory => ToolError::failed(format!("cannot {verb} `{path}`: a part of it is a file")),
        Kind::IsADirectory => ToolError::failed(format!("cannot {verb} `{path}`: it is a directory")),
        Kind::AlreadyExists => ToolError::failed(format!("`{path}` already exists")),
        // The text of the kind is stable and short; the system's own may hold numbers and host details.
        kind => ToolError::failed(format!("cannot {verb} `{path}`: {kind}"))
            .with_operator_detail(error.to_string()),
    }
}

/// Whether the sandbox or the file's permissions refused the operation.
fn refused(error: &io::Error) -> bool {
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

    #[track_caller]
    fn check(kind: io::ErrorKind, expected: ToolErrorKind, message: &str) {
        let path = GuestPath::parse("a").expect("a path");
        let error = error(io::Error::new(kind, "/host/secret"), "read", &path);
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
