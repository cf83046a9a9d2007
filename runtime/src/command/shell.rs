//! `portcullis shell`: runs a person's commands where a model's would run, through the same pipeline.

mod under_way;

use std::{
    io::{self, BufRead as _, IsTerminal as _},
    process::ExitCode,
    sync::{Arc, Mutex, PoisonError},
};

use portcullis_tools::{Caller, ToolRegistry, ToolResult, approval::ApproveAll, new_call, shell::SHELL_EXEC};
use portcullis_types::{CancellationToken, RunnerBootstrapEnvelope, ToolOutput};
use serde_json::{Value, json};

use self::under_way::{PROMPT, UnderWay};
use super::{
    call,
    interrupts::{INTERRUPTED, run_interruptibly},
};
use crate::{
    cli::{CLI_ID, CommonOptions, ShellCommandOptions},
    error::CliError,
    output::{stream, text},
    setup, sidecar,
};

/// The run of a person's commands, which marks them in the audit log.
const RUN: &str = "shell";

/// The offset of a signal's number in an exit code, as in shells.
const SIGNALLED: i64 = 128;

/// Runs the command, or standard input line by line.
pub(crate) fn run(common: &CommonOptions, options: ShellCommandOptions) -> Result<ExitCode, CliError> {
    let envelope = setup::envelope(common)?;
    let place = sidecar::shell_source(common);
    let under_way = UnderWay::default();
    let code = run_interruptibly(&under_way.clone(), move || {
        let runtime = setup::runtime()?;
        let code = runtime.block_on(async {
            let registry = setup::registry(&envelope, place).await?;
            if options.command.is_empty() {
                return by_line(&registry, &envelope, &under_way).await;
            }
            let stdin = call::stdin_unless_terminal()?;
            let Some(cancel) = under_way.command() else { return Ok(INTERRUPTED) };
            Ok(end(&exec(&registry, &cancel, &options.command.join(" "), stdin).await?))
        });
        runtime.shutdown_background();
        code
    })?;
    Ok(ExitCode::from(code.unwrap_or(INTERRUPTED)))
}

/// The first error of writing a command's output.
type FirstWriteError = Arc<Mutex<Option<CliError>>>;

/// The caller of the commands. It approves of all: the person has typed them.
fn caller(cancel: CancellationToken, unwritten: &FirstWriteError) -> Caller {
    let mut caller = Caller::new(CLI_ID, RUN);
    caller.cancel = cancel;
    caller.approver = Some(Arc::new(ApproveAll));
    let unwritten = Arc::clone(unwritten);
    caller.on_update = Some(Arc::new(move |partial: ToolOutput| {
        let shown = text::of_content(&partial.content);
        let written = if stream::stdout_is_terminal() {
            stream::answer(&text::for_terminal(&shown))
        } else {
            stream::answer(&shown)
        };
        // The command goes on: its effects cannot be taken back. The first error is reported after its end.
        if let Err(error) = written {
            unwritten.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        }
    }));
    caller
}

/// Runs standard input line by line, until its end. At a terminal, a cancelled command does not end the
/// session; a list of commands ends with a cancelled one.
async fn by_line(
    registry: &ToolRegistry,
    envelope: &RunnerBootstrapEnvelope,
    under_way: &UnderWay,
) -> Result<u8, CliError> {
    let prompts = io::stdin().is_terminal();
    if prompts {
        let workspace = text::inline(&envelope.workspace.display().to_string());
        stream::write_stderr(&format!("what a model's commands see of {workspace}; Ctrl-D ends it\n"));
    }
    let mut last = 0;
    loop {
        if !under_way.next(prompts) {
            return Ok(interrupted(last));
        }
        if prompts {
            stream::write_stderr(PROMPT);
        }
        let mut line = String::new();
        let read =
            io::stdin().lock().read_line(&mut line).map_err(|source| CliError::Arguments { source })?;
        if read == 0 {
            return Ok(last);
        }
        if line.trim().is_empty() {
            continue;
        }
        let Some(cancel) = under_way.command() else { return Ok(interrupted(last)) };
        last = end(&exec(registry, &cancel, line.trim_end_matches('\n'), String::new()).await?);
        if cancel.is_cancelled() && !prompts {
            return Ok(interrupted(last));
        }
    }
}

/// The exit code of a list that did not run to its end: never 0.
fn interrupted(last: u8) -> u8 {
    if last == 0 { INTERRUPTED } else { last }
}

/// Runs one command. Its output, and that of earlier background jobs, has been shown when it returns.
///
/// # Errors
/// Output that could not be written; the command has run.
async fn exec(
    registry: &ToolRegistry,
    cancel: &CancellationToken,
    command: &str,
    stdin: String,
) -> Result<ToolResult, CliError> {
    let arguments = json!({ "command": command, "stdin": stdin });
    let unwritten = FirstWriteError::default();
    let caller = caller(cancel.clone(), &unwritten);
    let result = registry.execute_with_policy(new_call(SHELL_EXEC, arguments.to_string()), &caller).await;
    let lost = unwritten.lock().unwrap_or_else(PoisonError::into_inner).take();
    lost.map_or(Ok(result), Err)
}

/// The exit code of this process for the command's end.
fn end(result: &ToolResult) -> u8 {
    match &result.outcome {
        Ok(_) => {
            for note in result.details["notes"].as_array().into_iter().flatten().filter_map(Value::as_str) {
                stream::write_stderr(&format!("[{}]\n", text::inline(note)));
            }
            code(&result.details)
        }
        Err(error) => {
            stream::write_stderr(&format!("{}\n", error.for_model()));
            error.kind().exit_code()
        }
    }
}

fn code(details: &Value) -> u8 {
    let code = details["exit_code"].as_i64();
    let code = code.or_else(|| details["signal"].as_i64().map(|signal| SIGNALLED + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exit_code_is_the_commands() {
        assert_eq!(code(&json!({"exit_code": 0})), 0);
        assert_eq!(code(&json!({"exit_code": 7})), 7);
        assert_eq!(code(&json!({"signal": 9})), 137);
    }
}
