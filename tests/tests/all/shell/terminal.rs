//! `portcullis shell` and Ctrl-C: which command ends, and that the session continues.

use std::{
    fs,
    io::Write as _,
    process::{Command, Stdio},
    time::Instant,
};

use portcullis_testing::{Fixture, TEST_TIMEOUT};
use portcullis_tools::audit::{Outcome, RowEvent};
use portcullis_types::ToolErrorKind;
use rustix::process::{Pid, Signal, kill_process};

use crate::{
    person::{CTRL_C, CTRL_D, Person},
    support::is_process_argument,
};

/// The prompt for a command.
const PROMPT: &str = "portcullis$ ";

/// Returns a number of seconds for which no other process sleeps.
fn unique_seconds(suffix: u8) -> String {
    format!("60{suffix}.{}", std::process::id())
}

/// Returns the outcomes of the commands, in order.
fn outcomes(fixture: &Fixture) -> Vec<Outcome> {
    fixture
        .rows()
        .into_iter()
        .filter(|row| row.event == RowEvent::End)
        .filter_map(|row| row.outcome)
        .collect()
}

#[test]
fn ctrl_c_ends_the_command_that_runs_and_the_next_one_runs() {
    let fixture = Fixture::new();
    let seconds = unique_seconds(1);
    let mut person = Person::start(&fixture, &["shell"], "");
    person.wait_for_text(PROMPT);
    person.type_line(&format!("sleep {seconds}; touch never"));
    person.wait_until(|| is_process_argument(&seconds));
    person.press_keys(CTRL_C);
    person.wait_for_text(PROMPT);
    assert!(!is_process_argument(&seconds), "it has ended");
    person.type_line("echo next-$((1 + 1))");
    assert!(person.wait_for_text(PROMPT).contains("next-2\n"), "{}", person.screen_text);
    // Ctrl-C discards a half-typed command.
    person.press_keys("touch half");
    person.press_keys(CTRL_C);
    person.wait_for_text(PROMPT);
    person.type_line("exit 7");
    person.wait_for_text(PROMPT);
    person.press_keys(CTRL_D);
    let (rest, code) = person.wait_for_end();
    assert_eq!(code, Some(7), "{rest}");
    let made = fs::read_dir(fixture.shared("")).expect("readable").count();
    assert_eq!(made, 0, "neither what should come after the sleep, nor what was not entered");
    let cancelled = Outcome::Error(ToolErrorKind::Cancelled);
    assert_eq!(outcomes(&fixture), [cancelled, Outcome::Ok, Outcome::Ok]);
}

#[test]
fn a_typed_command_is_edited_and_found_again() {
    let fixture = Fixture::new();
    let mut person = Person::start(&fixture, &["shell"], "");
    person.wait_for_text(PROMPT);
    // Move the cursor left, and type the missing letter.
    person.press_keys("ech one\u{1b}[D\u{1b}[D\u{1b}[D\u{1b}[Do\r");
    person.wait_for_text("\none\n");
    person.wait_for_text(PROMPT);
    person.type_line(" echo secret");
    person.wait_for_text("\nsecret\n");
    person.wait_for_text(PROMPT);
    person.press_keys(CTRL_D);
    assert_eq!(person.wait_for_end().1, Some(0), "{}", person.screen_text);
    let mut person = Person::start(&fixture, &["shell"], "");
    person.wait_for_text(PROMPT);
    person.press_keys("\u{1b}[A");
    person.wait_for_text("echo one");
    person.press_keys("\r");
    person.wait_for_text("\none\n");
    person.wait_for_text(PROMPT);
    person.press_keys(CTRL_D);
    assert_eq!(person.wait_for_end().1, Some(0), "{}", person.screen_text);
    let history = fs::read_to_string(fixture.state().join("shell.history")).expect("the file is readable");
    assert_eq!(history, "\"echo one\"\n", "the same line again is not kept");
}

#[test]
fn a_terminated_shell_cancels_its_command_and_prompts_no_more() {
    let fixture = Fixture::new();
    let seconds = unique_seconds(3);
    let mut person = Person::start(&fixture, &["shell"], "");
    person.wait_for_text(PROMPT);
    person.type_line(&format!("sleep {seconds}"));
    person.wait_until(|| is_process_argument(&seconds));
    person.send_sigterm();
    let (rest, code) = person.wait_for_end();
    assert_eq!(code, Some(1), "{rest}");
    assert!(!rest.contains(PROMPT), "{rest}");
    assert_eq!(outcomes(&fixture), [Outcome::Error(ToolErrorKind::Cancelled)]);
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the program under test")]
fn a_list_of_commands_ends_with_the_one_that_is_interrupted() {
    let fixture = Fixture::new();
    let seconds = unique_seconds(2);
    let mut program = Command::new(portcullis_testing::binary())
        .args(fixture.options())
        .arg("shell")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("starts");
    let list = format!("touch first\nsleep {seconds}\ntouch third\n");
    let mut stdin = program.stdin.take().expect("piped");
    stdin.write_all(list.as_bytes()).expect("takes it");
    let deadline = Instant::now() + TEST_TIMEOUT;
    while !is_process_argument(&seconds) {
        assert!(Instant::now() < deadline && program.try_wait().expect("a child").is_none());
    }
    kill_process(Pid::from_child(&program), Signal::INT).expect("sent");
    // Keep the program's input open, so that the program does not end for lack of input.
    let ended = program.wait().expect("ends");
    drop(stdin);
    assert_eq!(ended.code(), Some(1), "the code of the command that was cancelled");
    assert!(fixture.shared("first").exists() && !fixture.shared("third").exists());
    assert_eq!(outcomes(&fixture), [Outcome::Ok, Outcome::Error(ToolErrorKind::Cancelled)]);
}
