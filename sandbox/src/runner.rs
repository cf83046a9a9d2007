//! [`HostWasmToolRunner`]: the entry point for all guest calls.

use std::{
    collections::HashMap,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use portcullis_confine::{CanaryFile, Layer, Posture, Requirement, ThreadConfinement, interrupt};
use portcullis_policy::{GrantedMount, HiddenNames, ProtectedKinds, ProtectedPaths};
use portcullis_types::{CancellationToken, Declarations, FinalFrame, HTTP_IMPORT, LOCK_IMPORT};
use tokio::sync::{mpsc, oneshot};
use wasmtime::{Engine, Linker, Module};

use super::{
    EmbeddedModule, GuestModule, GuestReport, HttpOperationSender, ModuleDigest, TransferEndpoint, WasmError,
    cache::ModuleCache,
    compiler::{CompileLimits, Compiler},
    control::{CallControl, CallResource},
    declarations, engine,
    fs::Preopen,
    guest::{GuestPreopens, GuestState},
    http,
    listener::{LISTENER_CAPACITY, Listener, StreamFrame},
    locks::{self, CallLocks},
    module::{self, LinkedModule},
    path_locks::PathLocks,
    pool::{self, MAX_STUCK, WorkerPool},
    preview1,
    protection::Protection,
    ticker::Ticker,
    worker::{GuestRequest, WorkerJob, WorkerSetup, mount_rule},
};
use crate::{before_change::BeforeChangeFn, mount_use::MountUse, mounts::MountTable};

/// The grace period of a call's thread after the deadline or the cancellation: 1 s. Then the thread is
/// written off. On a busy machine a thread can wait long for a processor, and a thread can hang in the
/// kernel indefinitely.
pub(super) const STOP_GRACE: Duration = Duration::from_secs(1);

/// How long a caller polls for its answer before it sleeps: 250 µs, slightly longer than a short call takes
/// on a slow machine. A wake-up costs up to 60 µs, as much as the call itself, and more if the processor
/// sleeps too.
const CALLER_SPIN: Duration = Duration::from_micros(250);

/// The limits of a `describe`: 5 s, and 64 MiB of memory.
const DESCRIBE_TIMEOUT: Duration = Duration::from_secs(5);
const DESCRIBE_MEMORY_BYTES: usize = 64 << 20;

/// The configuration of a runner.
#[derive(Debug)]
pub struct RunnerConfig {
    /// The state folder, which holds the canary.
    pub state: PathBuf,
    /// The folder that holds the module cache. Runners of several state folders may share it.
    pub cache: PathBuf,
    /// The mounts that grants can name.
    pub mounts: Arc<MountTable>,
    /// The paths that no guest may write.
    pub protected: Arc<ProtectedPaths>,
    /// The names that no guest sees.
    pub hidden: Arc<HiddenNames>,
    /// Whether Landlock must confine each worker.
    pub landlock: Requirement,
    /// Whether seccomp must confine each worker.
    pub seccomp: Requirement,
    /// The maximum number of calls that run concurrently.
    pub concurrency: usize,
    /// The `portcullis` program that compiles foreign modules. Without it, only foreign modules that are
    /// already in the cache can be loaded.
    pub compiler: Option<PathBuf>,
    /// The limits of the compilation of a foreign module.
    pub compile_limits: CompileLimits,
}

/// Runs guests of any module. Each call has a fresh store, on a thread that is confined to the call's mounts.
///
/// The confinement stops logic errors in guests and in the WASI layer. It does not stop native code in this process: an
/// attacker who breaks out of WebAssembly itself controls a thread of this process.
#[derive(Debug)]
pub struct HostWasmToolRunner {
    engine: Engine,
    linker: LinkerBox,
    cache: ModuleCache,
    compiler: Option<Compiler>,
    ticker: Ticker,
    canary: CanaryFile,
    locks: PathLocks,
    pools: Mutex<HashMap<Vec<GrantedMount>, Arc<WorkerPool>>>,
    config: RunnerConfig,
}

/// Wraps the linker, because wasmtime's type does not implement `Debug`.
struct LinkerBox(Linker<GuestState>);

impl std::fmt::Debug for LinkerBox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Linker")
    }
}

