//! Cancelling a command from another thread.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use rustix::pipe::PipeFlags;

/// The end that a running command polls.
#[derive(Debug)]
pub struct Cancellation(OwnedFd);

/// The end that cancels when it is dropped: a caller that gives up waiting takes its command along.
#[derive(Debug)]
#[must_use = "dropping it cancels the command"]
pub struct Canceller(#[expect(dead_code, reason = "its end is the message")] OwnedFd);

impl Cancellation {
    /// Makes both ends.
    ///
    /// # Errors
    /// If there is no descriptor left.
    pub fn new() -> io::Result<(Self, Canceller)> {
        let (read, write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
        Ok((Self(read), Canceller(write)))
    }

    /// Readable once cancelled.
    pub(crate) fn handle(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Canceller {
    /// Ends the command, as dropping does.
    pub fn cancel(self) {
        drop(self);
    }
}
