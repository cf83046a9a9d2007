//! Compiles a foreign module in a separate process with limited time, limited memory and no files.
//!
//! A small module can cost gigabytes or hours to compile, and foreign bytes can trigger a bug in the compiler. Neither
//! may happen in this process. The result is still native code: the child bounds the cost of the compilation, but does
//! not protect against a compiler that writes wrong code.
//!
//! This file is the parent's side, which starts the child and waits. `compiler_child` is the child's side.

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
    compiler_child::{COMPILE_COMMAND, COMPILED, REFUSED, arguments},
};

/// The limits of the compilation of one foreign module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompileLimits {
    /// Processor time, in whole seconds. Default: 30 s, three times as long as the largest real module takes on a slow
    /// machine.
    pub cpu_seconds: u64,
    /// Wall-clock time, independent of the machine's load. Default: 90 s.
    pub wall: Duration,
    /// Address space of the process, including its own program, in bytes. Default: 2 GiB.
    pub memory_bytes: u64,
}

impl Default for CompileLimits {
    fn default() -> Self {
        Self { cpu_seconds: 30, wall: Duration::from_secs(90), memory_bytes: 2 << 30 }
    }
}

/// The maximum size of the compiled code that the child returns: 192 MiB. Code is a few times the size of its module.
const MAX_CODE_BYTES: u64 = 192 << 20;

/// The maximum length of the reason that the child returns, in bytes.
const MAX_REASON_BYTES: usize = 4096;

/// The interval at which the waiting thread checks whether the module is still wanted.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// The program and the settings to start the child with.
#[derive(Debug)]
pub(super) struct Compiler {
    program: PathBuf,
    arguments: Vec<OsString>,
    limits: CompileLimits,
}

impl Compiler {
    /// Creates a compiler that runs the `portcullis` program at this path. The child gets the path of the
    /// state folder, so that it can prove that the folder is out of its reach.
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
    /// A dropped future kills the child.
    pub(super) async fn compile(&self, wasm: Vec<u8>) -> Result<Vec<u8>, WasmError> {
        let is_awaited = Arc::new(AtomicBool::new(true));
        let _clear_awaited = ClearOnDrop(Arc::clone(&is_awaited));
        let child = self.start()?;
        let limits = self.limits;
        tokio::task::spawn_blocking(move || exchange(child, &wasm, &limits, &is_awaited))
            .await
            .map_err(|error| compiler_error("its thread was lost", io::Error::other(error.to_string())))?
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "the one program that is started: this one, to compile what no policy has judged yet"
    )]
    fn start(&self) -> Result<CompilerProcess, WasmError> {
        let child = std::process::Command::new(&self.program)
            .arg(COMPILE_COMMAND)
            .args(&self.arguments)
            // The child handles foreign bytes, so it gets no secret from the environment.
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|source| compiler_error("it cannot be started", source))?;
        // Dropping this value kills the child, so every early return below cleans up.
        let child = CompilerProcess(child);
        apply_limits(&child.0, &self.limits)
            .map_err(|source| compiler_error("it cannot be limited", source))?;
        Ok(child)
    }
}

/// Sets the child's limits from outside, before the child gets a byte. The limits therefore do not depend on the
/// child's own code.
fn apply_limits(child: &Child, limits: &CompileLimits) -> io::Result<()> {
    let id = i32::try_from(child.id()).map_err(io::Error::other)?;
    let id = Pid::from_raw(id).ok_or_else(|| io::Error::other("the child has no id"))?;
    for (resource, soft, hard) in [
        (Resource::As, limits.memory_bytes, limits.memory_bytes),
        // The soft limit sends SIGXCPU, which identifies the reason. The hard limit sends SIGKILL.
        (Resource::Cpu, limits.cpu_seconds, limits.cpu_seconds.saturating_add(1)),
        (Resource::Core, 0, 0),
        (Resource::Fsize, 0, 0),
    ] {
        prlimit(Some(id), resource, Rlimit { current: Some(soft), maximum: Some(hard) })?;
    }
    Ok(())
}