/// The description of one call.
#[derive(Debug)]
pub struct GuestJob {
    /// The compiled module to run.
    pub module: Arc<GuestModule>,
    /// The JSON of the call frame.
    pub stdin: Vec<u8>,
    /// All host folders that the guest can see.
    pub mounts: Vec<GrantedMount>,
    /// A mark for each mount, which is set when the guest uses the mount.
    pub mount_use: MountUse,
    /// Saves the states of paths before the guest changes them. Without it no state is saved.
    pub before_change: Option<BeforeChangeFn>,
    /// The protected kinds, if the guest must not write them.
    pub forbidden_kinds: Option<Arc<ProtectedKinds>>,
    /// The maximum size of all memories of the guest together, in bytes.
    pub memory_bytes: usize,
    /// The time limit that messages name.
    pub time_limit: Duration,
    /// The time at which the guest is stopped.
    pub deadline: Instant,
    /// Stops the guest before the deadline.
    pub cancel: CancellationToken,
    /// Held until the guest's thread is free, even if its caller leaves earlier.
    pub call_resource: Option<CallResource>,
    /// Whether the call has an observer for progress and update frames.
    pub is_watched: bool,
    /// The call's end of a transfer, if it takes part in one.
    pub transfer: Option<TransferEndpoint>,
    /// The call's end of the channel for HTTP requests, if its tool declares hosts. Without it, requests are refused.
    pub http: Option<HttpOperationSender>,
}

impl HostWasmToolRunner {
    /// Starts the engine and the ticker, and installs the signal handler that interrupts threads.
    ///
    /// # Errors
    /// [`WasmError`] if one of these steps fails.
    pub fn new(config: RunnerConfig) -> Result<Self, WasmError> {
        interrupt::install_handler()?;
        // Two guests of a call can run at once in its slot, and two modules can describe themselves beside them.
        let slots = config.concurrency.saturating_mul(2).saturating_add(MAX_STUCK + 2);
        let slots = u32::try_from(slots).unwrap_or(u32::MAX);
        let engine = engine::build(slots)?;
        let mut linker = Linker::new(&engine);
        for add in [preview1::add_to_linker, http::add_to_linker, locks::add_to_linker] {
            add(&mut linker).map_err(|source| WasmError::Link { source })?;
        }
        let cache = ModuleCache::open(&config.cache, &engine)?;
        let ticker =
            Ticker::start(engine.clone()).map_err(|source| WasmError::Thread { thread: "ticker", source })?;
        let canary = CanaryFile::create(&config.state)?;
        let compiler = config.compiler.clone().map(|program| {
            Compiler::new(program, config.compile_limits, &config.state, config.landlock, config.seccomp)
        });
        let (linker, locks) = (LinkerBox(linker), PathLocks::new(&config.state));
        Ok(Self { engine, linker, cache, compiler, ticker, canary, locks, pools: Mutex::default(), config })
    }

    /// Wraps a module of this program. Its first call compiles it or loads its code from the cache.
    #[must_use]
    pub fn embedded(module: &'static EmbeddedModule) -> Arc<GuestModule> {
        Arc::new(GuestModule::from_embedded(module))
    }

    /// Loads a trusted module, from the cache if possible.
    ///
    /// # Errors
    /// [`WasmError`] for a module that is too large, invalid, or has imports that guests do not get.
    pub fn load(&self, wasm: &[u8]) -> Result<Arc<GuestModule>, WasmError> {
        let digest = ModuleDigest::compute(wasm);
        let code = self.cache.load_or_compile(&self.engine, wasm, digest)?;
        Ok(Arc::new(GuestModule::linked(digest, &self.linker.0, &code)?))
    }

    /// Loads a foreign module from the cache if possible. Otherwise compiles it in a process with limited
    /// time, limited memory and no files.
    ///
    /// # Errors
    /// As in [`Self::load`], and [`WasmError::CompileLimit`], [`WasmError::Compiler`] or [`WasmError::NoCompiler`].
    ///
    /// # Cancellation
    /// A dropped future kills that process.
    pub async fn load_foreign(&self, wasm: &[u8]) -> Result<Arc<GuestModule>, WasmError> {
        module::check_size(wasm)?;
        let digest = ModuleDigest::compute(wasm);
        if self.cache.contains(digest) {
            return Ok(Arc::new(GuestModule::cached(digest)));
        }
        let code = self.compile_foreign(wasm, digest).await?;
        Ok(Arc::new(GuestModule::linked(digest, &self.linker.0, &code)?))
    }

