//! Untrusted text on a terminal and in a log: its control characters have no effect, and it cannot imitate our own
//! output.

use std::{
    fs,
    io::Read as _,
    os::unix::fs::MetadataExt as _,
    path::Path,
    process::{Command, Output, Stdio},
};

use portcullis_testing::Fixture;
use portcullis_types::is_deceptive;
use serde_json::json;

use crate::{
    hostile::wat_guest::WatGuest,
    modules::{portcullis, stderr, stdout},
    ordinary,
    person::Person,
};

/// A forged question, as a call's arguments might contain it.
const FORGED: &str = "This call needs your approval.  tool       add  tier       read_only";

#[test]
fn arguments_cannot_forge_a_question_before_the_answer() {
    let fixture = Fixture::new().with_policy("[tools.echo]\napproval = \"ask\"\n");
    for (columns, pad) in
        [(40, " "), (80, " "), (80, "\u{3000}"), (80, "\u{3164}"), (80, "x"), (133, "\u{2800}")]
    {
        let width = usize::from(columns);
        let message = format!("{}{FORGED}{}", pad.repeat(3 * width - 27), pad.repeat(2 * width));
        let arguments = json!({"message": message}).to_string();
        let mut person = Person::start_at_width(columns, &fixture, &["call", "echo", &arguments], "");
        person.wait_for_text("This call needs your approval.\n");
        let question = person.wait_for_text("Approve?");
        let lines: Vec<_> = question.lines().collect();
        let (_answer, values) = lines.split_last().expect("lines");
        for line in values {
            // Our own lines start with two spaces and a label, which no folded value does, or with the frame
            // of a folded value.
            let is_ours =
                line.starts_with("  ") && line.as_bytes().get(2).is_some_and(u8::is_ascii_lowercase);
            assert!(
                is_ours || line.starts_with("           │ "),
                "{columns} of {pad:?}: {line:?} in\n{question}"
            );
            assert!(line.chars().count() < width, "{line:?}");
            assert!(!line.chars().any(is_deceptive), "{line:?}");
        }
        person.type_line("n");
        assert_eq!(person.wait_for_end().1, Some(3));
    }
}

/// Creates a fixture with a module of one tool, `loud`, which answers after writing this many bytes of the
/// text to standard error. The text is escaped for WAT.
fn fixture_with_loud_guest(text: &str, bytes: usize) -> (Fixture, String) {
    let guest = WatGuest {
        fields: format!("(data (i32.const 4096) \"{text}\")"),
        call: format!(
            "(i32.store (i32.const 0) (i32.const 4096)) (i32.store (i32.const 4) (i32.const {bytes}))
               (drop (call $fd_write (i32.const 2) (i32.const 0) (i32.const 1) (i32.const 8))) (call $answer)"
        ),
        ..WatGuest::new("loud")
    };
    let fixture = Fixture::new().with_policy("[tools.loud]\napproval = \"allow\"\n");
    let module = fixture.root().join("loud.wasm");
    fs::write(&module, guest.bytes()).expect("written");
    let module = module.to_str().expect("the path is UTF-8").to_owned();
    (fixture, module)
}

#[test]
fn a_guests_standard_error_is_one_escaped_line_of_the_log() {
    let hostile =
        "\\1b]0;owned\\07\\1b[2J\\0d\\0a2026-01-01T00:00:00Z ERROR portcullis: false\\e2\\80\\ae\\e3\\85\\a4";
    let (fixture, module) = fixture_with_loud_guest(hostile, 70);
    let output = run_logged(&fixture, "info", &["call", "--module", &module, "loud"]);
    assert_eq!(stdout(&output), "done", "{}", stderr(&output));
    let log = stderr(&output);
    let guest_lines: Vec<_> =
        log.lines().filter(|line| line.contains("the guest wrote to its standard error")).collect();
    assert!(guest_lines.len() == 1 && guest_lines[0].contains("\\u{1b}]0;owned\\u{7}"), "{log}");
    assert!(
        !log.lines().any(|line| line.starts_with("2026-01-01") || line.chars().any(is_deceptive)),
        "{log:?}"
    );
}

#[test]
fn a_line_is_folded_on_a_terminal_of_unknown_width() {
    let written = "x".repeat(200);
    let (fixture, module) = fixture_with_loud_guest(&written, 200);
    for (reported_columns, columns) in [(0, 80), (60, 60)] {
        let (screen_text, code) = Person::start_at_width(
            reported_columns,
            &fixture,
            &["call", "--module", &module, "--stderr", "loud"],
            "",
        )
        .wait_for_end();
        assert_eq!(code, Some(0), "{screen_text}");
        let folded: Vec<_> = screen_text.lines().filter(|line| line.starts_with("  | ")).collect();
        assert_eq!(folded.first().map(|line| line.len()), Some(columns - 1), "{screen_text}");
        let unfolded: String = folded.iter().map(|line| line.trim_start_matches("  | ")).collect();
        assert_eq!(unfolded, written);
    }
}

