//! Cancels a command from another thread.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use rustix::pipe::PipeFlags;

/// The end that a running command polls.
#[derive(Debug)]
pub struct CancelReceiver(OwnedFd);

/// The end that cancels when it is dropped. A caller that stops waiting therefore cancels its command.
#[derive(Debug)]
#[must_use = "dropping it cancels the command"]
pub struct CancelSender(#[expect(dead_code, reason = "its end is the message")] OwnedFd);

impl CancelReceiver {
    /// Makes both ends.
    ///
    /// # Errors
    /// The system's error if no descriptor is left.
    pub fn new() -> io::Result<(Self, CancelSender)> {
        let (read, write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
        Ok((Self(read), CancelSender(write)))
    }

    /// The descriptor to poll. It is readable once the command is cancelled.
    pub(crate) fn handle(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl CancelSender {
    /// Cancels the command, like a drop.
    pub fn cancel(self) {
        drop(self);
    }
}