    /// Compiles a foreign module. A refusal that would recur is stored: otherwise a module that uses up the
    /// time limit would do so at every start.
    async fn compile_foreign(&self, wasm: &[u8], digest: ModuleDigest) -> Result<Module, WasmError> {
        if let Some(reason) = self.cache.load_refusal(digest) {
            return Err(WasmError::RefusedBefore { reason, digest });
        }
        let compiler = self.compiler.as_ref().ok_or(WasmError::NoCompiler)?;
        match compiler.compile(wasm.to_vec()).await {
            Ok(code) => self.cache.adopt(&self.engine, digest, &code),
            Err(error) => {
                match &error {
                    WasmError::Compile { source } => self.cache.store_refusal(digest, &source.to_string()),
                    WasmError::CompileLimit { .. } => self.cache.store_refusal(digest, &error.to_string()),
                    // Other failures may be temporary, so the next start tries again.
                    _ => {}
                }
                Err(error)
            }
        }
    }

    /// Returns the tools that a module declares. The module runs without mounts, with 64 MiB and 5 seconds, unless its
    /// answer is embedded in this program or cached.
    ///
    /// # Errors
    /// [`WasmError::Describe`] if the answer cannot be used, otherwise the reason why the module could not run.
    ///
    /// # Cancellation
    /// A dropped future stops the guest.
    pub async fn describe(&self, module: &Arc<GuestModule>) -> Result<Declarations, WasmError> {
        if let Some(embedded) = module.embedded() {
            return declarations::check(embedded.declarations);
        }
        if let Some(text) = self.cache.load_declarations(module.digest()) {
            return declarations::check(&text);
        }
        let report = self.run_describe(module).await?;
        let stderr_tail = module::stderr_tail(&report.stderr);
        let refuse = |reason: String| WasmError::Describe { reason: format!("{reason}{stderr_tail}") };
        match report.result {
            Ok(FinalFrame::Ok(output)) => {
                let text = output.joined_text();
                let declarations = declarations::check(&text)?;
                ensure_declared(&self.ready(module)?, &declarations)?;
                self.cache.store_declarations(module.digest(), &text);
                Ok(declarations)
            }
            Ok(FinalFrame::Error(error)) => Err(refuse(error.message)),
            Err(fault) => Err(refuse(fault.to_string())),
        }
    }

    /// Returns the confinement of a worker, with evidence. Runs the module as in [`Self::describe`], and
    /// returns the posture of its thread.
    ///
    /// # Errors
    /// [`WasmError`] if no worker could be confined, or if the module could not run.
    ///
    /// # Cancellation
    /// A dropped future stops the guest.
    pub async fn posture(&self, module: &Arc<GuestModule>) -> Result<Posture, WasmError> {
        Ok(self.run_describe(module).await?.posture)
    }

    async fn run_describe(&self, module: &Arc<GuestModule>) -> Result<GuestReport, WasmError> {
        // Load first, so that the compilation does not count towards the module's time limit.
        self.ready(module)?;
        let job = GuestJob {
            module: Arc::clone(module),
            stdin: Vec::new(),
            mounts: Vec::new(),
            mount_use: MountUse::new(0),
            before_change: None,
            forbidden_kinds: None,
            memory_bytes: DESCRIBE_MEMORY_BYTES,
            time_limit: DESCRIBE_TIMEOUT,
            deadline: Instant::now() + DESCRIBE_TIMEOUT,
            cancel: CancellationToken::new(),
            call_resource: None,
            is_watched: false,
            transfer: None,
            http: None,
        };
        self.run_request(GuestRequest::Describe, job, |_| {}).await
    }

    /// Runs one call. `watch` receives progress and update frames as they arrive, in the caller's task.
    ///
    /// # Cancellation
    /// Dropping the future stops the guest, and so does the job's token.
    ///
    /// # Errors
    /// [`WasmError`] if the guest cannot be started or does not end properly. A tool's own error is in the report.
    pub async fn run(&self, job: GuestJob, watch: impl FnMut(StreamFrame)) -> Result<GuestReport, WasmError> {
        self.run_request(GuestRequest::Call, job, watch).await
    }

