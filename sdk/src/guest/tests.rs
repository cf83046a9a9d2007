//! Tests of whole conversations, without a sandbox.

use std::{
    io::{self, Write},
    sync::{Arc, Mutex},
};

use portcullis_types::{Declarations, GuestFrame, MAX_FINAL_FRAME_BYTES, MAX_STREAM_FRAME_BYTES};

use crate::{
    ToolContext, ToolError, ToolErrorKind, ToolOutput,
    guest::{EXIT_MISUSE, EXIT_OK, serve},
    tool, transfer,
};

/// Greets.
#[tool(tier = ReadOnly)]
async fn greet(name: &str) -> String {
    format!("hello {name}")
}

/// Reports progress and an update.
#[tool]
async fn busy(ctx: &ToolContext) -> String {
    ctx.progress("half");
    ctx.progress("x".repeat(MAX_STREAM_FRAME_BYTES));
    ctx.update(ToolOutput::text("part"));
    assert!(ctx.remaining().is_some_and(|remaining| remaining.as_millis() <= 500));
    format!("{} {}", ctx.call_id, ctx.tool_name)
}

/// Fails.
#[tool]
async fn fails(kind: &str) -> Result<(), ToolError> {
    let kind = ToolErrorKind::ALL.into_iter().find(|known| known.as_str() == kind);
    Err(ToolError::new(kind.unwrap_or(ToolErrorKind::Failed), "the very words"))
}

/// Returns more than a frame may hold.
#[tool]
async fn oversized() -> String {
    "x".repeat(MAX_FINAL_FRAME_BYTES)
}

/// Sends each chunk twice.
#[tool]
async fn doubles(ctx: &ToolContext) -> Result<String, ToolError> {
    while let Some(chunk) = transfer::receive(ctx)? {
        transfer::send(ctx, &chunk)?;
        transfer::send(ctx, &chunk)?;
    }
    Ok("doubled".to_owned())
}

/// A stream that counts its writes.
#[derive(Clone, Default)]
struct Stream(Arc<Mutex<(Vec<u8>, usize)>>);

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut inner = self.0.lock().expect("not poisoned");
        inner.0.extend_from_slice(bytes);
        inner.1 += 1;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct ServeOutput {
    code: u8,
    stdout: String,
    stderr: String,
    writes: usize,
}

fn run_serve(verb: Option<&str>, stdin: &str) -> ServeOutput {
    let (stdout, mut stderr) = (Stream::default(), Vec::new());
    let tools: [&dyn crate::DeclaredTool; 5] =
        [&greet_tool(), &busy_tool(), &fails_tool(), &oversized_tool(), &doubles_tool()];
    let stdin = io::Cursor::new(stdin.to_owned());
    let code = serve(&tools, verb, stdin, stdout.clone(), &mut stderr);
    let (bytes, writes) = stdout.0.lock().expect("not poisoned").clone();
    ServeOutput {
        code,
        stdout: String::from_utf8(bytes).expect("frames are UTF-8"),
        stderr: String::from_utf8(stderr).expect("messages are UTF-8"),
        writes,
    }
}

