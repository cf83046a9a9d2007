//! `portcullis tasks`: runs the calls in task files.

mod approver;
mod reach;
mod report;
mod runner;

use std::{path::Path, process::ExitCode, sync::Arc};

use portcullis_tasks::{ReportedStatus, TaskProcessor, TaskReport, TaskStates};
use portcullis_types::CancellationToken;

use self::{approver::TaskApprovals, runner::RegistryCallRunner};
use super::interrupts::{INTERRUPTED, run_interruptibly};
use crate::{
    cli::{CommonOptions, RunTasksOptions},
    error::{Cause, CliError},
    output::stream,
    setup, sidecar,
};

/// Runs the calls of a folder's task files.
pub(crate) fn run(common: &CommonOptions, options: RunTasksOptions) -> Result<ExitCode, CliError> {
    let envelope = setup::envelope_with(common, options.modules.clone())?;
    let states = states(&options)?;
    let shell = sidecar::shell_source(common);
    let is_shell_unconfined = matches!(common.shell, crate::cli::ShellOption::Host);
    let cancel = CancellationToken::new();
    let work_cancel = cancel.clone();
    let work = move || {
        let runtime = setup::waiting_runtime()?;
        let result = runtime.block_on(async {
            let registry = Arc::new(setup::calling_registry(&envelope, shell).await?);
            let approvals = approvals(&options, &states, &registry, is_shell_unconfined);
            let runner = Arc::new(RegistryCallRunner::new(registry, approvals, work_cancel.clone()));
            let processor = TaskProcessor::open(&options.folder, states, runner)?;
            process(&processor, &options, &work_cancel).await
        });
        // Do not wait for a native tool that blocks its thread.
        runtime.shutdown_background();
        result
    };
    Ok(run_interruptibly(&cancel, work)?.unwrap_or_else(|| ExitCode::from(INTERRUPTED)))
}

async fn process(
    processor: &TaskProcessor,
    options: &RunTasksOptions,
    cancel: &CancellationToken,
) -> Result<ExitCode, CliError> {
    let mut has_failed = false;
    let mut unwritten = None;
    let mut show = |report: &TaskReport| {
        has_failed |= report.error.is_some()
            || report.calls.iter().any(|call| matches!(call.status, ReportedStatus::Failed { .. }));
        if let Err(error) = report::write(report, options.json) {
            unwritten.get_or_insert(error);
        }
    };
    if options.watch {
        processor.watch(cancel, |report| show(&report)).await?;
    } else {
        processor.run_once(cancel).await?.iter().for_each(show);
    }
    match unwritten {
        Some(error) => Err(error),
        None if cancel.is_cancelled() => Ok(ExitCode::from(INTERRUPTED)),
        None if has_failed => Ok(ExitCode::FAILURE),
        None => Ok(ExitCode::SUCCESS),
    }
}

/// Reads the states from the operator's file. A file inside the folder of tasks is refused: a writer of tasks
/// could otherwise decide which tasks count as approved.
fn states(options: &RunTasksOptions) -> Result<TaskStates, CliError> {
    let Some(file) = &options.states else { return Ok(TaskStates::default()) };
    let failed = |source: Cause| CliError::TaskStates { file: file.clone(), source };
    let real = |path: &Path| setup::real_path(path).map_err(|error| failed(error.into()));
    if real(file)?.starts_with(real(&options.folder)?) {
        return Err(failed("it is in the folder of tasks, where others may write; move it elsewhere".into()));
    }
    let text = std::fs::read_to_string(file).map_err(|error| failed(error.into()))?;
    TaskStates::parse(&text).map_err(|error| failed(error.into()))
}

/// Decides how calls are approved. The folder of approved tasks counts only if no tool can move a file there.
fn approvals(
    options: &RunTasksOptions,
    states: &TaskStates,
    registry: &portcullis_tools::ToolRegistry,
    is_shell_unconfined: bool,
) -> TaskApprovals {
    if options.approve {
        return TaskApprovals::All;
    }
    let folders = [states.pending_approval(), states.approved()].map(|state| options.folder.join(state));
    match reach::writable(registry, &folders, is_shell_unconfined) {
        None => TaskApprovals::Folder,
        Some(reason) => {
            stream::write_stderr(&format!(
                "warning: moving a task to `{}` approves nothing, because {reason}\n",
                states.approved()
            ));
            TaskApprovals::Nothing
        }
    }
}