    async fn run_request(
        &self,
        verb: GuestRequest,
        job: GuestJob,
        mut watch: impl FnMut(StreamFrame),
    ) -> Result<GuestReport, WasmError> {
        let module = self.ready(&job.module)?;
        let pool = self.pool(&job.mounts)?;
        // A guest without mounts opens no file, so it need not wait for the first search.
        let exposed = if job.mounts.is_empty() {
            Arc::default()
        } else {
            self.config.mounts.private_links().exposed().await
        };
        let control = Arc::new(CallControl::new(job.deadline, job.call_resource));
        let _cancel_on_drop = CancelOnDrop(Arc::clone(&control));
        let (sender, mut frames) = mpsc::channel(LISTENER_CAPACITY);
        let dropped = Arc::new(AtomicU64::new(0));
        let locks = module.imports_from(LOCK_IMPORT).then(|| CallLocks::open(&self.locks, &control));
        let (lock_port, call_locks) = locks.unzip();
        let (reply, mut answer) = oneshot::channel();
        pool.submit(WorkerJob {
            module,
            verb,
            stdin: job.stdin,
            memory_bytes: job.memory_bytes,
            time_limit: job.time_limit,
            protection: Protection {
                paths: Arc::clone(&self.config.protected),
                forbidden_kinds: job.forbidden_kinds,
                hidden: Arc::clone(&self.config.hidden),
            },
            exposed_files: exposed,
            mount_use: job.mount_use,
            before_change: job.before_change,
            control: Arc::clone(&control),
            // A clone: `sender` keeps the channel open, so that `frames.recv()` never ends before the call.
            listener: job
                .is_watched
                .then(|| Listener { sender: sender.clone(), dropped_frames: Arc::clone(&dropped) }),
            transfer: job.transfer,
            http: job.http,
            locks: lock_port,
            ticking: self.ticker.watch(Arc::clone(&control)),
            reply,
        })?;
        let report = match early_answer(&pool, &mut answer) {
            Some(report) => report,
            None => {
                let report = await_report(&pool, &control, &job.cancel, answer, &mut frames, &mut watch);
                locks::serving(call_locks, report).await
            }
        };
        drop(sender);
        // Deliver the frames that arrived before the answer.
        while let Ok(frame) = frames.try_recv() {
            watch(frame);
        }
        let dropped = dropped.load(Ordering::Relaxed);
        if dropped > 0 {
            tracing::debug!(dropped, "progress frames dropped behind a slow reader");
        }
        report
    }

    /// Loads a module's code unless it is loaded. This blocks the thread for some milliseconds if the cache
    /// has the code, and for seconds if it must be compiled. A call loads the code within its own time
    /// limit. A program that measures calls loads the code first.
    ///
    /// # Errors
    /// [`WasmError`] if the code cannot be compiled, loaded or linked. The call then fails in the same way.
    pub fn load_code(&self, module: &GuestModule) -> Result<(), WasmError> {
        self.ready(module).map(drop)
    }

    /// Returns the module's code, which is loaded on first use.
    fn ready(&self, module: &GuestModule) -> Result<LinkedModule, WasmError> {
        let ready = module.ready(&self.linker.0, |embedded| match embedded {
            Some(wasm) => self.cache.load_or_compile(&self.engine, wasm, module.digest()),
            None => self.cache.load(&self.engine, module.digest()).ok_or(WasmError::CodeGone),
        });
        ready.cloned()
    }

