//! The pool of worker threads for one set of mounts: reuses idle threads, starts new threads, and writes stuck threads
//! off.

use std::sync::{
    Arc, Weak,
    atomic::{AtomicUsize, Ordering},
    mpsc::{SyncSender, TrySendError},
};

use parking_lot::{Mutex, MutexGuard};
use portcullis_policy::GrantedMount;

use super::{
    WasmError,
    control::CallControl,
    worker::{self, Assignment, WorkerJob, WorkerSetup},
};

/// The number of threads of a pool that may be stuck in the kernel. Beyond it, the pool refuses further
/// calls.
pub(super) const MAX_STUCK: usize = 4;

/// The worker threads for one set of mounts.
#[derive(Debug)]
pub(super) struct WorkerPool {
    label: String,
    setup: Arc<WorkerSetup>,
    max_busy: usize,
    idle: Mutex<Vec<SyncSender<Assignment>>>,
    stuck_threads: AtomicUsize,
}

impl WorkerPool {
    pub(super) fn new(label: String, setup: WorkerSetup, max_busy: usize) -> Arc<Self> {
        Arc::new(Self {
            label,
            setup: Arc::new(setup),
            max_busy,
            idle: Mutex::default(),
            stuck_threads: AtomicUsize::new(0),
        })
    }

    pub(super) fn label(&self) -> &str {
        &self.label
    }

    pub(super) fn setup(&self) -> &Arc<WorkerSetup> {
        &self.setup
    }

    /// Returns whether at most one call is running.
    pub(super) fn is_uncontended(&self) -> bool {
        self.setup.busy_workers.load(Ordering::Relaxed) <= 1
    }

    /// Hands a job to an idle thread, or to a new one.
    pub(super) fn submit(self: &Arc<Self>, job: WorkerJob) -> Result<(), WasmError> {
        let mut permit = self.take_permit(&job)?;
        let mut job = job;
        loop {
            let idle = self.idle().pop();
            let Some(job_sender) = idle else { return worker::start(self, job, permit) };
            let assignment = Assignment { job, permit, job_sender: job_sender.clone() };
            // A worker that has ended in the meantime returns the job.
            match job_sender.try_send(assignment) {
                Ok(()) => return Ok(()),
                Err(TrySendError::Disconnected(returned) | TrySendError::Full(returned)) => {
                    (job, permit) = (returned.job, returned.permit);
                }
            }
        }
    }

    /// Writes off a call whose worker is stuck. The worker counts as stuck until it returns. Returns
    /// `false` if the worker finished first.
    pub(super) fn write_off(&self, control: &CallControl) -> bool {
        // Increment first, because a worker that returns immediately decrements the counter.
        self.stuck_threads.fetch_add(1, Ordering::AcqRel);
        let written_off = control.write_off();
        if !written_off {
            self.stuck_threads.fetch_sub(1, Ordering::AcqRel);
        }
        written_off
    }

    fn take_permit(self: &Arc<Self>, job: &WorkerJob) -> Result<WorkerPermit, WasmError> {
        let stuck = self.stuck_threads.load(Ordering::Acquire);
        let limit = self.max_busy + MAX_STUCK;
        // One atomic update, so that two calls cannot both take the last worker.
        let reserved = self.setup.busy_workers.fetch_update(Ordering::AcqRel, Ordering::Acquire, |busy| {
            (stuck <= MAX_STUCK && busy < limit).then_some(busy + 1)
        });
        match reserved {
            Ok(_) => Ok(WorkerPermit { pool: Arc::downgrade(self), control: Arc::clone(&job.control) }),
            Err(_) => Err(WasmError::Exhausted { mounts: self.label.clone(), stuck_threads: stuck }),
        }
    }

    fn idle(&self) -> MutexGuard<'_, Vec<SyncSender<Assignment>>> {
        self.idle.lock()
    }
}

/// Returns a short label of a set of mounts, such as `shared:w,tmp:w`.
pub(super) fn label(mounts: &[GrantedMount]) -> String {
    if mounts.is_empty() {
        return "none".to_owned();
    }
    let names = mounts.iter().map(|mount| format!("{}:{}", mount.name, &mount.access.as_str()[..1]));
    names.collect::<Vec<_>>().join(",")
}

/// Counts one busy worker of a pool. Dropping it ends the count, however the worker ends.
#[derive(Debug)]
pub(super) struct WorkerPermit {
    pool: Weak<WorkerPool>,
    control: Arc<CallControl>,
}

impl WorkerPermit {
    /// Ends the job, and makes its worker available for the next job.
    pub(super) fn leave_idle(self, job_sender: SyncSender<Assignment>) {
        let pool = self.pool.upgrade();
        // Release the permit before the worker is visible as idle. Otherwise the next call could find the pool
        // full although this worker is free.
        drop(self);
        if let Some(pool) = pool {
            pool.idle().push(job_sender);
        }
    }
}

impl Drop for WorkerPermit {
    fn drop(&mut self) {
        let finished_in_time = self.control.finish();
        if let Some(pool) = self.pool.upgrade() {
            pool.setup.busy_workers.fetch_sub(1, Ordering::AcqRel);
            if !finished_in_time {
                pool.stuck_threads.fetch_sub(1, Ordering::AcqRel);
            }
        }
        // Release last, so that the call that gets the slot next also finds a free worker.
        self.control.release_resources();
    }
}
