//! `portcullis call`: one call through the pipeline.

use std::{
    io::{self, IsTerminal as _, Read},
    process::ExitCode,
    sync::Arc,
};

use portcullis_tools::{
    Caller, ToolCall, ToolResult,
    approval::{ApproveAll, Approver},
    new_call,
    shell::ShellSource,
};
use portcullis_types::{RunnerBootstrapEnvelope, ToolOutcome};

use super::interrupts::{INTERRUPTED, run_interruptibly};
use crate::{
    cli::{CLI_ID, CallOptions, CommonOptions, StoreOptions},
    error::CliError,
    output::{
        diagnostics::{self, Diagnostics},
        json::{self, CallAnswer},
        stream, text,
    },
    run_store, setup, sidecar,
    terminal_approver::TerminalApprover,
};

/// The pipeline's limit (1 MiB) plus one byte, so that the pipeline refuses longer arguments.
const MAX_STDIN_BYTES: u64 = (1 << 20) + 1;

pub(crate) fn run(common: &CommonOptions, options: CallOptions) -> Result<ExitCode, CliError> {
    let envelope = setup::envelope_with(common, options.modules)?;
    let call = new_call(options.tool, arguments(options.arguments)?);
    let mut caller = caller(options.run, options.approve);
    let stderr = options.stderr.then(|| Diagnostics::attach(&mut caller));
    let run_id = caller.run_id.clone();
    let (shell, cancel) = (sidecar::shell_source(common), caller.cancel.clone());
    let store = options.store;
    let work = move || run_call(&store, &envelope, shell, call, caller);
    match run_interruptibly(&cancel, work)? {
        Some(result) => {
            let stderr = stderr.and_then(|stderr| stderr.text());
            answer(&with_approval_hint(result), stderr.as_deref(), &run_id, options.json)
        }
        None => Ok(ExitCode::from(INTERRUPTED)),
    }
}

/// Makes the call, from the start of the registry to its end. This blocks until the audit row is on disk.
fn run_call(
    store: &StoreOptions,
    envelope: &RunnerBootstrapEnvelope,
    shell: ShellSource,
    call: ToolCall,
    mut caller: Caller,
) -> Result<ToolResult, CliError> {
    let runtime = setup::runtime()?;
    let result = runtime.block_on(async {
        let registry = setup::calling_registry(envelope, shell).await?;
        caller.external_calls = run_store::client_calls(store, envelope).await?;
        Ok(registry.execute_with_policy(call, &caller).await)
    });
    // Do not wait for a native tool that blocks its thread, or for an unanswered question.
    runtime.shutdown_background();
    result
}

/// Returns the text of a call's arguments, or reads standard input for `-`.
pub(super) fn arguments(argument: String) -> Result<String, CliError> {
    if argument == "-" { read_arguments(io::stdin().lock()) } else { Ok(argument) }
}

/// Reads standard input for a command. Returns an empty text on a terminal, where a person would have to type
/// it.
pub(super) fn stdin_unless_terminal() -> Result<String, CliError> {
    if io::stdin().is_terminal() { Ok(String::new()) } else { read_arguments(io::stdin().lock()) }
}

/// Reads the arguments, up to a limit. Text over the limit is passed on, so that the pipeline refuses it and
/// records the call.
fn read_arguments(source: impl Read) -> Result<String, CliError> {
    let failed = |source| CliError::Arguments { source };
    let mut bytes = Vec::new();
    source.take(MAX_STDIN_BYTES).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 == MAX_STDIN_BYTES {
        // Replace invalid UTF-8, because the cut may split a character.
        return Ok(String::from_utf8_lossy(&bytes).into_owned());
    }
    String::from_utf8(bytes).map_err(|error| failed(io::Error::new(io::ErrorKind::InvalidData, error)))
}

/// Builds the caller for calls from the command line.
pub(super) fn caller(run: String, approve: bool) -> Caller {
    let mut caller = Caller::new(CLI_ID, run);
    caller.approver = if approve {
        Some(Arc::new(ApproveAll))
    } else {
        TerminalApprover::find().map(|approver| Arc::new(approver) as Arc<dyn Approver>)
    };
    caller.on_progress =
        Some(Arc::new(|progress| stream::write_stderr(&format!("{}\n", progress.trim_end()))));
    caller.on_update = Some(Arc::new(|partial| {
        // A command's streamed output is part of the answer, so do not print it twice.
        if partial.details.get("stream").is_some() {
            return;
        }
        stream::write_stderr(&format!("{}\n", text::of_content(&partial.content).trim_end()));
    }));
    caller
}

