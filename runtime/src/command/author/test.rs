//! `portcullis tool test`: runs a crate's tests, whose cases call the tool natively and in the sandbox.

use std::{env, ffi::OsString, path::Path, process::ExitCode};

use portcullis_tools::audit;

use super::cargo::ToolCrate;
use crate::{
    cli::{CommonOptions, TestOptions},
    error::{AuthorError, CliError},
    output::stream,
};

/// The variables that `portcullis_sdk::testing` reads: this program, the modules, and the state folder of the
/// calls.
const PROGRAM: &str = "PORTCULLIS_TRY";
const MODULES: &str = "PORTCULLIS_TRY_MODULES";
const STATE: &str = "PORTCULLIS_TRY_STATE";

/// The name of that state folder, in the target folder.
const FOLDER: &str = "portcullis-test";

/// Builds the modules and runs the tests.
pub(crate) fn run(_common: &CommonOptions, options: &TestOptions) -> Result<ExitCode, CliError> {
    let package = ToolCrate::find(&options.package.dir)?;
    let modules = package.modules()?;
    let state = package.target().join(FOLDER);
    let started = |source| CliError::Start { source };
    let program = env::current_exe().map_err(started)?;
    let modules = env::join_paths(modules).map_err(|error| started(std::io::Error::other(error)))?;
    let variables: [(&str, OsString); 3] =
        [(PROGRAM, program.into()), (MODULES, modules), (STATE, state.clone().into())];
    let before = calls(&state);
    if !package.test(variables)? {
        return Err(AuthorError::Tests.into());
    }
    match calls(&state) - before {
        0 => Err(AuthorError::NoCase.into()),
        calls => {
            stream::answer(&format!("passed; {calls} calls were made in the sandbox as well\n"))?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// The number of finished calls in the audit log of the tests' state.
fn calls(state: &Path) -> usize {
    let ended = |row: &audit::Row| row.event == audit::Event::End;
    audit::rows(&audit::log_path(state)).filter_map(Result::ok).filter(ended).count()
}
