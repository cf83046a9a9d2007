//! The process that compiles a foreign module. It is confined like a worker without mounts, reads the
//! module from its standard input, and writes native code to its standard output. Its parent sets its
//! limits.

use std::{
    ffi::{OsStr, OsString},
    io::{self, Read, Write},
    path::Path,
    process::ExitCode,
};

use portcullis_confine::{CanaryFile, ConfineError, Requirement, ThreadConfinement, confine_current_thread};

use super::{MAX_MODULE_BYTES, WasmError, engine, module::check_size};

/// The first argument, which selects this role of the program.
pub(super) const COMPILE_COMMAND: &str = "compile-module-from-stdin";

/// The first byte of an answer with native code.
pub(super) const COMPILED: u8 = b'+';

/// The first byte of an answer with the reason of a failure.
pub(super) const REFUSED: u8 = b'-';

const REQUIRED: &str = "required";
const WAIVED: &str = "waived";

/// Returns the arguments that follow [`COMPILE_COMMAND`].
pub(super) fn arguments(state: &Path, landlock: Requirement, seccomp: Requirement) -> Vec<OsString> {
    let word = |requirement| match requirement {
        Requirement::Required => REQUIRED.into(),
        Requirement::Waived => WAIVED.into(),
    };
    vec![state.into(), word(landlock), word(seccomp)]
}

/// Returns whether the program was started to compile a module. The program must then call
/// [`compile_from_stdin`] with the same
/// arguments, and exit.
#[must_use]
pub fn is_compiler(args: &[OsString]) -> bool {
    args.get(1).is_some_and(|verb| verb == COMPILE_COMMAND)
}

/// Compiles the module on standard input, for the parent process.
///
/// Before the first byte is read, the calling thread is permanently confined by the layers that the arguments require.
#[must_use]
pub fn compile_from_stdin(args: &[OsString]) -> ExitCode {
    let (kind, answer) = match compile(args.get(2..).unwrap_or_default()) {
        Ok(code) => (COMPILED, code),
        Err(error) => (REFUSED, portcullis_types::error_chain(&error).into_bytes()),
    };
    let mut out = io::stdout().lock();
    let result = out.write_all(&[kind]).and_then(|()| out.write_all(&answer)).and_then(|()| out.flush());
    if result.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The reason why the module was not compiled. The parent gets its text.
#[derive(Debug, thiserror::Error)]
enum CompilerChildError {
    #[error("the arguments are not those of a compiler")]
    Arguments,
    #[error("a layer is neither required nor waived")]
    Requirement,
    #[error(transparent)]
    Confine(#[from] ConfineError),
    #[error(transparent)]
    Read(#[from] io::Error),
    #[error(transparent)]
    Module(#[from] WasmError),
    /// The engine's reason, with its causes.
    #[error("{reason}")]
    Compile { reason: String },
}

fn compile(args: &[OsString]) -> Result<Vec<u8>, CompilerChildError> {
    let [state, landlock, seccomp] = args else {
        return Err(CompilerChildError::Arguments);
    };
    let engine = engine::build_for_compiling()?;
    let rules = ThreadConfinement {
        landlock: requirement(landlock)?,
        seccomp: requirement(seccomp)?,
        mounts: Vec::new(),
        network: None,
        canary: CanaryFile::create(Path::new(state))?,
    };
    let proven = confine_current_thread(&rules)?;
    let mut wasm = Vec::new();
    io::stdin().lock().take(MAX_MODULE_BYTES as u64 + 1).read_to_end(&mut wasm)?;
    check_size(&wasm)?;
    // Prove the confinement again, directly before foreign bytes reach the compiler.
    proven.reprove()?;
    // The alternate form of the engine's error includes its causes.
    engine
        .precompile_module(&wasm)
        .map_err(|error| CompilerChildError::Compile { reason: format!("{error:#}") })
}

fn requirement(word: &OsStr) -> Result<Requirement, CompilerChildError> {
    match word.to_str() {
        Some(REQUIRED) => Ok(Requirement::Required),
        Some(WAIVED) => Ok(Requirement::Waived),
        _ => Err(CompilerChildError::Requirement),
    }
}
