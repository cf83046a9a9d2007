//! `portcullis shell`: a person's commands where a model's would run, by the same way.

use std::{
    io::{self, BufRead as _, IsTerminal as _},
    process::ExitCode,
    sync::Arc,
};

use portcullis_tools::{Caller, ToolRegistry, ToolResult, approval::ApproveAll, new_call, shell::SHELL_EXEC};
use portcullis_types::{RunnerBootstrapEnvelope, ToolOutput};
use serde_json::{Value, json};

use super::{
    call,
    interrupts::{INTERRUPTED, apart},
};
use crate::{
    cli::{CLI_ID, Common, Shell},
    error::CliError,
    output::{stream, text},
    setup, sidecar,
};

/// The run of a person's commands, so that the audit log tells them from others.
const RUN: &str = "shell";

/// What an exit by signal adds to the signal's number, as shells have it.
const SIGNALLED: i64 = 128;

/// Runs the command, or one line after the other.
pub(crate) fn run(common: &Common, options: Shell) -> Result<ExitCode, CliError> {
    let envelope = setup::envelope(common)?;
    let place = sidecar::place(common);
    let caller = caller();
    let cancel = caller.cancel.clone();
    let code = apart(&cancel, move || {
        let runtime = setup::runtime()?;
        let code = runtime.block_on(async {
            let registry = setup::registry(&envelope, place).await?;
            if options.command.is_empty() {
                by_line(&registry, &envelope, &caller).await
            } else {
                let stdin = call::stdin_unless_terminal()?;
                exec(&registry, &caller, &options.command.join(" "), stdin).await
            }
        });
        runtime.shutdown_background();
        code
    })?;
    Ok(ExitCode::from(code.unwrap_or(INTERRUPTED)))
}

/// Whoever types a command has approved of it.
fn caller() -> Caller {
    let mut caller = Caller::new(CLI_ID, RUN);
    caller.approver = Some(Arc::new(ApproveAll));
    caller.on_update = Some(Arc::new(|partial: ToolOutput| {
        let shown = text::of_content(&partial.content);
        // Nobody to read it is found out at the end.
        let _ = if stream::stdout_is_terminal() {
            stream::answer(&text::for_terminal(&shown))
        } else {
            stream::answer(&shown)
        };
    }));
    caller
}

/// Reads commands as a person types them, until the end of the input.
async fn by_line(
    registry: &ToolRegistry,
    envelope: &RunnerBootstrapEnvelope,
    caller: &Caller,
) -> Result<u8, CliError> {
    let prompts = io::stdin().is_terminal();
    if prompts {
        let workspace = text::inline(&envelope.workspace.display().to_string());
        stream::tell(&format!("what a model's commands see of {workspace}; Ctrl-D ends it\n"));
    }
    let mut last = 0;
    loop {
        if prompts {
            stream::tell("portcullis$ ");
        }
        let mut line = String::new();
        let read =
            io::stdin().lock().read_line(&mut line).map_err(|source| CliError::Arguments { source })?;
        if read == 0 {
            return Ok(last);
        }
        if !line.trim().is_empty() {
            last = exec(registry, caller, line.trim_end_matches('\n'), String::new()).await?;
        }
    }
}

/// Runs one command; its output has been shown when it ends.
async fn exec(
    registry: &ToolRegistry,
    caller: &Caller,
    command: &str,
    stdin: String,
) -> Result<u8, CliError> {
    let arguments = json!({ "command": command, "stdin": stdin });
    let result = registry.execute_with_policy(new_call(SHELL_EXEC, arguments.to_string()), caller).await;
    Ok(end(&result))
}

/// What the command's end lets this process exit with.
fn end(result: &ToolResult) -> u8 {
    match &result.outcome {
        Ok(_) => code(&result.details),
        Err(error) => {
            stream::tell(&format!("{}\n", error.for_model()));
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