/// Writes the module, reads the answer, and waits for the child to exit. The timeout covers all three
/// steps.
fn exchange(
    mut child: CompilerProcess,
    wasm: &[u8],
    limits: &CompileLimits,
    is_awaited: &AtomicBool,
) -> Result<Vec<u8>, WasmError> {
    let pipes = child.0.stdin.take().zip(child.0.stdout.take());
    let (mut child_stdin, child_stdout) =
        pipes.ok_or_else(|| compiler_error("it has no pipes", io::ErrorKind::BrokenPipe.into()))?;
    let deadline = Instant::now() + limits.wall;
    thread::scope(|scope| {
        let (sender, answers) = mpsc::channel();
        // A child that exits early does not read all bytes. A failed write is ignored, because the child's
        // answer or exit status gives the reason.
        scope.spawn(move || child_stdin.write_all(wasm));
        scope.spawn(move || {
            let mut answer = Vec::new();
            // One byte for the kind of the answer, and one to notice code that is too long.
            let read = child_stdout.take(MAX_CODE_BYTES + 2).read_to_end(&mut answer);
            // The receiver is gone after a timeout, so a failed send is ignored.
            let _ = sender.send(read.map(|_| answer));
        });
        let answer = loop {
            match answers.recv_timeout(POLL_INTERVAL) {
                Ok(answer) => break answer,
                Err(RecvTimeoutError::Disconnected) => break Err(io::ErrorKind::BrokenPipe.into()),
                Err(RecvTimeoutError::Timeout) if !is_awaited.load(Ordering::Relaxed) => {
                    child.kill_and_reap();
                    return Err(compiler_error("the call was abandoned", io::ErrorKind::Interrupted.into()));
                }
                Err(RecvTimeoutError::Timeout) if Instant::now() < deadline => {}
                Err(RecvTimeoutError::Timeout) => {
                    // The kill closes both pipes, which ends both threads.
                    child.kill_and_reap();
                    return Err(compiler_error("it takes too long", io::ErrorKind::TimedOut.into()));
                }
            }
        };
        let answer = answer.map_err(|source| compiler_error("its answer cannot be read", source))?;
        if answer.len() as u64 > MAX_CODE_BYTES + 1 {
            child.kill_and_reap();
            return Err(WasmError::CompileLimit { limit: format!("{MAX_CODE_BYTES} bytes of code") });
        }
        let status =
            child.wait().map_err(|source| compiler_error("its exit status cannot be read", source))?;
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
        // A failed allocation or an exhausted stack ends a program with one of these signals.
        let is_out_of_memory =
            [Signal::ABORT, Signal::SEGV, Signal::BUS].map(Signal::as_raw).contains(&signal);
        return Err(if signal == Signal::XCPU.as_raw() {
            WasmError::CompileLimit { limit: format!("{} s of processor time", limits.cpu_seconds) }
        } else if is_out_of_memory {
            WasmError::CompileLimit { limit: format!("{} bytes of memory", limits.memory_bytes) }
        } else {
            compiler_error("it was killed", io::Error::other(format!("signal {signal}")))
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
        _ => Err(compiler_error("it ended without an answer", io::Error::other(status.to_string()))),
    }
}

fn compiler_error(step: &'static str, source: io::Error) -> WasmError {
    WasmError::Compiler { step, source }
}

/// A child process that is killed and reaped on drop.
#[derive(Debug)]
struct CompilerProcess(Child);

impl CompilerProcess {
    fn kill_and_reap(&mut self) {
        // A child that has already exited cannot be killed. `wait` still reaps it.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }

    fn wait(&mut self) -> io::Result<ExitStatus> {
        self.0.wait()
    }
}

impl Drop for CompilerProcess {
    fn drop(&mut self) {
        self.kill_and_reap();
    }
}

/// On drop, tells the thread that waits for the child that the caller is gone.
struct ClearOnDrop(Arc<AtomicBool>);

impl Drop for ClearOnDrop {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}
