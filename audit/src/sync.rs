//! Schedules the syncs of the log. This module does not know about rows: it runs a piece of work some
//! time after a request.

use std::{
    io,
    sync::OnceLock,
    thread::{self, JoinHandle},
    time::Duration,
};

use parking_lot::{Condvar, Mutex, MutexGuard};
use rustix::io::Errno;

/// The maximum delay of a row's sync with [`SyncMode::Interval`]: 100 ms.
pub const SYNC_INTERVAL: Duration = Duration::from_millis(100);

/// When a row is synced. The modes differ only after a power loss: in both, a row survives the death of its
/// process once [`super::AuditLog::append`] returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SyncMode {
    /// At most [`SYNC_INTERVAL`] after the row was written, and when the log is dropped.
    #[default]
    Interval,
    /// Before `append` returns.
    Always,
}

/// The state that the appenders and the syncing thread share.
#[derive(Debug, Default)]
pub(super) struct Syncer {
    request: Mutex<SyncRequest>,
    request_changed: Condvar,
    error: OnceLock<Errno>,
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
            self.request_changed.notify_one();
        }
    }

    /// Makes the thread finish the requested work immediately and then exit.
    pub(super) fn stop(&self) {
        self.lock().stop = true;
        self.request_changed.notify_one();
    }

    /// Stores a failure permanently. The kernel reports a lost page once and then marks it clean, so a later
    /// successful sync would prove nothing.
    pub(super) fn record_failure(&self, errno: Errno) {
        if self.error.set(errno).is_ok() {
            tracing::error!(%errno, "the audit log cannot be written to the disk; no further call will run");
        }
    }

    /// The stored failure, if there is one.
    pub(super) fn failure(&self) -> Option<Errno> {
        self.error.get().copied()
    }

    /// Runs the thread's loop until it is stopped: waits for a request, collects further requests for
    /// [`SYNC_INTERVAL`], and does the work. `work` is told whether it was requested, and returns the delay
    /// after which it runs again without a request.
    fn run(&self, work: impl Fn(bool) -> Option<Duration>) {
        let mut next_round = None;
        loop {
            let mut request = self.lock();
            let is_idle = |request: &mut SyncRequest| !request.sync && !request.stop;
            match next_round {
                Some(wait) => {
                    self.request_changed.wait_while_for(&mut request, is_idle, wait);
                }
                None => self.request_changed.wait_while(&mut request, is_idle),
            }
            if !request.sync {
                // The thread was stopped, and there is nothing left to sync. A request from before the stop
                // still gets its round.
                if request.stop {
                    return;
                }
                drop(request);
                next_round = work(false);
                continue;
            }
            self.request_changed.wait_while_for(&mut request, |request| !request.stop, SYNC_INTERVAL);
            // Clear the request before the work, so that a request during the work triggers another round.
            request.sync = false;
            drop(request);
            next_round = work(true);
        }
    }

    fn lock(&self) -> MutexGuard<'_, SyncRequest> {
        self.request.lock()
    }
}

/// Starts the thread.
pub(super) fn spawn<S: Send + Sync + 'static>(
    shared: S,
    syncer: fn(&S) -> &Syncer,
    work: fn(&S, bool) -> Option<Duration>,
) -> io::Result<JoinHandle<()>> {
    thread::Builder::new().name("audit-sync".to_owned()).spawn(move || {
        syncer(&shared).run(|is_requested| work(&shared, is_requested));
    })
}
