//! A lock of a path, which one call at a time holds.

#[cfg(not(target_family = "wasm"))]
mod fake;
#[cfg(target_family = "wasm")]
mod import;
#[cfg(not(target_family = "wasm"))]
use fake as import;

use std::io;

use portcullis_types::{GuestPath, MAX_HELD_LOCKS, ToolError};

use super::{locate, replace, tool_error};

/// Acquires the exclusive lock of a path, and waits for it if needed. The lock is released when the guard is dropped or
/// the call ends. The file itself need not exist. Missing parent directories are created.
///
/// The lock excludes all calls that take the lock of the same path: of any tool, and of any process of
/// Portcullis with the same state folder. It does not exclude reading or writing without the lock. Calls of
/// one process get the lock in the order in which they ask for it.
///
/// The wait counts towards the call's timeout, and ends with it. Take several locks in a fixed order, such as
/// sorted by path, so that two calls never deadlock.
///
/// ```
/// use portcullis_sdk::{ToolError, fs, tool};
///
/// /// Adds a line to a list.
/// #[tool(tier = SideEffecting)]
/// async fn add_line(#[arg(path = "write")] path: &str, line: &str) -> Result<String, ToolError> {
///     let path = fs::parse(path)?;
///     let _lock = fs::lock(&path)?;
///     let mut text = std::fs::read_to_string(fs::locate(&path)?).unwrap_or_default();
///     text.push_str(line);
///     text.push('\n');
///     fs::write_atomic(&path, &text)?;
///     Ok(format!("{} lines", text.lines().count()))
/// }
///
/// # let folder = std::env::temp_dir().join(format!("portcullis-doc-lock-{}", std::process::id()));
/// # portcullis_sdk::testing::with_root(&folder, || {
/// for expected in ["1 lines", "2 lines"] {
///     let output = portcullis_sdk::testing::call(&add_line_tool(), r#"{"path": "list", "line": "one"}"#);
///     assert_eq!(output.expect("adds").joined_text(), expected);
/// }
/// # });
/// # std::fs::remove_dir_all(folder).expect("removed");
/// ```
///
/// In a native test the lock excludes the other threads of the test's process, and a wait ends after 30 s.
///
/// # Errors
/// `failed` if the call holds this lock already, if it holds 16 others, or if the path is a symlink; `invalid_arguments`
/// if the path names no file; otherwise the system's error in the words of [`tool_error`].
pub fn lock(path: &GuestPath) -> Result<PathLock, ToolError> {
    let target = locate(path)?;
    if target.file_name().is_none() || path.below_mount() == "." {
        return Err(ToolError::invalid_arguments(format!("field 'path': `{path}` names no file")));
    }
    let is_link = |metadata: std::fs::Metadata| metadata.is_symlink();
    if std::fs::symlink_metadata(&target).is_ok_and(is_link) {
        return Err(ToolError::failed(format!("cannot lock `{path}`: it is a symlink; lock its target")));
    }
    let taken = replace::retry_with_parents(&target, || match import::lock(path, &target) {
        // Only a system error can mean that a parent directory is missing.
        Err(LockError::System(error)) => Err(error),
        taken => Ok(taken),
    });
    match taken {
        Ok(Ok(number)) => Ok(PathLock { number }),
        Ok(Err(LockError::HeldAlready)) => {
            Err(ToolError::failed(format!("cannot lock `{path}`: this call holds its lock already")))
        }
        Ok(Err(LockError::TooMany)) => Err(ToolError::failed(format!(
            "cannot lock `{path}`: this call already holds {MAX_HELD_LOCKS} locks, the maximum"
        ))),
        Ok(Err(LockError::System(failure))) | Err(failure) => Err(tool_error(failure, "lock", path)),
    }
}

/// A held lock, made by [`lock`]. Dropping it releases the lock.
#[derive(Debug)]
#[must_use = "the lock is released when it is dropped"]
pub struct PathLock {
    number: u32,
}

impl Drop for PathLock {
    fn drop(&mut self) {
        import::unlock(self.number);
    }
}

/// Why a lock was not taken.
enum LockError {
    HeldAlready,
    TooMany,
    System(io::Error),
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicUsize, Ordering},
        thread,
    };

    use portcullis_types::ToolErrorKind;

    use super::*;
    use crate::testing::with_root;

    fn path(text: &str) -> GuestPath {
        GuestPath::parse(text).expect("a path")
    }

    #[test]
    fn one_thread_at_a_time_holds_a_lock() {
        let folder = tempfile::tempdir().expect("a folder");
        let holders = AtomicUsize::new(0);
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    with_root(folder.path(), || {
                        for _ in 0..20 {
                            let _lock = lock(&path("new/folder/a")).expect("the lock is acquired");
                            assert_eq!(holders.fetch_add(1, Ordering::AcqRel), 0);
                            thread::yield_now();
                            holders.fetch_sub(1, Ordering::AcqRel);
                        }
                    });
                });
            }
        });
    }

    #[test]
    fn a_call_never_waits_for_itself_and_holds_few_locks() {
        let folder = tempfile::tempdir().expect("a folder");
        with_root(folder.path(), || {
            let mut held = vec![lock(&path("a")).expect("free")];
            let again = lock(&path("a")).expect_err("held");
            assert_eq!(again.to_string(), "cannot lock `/shared/a`: this call holds its lock already");
            held.extend((1..MAX_HELD_LOCKS).map(|number| lock(&path(&number.to_string())).expect("free")));
            let more = lock(&path("more")).expect_err("too many");
            assert_eq!(
                more.to_string(),
                "cannot lock `/shared/more`: this call already holds 16 locks, the maximum"
            );
            drop(held);
            lock(&path("a")).map(drop).expect("free again");
        });
    }

    #[test]
    fn a_lock_needs_a_name_that_is_not_a_link() {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::create_dir(folder.path().join("shared")).expect("the folder can be made");
        std::os::unix::fs::symlink("a", folder.path().join("shared/link")).expect("the link can be made");
        with_root(folder.path(), || {
            for (text, kind) in [
                ("/shared", ToolErrorKind::InvalidArguments),
                ("/shared/b/..", ToolErrorKind::InvalidArguments),
                ("/shared/link", ToolErrorKind::Failed),
            ] {
                assert_eq!(lock(&path(text)).expect_err("refused").kind(), kind, "{text}");
            }
        });
        assert_eq!(lock(&path("a")).expect_err("no root").kind(), ToolErrorKind::Unavailable);
    }
}
