//! One conversation with a host: reads the request, runs the tool, and writes the answer.

use std::{
    fmt,
    io::{self, BufRead, BufReader, Read, Write},
    sync::Arc,
    time::{Duration, Instant},
};

use portcullis_types::{
    CallFrame, Declarations, FRAME_VERSION, GuestFrame, OutputFrame, ToolContext, ToolError, ToolOutput,
};

use crate::{
    DeclaredTool,
    guest::frames::Frames,
    transfer::{TransferReceiver, TransferSender},
};

/// The exit code of an answered request, even if the call failed.
pub const EXIT_OK: u8 = 0;

/// The exit code of an invalid request.
pub const EXIT_MISUSE: u8 = 2;

/// The initial buffer for a call's arguments, in bytes; enough for an ordinary call.
const USUAL_CALL_BYTES: usize = 8 << 10;

/// The buffer of standard input, in bytes. A chunk may be much longer.
const INPUT_BYTES: usize = 64 << 10;

/// The reason why a request was not answered.
#[derive(Debug)]
enum ServeError {
    NoVerb,
    UnknownVerb(String),
    Stdin(io::Error),
    Stdout(io::Error),
    Declarations(serde_json::Error),
    CallFrame(serde_json::Error),
    FrameVersion(u32),
}

impl fmt::Display for ServeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoVerb => f.write_str("no verb: write `describe` or `call`"),
            Self::UnknownVerb(verb) => write!(f, "unknown verb {verb:?}: write `describe` or `call`"),
            Self::Stdin(error) => write!(f, "stdin: {error}"),
            Self::Stdout(error) => write!(f, "stdout: {error}"),
            Self::Declarations(error) => write!(f, "{error}"),
            Self::CallFrame(error) => write!(f, "call frame: {error}"),
            Self::FrameVersion(version) => {
                write!(f, "call frame: it has version {version}, and this module expects {FRAME_VERSION}")
            }
        }
    }
}

impl std::error::Error for ServeError {}

/// Answers one `describe` or `call` and returns the exit code.
#[must_use]
pub fn serve(
    tools: &[&dyn DeclaredTool],
    verb: Option<&str>,
    stdin: impl Read + Send + 'static,
    stdout: impl Write + Send + 'static,
    mut stderr: impl Write,
) -> u8 {
    let outcome = match verb {
        Some("describe") => describe(tools, stdout),
        Some("call") => call(tools, stdin, stdout, &mut stderr),
        Some(other) => Err(ServeError::UnknownVerb(other.to_owned())),
        None => Err(ServeError::NoVerb),
    };
    match outcome {
        Ok(()) => EXIT_OK,
        Err(error) => {
            // Ignore an error of this write: no other stream is left to report it.
            let _ = writeln!(stderr, "portcullis module: {error}");
            EXIT_MISUSE
        }
    }
}

fn describe(tools: &[&dyn DeclaredTool], mut stdout: impl Write) -> Result<(), ServeError> {
    let declarations =
        Declarations { v: FRAME_VERSION, tools: tools.iter().map(|tool| tool.declaration()).collect() };
    let mut answer = serde_json::to_vec(&declarations).map_err(ServeError::Declarations)?;
    answer.push(b'\n');
    stdout.write_all(&answer).and_then(|()| stdout.flush()).map_err(ServeError::Stdout)
}

fn call(
    tools: &[&dyn DeclaredTool],
    stdin: impl Read + Send + 'static,
    stdout: impl Write + Send + 'static,
    stderr: &mut impl Write,
) -> Result<(), ServeError> {
    let mut stdin = BufReader::with_capacity(INPUT_BYTES, stdin);
    let frame = read_call_frame(&mut stdin)?;
    if frame.v != FRAME_VERSION {
        return Err(ServeError::FrameVersion(frame.v));
    }
    let frames = Arc::new(Frames::new(stdout));
    let result = match tools.iter().find(|tool| tool.spec().name == frame.tool) {
        Some(tool) => {
            let arguments = frame.arguments.get();
            let mut ctx = call_context(frame.tool, frame.call_id, frame.deadline_ms, &frames);
            ctx.extensions.insert(TransferReceiver::new(stdin));
            pollster::block_on(tool.run(&ctx, arguments))
        }
        None => Err(ToolError::not_found(format!("no tool `{}` in this module", frame.tool))),
    };
    if let Err(error) = &result
        && let Some(detail) = error.operator_detail()
    {
        // Ignore an error of this write: the answer does not depend on this line.
        let _ = writeln!(stderr, "{detail}");
    }
    frames.finish(result).map_err(ServeError::Stdout)
}

/// Reads the call's frame and no byte after it. The frame is one line. If the text of the arguments has line breaks,
/// the frame is the whole input instead.
fn read_call_frame(stdin: &mut impl BufRead) -> Result<CallFrame, ServeError> {
    let mut text = Vec::with_capacity(USUAL_CALL_BYTES);
    stdin.read_until(b'\n', &mut text).map_err(ServeError::Stdin)?;
    if let Ok(frame) = serde_json::from_slice(&text) {
        return Ok(frame);
    }
    stdin.read_to_end(&mut text).map_err(ServeError::Stdin)?;
    serde_json::from_slice(&text).map_err(ServeError::CallFrame)
}

fn call_context<W: Write + Send + 'static>(
    tool: String,
    call_id: String,
    deadline_ms: u64,
    frames: &Arc<Frames<W>>,
) -> ToolContext {
    let mut ctx = ToolContext::detached(tool);
    ctx.call_id = call_id;
    ctx.deadline = Instant::now().checked_add(Duration::from_millis(deadline_ms));
    let progress = Arc::clone(frames);
    ctx.on_progress = Some(Arc::new(move |text| progress.report(&GuestFrame::Progress(text))));
    let update = Arc::clone(frames);
    ctx.on_update = Some(Arc::new(move |partial: ToolOutput| {
        update.report(&GuestFrame::Update(OutputFrame(partial)));
    }));
    let chunks = Arc::clone(frames);
    ctx.extensions.insert(TransferSender::new(move |bytes| chunks.send_chunk(bytes)));
    ctx
}