#[test]
fn at_debug_the_log_has_no_arguments_contents_or_input() {
    let fixture = Fixture::new();
    let secret = "the-content-of-a-call";
    let session = [
        json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
            "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}}),
        json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {
            "name": "file_write", "arguments": {"path": "note", "content": secret}}}),
        json!({"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": {
            "name": "file_read", "arguments": {"path": "note"}}}),
    ];
    let input = fixture.root().join("input");
    let lines: Vec<_> = session.iter().map(ToString::to_string).collect();
    fs::write(&input, lines.join("\n") + "\n").expect("written");
    let served = serve_logged(&fixture, "debug", &input);
    assert!(stdout(&served).contains("\"id\":3"), "{}", stderr(&served));
    assert!(!stderr(&served).contains(secret), "{}", stderr(&served));
    // The control: a filter that names the library shows everything.
    let debug_log = stderr(&serve_logged(&fixture, "debug,rmcp=debug", &input));
    assert!(debug_log.contains(secret), "{debug_log}");
}

#[test]
fn a_table_keeps_its_columns_on_a_narrow_terminal() {
    let fixture = Fixture::new();
    let full_listing = stdout(&portcullis(&fixture, &["tools"]));
    let names: Vec<_> = full_listing.lines().filter_map(|line| line.split(' ').next()).collect();
    for columns in [60, 80, 100, 120] {
        let (screen_text, code) = Person::start_at_width(columns, &fixture, &["tools"], "").wait_for_end();
        assert_eq!(code, Some(0), "{screen_text}");
        let table = screen_text.split_once("TOOL").map_or(screen_text.as_str(), |(_, table)| table);
        for line in table.lines().skip(1).filter(|line| !line.is_empty()) {
            let first = line.split(' ').next().unwrap_or_default();
            // A line that continues another column has an empty name column. A folded name is a part of a
            // name.
            assert!(
                first.is_empty() || names.iter().any(|name| name.contains(first)),
                "{columns}: {line:?} in\n{screen_text}"
            );
        }
    }
}

#[test]
fn its_memory_is_private_and_in_no_core_dump() {
    let fixture = Fixture::new();
    let mut program = ordinary::program_of_ordinary_user(&fixture);
    let server = program
        .args(["serve", "--approve"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut server = server.spawn().expect("starts");
    let mut client = String::new();
    let initialize = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}});
    // The call is a command, which shows that the sidecar, its sessions and the compiler's process still
    // work.
    let command = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {
        "name": "shell_exec", "arguments": {"command": "ulimit -c; id -u; echo $PPID"}}});
    let mut input = server.stdin.take().expect("piped");
    std::io::Write::write_all(&mut input, format!("{initialize}\n{command}\n").as_bytes()).expect("written");
    let mut output = std::io::BufReader::new(server.stdout.take().expect("piped"));
    while !client.contains("\"id\":2") {
        assert_ne!(std::io::BufRead::read_line(&mut output, &mut client).expect("a line"), 0, "{client}");
    }
    let limits = fs::read_to_string(format!("/proc/{}/limits", server.id())).expect("readable");
    let core = limits.lines().find(|line| line.starts_with("Max core file size")).expect("a limit");
    assert_eq!(core.split_whitespace().collect::<Vec<_>>()[4..6], ["0", "0"], "{core}");
    // Root owns the `/proc` files of a process that is not dumpable.
    let owner = fs::metadata(format!("/proc/{}/environ", server.id())).expect("the path exists").uid();
    assert_eq!(owner, 0);
    let answer = client.lines().last().expect("an answer");
    assert!(answer.contains("\"isError\":false") && answer.contains("0\\n"), "{answer}");
    drop(input);
    let status = server.wait().expect("ends");
    let mut stderr_text = String::new();
    server.stderr.take().expect("piped").read_to_string(&mut stderr_text).expect("the output is UTF-8");
    assert!(status.success(), "{stderr_text}");
}

fn run_logged(fixture: &Fixture, level: &str, words: &[&str]) -> Output {
    program(fixture, level).args(words).stdin(Stdio::null()).output().expect("starts")
}

fn serve_logged(fixture: &Fixture, level: &str, input: &Path) -> Output {
    let input = fs::File::open(input).expect("opens");
    program(fixture, level).arg("serve").stdin(input).output().expect("starts")
}

#[expect(clippy::disallowed_methods, reason = "the program under test")]
fn program(fixture: &Fixture, level: &str) -> Command {
    let mut program = Command::new(portcullis_testing::binary());
    program.args(fixture.options()).env("PORTCULLIS_LOG", level);
    program
}
