//! `portcullis tool test`: runs a crate's tests, whose cases call the tool natively and in the sandbox.

use std::{env, ffi::OsString, fs::File, path::Path, process::ExitCode};

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

/// The name of the state folder, in the target folder.
const TEST_FOLDER: &str = "portcullis-test";

/// Builds the modules and runs the tests.
pub(crate) fn run(_common: &CommonOptions, options: &TestOptions) -> Result<ExitCode, CliError> {
    let package = ToolCrate::find(&options.package.dir)?;
    let modules = package.modules()?;
    let state = package.target_folder().join(TEST_FOLDER);
    let start_failure = |source| CliError::Start { source };
    let program = env::current_exe().map_err(start_failure)?;
    let modules = env::join_paths(modules).map_err(|error| start_failure(std::io::Error::other(error)))?;
    let variables: [(&str, OsString); 3] =
        [(PROGRAM, program.into()), (MODULES, modules), (STATE, state.clone().into())];
    let _turn = take_turn(package.target_folder()).map_err(start_failure)?;
    // The log may contain calls of earlier tests, so only the difference counts.
    let earlier_calls = count_calls(&state);
    if !package.test(variables)? {
        return Err(AuthorError::Tests.into());
    }
    match count_calls(&state) - earlier_calls {
        0 => Err(AuthorError::NoCase.into()),
        calls => {
            stream::write_output(&format!("passed; {calls} calls were made in the sandbox as well\n"))?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// Waits until no other `tool test` runs in a target folder, which crates can share: the calls of all of them
/// are counted in one log. Dropping the file ends the turn.
fn take_turn(target: &Path) -> std::io::Result<File> {
    std::fs::create_dir_all(target)?;
    let lock = File::create(target.join(format!("{TEST_FOLDER}.lock")))?;
    lock.lock()?;
    Ok(lock)
}

/// Counts the finished calls in the audit log of the tests' state.
fn count_calls(state: &Path) -> usize {
    let is_call_end = |row: &audit::Row| row.event == audit::RowEvent::End;
    audit::rows(&audit::log_path(state)).filter_map(Result::ok).filter(is_call_end).count()
}
