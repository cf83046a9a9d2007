//! A separate user for a session, which does not own its files: the mounts show the owner's files as that
//! user's, and files that the user makes there belong to the owner.
//!
//! A process that escapes every other layer is then a user that the machine does not know and that owns no
//! file.

use std::{
    io,
    os::fd::{AsFd as _, OwnedFd},
};

use rustix::{
    fs::{Mode, OFlags},
    pipe::PipeFlags,
    process::WaitOptions,
    thread::UnshareFlags,
};

use crate::{
    ProcessUser, SingleThreaded,
    process::{Fork, fork},
    sys,
};

/// Makes a user namespace without processes, as an id map for mounts.
pub(super) fn map(
    one_thread: &SingleThreaded,
    owner: ProcessUser,
    other: ProcessUser,
) -> io::Result<OwnedFd> {
    let (told, tell) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
    let (ended, end) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
    let child = match fork(one_thread)? {
        Fork::Child => {
            drop((told, end));
            let entered = sys::unshare(UnshareFlags::NEWUSER, one_thread).is_ok();
            let _ = rustix::io::write(&tell, &[u8::from(entered)]);
            // Stay alive until the parent has opened the namespace, or is gone.
            let _ = rustix::io::retry_on_intr(|| rustix::io::read(&ended, &mut [0; 1]));
            sys::exit(0);
        }
        Fork::Parent { child } => child,
    };
    drop((tell, ended));
    let mut entered = [0];
    let read = rustix::io::retry_on_intr(|| rustix::io::read(&told, &mut entered));
    let result = match read {
        Ok(1) if entered == [1] => {
            let process = format!("/proc/{}", child.as_raw_pid());
            std::fs::write(format!("{process}/uid_map"), lines(owner.uid, other.uid))
                .and_then(|()| std::fs::write(format!("{process}/gid_map"), lines(owner.gid, other.gid)))
                .and_then(|()| {
                    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
                    Ok(rustix::fs::open(format!("{process}/ns/user"), flags, Mode::empty())?)
                })
        }
        Ok(_) => Err(io::ErrorKind::PermissionDenied.into()),
        Err(errno) => Err(errno.into()),
    };
    drop(end);
    rustix::io::retry_on_intr(|| rustix::process::waitpid(Some(child), WaitOptions::empty()))?;
    result
}

/// Applies the id map to a copied mount, which must not be attached yet.
pub(crate) fn apply(mount: &OwnedFd, map: &OwnedFd) -> io::Result<()> {
    sys::map_mount(mount.as_fd(), map.as_fd())
}

/// The lines of the id map: the owner becomes the other user, and every other id stays the same. A line maps
/// ids stored in the file system to ids shown on the mount.
fn lines(owner: u32, other: u32) -> String {
    let mut lines = String::new();
    if owner > 0 {
        lines.push_str(&format!("0 0 {owner}\n"));
    }
    lines.push_str(&format!("{owner} {other} 1\n"));
    let next = owner.saturating_add(1);
    if next < other {
        lines.push_str(&format!("{next} {next} {}\n", other - next));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uid_map_moves_the_owner_only() {
        assert_eq!(lines(0, 5000), "0 5000 1\n1 1 4999\n");
        assert_eq!(lines(1000, 5000), "0 0 1000\n1000 5000 1\n1001 1001 3999\n");
        assert_eq!(lines(4999, 5000), "0 0 4999\n4999 5000 1\n");
    }
}
