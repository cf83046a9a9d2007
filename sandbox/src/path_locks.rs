//! Locks of paths: at most one call at a time holds the lock of a path, among all processes that share a state folder.
//!
//! Within a process, a queue orders the calls of each path. Between processes, the kernel's `flock` on a
//! file below `STATE/locks` provides mutual exclusion. The kernel releases it when the process dies, so no
//! lock outlives its holder. The file is named after the path's identity, and its holder removes it.
//!
//! The lock files do not lie beside the guests' own files: a mount may be read-only, and they would litter
//! a project. No guest and no confined thread can open them, so the host takes the locks, outside the
//! confinement.

use std::{
    collections::HashMap,
    fs::File,
    io,
    path::{Path, PathBuf},
    sync::{Arc, Weak},
    time::Duration,
};

use parking_lot::Mutex;
use rustix::{
    fs::{FlockOperation, Mode, OFlags, Stat, flock, fstat},
    io::Errno,
};
use sha2::{Digest, Sha256};
use tokio::sync::OwnedMutexGuard;

/// The interval at which a call retries a lock that another process holds: 10 ms.
const RETRY_INTERVAL: Duration = Duration::from_millis(10);

/// The identity of a path: its last name in the directory that the kernel resolved. Two paths that lead to
/// the same name through symlinks have one identity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct LockKey([u8; 16]);

impl LockKey {
    pub(super) fn new(directory: &Stat, name: &str) -> Self {
        let mut hasher = Sha256::new();
        hasher.update(directory.st_dev.to_le_bytes());
        hasher.update(directory.st_ino.to_le_bytes());
        hasher.update(name.as_bytes());
        let mut key = [0; 16];
        key.copy_from_slice(&hasher.finalize()[..16]);
        Self(key)
    }
}

/// All locks of a runner.
#[derive(Debug)]
pub(super) struct PathLocks {
    folder: PathBuf,
    /// The queues of the paths that calls of this process hold or wait for.
    queues: Mutex<HashMap<LockKey, Weak<tokio::sync::Mutex<()>>>>,
}

/// A lock that is held. Dropping it releases the lock.
#[derive(Debug)]
pub(super) struct HeldLock {
    key: LockKey,
    path: PathBuf,
    /// Closed before the queue moves on, so that the next call of this process finds the file free.
    _file: File,
    _turn: OwnedMutexGuard<()>,
}

impl HeldLock {
    pub(super) fn key(&self) -> LockKey {
        self.key
    }
}

impl Drop for HeldLock {
    fn drop(&mut self) {
        // The file is removed while it is locked, so that a process that has it open notices that it locked
        // a removed file. A confined thread may not remove it. Then the file stays for the path's next
        // holder.
        let _ = std::fs::remove_file(&self.path);
    }
}

impl PathLocks {
    /// Prepares locks below this state folder. The folder of the lock files is created with the first lock.
    pub(super) fn new(state: &Path) -> Self {
        Self { folder: state.join("locks"), queues: Mutex::default() }
    }

