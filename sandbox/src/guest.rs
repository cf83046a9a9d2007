//! Runs one call of one guest on the current thread: builds the store and the instance, runs `_start`, and
//! reports the outcome.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use portcullis_confine::Posture;
use portcullis_types::FinalFrame;
use rustix::time::ClockId;
use wasmtime::{Error, Instance, Memory, Store, Trap, UpdateDeadline};
use wasmtime_wasi::{
    FsPerms, I32Exit, WasiCtxBuilder,
    filesystem::{WasiFilesystemCtx, WasiFilesystemView as _},
    p1::WasiP1Ctx,
    p2::pipe::MemoryInputPipe,
};

use super::{
    GuestFault, Violation, WasmError,
    control::{CallControl, CallStop},
    fs::{GuestFs, MountTouches, Preopen},
    http::GuestHttp,
    limiter::{LimitRefusal, Limiter},
    locks::GuestLocks,
    stdio::{Stderr, Stdout},
    transfer_reader::TransferReader,
    worker::{WorkerJob, WorkerSetup},
};
use portcullis_types::Access;

/// The state of a call, which its host functions can use.
pub(super) struct GuestState {
    pub(super) wasi: WasiP1Ctx,
    pub(super) fs: GuestFs,
    /// Standard input, if the call is the receiving end of a transfer.
    pub(super) transfer_input: Option<TransferReader>,
    pub(super) stdout: Stdout,
    pub(super) stderr: Stderr,
    pub(super) http: GuestHttp,
    pub(super) locks: GuestLocks,
    pub(super) limiter: Limiter,
    pub(super) control: Arc<CallControl>,
    /// The origin of the guest's monotonic clock.
    pub(super) started_at: Instant,
    /// The guest's exported memory, cached by the first host function that looks it up.
    pub(super) memory: Option<Memory>,
}

/// The outcome of one call.
#[derive(Debug)]
pub struct GuestReport {
    /// The guest's result, or its fault.
    pub result: Result<FinalFrame, GuestFault>,
    /// The first violation, even if the guest reports success.
    pub violation: Option<Violation>,
    /// The mounts that the guest has used.
    pub mounts_used: Vec<String>,
    /// The guest's successful operations in each mount.
    pub touched: Vec<MountTouches>,
    /// The first guest paths that the guest opened or changed, with links resolved.
    pub touched_paths: Vec<String>,
    /// The guest's standard error.
    pub stderr: String,
    /// The processor time of the worker thread for this call.
    pub cpu: Duration,
    /// The peak memory of the guest, in bytes.
    pub peak_memory_bytes: usize,
    /// The confinement of the thread, read on that thread for this call.
    pub posture: Posture,
}

/// Runs a call to its end.
pub(super) fn run(
    setup: &WorkerSetup,
    posture: Posture,
    job: &mut WorkerJob,
) -> Result<GuestReport, WasmError> {
    let cpu_before = thread_cpu_time();
    let mut store = new_store(setup, job);
    let result = match job.module.0.instantiate(&mut store) {
        Ok(instance) => match call_start(&mut store, &instance) {
            Ok(()) => None,
            // The guest's code has run, so the failure is the guest's fault.
            Err(error) => Some(
                classify_fault(&error, store.data(), job).unwrap_or_else(|| misuse(&error, store.data())),
            ),
        },
        Err(error) => match classify_fault(&error, store.data(), job) {
            Some(fault) => Some(fault),
            None => return Err(WasmError::Runtime { source: error }),
        },
    };
    let state = store.into_data();
    let (touched, touched_paths) = state.fs.touched();
    let result = match result {
        Some(fault) => Err(fault),
        None => state.stdout.finish().map_err(|fault| limit_fault_or(fault, &state.limiter)),
    };
    Ok(GuestReport {
        result,
        violation: state.fs.violation().cloned(),
        mounts_used: state.fs.mounts_used(),
        touched,
        touched_paths,
        stderr: state.stderr.into_text(),
        cpu: thread_cpu_time().saturating_sub(cpu_before),
        peak_memory_bytes: state.limiter.memory_bytes(),
        posture,
    })
}

/// The preopens of a pool, opened once. Each call gets copies of the handles.
#[derive(Clone)]
pub(super) struct GuestPreopens(WasiFilesystemCtx);

impl std::fmt::Debug for GuestPreopens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("GuestPreopens")
    }
}

