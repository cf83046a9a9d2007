//! A worker thread: confines itself before its first call, and proves the confinement again before each call.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc::{self, SyncSender},
    },
    time::{Duration, Instant},
};

use portcullis_confine::{
    MountAccess, MountRule, ProvenThread, ThreadConfinement, confine_current_thread, interrupt::ThreadTarget,
};
use portcullis_types::{Access, error_chain};
use tokio::sync::oneshot;
use wasmtime::Engine;

use super::{
    ChunkSink, GuestReport, HttpOperationSender, Listener, TransferEndpoint, WasmError,
    control::CallControl,
    fs::Preopen,
    guest::{self, GuestPreopens},
    locks::LockOperationSender,
    module::LinkedModule,
    pool::{WorkerPermit, WorkerPool},
    protection::Protection,
    stdio::{FrameReader, Stdout},
    ticker::TickerGuard,
    transfer_reader::TransferReader,
};
use crate::{before_change::BeforeChangeFn, hard_links::ExposedFiles, mount_use::MountUse};

/// How long a worker polls for its next call before it sleeps: 400 µs. A thread's wake-up costs 10 to 60
/// µs, as much as a call itself, and more if the processor sleeps too. Calls often come in bursts. Between
/// two of them the caller, which can be another process, reads the answer and prepares the next call.
const SPIN: Duration = Duration::from_micros(400);

/// The size of a worker's stack: the guest's share (`engine`), and more than twice that for host functions. Only
/// touched pages take memory.
const STACK_BYTES: usize = 4 << 20;

/// The description of a call, for a worker.
#[derive(Debug)]
pub(super) struct WorkerJob {
    pub(super) module: LinkedModule,
    pub(super) verb: GuestRequest,
    pub(super) stdin: Vec<u8>,
    pub(super) memory_bytes: usize,
    pub(super) time_limit: Duration,
    pub(super) protection: Protection,
    /// The exposed private files at the start of the call, because a confined worker cannot search for them.
    pub(super) exposed_files: Arc<ExposedFiles>,
    /// The marks of the pool's mounts.
    pub(super) mount_use: MountUse,
    /// Saves the states of paths before the guest changes them.
    pub(super) before_change: Option<BeforeChangeFn>,
    pub(super) control: Arc<CallControl>,
    /// Receives progress and update frames, if the call has an observer.
    pub(super) listener: Option<Listener>,
    /// The call's end of a transfer, if it takes part in one.
    pub(super) transfer: Option<TransferEndpoint>,
    /// The call's end of the channel for HTTP requests, if it may make requests.
    pub(super) http: Option<HttpOperationSender>,
    /// The call's end of the channel for locks, if its module imports the functions for locks.
    pub(super) locks: Option<LockOperationSender>,
    pub(super) ticking: TickerGuard,
    pub(super) reply: oneshot::Sender<Result<GuestReport, WasmError>>,
}

impl WorkerJob {
    /// Builds the reader of the guest's standard output. Takes the listener out of the job.
    pub(super) fn stdout(&mut self) -> Stdout {
        match self.verb {
            GuestRequest::Call => {
                Stdout::Frames(FrameReader::new(self.listener.take(), self.transfer_output()))
            }
            GuestRequest::Describe => Stdout::Text(Vec::new()),
        }
    }

    /// Builds the standard input of the receiving end of a transfer. Takes the call frame out of the job.
    pub(super) fn transfer_input(&mut self) -> Option<TransferReader> {
        match &self.transfer {
            Some(TransferEndpoint::Receiver(transfer)) => {
                Some(TransferReader::new(std::mem::take(&mut self.stdin), Arc::clone(transfer)))
            }
            _ => None,
        }
    }

    fn transfer_output(&self) -> Option<ChunkSink> {
        match &self.transfer {
            Some(TransferEndpoint::Sender(transfer)) => Some(ChunkSink {
                transfer: Arc::clone(transfer),
                control: Arc::clone(&self.control),
                time_limit: self.time_limit,
            }),
            _ => None,
        }
    }
}

/// The request to a module, which is its `argv[1]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum GuestRequest {
    Call,
    Describe,
}

impl GuestRequest {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Call => "call",
            Self::Describe => "describe",
        }
    }
}