/// If a call was denied because there was no approver, adds a hint on how to approve it.
pub(super) fn with_approval_hint(result: ToolResult) -> ToolResult {
    portcullis_tools::with_approval_hint(
        result,
        "read the call, then repeat it with --approve, or run it on a terminal",
    )
}

/// Returns the exit code of a call's outcome.
pub(super) fn exit_code(outcome: &ToolOutcome) -> ExitCode {
    match outcome {
        ToolOutcome::Output(_) | ToolOutcome::Pending { .. } => ExitCode::SUCCESS,
        ToolOutcome::Error(error) => ExitCode::from(error.kind().exit_code()),
    }
}

fn answer(result: &ToolResult, stderr: Option<&str>, run: &str, as_json: bool) -> Result<ExitCode, CliError> {
    let code = exit_code(&result.outcome);
    if as_json {
        json::write_output(&CallAnswer::new(result).with_stderr(stderr))?;
        return Ok(code);
    }
    show(&result.outcome)?;
    if let Some(stderr) = stderr {
        stream::write_stderr(&diagnostics::format_stderr(stderr));
    }
    if let Some(id) = result.details["output_id"].as_str() {
        stream::write_stderr(&rest_of(id, run, result.original_bytes));
    } else if let Some(hint) = result.rest_hint() {
        stream::write_stderr(&format!("{hint}\n"));
    }
    Ok(code)
}

/// Shows the outcome of a call: its text as the answer, or its error on standard error.
pub(super) fn show(outcome: &ToolOutcome) -> Result<(), CliError> {
    match outcome {
        ToolOutcome::Output(output) => {
            let answer = text::of_content(&output.content);
            if stream::stdout_is_terminal() {
                stream::write_output(&text::for_terminal_with_newline(&answer))
            } else {
                stream::write_output(&answer)
            }
        }
        ToolOutcome::Pending { id, .. } => {
            stream::write_stderr(&format!("the result will come later: portcullis calls show {id}\n"));
            Ok(())
        }
        ToolOutcome::Error(error) => {
            stream::write_stderr(&format!("{}\n", error.for_model()));
            Ok(())
        }
    }
}

/// Formats the note about how to read the rest of a shortened output.
pub(super) fn rest_of(output_id: &str, run: &str, bytes: u64) -> String {
    let run = if run == CLI_ID { String::new() } else { format!(" --run {run}") };
    format!(
        "the output had {bytes} bytes; to read what is kept of it: portcullis call output_read '{{\"call_id\": \"{output_id}\"}}'{run}\n"
    )
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use portcullis_tools::policy::DenialCode;
    use portcullis_types::ToolError;
    use serde_json::Value;

    use super::*;

    #[test]
    fn arguments_from_standard_input_are_bounded_and_text() {
        assert_eq!(read_arguments(&b"{}\n"[..]).expect("text"), "{}\n");
        let long = "\u{e4}".repeat(1 << 20);
        let read = read_arguments(long.as_bytes()).expect("too long, which the pipeline says");
        assert!(read.len() > 1 << 20 && read.len() < (1 << 20) + 8);
        let error = read_arguments(&b"{\xff}"[..]).expect_err("no text");
        assert_eq!(error.exit_code(), ExitCode::from(2));
    }

    #[test]
    fn a_call_without_an_approver_gets_a_hint_on_approval() {
        let denied = |code: DenialCode| ToolResult {
            call_id: "c".into(),
            tool: "t".into(),
            outcome: ToolOutcome::Error(ToolError::denied("no").with_code(code.as_str())),
            details: Value::Null,
            truncated: false,
            original_bytes: 0,
            duration: Duration::ZERO,
        };
        let hint = |code| {
            with_approval_hint(denied(code)).into_result().expect_err("denied").hint().map(str::to_owned)
        };
        assert!(hint(DenialCode::ApprovalUnavailable).expect("a hint").contains("--approve"));
        assert_eq!(hint(DenialCode::ApprovalRefused), None);
    }
}