    /// Takes a lock, after all earlier calls of this process that asked for it.
    ///
    /// # Errors
    /// The system's error, if the lock file cannot be created.
    ///
    /// # Cancellation
    /// A dropped wait leaves the lock's queue.
    pub(super) async fn acquire(&self, key: LockKey) -> io::Result<HeldLock> {
        let turn = self.queue(key).lock_owned().await;
        let path = self.folder.join(hex::encode(key.0));
        loop {
            // These system calls take microseconds and never block, so they may run on the executor's
            // thread.
            match lock_file(&path) {
                Ok(Some(file)) => return Ok(HeldLock { key, path, _file: file, _turn: turn }),
                Ok(None) => tokio::time::sleep(RETRY_INTERVAL).await,
                Err(Errno::NOENT) => create_folder(&self.folder)?,
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    fn queue(&self, key: LockKey) -> Arc<tokio::sync::Mutex<()>> {
        let mut queues = self.queues.lock();
        if let Some(queue) = queues.get(&key).and_then(Weak::upgrade) {
            return queue;
        }
        // Few calls run concurrently, so few queues remain.
        queues.retain(|_, queue| queue.strong_count() > 0);
        let queue = Arc::default();
        queues.insert(key, Arc::downgrade(&queue));
        queue
    }
}

/// Opens and locks a file. Returns `None` if another holder has the lock.
fn lock_file(path: &Path) -> Result<Option<File>, Errno> {
    let flags = OFlags::CREATE | OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    loop {
        let file = File::from(rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR)?);
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Ok(None),
            Err(Errno::INTR) => continue,
            Err(errno) => return Err(errno),
        }
        let locked = fstat(&file)?;
        match rustix::fs::stat(path) {
            Ok(named) if (named.st_dev, named.st_ino) == (locked.st_dev, locked.st_ino) => {
                return Ok(Some(file));
            }
            // The last holder removed the file. A lock on the removed file is worthless, because others
            // will lock a new file.
            Ok(_) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(errno),
        }
    }
}

fn create_folder(folder: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;

    match std::fs::DirBuilder::new().mode(0o700).create(folder) {
        // Another call or process created it first.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use futures_util::poll;

    use super::*;

    fn key(name: &str) -> LockKey {
        let directory = rustix::fs::stat("/").expect("the path exists");
        LockKey::new(&directory, name)
    }

    #[tokio::test]
    async fn one_call_at_a_time_holds_a_path_in_order_of_arrival() {
        let state = tempfile::tempdir().expect("a folder");
        let locks = PathLocks::new(state.path());
        let first = locks.acquire(key("a")).await.expect("free");
        let (mut second, mut third) = (Box::pin(locks.acquire(key("a"))), Box::pin(locks.acquire(key("a"))));
        assert!(poll!(&mut second).is_pending() && poll!(&mut third).is_pending());
        let _other_path = locks.acquire(key("b")).await.expect("free");
        drop(first);
        assert!(poll!(&mut third).is_pending());
        let second = second.await.expect("the lock is acquired");
        assert!(poll!(&mut third).is_pending());
        drop(second);
        drop(third.await.expect("the lock is acquired"));
    }

    #[tokio::test]
    async fn another_process_is_excluded_and_no_file_is_left() {
        let state = tempfile::tempdir().expect("a folder");
        // Each value has its own queues, as two processes have.
        let (one, other) = (PathLocks::new(state.path()), PathLocks::new(state.path()));
        let held = one.acquire(key("a")).await.expect("free");
        let mut waiting = Box::pin(other.acquire(key("a")));
        assert!(poll!(&mut waiting).is_pending());
        drop(held);
        drop(waiting.await.expect("the lock is acquired"));
        assert_eq!(std::fs::read_dir(state.path().join("locks")).expect("the folder is readable").count(), 0);
    }

    #[tokio::test]
    async fn a_file_that_a_dead_process_left_is_used_again() {
        let state = tempfile::tempdir().expect("a folder");
        let locks = PathLocks::new(state.path());
        let held = locks.acquire(key("a")).await.expect("free");
        let path = held.path.clone();
        drop(held);
        std::fs::write(&path, "").expect("written");
        locks.acquire(key("a")).await.expect("free");
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn an_abandoned_wait_leaves_the_queue() {
        let state = tempfile::tempdir().expect("a folder");
        let locks = PathLocks::new(state.path());
        let held = locks.acquire(key("a")).await.expect("free");
        let (mut dropped, mut next) = (Box::pin(locks.acquire(key("a"))), Box::pin(locks.acquire(key("a"))));
        assert!(poll!(&mut dropped).is_pending() && poll!(&mut next).is_pending());
        drop(dropped);
        drop(held);
        next.await.expect("the lock is acquired");
    }

    #[tokio::test]
    async fn every_holder_excludes_every_other() {
        let state = tempfile::tempdir().expect("a folder");
        let processes: Vec<_> = (0..4).map(|_| PathLocks::new(state.path())).collect();
        let holders = std::sync::atomic::AtomicUsize::new(0);
        let holds = (0..40).map(|number| {
            let (locks, holders) = (&processes[number % 4], &holders);
            async move {
                let _held = locks.acquire(key("a")).await.expect("the lock is acquired");
                assert_eq!(holders.fetch_add(1, std::sync::atomic::Ordering::AcqRel), 0);
                tokio::task::yield_now().await;
                holders.fetch_sub(1, std::sync::atomic::Ordering::AcqRel);
            }
        });
        futures_util::future::join_all(holds).await;
    }
}
