//! The lock that orders the processes that share a log: `flock` on the log itself.
//!
//! `flock` belongs to an open file description. The kernel releases it when the process dies, and two
//! descriptions in one process exclude each other like two processes. A separate lock file would need the
//! same care, and could be deleted.

use std::{
    fs::File,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use rustix::{
    fs::{FlockOperation, flock},
    io::Errno,
};

use super::error::AuditError;

/// How long to wait for the lock: 5 s. A holder normally needs microseconds, or after a crash the time to
/// scan the last calls. Without this timeout, a process that is stopped while it holds the lock would block
/// all others forever.
pub(super) const LOCK_TIMEOUT: Duration = Duration::from_secs(5);

/// A file that can be locked, by reference or shared.
pub(super) trait HeldFile {
    /// Returns the open file that the lock is taken on.
    fn file(&self) -> &File;
}

impl HeldFile for &File {
    fn file(&self) -> &File {
        self
    }
}

/// A held lock, released on drop.
#[derive(Debug)]
pub(super) struct LockGuard<F: HeldFile>(F);

impl<F: HeldFile> Drop for LockGuard<F> {
    fn drop(&mut self) {
        // Unlocking an open descriptor that holds the lock cannot fail.
        let _ = flock(self.0.file(), FlockOperation::Unlock);
    }
}

/// Waits for the exclusive lock, which a writer needs.
pub(super) fn lock_exclusive<F: HeldFile>(
    file: F,
    path: &Path,
    max_wait: Duration,
) -> Result<LockGuard<F>, AuditError> {
    acquire(file, path, max_wait, FlockOperation::NonBlockingLockExclusive)
}

/// Waits for the shared lock. No process can write while it is held.
pub(super) fn lock_shared<F: HeldFile>(
    file: F,
    path: &Path,
    max_wait: Duration,
) -> Result<LockGuard<F>, AuditError> {
    acquire(file, path, max_wait, FlockOperation::NonBlockingLockShared)
}

/// Acquires the lock if it is free, and keeps it until the file is closed. Returns whether it was free.
pub(super) fn try_lock_until_close(file: &File) -> Result<bool, Errno> {
    match flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK) => Ok(false),
        Err(errno) => Err(errno),
    }
}

/// Retries a non-blocking `flock`, because a blocking call can only be interrupted by a signal. The first
/// retries only yield, because a holder mostly needs less time than a context switch. Later retries follow at
/// growing intervals.
fn acquire<F: HeldFile>(
    file: F,
    path: &Path,
    max_wait: Duration,
    operation: FlockOperation,
) -> Result<LockGuard<F>, AuditError> {
    let mut started = None;
    let mut tries = 0_u32;
    loop {
        match flock(file.file(), operation) {
            Ok(()) => return Ok(LockGuard(file)),
            Err(Errno::WOULDBLOCK | Errno::INTR) => {}
            Err(errno) => {
                return Err(AuditError::Open { path: path.to_owned(), source: errno.into() });
            }
        }
        // Read the clock only after a failed attempt, so that a free lock costs one system call.
        let waited = started.get_or_insert_with(Instant::now).elapsed();
        if waited >= max_wait {
            return Err(AuditError::Busy { path: path.to_owned(), waiting_time: waited });
        }
        tries = tries.saturating_add(1);
        match tries.checked_sub(SPINS) {
            None => thread::yield_now(),
            // The sleep doubles up to about a millisecond.
            Some(slept) => thread::sleep(FIRST_SLEEP * 2_u32.pow(slept.min(5))),
        }
    }
}

const SPINS: u32 = 32;
const FIRST_SLEEP: Duration = Duration::from_micros(30);
