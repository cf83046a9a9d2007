//! Ending a command early, from another thread.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use rustix::pipe::PipeFlags;

/// What a command looks at while it runs.
#[derive(Debug)]
pub struct Cancellation(OwnedFd);

/// Cancels when it is dropped: whoever waits for a command and goes away takes the command along.
#[derive(Debug)]
#[must_use = "dropping it cancels the command"]
pub struct Canceller(#[expect(dead_code, reason = "its end is the message")] OwnedFd);

impl Cancellation {
    /// Both ends.
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
