//! The worker threads of one mount set: idle ones are reused, new ones started, stuck ones written off.

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicUsize, Ordering},
    mpsc::{SyncSender, TrySendError},
};

use super::{
    WasmError,
    worker::{self, Job, WorkerSetup},
};

/// Threads of a pool that may be stuck in the kernel before the pool answers `unavailable`.
pub(super) const MAX_STUCK: usize = 4;

/// The threads that serve one mount set.
#[derive(Debug)]
pub(super) struct Pool {
    label: String,
    setup: Arc<WorkerSetup>,
    max_busy: usize,
    idle: Mutex<Vec<SyncSender<Job>>>,
    busy: AtomicUsize,
    stuck: AtomicUsize,
}

impl Pool {
    pub(super) fn new(label: String, setup: WorkerSetup, max_busy: usize) -> Arc<Self> {
        Arc::new(Self {
            label,
            setup: Arc::new(setup),
            max_busy,
            idle: Mutex::default(),
            busy: AtomicUsize::new(0),
            stuck: AtomicUsize::new(0),
        })
    }

    pub(super) fn label(&self) -> &str {
        &self.label
    }

    pub(super) fn setup(&self) -> &Arc<WorkerSetup> {
        &self.setup
    }

    /// Hands a job to an idle thread, or to a new one.
    pub(super) fn submit(self: &Arc<Self>, mut job: Job) -> Result<(), WasmError> {
        let stuck = self.stuck.load(Ordering::Acquire);
        if stuck > MAX_STUCK || self.busy.fetch_add(1, Ordering::AcqRel) >= self.max_busy + MAX_STUCK {
            if stuck <= MAX_STUCK {
                self.busy.fetch_sub(1, Ordering::AcqRel);
            }
            return Err(WasmError::Exhausted { mounts: self.label.clone(), stuck });
        }
        loop {
            let idle = self.idle().pop();
            let Some(worker) = idle else { break };
            // A worker that has ended meanwhile gives the job back.
            match worker.try_send(job) {
                Ok(()) => return Ok(()),
                Err(TrySendError::Disconnected(back) | TrySendError::Full(back)) => job = back,
            }
        }
        let started = worker::start(self, job);
        if started.is_err() {
            self.busy.fetch_sub(1, Ordering::AcqRel);
        }
        started
    }

    /// Takes a worker back after a job; none where the thread ends. `in_time` is whether its caller was
    /// still waiting.
    pub(super) fn returns(&self, worker: Option<SyncSender<Job>>, in_time: bool) {
        self.busy.fetch_sub(1, Ordering::AcqRel);
        if !in_time {
            self.stuck.fetch_sub(1, Ordering::AcqRel);
        }
        if let Some(worker) = worker {
            self.idle().push(worker);
        }
    }

    /// Counts a worker as stuck until it comes back.
    pub(super) fn write_off(&self) {
        self.stuck.fetch_add(1, Ordering::AcqRel);
    }

    fn idle(&self) -> MutexGuard<'_, Vec<SyncSender<Job>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