/// The state that all workers of a pool share.
#[derive(Debug)]
pub(super) struct WorkerSetup {
    pub(super) engine: Engine,
    pub(super) preopens: Arc<[Preopen]>,
    pub(super) guest_preopens: GuestPreopens,
    pub(super) confinement: ThreadConfinement,
    /// The number of the pool's workers that have a job.
    pub(super) busy_workers: AtomicUsize,
}

/// Builds the kernel's rule for a preopen, with the same handle and the same access.
pub(super) fn mount_rule(preopen: &Preopen) -> MountRule {
    MountRule {
        dir: Arc::clone(preopen.handle.directory()),
        access: match preopen.access {
            Access::Read => MountAccess::Read,
            Access::Write => MountAccess::Write,
        },
    }
}

/// A job that is passed to a worker.
#[derive(Debug)]
pub(super) struct Assignment {
    pub(super) job: WorkerJob,
    pub(super) permit: WorkerPermit,
    /// The sender for this worker's next job. It travels with the job: an idle worker holds no sender, so
    /// it ends when its pool is dropped.
    pub(super) job_sender: SyncSender<Assignment>,
}

/// Starts a worker whose first job is already in its channel.
pub(super) fn start(pool: &Arc<WorkerPool>, job: WorkerJob, permit: WorkerPermit) -> Result<(), WasmError> {
    let (job_sender, receiver) = mpsc::sync_channel(1);
    let first = Assignment { job, permit, job_sender: job_sender.clone() };
    // The receiver is alive and the channel is empty, so this send cannot fail.
    job_sender.try_send(first).map_err(|_cause| WasmError::WorkerLost)?;
    drop(job_sender);
    let setup = Arc::clone(pool.setup());
    std::thread::Builder::new()
        .name(format!("portcullis-wasm-{}", pool.label()))
        .stack_size(STACK_BYTES)
        .spawn(move || work(&setup, &receiver))
        .map(drop)
        .map_err(|source| WasmError::Thread { thread: "worker", source })
}

/// The main loop of a worker thread.
fn work(setup: &WorkerSetup, receiver: &mpsc::Receiver<Assignment>) {
    // Created before the confinement, and entered for the whole life of the thread. Otherwise wasmtime-wasi
    // would start a global runtime, whose threads would inherit the confinement.
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_time().build() else { return };
    let _entered = runtime.enter();
    let thread = ThreadTarget::current();
    let proven = confine_current_thread(&setup.confinement);
    while let Some(Assignment { mut job, permit, job_sender }) = receive(receiver, setup) {
        job.control.set_thread(thread);
        let report = serve(setup, &proven, &mut job);
        let WorkerJob { ticking, reply, .. } = job;
        drop(ticking);
        // A thread whose confinement is in doubt is not reused.
        let is_reusable = !matches!(report, Err(WasmError::Unconfined { .. } | WasmError::Confine(_)));
        // The worker becomes idle before the answer is sent, so that it is available for the caller's next
        // call.
        if is_reusable {
            permit.leave_idle(job_sender);
        } else {
            drop(permit);
        }
        // A call that was written off no longer has a receiver, so a failed send is ignored.
        let _ = reply.send(report);
        if !is_reusable {
            return;
        }
    }
}

fn serve(
    setup: &WorkerSetup,
    proven: &Result<ProvenThread, portcullis_confine::ConfineError>,
    job: &mut WorkerJob,
) -> Result<GuestReport, WasmError> {
    let proven = match proven {
        Ok(proven) => proven,
        Err(error) => return Err(WasmError::Unconfined { reason: error_chain(error) }),
    };
    proven.reprove()?;
    guest::run(setup, proven.posture().clone(), job)
}

/// Waits for the next assignment. Returns `None` if the pool is gone.
fn receive(receiver: &mpsc::Receiver<Assignment>, setup: &WorkerSetup) -> Option<Assignment> {
    let start = Instant::now();
    // Do not poll while other workers run, because they need the processor.
    while setup.busy_workers.load(Ordering::Relaxed) == 0 && start.elapsed() < SPIN {
        match receiver.try_recv() {
            Ok(assignment) => return Some(assignment),
            Err(mpsc::TryRecvError::Disconnected) => return None,
            Err(mpsc::TryRecvError::Empty) => std::thread::yield_now(),
        }
    }
    receiver.recv().ok()
}
