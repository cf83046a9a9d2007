//! [`HostWasmToolRunner`]: the way in for everything that runs as a guest.

use std::{
    collections::HashMap,
    path::PathBuf,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use portcullis_confine::{Canary, Layer, Posture, Requirement, ThreadConfinement, interrupt};
use portcullis_policy::{GrantedMount, ProtectedPaths};
use portcullis_types::{CancellationToken, Declarations, FinalFrame, ToolOutput};
use tokio::sync::{mpsc, oneshot};
use wasmtime::{Engine, Linker, Module};

use super::control::Held;
use super::{
    GuestModule, GuestReport, ModuleDigest, TransferEnd, WasmError,
    cache::ModuleCache,
    compiler::{CompileLimits, Compiler},
    control::CallControl,
    declarations, engine,
    fs::Preopen,
    guest::{GuestPreopens, GuestState},
    module::{self, LinkedModule},
    pool::{MAX_STUCK, Pool},
    preview1,
    ticker::Ticker,
    worker::{Job, Verb, WorkerSetup, mount_rule},
};
use crate::mounts::MountTable;

/// Progress and update frames that wait for their reader; beyond, the oldest news is not worth waiting for
/// and the newest is dropped and counted.
const LISTENER_CAPACITY: usize = 32;

/// How long after its deadline or cancellation a call's thread may take to stop before it is written off.
/// A thread of a busy machine may wait long for a processor; one that hangs in the kernel waits for good.
const STOP_GRACE: Duration = Duration::from_secs(1);

/// How long a caller looks for its answer before it gives its thread to others: a little more than a short
/// call takes on a slow machine. Being woken costs up to 60 µs, and more where the processor itself sleeps: as
/// much again as the call.
const CALLER_SPIN: Duration = Duration::from_micros(250);

/// What `describe` may take and use.
const DESCRIBE_TIME: Duration = Duration::from_secs(5);
const DESCRIBE_MEMORY_BYTES: usize = 64 << 20;

/// What a runner is made from.
#[derive(Debug)]
pub struct RunnerConfig {
    /// The state folder, for the module cache and the canary.
    pub state: PathBuf,
    /// The mounts that grants may name.
    pub mounts: Arc<MountTable>,
    /// Paths that no guest writes.
    pub protected: Arc<ProtectedPaths>,
    /// Whether each worker must be held by Landlock.
    pub landlock: Requirement,
    /// Whether each worker must be held by seccomp.
    pub seccomp: Requirement,
    /// Calls at a time.
    pub concurrency: usize,
    /// The `portcullis` program that compiles modules from outside; none means that only those are loaded
    /// that were compiled before.
    pub compiler: Option<PathBuf>,
    /// What compiling one of them may take.
    pub compile_limits: CompileLimits,
}

/// Runs guests of any module, each call in a fresh store on a thread that the kernel confines to exactly
/// the call's mounts.
///
/// It stops logic errors in guests and in the WASI layer. It does not stop native code that runs in this
/// process: whoever breaks out of WebAssembly itself is in a thread of ours.
#[derive(Debug)]
pub struct HostWasmToolRunner {
    engine: Engine,
    linker: LinkerBox,
    cache: ModuleCache,
    compiler: Option<Compiler>,
    ticker: Ticker,
    canary: Canary,
    pools: Mutex<HashMap<Vec<GrantedMount>, Arc<Pool>>>,
    config: RunnerConfig,
}

/// The linker, which has no `Debug` of its own.
struct LinkerBox(Linker<GuestState>);

impl std::fmt::Debug for LinkerBox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Linker")
    }
}

/// A frame for whoever watches a call.
#[derive(Debug)]
pub enum StreamFrame {
    /// How far the guest has come, in its own words.
    Progress(String),
    /// A part of its result.
    Update(ToolOutput),
}

/// The sending end of a call's progress and update frames.
#[derive(Debug)]
pub struct Listener {
    sender: mpsc::Sender<StreamFrame>,
    dropped: Arc<AtomicU64>,
}

