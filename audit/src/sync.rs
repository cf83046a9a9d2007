//! Schedules the syncs of the log. Knows no rows: it runs a piece of work some time after a request.

use std::{
    io,
    sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError},
    thread::{self, JoinHandle},
    time::Duration,
};

use rustix::io::Errno;

/// The longest delay of a row's sync with [`SyncMode::Interval`].
pub const SYNC_INTERVAL: Duration = Duration::from_millis(100);

/// The time of a row's sync. In both modes a row survives the death of its process as soon as
/// [`super::AuditLog::append`] returns: this is about power loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SyncMode {
    /// At most [`SYNC_INTERVAL`] after it was written, and when the log is dropped.
    #[default]
    Interval,
    /// Before `append` returns.
    Always,
}

/// The state shared by the appenders and the syncing thread.
#[derive(Debug, Default)]
pub(super) struct Syncer {
    request: Mutex<SyncRequest>,
    changed: Condvar,
    failed: OnceLock<Errno>,
}

#[derive(Debug, Default)]
struct SyncRequest {
    sync: bool,
    stop: bool,
}

impl Syncer {
    /// Requests a sync. Wakes the thread only if it was idle.
    pub(super) fn request(&self) {
        let mut request = self.lock();
        if !request.sync {
            request.sync = true;
            drop(request);
            self.changed.notify_one();
        }
    }

    /// Lets the thread do requested work at once, and end.
    pub(super) fn stop(&self) {
        self.lock().stop = true;
        self.changed.notify_one();
    }

    /// Keeps a failure, permanently: the kernel reports a lost page once and then marks it clean, so a
    /// second, successful sync would prove nothing.
    pub(super) fn fail(&self, errno: Errno) {
        if self.failed.set(errno).is_ok() {
            tracing::error!(%errno, "the audit log cannot be written to the disk; no further call will run");
        }
    }

    /// The kept failure.
    pub(super) fn failure(&self) -> Option<Errno> {
        self.failed.get().copied()
    }

    /// The thread's loop: waits for a request, gathers more for [`SYNC_INTERVAL`], works; until stopped.
    fn run(&self, work: impl Fn()) {
        loop {
            let request = self.lock();
            let request = self
                .changed
                .wait_while(request, |request| !request.sync && !request.stop)
                .unwrap_or_else(PoisonError::into_inner);
            // Stopped. A request that came before is still worked off, in this round.
            if !request.sync {
                return;
            }
            let (mut request, _) = self
                .changed
                .wait_timeout_while(request, SYNC_INTERVAL, |request| !request.stop)
                .unwrap_or_else(PoisonError::into_inner);
            // Before the work: a request that comes during it starts another round.
            request.sync = false;
            drop(request);
            work();
        }
    }

    fn lock(&self) -> MutexGuard<'_, SyncRequest> {
        // A poisoned state is consistent: there is no panic between two assignments.
        self.request.lock().unwrap_or_else(PoisonError::into_inner)
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
