//! A run in the background: starts this program again, detached from the terminal.

use std::{
    ffi::OsString,
    fs::{DirBuilder, File, OpenOptions},
    io,
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
    time::Duration,
};

use portcullis_runs::{RunId, Runs};
use tokio::runtime::Runtime;

use crate::{error::CliError, output::stream};

/// The variable that names the run for the background process.
const VARIABLE: &str = "PORTCULLIS_BACKGROUND_RUN";

/// The option to remove from the child's arguments.
const OPTION: &str = "--detach";

/// The folder of the background processes' outputs, in the state folder.
const DETACHED_FOLDER: &str = "detached";

/// The interval at which [`start`] checks whether the child has taken the lease.
const LEASE_POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Returns the run of this process, if this is the background process. Such a process leaves the session of
/// its terminal, so that neither Ctrl-C nor a hangup of the terminal reaches it.
pub(super) fn background_run() -> Result<Option<RunId>, CliError> {
    match std::env::var(VARIABLE) {
        Ok(id) => {
            // Ignore the error: a process that already leads a group is not in the terminal's group.
            let _ = rustix::process::setsid();
            Ok(Some(id.parse()?))
        }
        // Without the variable, this is not the background process.
        Err(_) => Ok(None),
    }
}

/// Starts the background process, and waits until it drives the run or has ended. Prints the run's id.
pub(super) fn start(runtime: &Runtime, runs: &Runs, id: &RunId, state: &Path) -> Result<ExitCode, CliError> {
    let failed = |source| CliError::Detach { id: id.clone(), source };
    let log = log_file(state, id);
    let progress = || {
        let run = runtime.block_on(runs.store().run(id.as_str()))?.summary;
        Ok::<_, CliError>((run.version, run.lease.map(|(driver, _)| driver)))
    };
    let before = progress()?;
    let mut child = spawn(id, &log).map_err(failed)?;
    // Another version or driver means that the child has taken over the run.
    while progress()? == before {
        if child.try_wait().map_err(failed)?.is_some() {
            return Err(CliError::Detached { id: id.clone(), log });
        }
        std::thread::sleep(LEASE_POLL_INTERVAL);
    }
    runtime.block_on(runs.store().close());
    stream::write_output(&format!("{id}\n"))?;
    stream::write_stderr(&format!("to follow it: portcullis runs watch {id}\n"));
    Ok(ExitCode::SUCCESS)
}

fn log_file(state: &Path, id: &RunId) -> PathBuf {
    state.join(DETACHED_FOLDER).join(format!("{id}.log"))
}

/// Starts this program with the same options, without a terminal.
#[expect(clippy::disallowed_methods, reason = "this program, with the arguments that the operator gave it")]
fn spawn(id: &RunId, log: &Path) -> io::Result<std::process::Child> {
    let log = open_log(log)?;
    let (program, arguments) = (std::env::current_exe()?, arguments());
    let mut command = Command::new(program);
    command.args(arguments).env(VARIABLE, id.as_str());
    command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).spawn()
}

fn open_log(log: &Path) -> io::Result<File> {
    if let Some(folder) = log.parent() {
        match DirBuilder::new().mode(0o700).create(folder) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
    }
    OpenOptions::new().append(true).create(true).mode(0o600).open(log)
}

/// Returns the arguments of this process without the option. Everything after `--` is kept, so a prompt
/// `--detach` survives.
fn arguments() -> Vec<OsString> {
    let mut arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let end = arguments.iter().position(|argument| argument == "--").unwrap_or(arguments.len());
    if let Some(position) = arguments.iter().take(end).position(|argument| argument == OPTION) {
        arguments.remove(position);
    }
    arguments
}
