//! When rows reach the disk. Knows of no rows: it runs a piece of work some time after it was asked to.

use std::{
    io,
    sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError},
    thread::{self, JoinHandle},
    time::Duration,
};

use rustix::io::Errno;

/// How long a row waits for the disk at most, with [`SyncMode::Interval`].
pub const SYNC_INTERVAL: Duration = Duration::from_millis(100);

/// When a row is on the disk. In both modes a row survives the death of its process as soon as
/// [`super::AuditLog::append`] returns: this is about power loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SyncMode {
    /// At most [`SYNC_INTERVAL`] after it was written, and when the log is dropped.
    #[default]
    Interval,
    /// Before `append` returns.
    Always,
}

/// What the appenders and the synchronising thread share.
#[derive(Debug, Default)]
pub(super) struct Syncer {
    wanted: Mutex<Wanted>,
    changed: Condvar,
    failed: OnceLock<Errno>,
}

#[derive(Debug, Default)]
struct Wanted {
    sync: bool,
    stop: bool,
}

impl Syncer {
    /// Asks for a synchronisation. Wakes the thread only if it had nothing to do.
    pub(super) fn request(&self) {
        let mut wanted = self.wanted();
        if !wanted.sync {
            wanted.sync = true;
            drop(wanted);
            self.changed.notify_one();
        }
    }

    /// Lets the thread do what was asked for, at once, and end.
    pub(super) fn stop(&self) {
        self.wanted().stop = true;
        self.changed.notify_one();
    }

    /// Keeps a failure. It stays: the kernel reports a lost page once and then calls it clean, so a
    /// second, successful try would prove nothing.
    pub(super) fn fail(&self, errno: Errno) {
        if self.failed.set(errno).is_ok() {
            tracing::error!(%errno, "the audit log does not reach the disk; no further call will run");
        }
    }

    /// The failure, if there was one.
    pub(super) fn failure(&self) -> Option<Errno> {
        self.failed.get().copied()
    }

    /// The thread: sleeps until asked, gathers for [`SYNC_INTERVAL`], works, and so on until stopped.
    fn run(&self, work: impl Fn()) {
        loop {
            let wanted = self.wanted();
            let wanted = self
                .changed
                .wait_while(wanted, |wanted| !wanted.sync && !wanted.stop)
                .unwrap_or_else(PoisonError::into_inner);
            if !wanted.sync {
                return;
            }
            let (mut wanted, _) = self
                .changed
                .wait_timeout_while(wanted, SYNC_INTERVAL, |wanted| !wanted.stop)
                .unwrap_or_else(PoisonError::into_inner);
            wanted.sync = false;
            drop(wanted);
            work();
        }
    }

    fn wanted(&self) -> MutexGuard<'_, Wanted> {
        // Nothing panics between two assignments, so a poisoned state is a whole one.
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Starts the thread.
pub(super) fn spawn<S: Send + Sync + 'static>(
    shared: S,
    syncer: fn(&S) -> &Syncer,
    work: fn(&S),
) -> io::Result<JoinHandle<()>> {
    thread::Builder::new().name("audit-sync".to_owned()).spawn(move || syncer(&shared).run(|| work(&shared)))
}
