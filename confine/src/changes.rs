//! [`ChangeListener`]: the host's end of the file changes that a process is about to make.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

mod operations;

use crate::sys;

pub use operations::{ChangeOperation, PathArgument};

/// Receives the file changes of filtered processes before they are made (seccomp user notification).
/// [`crate::confine_current_process`] creates it, and the caller passes it to the watching process. Without a
/// watching process the calls fail with `ENOSYS`.
#[derive(Debug)]
pub struct ChangeListener(OwnedFd);

/// A system call that waits for an answer.
#[derive(Clone, Copy, Debug)]
pub struct PendingChange {
    id: u64,
    /// The id of the calling thread, in the watcher's PID namespace.
    pub thread: u32,
    call: i64,
    arguments: [u64; 6],
}

impl PendingChange {
    /// Returns the paths that the call changes. Empty for a call that changes none.
    #[must_use]
    pub fn operations(&self) -> Vec<ChangeOperation> {
        operations::of_call(self).unwrap_or_default()
    }
}

impl ChangeListener {
    /// Makes answers faster if one thread receives the calls and answers them: the kernel then wakes caller
    /// and listener in turn on one processor. Has no effect before Linux 6.6.
    pub fn prefer_one_thread(&self) {
        let _ = sys::wake_notified_in_turn(self.0.as_fd());
    }

    /// Waits for the next call. Returns `None` if the caller is already gone.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn receive(&self) -> io::Result<Option<PendingChange>> {
        match sys::receive_notification(self.0.as_fd()) {
            Ok(notification) => Ok(Some(PendingChange {
                id: notification.id,
                thread: notification.pid,
                call: notification.data.nr.into(),
                arguments: notification.data.args,
            })),
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EINTR)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns whether the call still waits. If it does, its thread's id has not been reused, so data that
    /// was read from `/proc` belongs to that thread.
    #[must_use]
    pub fn is_pending(&self, change: &PendingChange) -> bool {
        sys::is_notification_pending(self.0.as_fd(), change.id)
    }

    /// Allows the call: the kernel executes it. An error is ignored, because it means that the caller is
    /// gone.
    pub fn allow(&self, change: &PendingChange) {
        let _ = sys::answer_notification(self.0.as_fd(), change.id, None);
    }

    /// Refuses the call with `EIO`. An error is ignored, because it means that the caller is gone.
    pub fn refuse(&self, change: &PendingChange) {
        let _ = sys::answer_notification(self.0.as_fd(), change.id, Some(libc::EIO));
    }
}

impl From<OwnedFd> for ChangeListener {
    fn from(listener: OwnedFd) -> Self {
        Self(listener)
    }
}

impl From<ChangeListener> for OwnedFd {
    fn from(listener: ChangeListener) -> Self {
        listener.0
    }
}

impl AsFd for ChangeListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
