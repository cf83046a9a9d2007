//! `portcullis shell`: runs a person's commands in the same kind of session and through the same pipeline as
//! a model's commands.

use std::{
    io::{self, BufRead as _, IsTerminal as _},
    process::ExitCode,
    sync::Arc,
};

use parking_lot::Mutex;
use portcullis_tools::{Caller, ToolRegistry, ToolResult, approval::ApproveAll, new_call, shell::SHELL_EXEC};
use portcullis_types::{CancellationToken, RunnerBootstrapEnvelope, ToolOutcome, ToolOutput};
use serde_json::{Value, json};

use super::{
    call,
    interrupts::{INTERRUPTED, run_interruptibly},
    progress::Progress,
};
use crate::{
    cli::{CLI_ID, CommonOptions, ShellCommandOptions},
    error::CliError,
    line_editor::{Input, LineEditor, TerminalMode},
    output::{stream, text},
    setup, sidecar,
};

/// The prompt for the next command.
const PROMPT: &str = "portcullis$ ";

/// The name of the history of typed commands.
const HISTORY: &str = "shell";

/// The run of a person's commands, which marks them in the audit log.
const RUN: &str = "shell";

/// The offset of a signal's number in an exit code, as in shells.
const SIGNALLED: i64 = 128;

/// Runs the command, or standard input line by line.
pub(crate) fn run(common: &CommonOptions, options: ShellCommandOptions) -> Result<ExitCode, CliError> {
    let envelope = setup::envelope(common)?;
    let shell = sidecar::shell_source(common);
    let progress = Progress::default();
    let terminal_mode = TerminalMode::remember();
    let code = run_interruptibly(&progress.clone(), move || {
        let is_interactive = options.command.is_empty() && io::stdin().is_terminal();
        // While a person types, a worker thread of the waiting runtime serves the connections.
        let runtime = if is_interactive { setup::waiting_runtime() } else { setup::runtime() }?;
        let code = runtime.block_on(async {
            let registry = setup::calling_registry(&envelope, shell).await?;
            if is_interactive {
                return exec_typed_lines(&registry, &envelope, &progress).await;
            }
            if options.command.is_empty() {
                return exec_listed_lines(&registry, &progress).await;
            }
            let stdin = call::stdin_unless_terminal()?;
            let Some(cancel) = progress.begin_work() else { return Ok(INTERRUPTED) };
            Ok(report_end(&exec(&registry, &cancel, &options.command.join(" "), stdin).await?))
        });
        runtime.shutdown_background();
        code
    })?;
    if code.is_none() {
        // A second interrupt abandons the line editor while the terminal is in its mode.
        terminal_mode.restore();
    }
    Ok(ExitCode::from(code.unwrap_or(INTERRUPTED)))
}

/// The first error of writing a command's output.
type FirstWriteError = Arc<Mutex<Option<CliError>>>;

/// Builds the caller of the commands. It approves all of them, because the person has typed them.
fn caller(cancel: CancellationToken, write_failure: &FirstWriteError) -> Caller {
    let mut caller = Caller::new(CLI_ID, RUN);
    caller.cancel = cancel;
    caller.approver = Some(Arc::new(ApproveAll));
    let write_failure = Arc::clone(write_failure);
    caller.on_update = Some(Arc::new(move |partial: ToolOutput| {
        let update_text = text::of_content(&partial.content);
        let write_result = if stream::stdout_is_terminal() {
            stream::write_output(&text::for_terminal(&update_text))
        } else {
            stream::write_output(&update_text)
        };
        // The command continues, because its effects cannot be undone. The first error is reported after its
        // end.
        if let Err(error) = write_result {
            write_failure.lock().get_or_insert(error);
        }
    }));
    caller
}

/// Runs the lines that a person types, until Ctrl-D. A cancelled command does not end the session.
async fn exec_typed_lines(
    registry: &ToolRegistry,
    envelope: &RunnerBootstrapEnvelope,
    progress: &Progress,
) -> Result<u8, CliError> {
    let workspace = text::inline(&envelope.workspace.display().to_string());
    stream::write_stderr(&format!("what a model's commands see of {workspace}; Ctrl-D ends it\n"));
    let mut editor = LineEditor::open(&envelope.state, HISTORY)?;
    let mut last_code = 0;
    while progress.begin_next(true) {
        let line = match editor.read(PROMPT)? {
            Input::Line(line) if line.trim().is_empty() => continue,
            Input::Line(line) => line,
            Input::Cleared => continue,
            Input::End => return Ok(last_code),
        };
        let Some(cancel) = progress.begin_work() else { break };
        last_code = report_end(&exec(registry, &cancel, &line, String::new()).await?);
    }
    Ok(interrupted_code(last_code))
}

/// Runs the lines of a file or a pipe, until its end or a cancelled command.
async fn exec_listed_lines(registry: &ToolRegistry, progress: &Progress) -> Result<u8, CliError> {
    let mut last_code = 0;
    while progress.begin_next(false) {
        let mut line = String::new();
        let read =
            io::stdin().lock().read_line(&mut line).map_err(|source| CliError::Arguments { source })?;
        if read == 0 {
            return Ok(last_code);
        }
        if line.trim().is_empty() {
            continue;
        }
        let Some(cancel) = progress.begin_work() else { break };
        last_code = report_end(&exec(registry, &cancel, line.trim_end_matches('\n'), String::new()).await?);
        if cancel.is_cancelled() {
            break;
        }
    }
    Ok(interrupted_code(last_code))
}

/// Returns the exit code of a list of commands that did not run to its end. It is never 0.
fn interrupted_code(last_code: u8) -> u8 {
    if last_code == 0 { INTERRUPTED } else { last_code }
}

/// Runs one command. When this returns, its output and the output of earlier background jobs have been shown.
///
/// # Errors
/// The first error of writing the output. The command has nevertheless run.
async fn exec(
    registry: &ToolRegistry,
    cancel: &CancellationToken,
    command: &str,
    stdin: String,
) -> Result<ToolResult, CliError> {
    let arguments = json!({ "command": command, "stdin": stdin });
    let write_failure = FirstWriteError::default();
    let caller = caller(cancel.clone(), &write_failure);
    let result = registry.execute_with_policy(new_call(SHELL_EXEC, arguments.to_string()), &caller).await;
    let write_error = write_failure.lock().take();
    write_error.map_or(Ok(result), Err)
}

/// Returns the exit code of this process after the command. Also shows the notes on the command's end.
fn report_end(result: &ToolResult) -> u8 {
    match &result.outcome {
        ToolOutcome::Output(_) | ToolOutcome::Pending { .. } => {
            for note in result.details["notes"].as_array().into_iter().flatten().filter_map(Value::as_str) {
                stream::write_stderr(&format!("[{}]\n", text::inline(note)));
            }
            exit_code_of(&result.details)
        }
        ToolOutcome::Error(error) => {
            stream::write_stderr(&format!("{}\n", error.for_model()));
            error.kind().exit_code()
        }
    }
}

fn exit_code_of(details: &Value) -> u8 {
    let code = details["exit_code"].as_i64();
    let code = code.or_else(|| details["signal"].as_i64().map(|signal| SIGNALLED + signal));
    // A code that does not fit into a byte becomes a plain failure, never a success.
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exit_code_is_the_commands() {
        assert_eq!(exit_code_of(&json!({"exit_code": 0})), 0);
        assert_eq!(exit_code_of(&json!({"exit_code": 7})), 7);
        assert_eq!(exit_code_of(&json!({"signal": 9})), 137);
    }
}
