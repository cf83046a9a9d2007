//! Pool of worker threads for one mount set: reuses idle threads, starts new ones, and writes stuck ones off.

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError, Weak,
    atomic::{AtomicUsize, Ordering},
    mpsc::{SyncSender, TrySendError},
};

use super::{
    WasmError,
    control::CallControl,
    worker::{self, Assignment, WorkerJob, WorkerSetup},
};

/// How many threads of a pool may be stuck in the kernel before the pool answers `unavailable`.
pub(super) const MAX_STUCK: usize = 4;

/// The worker threads of one mount set.
#[derive(Debug)]
pub(super) struct Pool {
    label: String,
    setup: Arc<WorkerSetup>,
    max_busy: usize,
    idle: Mutex<Vec<SyncSender<Assignment>>>,
    stuck: AtomicUsize,
}

impl Pool {
    pub(super) fn new(label: String, setup: WorkerSetup, max_busy: usize) -> Arc<Self> {
        Arc::new(Self {
            label,
            setup: Arc::new(setup),
            max_busy,
            idle: Mutex::default(),
            stuck: AtomicUsize::new(0),
        })
    }

    pub(super) fn label(&self) -> &str {
        &self.label
    }

    pub(super) fn setup(&self) -> &Arc<WorkerSetup> {
        &self.setup
    }

    /// Whether at most one call runs.
    pub(super) fn is_uncontended(&self) -> bool {
        self.setup.busy.load(Ordering::Relaxed) <= 1
    }

    /// Hands a job to an idle thread, or to a new one.
    pub(super) fn submit(self: &Arc<Self>, job: WorkerJob) -> Result<(), WasmError> {
        let mut lease = self.take_lease(&job)?;
        let mut job = job;
        loop {
            let idle = self.idle().pop();
            let Some(back) = idle else { return worker::start(self, job, lease) };
            let assignment = Assignment { job, lease, back: back.clone() };
            // A worker that has ended meanwhile returns the job.
            match back.try_send(assignment) {
                Ok(()) => return Ok(()),
                Err(TrySendError::Disconnected(returned) | TrySendError::Full(returned)) => {
                    (job, lease) = (returned.job, returned.lease);
                }
            }
        }
    }

    /// Writes a call off whose worker is stuck, and counts the worker as stuck until it comes back. Returns
    /// `false` if it finished just before.
    pub(super) fn write_off(&self, control: &CallControl) -> bool {
        // Count first: a worker that comes back at once decrements the counter.
        self.stuck.fetch_add(1, Ordering::AcqRel);
        let written_off = control.write_off();
        if !written_off {
            self.stuck.fetch_sub(1, Ordering::AcqRel);
        }
        written_off
    }

    fn take_lease(self: &Arc<Self>, job: &WorkerJob) -> Result<WorkerLease, WasmError> {
        let stuck = self.stuck.load(Ordering::Acquire);
        let limit = self.max_busy + MAX_STUCK;
        let taken = self.setup.busy.fetch_update(Ordering::AcqRel, Ordering::Acquire, |busy| {
            (stuck <= MAX_STUCK && busy < limit).then_some(busy + 1)
        });
        match taken {
            Ok(_) => Ok(WorkerLease { pool: Arc::downgrade(self), control: Arc::clone(&job.control) }),
            Err(_) => Err(WasmError::Exhausted { mounts: self.label.clone(), stuck }),
        }
    }

    fn idle(&self) -> MutexGuard<'_, Vec<SyncSender<Assignment>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A busy worker's place in its pool's count; released however the worker ends.
#[derive(Debug)]
pub(super) struct WorkerLease {
    pool: Weak<Pool>,
    control: Arc<CallControl>,
}

impl WorkerLease {
    /// Ends the job and makes its worker available for the next one.
    pub(super) fn leave_idle(self, back: SyncSender<Assignment>) {
        let pool = self.pool.upgrade();
        drop(self);
        if let Some(pool) = pool {
            pool.idle().push(back);
        }
    }
}

impl Drop for WorkerLease {
    fn drop(&mut self) {
        let in_time = self.control.finish();
        if let Some(pool) = self.pool.upgrade() {
            pool.setup.busy.fetch_sub(1, Ordering::AcqRel);
            if !in_time {
                pool.stuck.fetch_sub(1, Ordering::AcqRel);
            }
        }
        // Release last, so that the next call to get the slot also finds a worker's place.
        self.control.give_back();
    }
}
