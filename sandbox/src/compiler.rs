//! Compiles a foreign module in a separate process with limited time, limited memory and no files.
//!
//! A small module can cost gigabytes or hours to compile, and a bug in the compiler can be triggered by
//! foreign bytes. Neither must happen in this process. The result is native code all the same: the child
//! bounds the cost of compiling, but does not protect against a compiler that writes wrong code.
//!
//! This is the parent's side, which starts the child and waits; the child's side is `compiler_child`.

use std::{
    ffi::OsString,
    io::{self, Read, Write},
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::{Child, ExitStatus, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{self, RecvTimeoutError},
    },
    thread,
    time::{Duration, Instant},
};

use portcullis_confine::Requirement;
use rustix::process::{Pid, Resource, Rlimit, Signal, prlimit};

use super::{
    WasmError,
    compiler_child::{COMPILED, REFUSED, VERB, arguments},
};

/// Limits of compiling one foreign module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompileLimits {
    /// Processor time, in whole seconds. Default: 30 s. The largest module that today's compilers make from
    /// honest code takes a third of it on a slow machine.
    pub cpu_seconds: u64,
    /// Wall-clock time, whatever the load of the machine. Default: 90 s.
    pub wall: Duration,
    /// Address space of the process, including its own program. Default: 2 GiB.
    pub memory_bytes: u64,
}

impl Default for CompileLimits {
    fn default() -> Self {
        Self { cpu_seconds: 30, wall: Duration::from_secs(90), memory_bytes: 2 << 30 }
    }
}

/// Limit of the compiled code that the child returns. Code is a few times the size of its module.
const MAX_CODE_BYTES: u64 = 192 << 20;

/// Limit of the reason that the child returns.
const MAX_REASON_BYTES: usize = 4096;

/// How often the waiting thread checks whether the module is still wanted.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Settings for starting the child.
#[derive(Debug)]
pub(super) struct Compiler {
    program: PathBuf,
    arguments: Vec<OsString>,
    limits: CompileLimits,
}

impl Compiler {
    /// A compiler that runs the `portcullis` program at this path. The child needs the state folder to prove
    /// that it cannot reach it.
    pub(super) fn new(
        program: PathBuf,
        limits: CompileLimits,
        state: &Path,
        landlock: Requirement,
        seccomp: Requirement,
    ) -> Self {
        Self { program, arguments: arguments(state, landlock, seccomp), limits }
    }

    /// Compiles a module.
    ///
    /// # Cancellation
    /// Dropping the future kills the child.
    pub(super) async fn compile(&self, wasm: Vec<u8>) -> Result<Vec<u8>, WasmError> {
        let wanted = Arc::new(AtomicBool::new(true));
        let _gone = GoneOnDrop(Arc::clone(&wanted));
        let child = self.start()?;
        let limits = self.limits;
        tokio::task::spawn_blocking(move || converse(child, &wasm, &limits, &wanted))
            .await
            .map_err(|error| lost("its thread was lost", io::Error::other(error.to_string())))?
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "the one program that is started: this one, to compile what no policy has judged yet"
    )]
    fn start(&self) -> Result<CompilerProcess, WasmError> {
        let child = std::process::Command::new(&self.program)
            .arg(VERB)
            .args(&self.arguments)
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|source| lost("it cannot be started", source))?;
        // From here on the child is killed when this value is dropped.
        let child = CompilerProcess(child);
        limit(&child.0, &self.limits).map_err(|source| lost("it cannot be limited", source))?;
        Ok(child)
    }
}

/// Sets the child's limits from outside, before it gets a byte: they hold whatever its program does.
fn limit(child: &Child, limits: &CompileLimits) -> io::Result<()> {
    let id = i32::try_from(child.id()).map_err(io::Error::other)?;
    let id = Pid::from_raw(id).ok_or_else(|| io::Error::other("the child has no id"))?;
    for (resource, soft, hard) in [
        (Resource::As, limits.memory_bytes, limits.memory_bytes),
        // The soft limit sends SIGXCPU, which tells the reason; the hard limit sends SIGKILL.
        (Resource::Cpu, limits.cpu_seconds, limits.cpu_seconds.saturating_add(1)),
        (Resource::Core, 0, 0),
        (Resource::Fsize, 0, 0),
    ] {
        prlimit(Some(id), resource, Rlimit { current: Some(soft), maximum: Some(hard) })?;
    }
    Ok(())
}

