//! One worker thread: it confines itself before its first call and proves it again before each.

use std::{
    sync::{Arc, mpsc},
    time::Duration,
};

use portcullis_confine::{MountAccess, MountRule, ProvenThread, ThreadConfinement, confine_current_thread};
use portcullis_policy::ProtectedPaths;
use portcullis_types::Access;
use tokio::sync::oneshot;
use wasmtime::Engine;

use super::{
    GuestModule, GuestReport, Listener, WasmError,
    control::CallControl,
    fs::Preopen,
    guest,
    pool::Pool,
    stdio::{FrameReader, Stdout},
    ticker::Watch,
};

/// How long a worker looks for its next call before it sleeps. Waking a thread costs 10 to 60 µs here, as
/// much as the call itself, and calls come in a row.
const SPIN: Duration = Duration::from_micros(40);

/// What a worker is asked to run.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) module: Arc<GuestModule>,
    pub(super) verb: Verb,
    pub(super) stdin: Vec<u8>,
    pub(super) memory_bytes: usize,
    pub(super) time_limit: Duration,
    pub(super) protected: Arc<ProtectedPaths>,
    pub(super) control: Arc<CallControl>,
    pub(super) listener: Option<Listener>,
    pub(super) watch: Watch,
    pub(super) reply: oneshot::Sender<Result<GuestReport, WasmError>>,
}

impl Job {
    /// How the guest's standard output is to be read. Takes the listener.
    pub(super) fn stdout(&mut self) -> Stdout {
        match self.verb {
            Verb::Call => Stdout::Frames(FrameReader::new(self.listener.take())),
            Verb::Describe => Stdout::Whole(Vec::new()),
        }
    }
}

/// What a module is asked: its `argv[1]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verb {
    Call,
    Describe,
}

impl Verb {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Call => "call",
            Self::Describe => "describe",
        }
    }
}

/// What all workers of a pool share.
#[derive(Debug)]
pub(super) struct WorkerSetup {
    pub(super) engine: Engine,
    pub(super) preopens: Arc<[Preopen]>,
    pub(super) confinement: ThreadConfinement,
}

/// The kernel's rule for a preopen: the same handle, the same access.
pub(super) fn mount_rule(preopen: &Preopen) -> MountRule {
    MountRule {
        dir: Arc::clone(preopen.handle.directory()),
        access: match preopen.access {
            Access::Read => MountAccess::Read,
            Access::Write => MountAccess::Write,
        },
    }
}

/// Starts a worker with its first job waiting.
pub(super) fn start(pool: &Arc<Pool>, first: Job) -> Result<(), WasmError> {
    let (sender, receiver) = mpsc::sync_channel(1);
    // The receiver is alive, so the one place of the channel takes it.
    sender.try_send(first).map_err(|_| WasmError::WorkerLost)?;
    let weak = Arc::downgrade(pool);
    let setup = Arc::clone(pool.setup());
    std::thread::Builder::new()
        .name(format!("portcullis-wasm-{}", pool.label()))
        .spawn(move || {
            // Made before the confinement, and entered for good: what wasmtime-wasi would start
            // otherwise is a global runtime, whose threads would inherit it.
            let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_time().build() else {
                return;
            };
            let proven = confine_current_thread(&setup.confinement);
            let mut next = receive(&receiver);
            while let Some(mut job) = next {
                let report = runtime.block_on(serve(&setup, &proven, &mut job));
                let Job { control, watch, reply, .. } = job;
                drop(watch);
                let in_time = control.finish();
                let Some(pool) = weak.upgrade() else { return };
                pool.returns(proven.is_ok().then(|| sender.clone()), in_time);
                drop(pool);
                // Nobody waits for a call that was written off.
                let _ = reply.send(report);
                if proven.is_err() {
                    return;
                }
                next = receive(&receiver);
            }
        })
        .map(drop)
        .map_err(|source| WasmError::Thread { what: "worker", source })
}

async fn serve(
    setup: &WorkerSetup,
    proven: &Result<ProvenThread, portcullis_confine::ConfineError>,
    job: &mut Job,
) -> Result<GuestReport, WasmError> {
    job.control.runs_here();
    let proven = match proven {
        Ok(proven) => proven,
        Err(error) => return Err(WasmError::Unconfined { reason: chain(error) }),
    };
    proven.reprove()?;
    guest::run(&setup.engine, &setup.preopens, proven.posture().clone(), job).await
}

/// An error with its causes, for a thread that must tell it more than once.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

fn receive(receiver: &mpsc::Receiver<Job>) -> Option<Job> {
    let start = std::time::Instant::now();
    loop {
        match receiver.try_recv() {
            Ok(job) => return Some(job),
            Err(mpsc::TryRecvError::Disconnected) => return None,
            Err(mpsc::TryRecvError::Empty) if start.elapsed() < SPIN => std::hint::spin_loop(),
            Err(mpsc::TryRecvError::Empty) => return receiver.recv().ok(),
        }
    }
}
