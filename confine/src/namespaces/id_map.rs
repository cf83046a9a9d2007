//! Gives a session a separate user that does not own the session's files. The mounts show the separate user
//! as the owner, and store files that it creates under the real owner.
//!
//! A process that escapes every other layer then runs as a user that is unknown to the machine and owns no
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
    process::{ForkSide, fork},
    sys,
};

/// Creates a user namespace without processes, which serves as an id map for mounts. A child process keeps
/// the namespace alive until its maps are written and it is opened.
pub(super) fn create(
    one_thread: &SingleThreaded,
    owner: ProcessUser,
    other: ProcessUser,
) -> io::Result<OwnedFd> {
    let (entered_reader, entered_writer) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
    let (release_reader, release_writer) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
    let child = match fork(one_thread)? {
        ForkSide::Child => {
            drop((entered_reader, release_writer));
            let entered = sys::unshare(UnshareFlags::NEWUSER, one_thread).is_ok();
            // The error is ignored: without this byte, the parent reads end-of-file.
            let _ = rustix::io::write(&entered_writer, &[u8::from(entered)]);
            // Stay alive until the parent has opened the namespace or is gone.
            let _ = rustix::io::retry_on_intr(|| rustix::io::read(&release_reader, &mut [0; 1]));
            sys::exit(0);
        }
        ForkSide::Parent { child } => child,
    };
    // Close the parent's copy of `entered_writer`, so that the read below returns if the child ends.
    drop((entered_writer, release_reader));
    let mut entered = [0];
    let read = rustix::io::retry_on_intr(|| rustix::io::read(&entered_reader, &mut entered));
    let result = match read {
        Ok(1) if entered == [1] => {
            let process = format!("/proc/{}", child.as_raw_pid());
            std::fs::write(format!("{process}/uid_map"), map_lines(owner.uid, other.uid))
                .and_then(|()| std::fs::write(format!("{process}/gid_map"), map_lines(owner.gid, other.gid)))
                .and_then(|()| {
                    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
                    Ok(rustix::fs::open(format!("{process}/ns/user"), flags, Mode::empty())?)
                })
        }
        Ok(_) => Err(io::ErrorKind::PermissionDenied.into()),
        Err(errno) => Err(errno.into()),
    };
    // End-of-file on this pipe lets the child end.
    drop(release_writer);
    rustix::io::retry_on_intr(|| rustix::process::waitpid(Some(child), WaitOptions::empty()))?;
    result
}

/// Applies the id map to a copied mount, which must not be attached yet.
pub(crate) fn apply(mount: &OwnedFd, map: &OwnedFd) -> io::Result<()> {
    sys::map_mount(mount.as_fd(), map.as_fd())
}

/// Returns the lines of the id map: the owner becomes the other user, and every other id below the other
/// user's stays the same. A line maps ids in the file system to ids that the mount shows.
fn map_lines(owner: u32, other: u32) -> String {
    let mut text = String::new();
    if owner > 0 {
        text.push_str(&format!("0 0 {owner}\n"));
    }
    text.push_str(&format!("{owner} {other} 1\n"));
    let next = owner.saturating_add(1);
    if next < other {
        text.push_str(&format!("{next} {next} {}\n", other - next));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uid_map_moves_the_owner_only() {
        assert_eq!(map_lines(0, 5000), "0 5000 1\n1 1 4999\n");
        assert_eq!(map_lines(1000, 5000), "0 0 1000\n1000 5000 1\n1001 1001 3999\n");
        assert_eq!(map_lines(4999, 5000), "0 0 4999\n4999 5000 1\n");
    }
}
