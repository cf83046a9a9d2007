//! Freeing a thread that is stuck in a system call.
//!
//! An epoch stops a guest's own code; a guest that waits in the kernel (a FIFO, a slow disk) sees the epoch
//! only after the call ends. A signal with an empty handler ends it with `EINTR`. Who decides when to send
//! one is the runner; a call that cannot be interrupted (a dead NFS server) is the runner's problem too.

use rustix::thread::Pid;

use crate::{
    ConfineError,
    sys::{self, Handler},
};

/// Installs the empty handler for the whole process; a second call changes nothing.
///
/// It is not restored: between two workers nobody could tell who still needs it.
///
/// # Errors
/// [`ConfineError::InterruptTaken`] if the application handles `SIGURG` itself (Go code linked into the
/// process does). Its handler is kept.
pub fn install_handler() -> Result<(), ConfineError> {
    install_handler_of(SIGNAL)
}

/// A thread of this process that can be interrupted from any other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadTarget {
    thread: Pid,
}

impl ThreadTarget {
    /// The calling thread, which from now on lets the signal through.
    #[must_use]
    pub fn current() -> Self {
        sys::unblock_on_this_thread(SIGNAL);
        Self { thread: rustix::thread::gettid() }
    }

    /// Ends the system call that the thread is in with `EINTR`, if it is in one that can be.
    ///
    /// A signal that comes between two calls is lost: whoever wants the thread back repeats it at every
    /// tick. Harmless if the thread has ended, also if a new thread of this process has its number; calls
    /// of the standard library that meet `EINTR` try again. Call it from an unconfined thread: a confined
    /// one may not send signals, and its attempt does nothing.
    pub fn interrupt(&self) {
        sys::signal_thread(self.thread.as_raw_nonzero().get(), SIGNAL);
    }
}

fn install_handler_of(signal: i32) -> Result<(), ConfineError> {
    let failed = |source| ConfineError::InterruptInstall { signal, source };
    match sys::signal_handler(signal).map_err(failed)? {
        Handler::Ours => Ok(()),
        // Two threads that come here at once install the same thing.
        Handler::Nobody => sys::install_empty_handler(signal).map_err(failed),
        Handler::Foreign => Err(ConfineError::InterruptTaken { signal }),
    }
}

/// `SIGURG`: ignored by default, so that a signal sent before the handler stands does no harm; sent by the
/// kernel only for out-of-band data of sockets that asked for it; used by no library of ours.
const SIGNAL: i32 = libc::SIGURG;

#[cfg(test)]
mod tests;
