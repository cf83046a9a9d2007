//! The process that compiles a foreign module. Confined like a worker without mounts, it reads the module
//! from its standard input and writes native code to its standard output. Its parent sets its limits.

use std::{
    error::Error,
    ffi::{OsStr, OsString},
    io::{self, Read, Write},
    path::Path,
    process::ExitCode,
};

use portcullis_confine::{Canary, Requirement, ThreadConfinement, confine_current_thread};

use super::{MAX_MODULE_BYTES, engine, module::check_size};

/// The first argument that selects this role of the program.
pub(super) const VERB: &str = "compile-module-from-stdin";

/// First byte of an answer with native code.
pub(super) const COMPILED: u8 = b'+';

/// First byte of an answer with the reason of a failure.
pub(super) const REFUSED: u8 = b'-';

const REQUIRED: &str = "required";
const WAIVED: &str = "waived";

/// The arguments after [`VERB`].
pub(super) fn arguments(state: &Path, landlock: Requirement, seccomp: Requirement) -> Vec<OsString> {
    let word = |requirement| match requirement {
        Requirement::Required => REQUIRED.into(),
        Requirement::Waived => WAIVED.into(),
    };
    vec![state.into(), word(landlock), word(seccomp)]
}

/// Whether the program was started to compile a module. It must then call [`compile_from_stdin`] with the
/// same arguments and exit.
#[must_use]
pub fn is_compiler(args: &[OsString]) -> bool {
    args.get(1).is_some_and(|verb| verb == VERB)
}

/// Compiles the module on standard input, for the parent process.
///
/// Before it reads a byte it confines the calling thread permanently, by the layers that the arguments
/// demand.
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
        network: None,
        canary: Canary::create(Path::new(state))?,
    };
    let proven = confine_current_thread(&rules)?;
    let mut wasm = Vec::new();
    io::stdin().lock().take(MAX_MODULE_BYTES as u64 + 1).read_to_end(&mut wasm)?;
    check_size(&wasm)?;
    proven.reprove()?;
    // The alternate form of the engine's error includes its causes.
    engine.precompile_module(&wasm).map_err(|error| format!("{error:#}").into())
}

fn requirement(word: &OsStr) -> Result<Requirement, Box<dyn Error>> {
    match word.to_str() {
        Some(REQUIRED) => Ok(Requirement::Required),
        Some(WAIVED) => Ok(Requirement::Waived),
        _ => Err("a layer is neither required nor waived".into()),
    }
}