    /// Returns the pool of a set of mounts, which is created on first use.
    fn pool(&self, mounts: &[GrantedMount]) -> Result<Arc<WorkerPool>, WasmError> {
        let mut pools = self.pools.lock();
        if let Some(pool) = pools.get(mounts) {
            return Ok(Arc::clone(pool));
        }
        let preopens = mounts.iter().map(|mount| match self.config.mounts.get(mount.name.as_str()) {
            Some(handle) => Ok(Preopen { handle: handle.clone(), access: mount.access }),
            None => Err(WasmError::UnknownMount { mount: mount.name.to_string() }),
        });
        let preopens: Arc<[Preopen]> = preopens.collect::<Result<_, _>>()?;
        let confinement = ThreadConfinement {
            landlock: self.config.landlock,
            seccomp: self.config.seccomp,
            mounts: preopens.iter().map(mount_rule).collect(),
            network: None,
            canary: self.canary.clone(),
        };
        let busy = AtomicUsize::new(0);
        let guest_preopens = GuestPreopens::open(&preopens)?;
        let engine = self.engine.clone();
        let setup = WorkerSetup { engine, preopens, guest_preopens, confinement, busy_workers: busy };
        let pool = WorkerPool::new(pool::label(mounts), setup, self.config.concurrency);
        pools.insert(mounts.to_vec(), Arc::clone(&pool));
        Ok(pool)
    }

    /// Returns whether the kernel can report touched pages (`PAGEMAP_SCAN`), which makes clearing memory
    /// cheaper. The first check opens the kernel's interface permanently. A program that makes itself
    /// non-dumpable must call this first, because an ordinary user's process cannot open the interface
    /// afterwards.
    #[must_use]
    pub fn has_pagemap_scan() -> bool {
        wasmtime::PoolingAllocationConfig::is_pagemap_scan_available()
    }

    /// Returns whether a layer must confine every worker.
    #[must_use]
    pub fn requirement(&self, layer: Layer) -> Requirement {
        match layer {
            Layer::Landlock => self.config.landlock,
            Layer::Seccomp => self.config.seccomp,
            _ => Requirement::Waived,
        }
    }
}

/// Polls for the answer of a short call before its caller sleeps. If several calls run, callers do not
/// poll, which leaves the processor to the calls.
fn early_answer(
    pool: &WorkerPool,
    answer: &mut oneshot::Receiver<Result<GuestReport, WasmError>>,
) -> Option<Result<GuestReport, WasmError>> {
    let start = Instant::now();
    while pool.is_uncontended() && start.elapsed() < CALLER_SPIN {
        match answer.try_recv() {
            Ok(report) => return Some(report),
            Err(oneshot::error::TryRecvError::Closed) => return Some(Err(WasmError::WorkerLost)),
            Err(oneshot::error::TryRecvError::Empty) => std::thread::yield_now(),
        }
    }
    None
}

/// Waits for the report and delivers frames. A cancelled call that does not stop is written off.
async fn await_report(
    pool: &WorkerPool,
    control: &Arc<CallControl>,
    cancel: &CancellationToken,
    mut answer: oneshot::Receiver<Result<GuestReport, WasmError>>,
    frames: &mut mpsc::Receiver<StreamFrame>,
    watch: &mut impl FnMut(StreamFrame),
) -> Result<GuestReport, WasmError> {
    let give_up = tokio::time::sleep_until((control.deadline() + STOP_GRACE).into());
    tokio::pin!(give_up);
    let (mut cancelled, mut given_up) = (false, false);
    loop {
        tokio::select! {
            // `biased`: queued frames come before the answer, and the answer wins over a cancellation.
            biased;
            Some(frame) = frames.recv() => watch(frame),
            answer = &mut answer => return answer.map_err(|_cause| WasmError::WorkerLost)?,
            () = cancel.cancelled(), if !cancelled => {
                cancelled = true;
                control.cancel();
                give_up.as_mut().reset((Instant::now() + STOP_GRACE).into());
            }
            () = &mut give_up, if !given_up => {
                if pool.write_off(control) {
                    return Err(WasmError::Stuck);
                }
                // The worker finished first, and its answer is about to arrive.
                given_up = true;
            }
        }
    }
}

/// Refuses a module that imports the functions for HTTP requests but declares no host. It could not use them, and its
/// approval would not show that it makes requests.
fn ensure_declared(module: &LinkedModule, declarations: &Declarations) -> Result<(), WasmError> {
    let declares = declarations.tools.iter().any(|tool| !tool.hosts.is_empty());
    if module.imports_from(HTTP_IMPORT) && !declares {
        return Err(WasmError::Describe {
            reason: format!(
                "it imports `{HTTP_IMPORT}` and declares no host; write `hosts = [\"https://…\"]` in `#[tool]`"
            ),
        });
    }
    Ok(())
}

/// Stops a call when its caller drops it.
struct CancelOnDrop(Arc<CallControl>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}
