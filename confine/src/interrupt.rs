//! Interrupts a thread that is stuck in a system call.
//!
//! The engine's epoch stops a guest's own code. A guest that waits in the kernel (a FIFO, a slow disk)
//! notices the epoch only after the system call returns. A signal with an empty handler ends the call with
//! `EINTR`. The runner decides when to send the signal, and must handle calls that cannot be interrupted (a
//! dead NFS server).

use rustix::thread::Pid;

use crate::{
    ConfineError,
    sys::{self, Handler},
};

/// Installs the empty handler for the whole process. This is idempotent.
///
/// The handler is never uninstalled, because a worker cannot tell whether another worker still needs it.
///
/// # Errors
/// [`ConfineError::InterruptTaken`] if the application handles `SIGURG` itself, as Go code in the process
/// does. The application's handler stays installed.
pub fn install_handler() -> Result<(), ConfineError> {
    install_handler_of(SIGNAL)
}

/// A thread of this process that any other thread can interrupt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadTarget {
    thread: Pid,
}

impl ThreadTarget {
    /// Returns the calling thread, after unblocking the signal on it.
    #[must_use]
    pub fn current() -> Self {
        sys::unblock_on_this_thread(SIGNAL);
        Self { thread: rustix::thread::gettid() }
    }

    /// Ends the thread's current system call with `EINTR`, if the call is interruptible.
    ///
    /// A signal between two calls is lost, so the caller repeats this at every tick until the thread is back. The
    /// signal is harmless if the thread has ended, even if a new thread of this process got its number: the standard
    /// library retries calls after `EINTR`. Call this from an unconfined thread, because a confined thread may not send
    /// signals.
    pub fn interrupt(&self) {
        sys::signal_thread(self.thread.as_raw_nonzero().get(), SIGNAL);
    }
}

fn install_handler_of(signal: i32) -> Result<(), ConfineError> {
    let failed = |source| ConfineError::InterruptInstall { signal, source };
    match sys::signal_handler(signal).map_err(failed)? {
        Handler::Ours => Ok(()),
        // Racing threads install the same handler.
        Handler::Unset => sys::install_empty_handler(signal).map_err(failed),
        Handler::Foreign => Err(ConfineError::InterruptTaken { signal }),
    }
}

/// `SIGURG` is ignored by default, so a signal that arrives before the handler is installed does no harm. The
/// kernel sends it only for out-of-band data on sockets that asked for it, and no library in this program
/// does.
const SIGNAL: i32 = libc::SIGURG;

#[cfg(test)]
mod tests;
