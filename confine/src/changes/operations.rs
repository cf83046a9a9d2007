//! Maps a system call to the paths that it changes. The filter that passes the calls on is in `seccomp/changes.rs`.

use super::PendingChange;
use crate::seccomp::FCHMODAT2;

/// An effect of a call on the names of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeOperation {
    /// Changes the content or the permissions of this path, or adds or removes its name. Has no effect on paths
    /// below it.
    Change(PathArgument),
    /// The path and everything below it are removed or moved away.
    RemoveTree(PathArgument),
    /// `from` and everything below it are moved to `to`.
    MoveTo {
        /// The path that is moved.
        from: PathArgument,
        /// The path that it is moved to.
        to: PathArgument,
    },
}

/// A path in the arguments of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathArgument {
    /// The caller's descriptor of the directory that a relative path starts at. `None` means its working
    /// directory.
    pub directory: Option<i32>,
    /// The address of the path's text in the caller's memory. `None` means the descriptor's own file.
    pub text_address: Option<u64>,
    /// Whether a link at the path's end is followed.
    pub follows_symlink: bool,
}

/// Returns the effects of a call, or `None` for a call that changes nothing, which the filter does not pass
/// on.
pub(super) fn of_call(change: &PendingChange) -> Option<Vec<ChangeOperation>> {
    let argument = |index: usize| change.arguments[index];
    let at = |directory: usize, text: usize, follows: bool| PathArgument {
        directory: Some(descriptor(argument(directory))).filter(|directory| *directory != libc::AT_FDCWD),
        text_address: Some(argument(text)),
        follows_symlink: follows,
    };
    let plain = |text: usize, follows| PathArgument {
        directory: None,
        text_address: Some(argument(text)),
        follows_symlink: follows,
    };
    let one = |path| Some(vec![ChangeOperation::Change(path)]);
    let flags = |index: usize| descriptor(argument(index));
    match change.call {
        libc::SYS_openat => one(at(0, 1, open_follows(flags(2)))),
        libc::SYS_truncate => one(plain(0, true)),
        libc::SYS_renameat => renamed(at(0, 1, false), at(2, 3, false), 0),
        libc::SYS_renameat2 => renamed(at(0, 1, false), at(2, 3, false), flags(4)),
        libc::SYS_unlinkat | libc::SYS_mkdirat | libc::SYS_mknodat => one(at(0, 1, false)),
        libc::SYS_symlinkat => one(at(1, 2, false)),
        libc::SYS_linkat => one(at(2, 3, false)),
        // The system call has no flags argument, so it always follows a symlink.
        libc::SYS_fchmodat => one(at(0, 1, true)),
        FCHMODAT2 if flags(3) & libc::AT_EMPTY_PATH != 0 => one(whole_descriptor(argument(0))),
        FCHMODAT2 => one(at(0, 1, flags(3) & libc::AT_SYMLINK_NOFOLLOW == 0)),
        libc::SYS_fchmod => one(whole_descriptor(argument(0))),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_open => one(plain(0, open_follows(flags(1)))),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_creat | libc::SYS_chmod => one(plain(0, true)),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_rename => renamed(plain(0, false), plain(1, false), 0),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_unlink | libc::SYS_rmdir | libc::SYS_mkdir | libc::SYS_mknod => one(plain(0, false)),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_symlink | libc::SYS_link => one(plain(1, false)),
        _ => None,
    }
}

fn renamed(from: PathArgument, to: PathArgument, flags: i32) -> Option<Vec<ChangeOperation>> {
    let mut operations = vec![ChangeOperation::RemoveTree(from), ChangeOperation::MoveTo { from, to }];
    if flags.cast_unsigned() & libc::RENAME_EXCHANGE != 0 {
        operations.push(ChangeOperation::MoveTo { from: to, to: from });
    }
    Some(operations)
}

fn whole_descriptor(argument: u64) -> PathArgument {
    PathArgument { directory: Some(descriptor(argument)), text_address: None, follows_symlink: true }
}

/// Returns whether an open with these flags follows a symlink at the path's end (open(2)).
fn open_follows(flags: i32) -> bool {
    flags & libc::O_NOFOLLOW == 0 && flags & (libc::O_CREAT | libc::O_EXCL) != libc::O_CREAT | libc::O_EXCL
}

/// Returns a 32-bit argument, such as a descriptor. The upper half of its register is undefined.
#[expect(clippy::cast_possible_truncation, reason = "the kernel reads the lower half only")]
fn descriptor(argument: u64) -> i32 {
    (argument as u32).cast_signed()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(call: libc::c_long, arguments: [i64; 4]) -> PendingChange {
        let [a, b, c, d] = arguments.map(i64::cast_unsigned);
        PendingChange { id: 0, thread: 0, call, arguments: [a, b, c, d, 0, 0] }
    }

    #[test]
    fn an_open_names_a_path_and_may_follow_a_link() {
        let here = i64::from(libc::AT_FDCWD);
        for (flags, follows) in [
            (libc::O_WRONLY, true),
            (libc::O_WRONLY | libc::O_CREAT, true),
            (libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL, false),
            (libc::O_RDWR | libc::O_NOFOLLOW, false),
        ] {
            // The upper half of a register is undefined.
            let dirty = i64::from(flags) | 7 << 40;
            let operations = of_call(&change(libc::SYS_openat, [here, 4096, dirty, 0])).expect("a change");
            let path = PathArgument { directory: None, text_address: Some(4096), follows_symlink: follows };
            assert_eq!(operations, [ChangeOperation::Change(path)]);
        }
    }

    #[test]
    fn an_exchange_moves_both_ways() {
        let exchange = i64::from(libc::RENAME_EXCHANGE);
        let change = PendingChange {
            arguments: [3, 1, 4, 2, exchange.cast_unsigned(), 0],
            ..change(libc::SYS_renameat2, [0; 4])
        };
        let [from, to] = [(3, 1), (4, 2)].map(|(directory, text)| PathArgument {
            directory: Some(directory),
            text_address: Some(text),
            follows_symlink: false,
        });
        let arrive = |from, to| ChangeOperation::MoveTo { from, to };
        let expected = [ChangeOperation::RemoveTree(from), arrive(from, to), arrive(to, from)];
        assert_eq!(of_call(&change).expect("a change"), expected);
        assert_eq!(of_call(&super::PendingChange { call: libc::SYS_read, ..change }), None);
    }
}
