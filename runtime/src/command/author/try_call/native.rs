//! `tool try --native`: runs the crate's program on this machine, without confinement.

use std::{
    io::{self, Read, Write},
    path::{Path, PathBuf},
    process::{Child, ExitCode, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use portcullis_tools::{ToolResult, new_call};
use portcullis_types::{
    CallFrame, DEFAULT_TIMEOUT, Declarations, FRAME_VERSION, GuestFrame, MAX_FINAL_FRAME_BYTES,
    RunnerBootstrapEnvelope, ToolError, ToolErrorCode, ToolOutcome, ToolOutput,
};
use serde_json::{Value, value::RawValue};

use super::super::cargo::{ToolCrate, program};
use super::report::{self, TriedCall};
use crate::{
    cli::TryOptions,
    command::call,
    error::{AuthorError, CliError},
    output::{stream, text},
    setup, workspace,
};

/// The maximum length of the part of a program's standard output that is read, in bytes: progress frames and the final
/// frame. The limits on the size and number of a guest's frames do not apply here.
const MAX_OUTPUT_BYTES: u64 = 8 * MAX_FINAL_FRAME_BYTES as u64;

/// The maximum length of the quoted part of a malformed line, in characters.
const MAX_QUOTED_CHARS: usize = 64;

/// Builds the program, passes it the call's frame, and shows its answer.
pub(super) fn run(
    package: &ToolCrate,
    envelope: &RunnerBootstrapEnvelope,
    options: &TryOptions,
) -> Result<ExitCode, CliError> {
    let arguments = call::arguments(options.arguments.clone())?;
    let arguments = if arguments.trim().is_empty() { "{}".to_owned() } else { arguments };
    let call = new_call(options.tool.as_str(), arguments);
    let root = root(envelope)?;
    let programs = package.programs()?;
    let (program, timeout) = find(&programs, &call.tool)?;
    let started = Instant::now();
    let outcome = match RawValue::from_string(call.arguments.clone()) {
        // This is a result and not an error of the command: the runtime would answer the model in the same
        // way.
        Err(error) => Err(ToolError::invalid_arguments(format!("arguments are not JSON: {error}"))),
        Ok(arguments) => {
            let frame = CallFrame {
                v: FRAME_VERSION,
                tool: call.tool.clone(),
                call_id: call.id.clone(),
                arguments,
                deadline_ms: u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX),
            };
            let frame = serde_json::to_vec(&frame).map_err(|source| CliError::Json { source })?;
            let root = root.to_string_lossy();
            match run_program(&program, &["call", "--root", &root], frame, timeout) {
                Ok(lines) => parse_outcome(&lines),
                Err(NoAnswer::TooLate) => {
                    Err(ToolError::timeout(format!("the tool did not finish within {timeout:?}")))
                }
                Err(NoAnswer::Io(source)) => return Err(CliError::Start { source }),
                Err(NoAnswer::Failed(code)) => {
                    Err(ToolError::failed(format!("the program ended with {code}")))
                }
            }
        }
    };
    let mut result = ToolResult {
        call_id: call.id,
        tool: call.tool,
        original_bytes: outcome.as_ref().map_or(0, |output| output.joined_text().len() as u64),
        details: Value::Null,
        outcome: outcome.into(),
        truncated: false,
        duration: started.elapsed(),
    };
    if let ToolOutcome::Output(output) = &mut result.outcome {
        result.details = output.details.take();
    }
    report::show(&TriedCall { result, grant: None, refusal: None, stderr: None }, "", options.json)
}

/// Returns the folder that tools see as `/`: the workspace. The folders of its mounts must have the mounts'
/// names.
fn root(envelope: &RunnerBootstrapEnvelope) -> Result<PathBuf, CliError> {
    workspace::prepare(envelope)?;
    let policy = setup::policy_files(envelope)?.load(envelope.sandbox_tier)?;
    if let Some(mount) = policy.mounts().iter().find(|mount| mount.folder != mount.name.as_str()) {
        let (mount, folder) = (mount.name.to_string(), mount.folder.clone());
        return Err(AuthorError::NativeMount { mount, folder }.into());
    }
    setup::real_path(&envelope.workspace)
        .map_err(|source| CliError::Workspace { path: envelope.workspace.clone(), source })
}

/// Finds the program that contains the tool, and the timeout that the tool declares.
fn find(programs: &[PathBuf], tool: &str) -> Result<(PathBuf, Duration), AuthorError> {
    let mut tool_names = Vec::new();
    for program in programs {
        for declared in describe(program)?.tools {
            if declared.name == tool {
                let timeout = declared.timeout_ms.map_or(DEFAULT_TIMEOUT, Duration::from_millis);
                return Ok((program.clone(), timeout));
            }
            tool_names.push(declared.name);
        }
    }
    Err(AuthorError::NoTool { name: tool.to_owned(), has: tool_names.join(", ") })
}

fn describe(program: &Path) -> Result<Declarations, AuthorError> {
    let failed = |reason: String| AuthorError::Describe { reason };
    let answer =
        run_program(program, &["describe"], Vec::new(), DEFAULT_TIMEOUT).map_err(|ended| match ended {
            NoAnswer::TooLate => failed("it does not end".to_owned()),
            NoAnswer::Failed(code) => failed(format!("it ended with {code}")),
            NoAnswer::Io(error) => failed(error.to_string()),
        })?;
    serde_json::from_slice(&answer).map_err(|error| failed(error.to_string()))
}

/// The reason why a program gave no answer.
#[derive(Debug)]
enum NoAnswer {
    TooLate,
    Failed(String),
    Io(io::Error),
}

/// Runs a program on some input and returns its output. The program inherits this process's standard error.
fn run_program(
    path: &Path,
    arguments: &[&str],
    input: Vec<u8>,
    timeout: Duration,
) -> Result<Vec<u8>, NoAnswer> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    let mut command = program(path, folder);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().map_err(NoAnswer::Io)?;
    let exchange_result = exchange(&mut child, input, timeout);
    if exchange_result.is_err() {
        // Ignore the error: the program may already have ended.
        let _ = child.kill();
    }
    let status = child.wait().map_err(NoAnswer::Io)?;
    let output = exchange_result?;
    if status.success() { Ok(output) } else { Err(NoAnswer::Failed(status.to_string())) }
}