fn call(tool: &str, arguments: &str) -> ServeOutput {
    let frame =
        format!(r#"{{"v":1,"tool":"{tool}","call_id":"c1","arguments":{arguments},"deadline_ms":500}}"#);
    run_serve(Some("call"), &frame)
}

#[test]
fn describe_answers_the_declarations() {
    let answer = run_serve(Some("describe"), "");
    assert_eq!((answer.code, answer.writes), (EXIT_OK, 1));
    let declarations: Declarations = serde_json::from_str(&answer.stdout).expect("declarations");
    assert_eq!(declarations.v, 1);
    assert_eq!(declarations.tools[0], __tool_declaration_greet());
    assert_eq!(declarations.tools.len(), 5);
}

#[test]
fn a_call_is_one_frame_in_and_one_write_out() {
    let answer = call("greet", r#"{"name":"you"}"#);
    assert_eq!(answer.stdout, "{\"ok\":\"hello you\"}\n");
    assert_eq!((answer.code, answer.writes, answer.stderr.as_str()), (EXIT_OK, 1, ""));
}

#[test]
fn reports_precede_the_result_and_long_ones_are_dropped() {
    let answer = call("busy", "{}");
    let frames: Vec<GuestFrame> =
        answer.stdout.lines().map(|line| serde_json::from_str(line).expect("a frame")).collect();
    let [GuestFrame::Progress(half), GuestFrame::Update(part), GuestFrame::Ok(result)] = &frames[..] else {
        panic!("other frames: {frames:?}");
    };
    assert_eq!((half.as_str(), part.0.joined_text().as_str()), ("half", "part"));
    assert_eq!(result.0.joined_text(), "c1 busy");
}

#[test]
fn errors_pass_word_for_word_and_internal_ones_do_not() {
    let answer = call("fails", r#"{"kind":"not_found"}"#);
    assert_eq!(answer.stdout, "{\"error\":{\"kind\":\"not_found\",\"message\":\"the very words\"}}\n");
    let answer = call("fails", r#"{"kind":"timeout"}"#);
    assert!(answer.stdout.contains(r#""kind":"failed""#), "{}", answer.stdout);
    let answer = call("fails", r#"{"kind":"internal"}"#);
    assert_eq!(answer.code, EXIT_OK);
    assert!(answer.stdout.contains(ToolError::INTERNAL_MESSAGE));
    assert!(!answer.stdout.contains("very words"));
    assert_eq!(answer.stderr, "the very words\n");
}

#[test]
fn unknown_tools_and_bad_arguments_are_answers() {
    let answer = call("gret", "{}");
    assert_eq!(
        answer.stdout,
        "{\"error\":{\"kind\":\"not_found\",\"message\":\"no tool `gret` in this module\"}}\n"
    );
    assert_eq!(answer.code, EXIT_OK);
    let answer = call("greet", "{}");
    assert!(answer.stdout.contains(r#""kind":"invalid_arguments""#));
}

#[test]
fn a_result_too_long_for_a_frame_is_an_error_that_says_so() {
    let answer = call("oversized", "{}");
    assert!(answer.stdout.contains(r#""kind":"failed""#));
    assert!(answer.stdout.contains("at most 8388608"), "{}", answer.stdout);
}

#[test]
fn a_call_may_spread_over_lines() {
    let answer = call("greet", "{\n  \"name\": \"you\"\n}");
    assert_eq!(answer.stdout, "{\"ok\":\"hello you\"}\n");
}

#[test]
fn bytes_pass_between_the_lines_of_input_and_output() {
    let frame = r#"{"v":1,"tool":"doubles","call_id":"c1","arguments":{},"deadline_ms":500}"#;
    let answer = run_serve(Some("call"), &format!("{frame}\n{{\"chunk\":2}}\n\n\0{{\"end\":2}}\n"));
    let chunk = "{\"chunk\":2}\n\n\0";
    assert_eq!(answer.stdout, format!("{chunk}{chunk}{{\"ok\":\"doubled\"}}\n"));
    let answer = run_serve(Some("call"), &format!("{frame}\n{{\"chunk\":2}}\n\n"));
    assert!(answer.stdout.contains("the transfer broke off"), "{}", answer.stdout);
}

#[test]
fn misused_guest_exits_with_a_line_for_the_operator() {
    for (verb, stdin) in [
        (None, ""),
        (Some("run"), ""),
        (Some("call"), ""),
        (Some("call"), "{}"),
        (Some("call"), r#"{"v":2,"tool":"greet","call_id":"c","arguments":{},"deadline_ms":1}"#),
    ] {
        let answer = run_serve(verb, stdin);
        assert_eq!((answer.code, answer.stdout.as_str()), (EXIT_MISUSE, ""), "{verb:?} {stdin}");
        assert_eq!(answer.stderr.lines().count(), 1);
    }
}