impl Listener {
    pub(super) fn send(&self, frame: StreamFrame) {
        if self.sender.try_send(frame).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// One call, as the runner needs it.
#[derive(Debug)]
pub struct GuestJob {
    /// The guest.
    pub module: Arc<GuestModule>,
    /// The call frame's JSON.
    pub stdin: Vec<u8>,
    /// All that the guest sees of the host's files.
    pub mounts: Vec<GrantedMount>,
    /// The most that its memories may have together, in bytes.
    pub memory_bytes: usize,
    /// The time that its caller granted, for messages.
    pub time_limit: Duration,
    /// When it is stopped.
    pub deadline: Instant,
    /// Stops it earlier.
    pub cancel: CancellationToken,
    /// Held until the guest's thread is free, however early its caller goes.
    pub held: Option<Held>,
    /// Whether anybody watches progress and update frames.
    pub is_watched: bool,
    /// Which end of a transfer the call is, if it is one.
    pub transfer: Option<TransferEnd>,
}

impl HostWasmToolRunner {
    /// Starts the engine, the ticker and the interruption of threads. No worker is started yet.
    ///
    /// # Errors
    /// [`WasmError`] when one of them cannot be had.
    pub fn new(config: RunnerConfig) -> Result<Self, WasmError> {
        interrupt::install_handler()?;
        // A call may be two guests at a time, which share its place.
        let slots = config.concurrency.saturating_mul(2).saturating_add(MAX_STUCK + 2);
        let slots = u32::try_from(slots).unwrap_or(u32::MAX);
        let engine = engine::build(slots)?;
        let mut linker = Linker::new(&engine);
        preview1::add_to_linker(&mut linker).map_err(|source| WasmError::Link { source })?;
        let cache = ModuleCache::open(&config.state, &engine)?;
        let ticker =
            Ticker::start(engine.clone()).map_err(|source| WasmError::Thread { what: "ticker", source })?;
        let canary = Canary::create(&config.state)?;
        let compiler = config.compiler.clone().map(|program| {
            Compiler::new(program, config.compile_limits, &config.state, config.landlock, config.seccomp)
        });
        let linker = LinkerBox(linker);
        Ok(Self { engine, linker, cache, compiler, ticker, canary, pools: Mutex::default(), config })
    }

    /// A module that this program carries. It is compiled, or its code loaded, when it is first called.
    #[must_use]
    pub fn embedded(wasm: &'static [u8]) -> Arc<GuestModule> {
        Arc::new(GuestModule::embedded(wasm))
    }

    /// Makes a module of ours ready, from the cache of compiled modules where it is there.
    ///
    /// # Errors
    /// [`WasmError`] for what is too large, no module, or imports what no guest gets.
    pub fn load(&self, wasm: &[u8]) -> Result<Arc<GuestModule>, WasmError> {
        let digest = ModuleDigest::of(wasm);
        let code = self.cache.load(&self.engine, wasm, digest)?;
        Ok(Arc::new(GuestModule::linked(digest, &self.linker.0, &code)?))
    }

    /// Makes a module from outside ready: from the cache where it is there, else compiled in a process that
    /// has little time, little memory and no files.
    ///
    /// # Errors
    /// As [`Self::load`], and [`WasmError::CompileLimit`], [`WasmError::Compiler`] or
    /// [`WasmError::NoCompiler`].
    ///
    /// # Cancellation
    /// Dropping the future ends the process.
    pub async fn load_foreign(&self, wasm: &[u8]) -> Result<Arc<GuestModule>, WasmError> {
        module::check_size(wasm)?;
        let digest = ModuleDigest::of(wasm);
        if self.cache.has(digest) {
            return Ok(Arc::new(GuestModule::cached(digest)));
        }
        let code = self.compile_foreign(wasm, digest).await?;
        Ok(Arc::new(GuestModule::linked(digest, &self.linker.0, &code)?))
    }

    /// A refusal that would be the same again is remembered: otherwise one module that takes all the time
    /// there is would take it at every start.
    async fn compile_foreign(&self, wasm: &[u8], digest: ModuleDigest) -> Result<Module, WasmError> {
        if let Some(reason) = self.cache.refusal(digest) {
            return Err(WasmError::RefusedBefore { reason, digest });
        }
        let compiler = self.compiler.as_ref().ok_or(WasmError::NoCompiler)?;
        match compiler.compile(wasm.to_vec()).await {
            Ok(code) => self.cache.adopt(&self.engine, digest, &code),
            Err(error) => {
                match &error {
                    WasmError::Compile { source } => self.cache.remember_refusal(digest, &source.to_string()),
                    WasmError::CompileLimit { .. } => self.cache.remember_refusal(digest, &error.to_string()),
                    _ => {}
                }
                Err(error)
            }
        }
    }

    /// Asks a module what tools it has. It runs with no mounts, 64 MiB and 5 seconds.
    ///
    /// # Errors
    /// [`WasmError::Describe`] when its answer cannot be used, else why it could not be run.
    ///
    /// # Cancellation
    /// Dropping the future stops the guest.
    pub async fn describe(&self, module: &Arc<GuestModule>) -> Result<Declarations, WasmError> {
        if let Some(text) = self.cache.declarations(module.digest()) {
            return declarations::check(&text);
        }
        let report = self.run_describe(module).await?;
        let said = module::last_words(&report.stderr);
        let refuse = |reason: String| WasmError::Describe { reason: format!("{reason}{said}") };
        match report.result {
            Ok(FinalFrame::Ok(output)) => {
                let text = output.joined_text();
                let declarations = declarations::check(&text)?;
                self.cache.keep_declarations(module.digest(), &text);
                Ok(declarations)
            }
            Ok(FinalFrame::Error(error)) => Err(refuse(error.message)),
            Err(fault) => Err(refuse(fault.to_string())),
        }
    }

    /// What holds a worker, with the evidence: a module is asked to describe itself as in
    /// [`Self::describe`], and the thread that ran it tells.
    ///
    /// # Errors
    /// [`WasmError`] when no worker could be confined, or the module not be run.
    ///
    /// # Cancellation
    /// Dropping the future stops the guest.
    pub async fn posture(&self, module: &Arc<GuestModule>) -> Result<Posture, WasmError> {
        Ok(self.run_describe(module).await?.posture)
    }

    async fn run_describe(&self, module: &Arc<GuestModule>) -> Result<GuestReport, WasmError> {
        // Compiling it is no part of its answer.
        self.ready(module)?;
        let job = GuestJob {
            module: Arc::clone(module),
            stdin: Vec::new(),
            mounts: Vec::new(),
            memory_bytes: DESCRIBE_MEMORY_BYTES,
            time_limit: DESCRIBE_TIME,
            deadline: Instant::now() + DESCRIBE_TIME,
            cancel: CancellationToken::new(),
            held: None,
            is_watched: false,
            transfer: None,
        };
        self.run_verb(Verb::Describe, job, |_| {}).await
    }

    /// Runs one call; `watch` sees progress and update frames as they come, on the caller's side.
    ///
    /// # Cancellation
    /// Dropping the future stops the guest, as does the job's token.
    ///
    /// # Errors
    /// [`WasmError`] where the guest cannot be started or does not come to its end; a tool's own error is in the report.
    pub async fn run(&self, job: GuestJob, watch: impl FnMut(StreamFrame)) -> Result<GuestReport, WasmError> {
        self.run_verb(Verb::Call, job, watch).await
    }

    async fn run_verb(
        &self,
        verb: Verb,
        job: GuestJob,
        mut watch: impl FnMut(StreamFrame),
    ) -> Result<GuestReport, WasmError> {
        let module = self.ready(&job.module)?;
        let pool = self.pool(&job.mounts)?;
        // A guest without mounts opens nothing, and a look at the start would be the answer of the first calls.
        let exposed = match job.mounts.is_empty() {
            true => Arc::default(),
            false => self.config.mounts.private_links().exposed().await,
        };
        let control = Arc::new(CallControl::new(job.deadline, job.held));
        let _stops_with_us = StopOnDrop(Arc::clone(&control));
        let (sender, mut frames) = mpsc::channel(LISTENER_CAPACITY);
        let dropped = Arc::new(AtomicU64::new(0));
        let (reply, mut answer) = oneshot::channel();
        pool.submit(Job {
            module,
            verb,
            stdin: job.stdin,
            memory_bytes: job.memory_bytes,
            time_limit: job.time_limit,
            protected: Arc::clone(&self.config.protected),
            exposed,
            control: Arc::clone(&control),
            // A sender of our own stays open, so that the end of the guest's wakes nobody early.
            listener: job
                .is_watched
                .then(|| Listener { sender: sender.clone(), dropped: Arc::clone(&dropped) }),
            transfer: job.transfer,
            watch: self.ticker.watch(Arc::clone(&control)),
            reply,
        })?;
        let report = match early_answer(&pool, &mut answer) {
            Some(report) => report,
            None => {
                let give_up = tokio::time::sleep_until((control.deadline() + STOP_GRACE).into());
                tokio::pin!(give_up);
                let (mut cancelled, mut given_up) = (false, false);
                loop {
                    tokio::select! {
                        biased;
                        Some(frame) = frames.recv() => watch(frame),
                        answer = &mut answer => break answer.map_err(|_cause| WasmError::WorkerLost)?,
                        () = job.cancel.cancelled(), if !cancelled => {
                            cancelled = true;
                            control.cancel();
                            give_up.as_mut().reset((Instant::now() + STOP_GRACE).into());
                        }
                        () = &mut give_up, if !given_up => {
                            if pool.write_off(&control) {
                                break Err(WasmError::Stuck);
                            }
                            // The answer is on its way.
                            given_up = true;
                        }
                    }
                }
            }
        };
        drop(sender);
        while let Ok(frame) = frames.try_recv() {
            watch(frame);
        }
        let dropped = dropped.load(Ordering::Relaxed);
        if dropped > 0 {
            tracing::debug!(dropped, "progress frames dropped behind a slow reader");
        }
        report
    }

    /// The module's code, loaded on first use: some milliseconds for the first caller of a process.
    fn ready(&self, module: &GuestModule) -> Result<LinkedModule, WasmError> {
        let ready = module.ready(&self.linker.0, |embedded| match embedded {
            Some(wasm) => self.cache.load(&self.engine, wasm, module.digest()),
            None => self.cache.find(&self.engine, module.digest()).ok_or(WasmError::CodeGone),
        });
        ready.cloned()
    }

    /// The pool of a mount set, made on first use.
    fn pool(&self, mounts: &[GrantedMount]) -> Result<Arc<Pool>, WasmError> {
        let mut pools = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
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
            canary: self.canary.clone(),
        };
        let busy = AtomicUsize::new(0);
        let guest_preopens = GuestPreopens::open(&preopens)?;
        let engine = self.engine.clone();
        let setup = WorkerSetup { engine, preopens, guest_preopens, confinement, busy };
        let pool = Pool::new(label(mounts), setup, self.config.concurrency);
        pools.insert(mounts.to_vec(), Arc::clone(&pool));
        Ok(pool)
    }

    /// Whether the kernel tells which pages a call touched, which makes clearing its memory cheaper. What it tells it by
    /// is opened at the first asking, for good: a program that conceals its memory asks before, since an ordinary
    /// user's cannot open it afterwards.
    #[must_use]
    pub fn has_pagemap_scan() -> bool {
        wasmtime::PoolingAllocationConfig::is_pagemap_scan_available()
    }

    /// Whether a layer must hold every worker.
    #[must_use]
    pub fn requirement(&self, layer: Layer) -> Requirement {
        match layer {
            Layer::Landlock => self.config.landlock,
            Layer::Seccomp => self.config.seccomp,
            _ => Requirement::Waived,
        }
    }
}

/// Looks for the answer of a short call before its caller goes to sleep. Where several calls run, the
/// processor is theirs and nobody waits this way.
fn early_answer(
    pool: &Pool,
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

/// A short name for a mount set, such as `shared:w,tmp:w`.
fn label(mounts: &[GrantedMount]) -> String {
    if mounts.is_empty() {
        return "none".to_owned();
    }
    let names = mounts.iter().map(|mount| format!("{}:{}", mount.name, &mount.access.as_str()[..1]));
    names.collect::<Vec<_>>().join(",")
}

/// Stops a call whose caller has gone.
struct StopOnDrop(Arc<CallControl>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}