fn exchange(child: &mut Child, input: Vec<u8>, timeout: Duration) -> Result<Vec<u8>, NoAnswer> {
    let pipes = child.stdin.take().zip(child.stdout.take());
    let Some((mut stdin, stdout)) = pipes else { return Err(NoAnswer::Io(io::Error::other("no pipes"))) };
    let (sender, output_receiver) = mpsc::channel();
    thread::Builder::new()
        .name("portcullis-native".to_owned())
        .spawn(move || {
            // Ignore the error: a program that does not read its call is judged by its answer.
            let _ = stdin.write_all(&input);
            // Close the pipe, so that the program sees the end of its input.
            drop(stdin);
            let mut output = Vec::new();
            let read = stdout.take(MAX_OUTPUT_BYTES).read_to_end(&mut output);
            // Ignore the error: after a timeout the receiver is gone.
            let _ = sender.send(read.map(|_| output));
        })
        .map_err(NoAnswer::Io)?;
    match output_receiver.recv_timeout(timeout) {
        Ok(read) => read.map_err(NoAnswer::Io),
        Err(_late) => Err(NoAnswer::TooLate),
    }
}

/// Parses the outcome from a program's frames. Progress is printed only after the program has ended.
fn parse_outcome(lines: &[u8]) -> Result<ToolOutput, ToolError> {
    let mut last = None;
    for line in lines.split(|byte| *byte == b'\n').filter(|line| !line.trim_ascii().is_empty()) {
        if last.is_some() {
            return Err(ToolError::failed("the tool wrote on after its result")
                .with_code(ToolErrorCode::OutputAfterFinalFrame));
        }
        match serde_json::from_slice(line) {
            Ok(GuestFrame::Progress(text)) => stream::write_stderr(&format!("{}\n", text.trim_end())),
            Ok(GuestFrame::Update(update)) => {
                stream::write_stderr(&format!("{}\n", text::of_content(&update.0.content).trim_end()));
            }
            Ok(GuestFrame::Ok(output)) => last = Some(Ok(output.0)),
            Ok(GuestFrame::Error(error)) => last = Some(Err(error.into())),
            Ok(GuestFrame::Chunk(_)) => {
                return Err(ToolError::failed(
                    "the tool sent bytes, but its call is not the sending end of a transfer",
                )
                .with_code(ToolErrorCode::UnwantedChunk));
            }
            Err(error) => {
                let line = String::from_utf8_lossy(line);
                let quoted: String = line.chars().take(MAX_QUOTED_CHARS).collect();
                let message = format!(
                    "the tool wrote a line that is not a frame, `{}`: standard output carries only frames, so there is no `println!` in a tool: write with `eprintln!`, or report with `ctx.progress`",
                    text::inline(&quoted)
                );
                return Err(ToolError::failed(message)
                    .with_code(ToolErrorCode::MalformedFrame)
                    .with_operator_detail(error.to_string()));
            }
        }
    }
    let no_final_frame =
        || Err(ToolError::failed("the tool ended without a result").with_code(ToolErrorCode::NoFinalFrame));
    last.unwrap_or_else(no_final_frame)
}
