//! The process that compiles a stranger's module: confined like a worker without mounts, it reads the module
//! from its standard input and writes native code to its standard output. Its limits are set by whoever
//! started it.

use std::{
    error::Error,
    ffi::{OsStr, OsString},
    io::{self, Read, Write},
    path::Path,
    process::ExitCode,
};

use portcullis_confine::{Canary, Requirement, ThreadConfinement, confine_current_thread};

use super::{MAX_MODULE_BYTES, engine, module::check_size};

/// The first argument of a process that is to do this and nothing else.
pub(super) const VERB: &str = "compile-module-from-stdin";

/// What an answer begins with that is native code.
pub(super) const COMPILED: u8 = b'+';

/// What an answer begins with that says why there is none.
pub(super) const REFUSED: u8 = b'-';

const REQUIRED: &str = "required";
const WAIVED: &str = "waived";

/// The arguments behind [`VERB`].
pub(super) fn arguments(state: &Path, landlock: Requirement, seccomp: Requirement) -> Vec<OsString> {
    let word = |requirement| match requirement {
        Requirement::Required => REQUIRED.into(),
        Requirement::Waived => WAIVED.into(),
    };
    vec![state.into(), word(landlock), word(seccomp)]
}

/// Whether a program was started to compile a module. It must then call [`compile_from_stdin`] with the same
/// arguments and end.
#[must_use]
pub fn is_compiler(args: &[OsString]) -> bool {
    args.get(1).is_some_and(|verb| verb == VERB)
}

/// Compiles the module on the standard input, for the process that started this one.
///
/// The calling thread is confined for good before a byte is read, by the layers that the arguments demand.
#[must_use]
pub fn compile_from_stdin(args: &[OsString]) -> ExitCode {
    let (kind, answer) = match compile(args.get(2..).unwrap_or_default()) {
        Ok(code) => (COMPILED, code),
        Err(error) => (REFUSED, portcullis_types::chain(&*error).into_bytes()),
    };
    let mut out = io::stdout().lock();
    let written = out.write_all(&[kind]).and_then(|()| out.write_all(&answer)).and_then(|()| out.flush());
    if written.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn compile(args: &[OsString]) -> Result<Vec<u8>, Box<dyn Error>> {
    let [state, landlock, seccomp] = args else {
        return Err("the arguments are not those of a compiler".into());
    };
    let engine = engine::for_compiling()?;
    let rules = ThreadConfinement {
        landlock: requirement(landlock)?,
        seccomp: requirement(seccomp)?,
        mounts: Vec::new(),
        canary: Canary::create(Path::new(state))?,
    };
    let proven = confine_current_thread(&rules)?;
    let mut wasm = Vec::new();
    io::stdin().lock().take(MAX_MODULE_BYTES as u64 + 1).read_to_end(&mut wasm)?;
    check_size(&wasm)?;
    proven.reprove()?;
    // The alternate form that the engine's error has for people prints its causes too.
    engine.precompile_module(&wasm).map_err(|error| format!("{error:#}").into())
}

fn requirement(word: &OsStr) -> Result<Requirement, Box<dyn Error>> {
    match word.to_str() {
        Some(REQUIRED) => Ok(Requirement::Required),
        Some(WAIVED) => Ok(Requirement::Waived),
        _ => Err("a layer is neither required nor waived".into()),
    }
}