/// Writes the module, reads the answer, and waits for the child's end, all within the time limit.
fn converse(
    mut child: CompilerProcess,
    wasm: &[u8],
    limits: &CompileLimits,
    wanted: &AtomicBool,
) -> Result<Vec<u8>, WasmError> {
    let pipes = child.0.stdin.take().zip(child.0.stdout.take());
    let (mut to, from) = pipes.ok_or_else(|| lost("it has no pipes", io::ErrorKind::BrokenPipe.into()))?;
    let deadline = Instant::now() + limits.wall;
    thread::scope(|scope| {
        let (sender, answers) = mpsc::channel();
        // A child that ends early does not read everything; its answer or its exit status tells why.
        scope.spawn(move || to.write_all(wasm));
        scope.spawn(move || {
            let mut answer = Vec::new();
            let read = from.take(MAX_CODE_BYTES + 2).read_to_end(&mut answer);
            // After a timeout the receiver is gone.
            let _ = sender.send(read.map(|_| answer));
        });
        let answer = loop {
            match answers.recv_timeout(POLL_INTERVAL) {
                Ok(answer) => break answer,
                Err(RecvTimeoutError::Disconnected) => break Err(io::ErrorKind::BrokenPipe.into()),
                Err(RecvTimeoutError::Timeout) if !wanted.load(Ordering::Relaxed) => {
                    child.end();
                    return Err(lost("nobody waits for it any more", io::ErrorKind::Interrupted.into()));
                }
                Err(RecvTimeoutError::Timeout) if Instant::now() < deadline => {}
                Err(RecvTimeoutError::Timeout) => {
                    // Killing the child closes both pipes, and so ends both threads.
                    child.end();
                    return Err(lost("it takes too long", io::ErrorKind::TimedOut.into()));
                }
            }
        };
        let answer = answer.map_err(|source| lost("its answer cannot be read", source))?;
        if answer.len() as u64 > MAX_CODE_BYTES + 1 {
            child.end();
            return Err(WasmError::CompileLimit { limit: format!("{MAX_CODE_BYTES} bytes of code") });
        }
        let status = child.wait().map_err(|source| lost("its end cannot be seen", source))?;
        compile_result(status, answer, limits)
    })
}

/// Derives the result from the child's exit status and its answer.
fn compile_result(
    status: ExitStatus,
    mut answer: Vec<u8>,
    limits: &CompileLimits,
) -> Result<Vec<u8>, WasmError> {
    if let Some(signal) = status.signal() {
        // A failed allocation or an exhausted stack ends a program by one of these signals.
        let out_of_memory = [Signal::ABORT, Signal::SEGV, Signal::BUS].map(Signal::as_raw).contains(&signal);
        return Err(if signal == Signal::XCPU.as_raw() {
            WasmError::CompileLimit { limit: format!("{} s of processor time", limits.cpu_seconds) }
        } else if out_of_memory {
            WasmError::CompileLimit { limit: format!("{} bytes of memory", limits.memory_bytes) }
        } else {
            lost("it was ended", io::Error::other(format!("signal {signal}")))
        });
    }
    match (status.success(), answer.first()) {
        (true, Some(&COMPILED)) => {
            answer.remove(0);
            Ok(answer)
        }
        (true, Some(&REFUSED)) => {
            let reason = answer.get(1..).unwrap_or_default();
            let reason = String::from_utf8_lossy(&reason[..reason.len().min(MAX_REASON_BYTES)]).into_owned();
            Err(WasmError::Compile { source: wasmtime::Error::msg(reason) })
        }
        _ => Err(lost("it ended without an answer", io::Error::other(status.to_string()))),
    }
}

fn lost(what: &'static str, source: io::Error) -> WasmError {
    WasmError::Compiler { what, source }
}

/// A child process that is killed and reaped on drop.
#[derive(Debug)]
struct CompilerProcess(Child);

impl CompilerProcess {
    fn end(&mut self) {
        // A child that has exited already cannot be killed; `wait` reaps it.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }

    fn wait(&mut self) -> io::Result<ExitStatus> {
        self.0.wait()
    }
}

impl Drop for CompilerProcess {
    fn drop(&mut self) {
        self.end();
    }
}

/// Tells the thread that waits for the child that its caller is gone.
struct GoneOnDrop(Arc<AtomicBool>);

impl Drop for GoneOnDrop {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}
