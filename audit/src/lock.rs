//! The lock that orders the processes which share a log: `flock` on the log itself.
//!
//! `flock` belongs to an open file description: the kernel releases it when the process dies, and two handles
//! within one process exclude each other as two processes do. A lock file beside the log would need the same
//! care, and could be deleted.

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

/// The longest wait for the lock. The lock is held for microseconds, or for a scan of the last calls at a
/// start after a crash. A process that is stopped while it holds the lock would otherwise block all others
/// for ever.
pub(super) const LOCK_WAIT: Duration = Duration::from_secs(5);

/// A held lock, released on drop.
#[derive(Debug)]
pub(super) struct LockGuard<'file>(&'file File);

impl Drop for LockGuard<'_> {
    fn drop(&mut self) {
        // Cannot fail for an open descriptor that holds the lock.
        let _ = flock(self.0, FlockOperation::Unlock);
    }
}

/// Waits for the exclusive lock, for writing.
pub(super) fn exclusive<'file>(
    file: &'file File,
    path: &Path,
    wait: Duration,
) -> Result<LockGuard<'file>, AuditError> {
    acquire(file, path, wait, FlockOperation::NonBlockingLockExclusive)
}

/// Waits for the shared lock, during which no process writes.
pub(super) fn shared<'file>(
    file: &'file File,
    path: &Path,
    wait: Duration,
) -> Result<LockGuard<'file>, AuditError> {
    acquire(file, path, wait, FlockOperation::NonBlockingLockShared)
}

/// Takes the lock if it is free, and keeps it until the file is closed.
pub(super) fn try_keep(file: &File) -> Result<bool, Errno> {
    match flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK) => Ok(false),
        Err(errno) => Err(errno),
    }
}

/// Retries a non-blocking `flock`, since a blocking one has no timeout without signals. First it retries at
/// once, since the lock is mostly held for less than a context switch, then at growing intervals.
fn acquire<'file>(
    file: &'file File,
    path: &Path,
    wait: Duration,
    operation: FlockOperation,
) -> Result<LockGuard<'file>, AuditError> {
    let mut started = None;
    let mut tries = 0_u32;
    loop {
        match flock(file, operation) {
            Ok(()) => return Ok(LockGuard(file)),
            Err(Errno::WOULDBLOCK | Errno::INTR) => {}
            Err(errno) => {
                return Err(AuditError::Open { path: path.to_owned(), source: errno.into() });
            }
        }
        // A lock that is free at once costs no look at the clock.
        let waited = started.get_or_insert_with(Instant::now).elapsed();
        if waited >= wait {
            return Err(AuditError::Busy { path: path.to_owned(), waited });
        }
        tries = tries.saturating_add(1);
        match tries.checked_sub(SPINS) {
            None => thread::yield_now(),
            // Doubles up to about a millisecond.
            Some(slept) => thread::sleep(FIRST_SLEEP * 2_u32.pow(slept.min(5))),
        }
    }
}

const SPINS: u32 = 32;
const FIRST_SLEEP: Duration = Duration::from_micros(30);