impl GuestPreopens {
    /// Opens the root of each mount through the handle from which the kernel's rule is made, so that both
    /// refer to the same directory.
    ///
    /// # Errors
    /// [`WasmError::Preopen`] if a root cannot be opened.
    pub(super) fn open(preopens: &[Preopen]) -> Result<Self, WasmError> {
        use std::os::fd::AsRawFd;

        let mut wasi = WasiCtxBuilder::new();
        wasi.allow_blocking_current_thread(true);
        for preopen in preopens {
            let name = preopen.handle.name();
            let path = format!("/proc/self/fd/{}", preopen.handle.directory().as_raw_fd());
            let permissions = match preopen.access {
                Access::Read => FsPerms::ReadOnly,
                Access::Write => FsPerms::ReadWrite,
            };
            wasi.preopened_dir(path, format!("/{name}"), permissions)
                .map_err(|source| WasmError::Preopen { mount: name.to_string(), source })?;
        }
        Ok(Self(wasi.build_p1().filesystem().ctx.clone()))
    }
}

fn new_store(setup: &WorkerSetup, job: &mut WorkerJob) -> Store<GuestState> {
    let transfer_input = job.transfer_input();
    // File operations may block, because the thread serves only this call.
    let mut wasi = WasiCtxBuilder::new()
        .allow_blocking_current_thread(true)
        .args(&["tool", job.verb.as_str()])
        .stdin(MemoryInputPipe::new(std::mem::take(&mut job.stdin)))
        .build_p1();
    *wasi.filesystem().ctx = setup.guest_preopens.0.clone();
    let state = GuestState {
        wasi,
        fs: GuestFs::new(
            Arc::clone(&setup.preopens),
            job.protection.clone(),
            Arc::clone(&job.exposed_files),
            job.mount_use.clone(),
            job.before_change.take(),
        ),
        transfer_input,
        stdout: job.stdout(),
        stderr: Stderr::default(),
        http: GuestHttp::new(job.http.take()),
        locks: GuestLocks::new(job.locks.take()),
        limiter: Limiter::new(job.memory_bytes),
        control: Arc::clone(&job.control),
        started_at: Instant::now(),
        memory: None,
    };
    let mut store = Store::new(&setup.engine, state);
    store.limiter(|state| &mut state.limiter);
    // The ticker advances the epoch. At each tick the guest's code stops and this callback runs.
    store.set_epoch_deadline(1);
    store.epoch_deadline_callback(|state| match state.data().control.stop_reason() {
        Some(reason) => Err(Error::new(reason)),
        None => Ok(UpdateDeadline::Continue(1)),
    });
    store
}

fn call_start(store: &mut Store<GuestState>, instance: &Instance) -> wasmtime::Result<()> {
    let start = instance.get_typed_func::<(), ()>(&mut *store, "_start")?;
    match start.call(&mut *store, ()) {
        // `proc_exit(0)` ends a call normally as well.
        Err(error) if matches!(error.downcast_ref::<I32Exit>(), Some(I32Exit(0))) => Ok(()),
        other => other,
    }
}

/// Maps an error to the guest's fault, if the error is one.
fn classify_fault(error: &Error, state: &GuestState, job: &WorkerJob) -> Option<GuestFault> {
    if let Some(reason) = error.downcast_ref::<CallStop>() {
        return Some(match reason {
            CallStop::Deadline => GuestFault::Timeout { limit: job.time_limit },
            CallStop::Cancelled => GuestFault::Cancelled,
        });
    }
    if let Some(fault) = error.downcast_ref::<GuestFault>() {
        return Some(fault.clone());
    }
    if let Some(I32Exit(code)) = error.downcast_ref::<I32Exit>() {
        return Some(limit_fault_or(GuestFault::ExitCode { code: *code }, &state.limiter));
    }
    match error.downcast_ref::<Trap>() {
        Some(Trap::StackOverflow) => Some(GuestFault::StackOverflow),
        Some(trap) => Some(limit_fault_or(GuestFault::Trap { reason: trap.to_string() }, &state.limiter)),
        None if state.limiter.refused().is_some() => {
            Some(limit_fault_or(GuestFault::NoFinalFrame, &state.limiter))
        }
        None => None,
    }
}

/// Reports all other errors as a trap: no entry point, no memory, or unusable arguments of a host function,
/// such as an out-of-bounds pointer.
fn misuse(error: &Error, state: &GuestState) -> GuestFault {
    tracing::debug!(error = format!("{error:#}"), "a guest misused its host");
    limit_fault_or(
        GuestFault::Trap { reason: "it misused a function of its host".to_owned() },
        &state.limiter,
    )
}

/// Attributes a failure to an allocation that was refused earlier. Depending on its language, the guest
/// then aborts, traps or exits with a code.
fn limit_fault_or(fault: GuestFault, limiter: &Limiter) -> GuestFault {
    match limiter.refused() {
        Some(LimitRefusal::Memory) => GuestFault::MemoryLimit { limit_bytes: limiter.limit_bytes() },
        Some(LimitRefusal::Table) => GuestFault::TableLimit,
        None => fault,
    }
}

fn thread_cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(
        u64::try_from(time.tv_sec).unwrap_or_default(),
        u32::try_from(time.tv_nsec).unwrap_or_default(),
    )
}
