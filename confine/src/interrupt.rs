//! Freeing a thread that is stuck in a system call.
//!
//! An epoch stops a guest's own code; a guest that waits in the kernel (a FIFO, a slow disk) sees the epoch
//! only after the call ends. A signal with an empty handler ends the call with `EINTR`. The runner decides
//! when to send it, and has to deal with calls that cannot be interrupted (a dead NFS server).

use rustix::thread::Pid;

use crate::{
    ConfineError,
    sys::{self, Handler},
};

/// Installs the empty handler for the whole process; a second call changes nothing.
///
/// It is never uninstalled, because a worker cannot tell whether another one still needs it.
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
    /// The calling thread, with the signal unblocked from now on.
    #[must_use]
    pub fn current() -> Self {
        sys::unblock_on_this_thread(SIGNAL);
        Self { thread: rustix::thread::gettid() }
    }

    /// Ends the thread's current system call with `EINTR`, if it is in an interruptible one.
    ///
    /// A signal between two calls is lost, so the caller repeats this at every tick until the thread is back.
    /// It is harmless if the thread has ended, even if a new thread of this process has its number; calls of
    /// the standard library retry after `EINTR`. Call it from an unconfined thread: a confined one may not
    /// send signals, and its attempt does nothing.
    pub fn interrupt(&self) {
        sys::signal_thread(self.thread.as_raw_nonzero().get(), SIGNAL);
    }
}

fn install_handler_of(signal: i32) -> Result<(), ConfineError> {
    let failed = |source| ConfineError::InterruptInstall { signal, source };
    match sys::signal_handler(signal).map_err(failed)? {
        Handler::Ours => Ok(()),
        // Two threads that race here install the same handler.
        Handler::Nobody => sys::install_empty_handler(signal).map_err(failed),
        Handler::Foreign => Err(ConfineError::InterruptTaken { signal }),
    }
}

/// `SIGURG`: ignored by default, so a signal before the handler is installed does no harm. The kernel sends
/// it only for out-of-band data on sockets that asked for it, and no library of ours uses it.
const SIGNAL: i32 = libc::SIGURG;

#[cfg(test)]
mod tests;
