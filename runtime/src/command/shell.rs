//! `portcullis shell`: a person's commands where a model's would run, by the same way.

use std::{
    io::{self, BufRead as _, IsTerminal as _},
    process::ExitCode,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use portcullis_tools::{Caller, ToolRegistry, ToolResult, approval::ApproveAll, new_call, shell::SHELL_EXEC};
use portcullis_types::{CancellationToken, RunnerBootstrapEnvelope, ToolErrorKind, ToolOutput};
use serde_json::{Value, json};

use super::{
    call,
    interrupts::{INTERRUPTED, Interrupt, Interruptible, apart},
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

/// What a person reads before a command.
const PROMPT: &str = "portcullis$ ";

/// Runs the command, or one line after the other.
pub(crate) fn run(common: &Common, options: Shell) -> Result<ExitCode, CliError> {
    let envelope = setup::envelope(common)?;
    let place = sidecar::place(common);
    let commands = Commands::default();
    let code = apart(&commands.clone(), move || {
        let runtime = setup::runtime()?;
        let code = runtime.block_on(async {
            let registry = setup::registry(&envelope, place).await?;
            if options.command.is_empty() {
                by_line(&registry, &envelope, &commands).await
            } else {
                let stdin = call::stdin_unless_terminal()?;
                Ok(end(&exec(&registry, &commands, &options.command.join(" "), stdin).await))
            }
        });
        runtime.shutdown_background();
        code
    })?;
    Ok(ExitCode::from(code.unwrap_or(INTERRUPTED)))
}

/// What is under way, for whoever interrupts it.
#[derive(Debug, Clone, Default)]
struct Commands(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    doing: Doing,
    /// Whether the system has asked for the end: no command follows.
    is_over: bool,
}

#[derive(Debug, Default)]
enum Doing {
    /// Nothing that must be put in order.
    #[default]
    Nothing,
    /// A person is asked for a command.
    Asking,
    /// A command, which this cancels.
    Command(CancellationToken),
}

impl Commands {
    fn now(&self, doing: Doing) {
        self.state().doing = doing;
    }

    fn is_over(&self) -> bool {
        self.state().is_over
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Interruptible for Commands {
    /// A command is cancelled. After Ctrl-C the next one may follow; what has been typed of it is forgotten, as
    /// shells do it.
    fn interrupt(&self, interrupt: Interrupt) -> bool {
        let mut state = self.state();
        state.is_over |= interrupt == Interrupt::Terminate;
        match &state.doing {
            Doing::Command(cancel) => cancel.interrupt(interrupt),
            Doing::Asking if interrupt == Interrupt::CtrlC => {
                stream::tell(PROMPT);
                true
            }
            Doing::Asking | Doing::Nothing => false,
        }
    }
}

/// Whoever types a command has approved of it.
fn caller(cancel: CancellationToken) -> Caller {
    let mut caller = Caller::new(CLI_ID, RUN);
    caller.cancel = cancel;
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

/// Reads commands as a person types them, until the end of the input. A list of commands that nobody types ends
/// with the one that is cancelled.
async fn by_line(
    registry: &ToolRegistry,
    envelope: &RunnerBootstrapEnvelope,
    commands: &Commands,
) -> Result<u8, CliError> {
    let prompts = io::stdin().is_terminal();
    if prompts {
        let workspace = text::inline(&envelope.workspace.display().to_string());
        stream::tell(&format!("what a model's commands see of {workspace}; Ctrl-D ends it\n"));
    }
    let mut last = 0;
    loop {
        commands.now(if prompts { Doing::Asking } else { Doing::Nothing });
        if prompts {
            stream::tell(PROMPT);
        }
        let mut line = String::new();
        let read =
            io::stdin().lock().read_line(&mut line).map_err(|source| CliError::Arguments { source })?;
        if read == 0 {
            return Ok(last);
        }
        if !line.trim().is_empty() {
            let result = exec(registry, commands, line.trim_end_matches('\n'), String::new()).await;
            last = end(&result);
            let is_cancelled = result.outcome.is_err_and(|error| error.kind() == ToolErrorKind::Cancelled);
            if (is_cancelled && !prompts) || commands.is_over() {
                return Ok(last);
            }
        }
    }
}

/// Runs one command; its output has been shown when it ends.
async fn exec(registry: &ToolRegistry, commands: &Commands, command: &str, stdin: String) -> ToolResult {
    let cancel = CancellationToken::new();
    let arguments = json!({ "command": command, "stdin": stdin });
    let call = new_call(SHELL_EXEC, arguments.to_string());
    commands.now(Doing::Command(cancel.clone()));
    registry.execute_with_policy(call, &caller(cancel)).await
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
