//! Stands in for the host in native programs: the locks of the threads of one process.

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    thread::{self, ThreadId},
    time::Duration,
};

use portcullis_types::{GuestPath, MAX_HELD_LOCKS};

use super::LockError;

/// The time limit of the wait for a lock: 30 s, the time of a call by default.
const MAX_WAIT: Duration = Duration::from_secs(30);

/// The locks that are held, by number.
struct Locks {
    held_locks: BTreeMap<u32, HeldLock>,
    next_number: u32,
}

struct HeldLock {
    path: PathBuf,
    /// The thread of the holder. A call of a test runs on one thread.
    thread: ThreadId,
}

static LOCKS: Mutex<Locks> = Mutex::new(Locks { held_locks: BTreeMap::new(), next_number: 0 });
static RELEASED: Condvar = Condvar::new();

pub(super) fn lock(_path: &GuestPath, target: &Path) -> Result<u32, LockError> {
    if let Some(parent) = target.parent() {
        std::fs::metadata(parent).map_err(LockError::System)?;
    }
    let thread = thread::current().id();
    let locks = locks();
    let own_locks = || locks.held_locks.values().filter(|lock| lock.thread == thread);
    if own_locks().any(|lock| lock.path == target) {
        return Err(LockError::HeldAlready);
    }
    if own_locks().count() >= MAX_HELD_LOCKS {
        return Err(LockError::TooMany);
    }
    let is_held = |locks: &mut Locks| locks.held_locks.values().any(|lock| lock.path == target);
    let (mut locks, wait) =
        RELEASED.wait_timeout_while(locks, MAX_WAIT, is_held).unwrap_or_else(PoisonError::into_inner);
    if wait.timed_out() {
        return Err(LockError::System(io::ErrorKind::TimedOut.into()));
    }
    let number = locks.next_number;
    locks.next_number = number.wrapping_add(1);
    locks.held_locks.insert(number, HeldLock { path: target.to_owned(), thread });
    Ok(number)
}

pub(super) fn unlock(number: u32) {
    locks().held_locks.remove(&number);
    RELEASED.notify_all();
}

fn locks() -> MutexGuard<'static, Locks> {
    LOCKS.lock().unwrap_or_else(PoisonError::into_inner)
}
