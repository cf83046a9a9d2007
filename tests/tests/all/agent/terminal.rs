//! `portcullis agent` on a pseudo terminal, where it asks a person for approvals.

use std::fs;

use portcullis_testing::Fixture;
use portcullis_tools::audit::{Decision, Outcome, Row, RowEvent};
use portcullis_types::ToolErrorKind;
use serde_json::{Value, json};

use super::model::{Model, calls, text};
use crate::{
    person::{CTRL_C, Person},
    support::is_process_argument,
};

/// The end of each question.
const QUESTION_END: &str = "any other text is a no with that reason: ";

/// The answer for all later calls, which is offered for a tool that is not privileged.
const FOR_ALL: &str = "s = yes, also for later calls of this tool";

/// Types these keys at the terminal, then runs an agent as a person.
fn run_agent_as_person(fixture: &Fixture, model: &Model, typed_before: &str) -> Person {
    let agent = ["agent", "Do it.", "--model", "m", "--base-url", model.address()];
    Person::start(fixture, &agent, typed_before)
}

const WRITE: &str = r#"{"command": "echo done >> made"}"#;

/// Returns the text of a request's last message: the result that the model reads.
fn result_text(request: &Value) -> &str {
    let messages = request["messages"].as_array().expect("messages");
    let last = messages.last().expect("a message");
    assert_eq!(last["role"], "tool");
    last["content"].as_str().expect("the value is a JSON string")
}

fn end_rows(fixture: &Fixture) -> Vec<Row> {
    fixture.rows().into_iter().filter(|row| row.event == RowEvent::End).collect()
}

#[track_caller]
fn assert_question_is_complete(question: &str) {
    let mut rest = question;
    for words in [
        "This call needs your approval.\n",
        "  tool       shell_exec\n",
        "  tier       privileged\n",
        "  agent      agent\n",
        "  run        ",
        "  call       ",
        "  runs       in a shell session, confined at least as ",
        "  may touch  /shared (write), /tmp (write); profile Shell\n",
        "  names      execute, `command`: echo done >> made\n",
        "  arguments  {\"command\": \"echo done >> made\"}\n",
        "Approve? y = yes, n = no; ",
    ] {
        let position = rest.find(words).unwrap_or_else(|| panic!("no `{words}` in the rest of\n{question}"));
        rest = &rest[position + words.len()..];
    }
}

#[test]
fn a_call_approved_at_the_terminal_runs_once() {
    let fixture = Fixture::new();
    let model = Model::answering(vec![calls(&[("shell_exec", WRITE)]), text("It is done.")]);
    let mut person = run_agent_as_person(&fixture, &model, "");
    let question = person.wait_for_text(QUESTION_END);
    assert_question_is_complete(&question);
    assert!(!fixture.shared("made").exists(), "nothing happens before the answer");
    assert_eq!(model.requests().len(), 1, "the model waits as well");
    person.type_line("y");
    let (rest, code) = person.wait_for_end();
    assert_eq!(code, Some(0), "{rest}");
    for words in ["  approved\n", "  ✓ ", "It is done."] {
        assert!(rest.contains(words), "no `{words}` in\n{rest}");
    }
    assert!(!rest.contains("Approve?"), "asked once: {rest}");
    // This line may come before the question or after it: the approval does not refer to it.
    assert!(
        person.screen_text.contains("→ shell_exec {\"command\": \"echo done >> made\"}"),
        "{}",
        person.screen_text
    );
    assert_eq!(fs::read_to_string(fixture.shared("made")).expect("the file is readable"), "done\n", "once");
    let requests = model.requests();
    assert_eq!((requests.len(), result_text(&requests[1])), (2, ""), "what the command wrote: nothing");
    let end_rows = end_rows(&fixture);
    assert_eq!(end_rows.len(), 1, "{end_rows:?}");
    assert_eq!((&*end_rows[0].tool, end_rows[0].approval.as_deref()), ("shell_exec", Some("approved")));
    assert_eq!((end_rows[0].decision, end_rows[0].code.as_deref()), (Some(Decision::Allow), None));
}

#[test]
fn a_call_refused_at_the_terminal_tells_the_model_why() {
    let fixture = Fixture::new();
    let call = || calls(&[("shell_exec", WRITE)]);
    let model = Model::answering(vec![call(), call(), text("Then not.")]);
    // Input that was typed before the question does not answer it.
    let mut person = run_agent_as_person(&fixture, &model, "y\ny\n");
    assert_question_is_complete(&person.wait_for_text(QUESTION_END));
    person.type_line("n");
    assert_question_is_complete(&person.wait_for_text(QUESTION_END));
    person.type_line("yes, but after lunch");
    let (rest, code) = person.wait_for_end();
    assert_eq!(code, Some(0), "{rest}");
    assert!(rest.contains("  not approved\n") && rest.contains("Then not."), "{rest}");
    assert!(rest.contains("(yes, but after lunch) [approval_refused]"), "{rest}");
    assert!(!fixture.shared("made").exists());
    let requests = model.requests();
    let refusals: Vec<&str> = requests[1..].iter().map(result_text).collect();
    let refusal = "Tool execution failed: the call of `shell_exec` was not approved";
    assert_eq!(refusals, [refusal.to_owned(), format!("{refusal} (yes, but after lunch)")]);
    let end_rows = end_rows(&fixture);
    assert_eq!(end_rows.len(), 2, "{end_rows:?}");
    for row in end_rows {
        assert_eq!((&*row.tool, row.approval.as_deref()), ("shell_exec", Some("approval_refused")));
        assert_eq!((row.decision, row.code.as_deref()), (Some(Decision::Deny), Some("approval_refused")));
    }
}

#[test]
fn a_person_is_asked_once_for_a_session_approval() {
    let allowed = r#"side_effecting = { profile = "FileReadWrite", approval = "allow" }"#;
    let fixture = Fixture::new().with_policy_edit(allowed, &allowed.replace("allow", "ask"));
    let write = |path: &str| json!({"path": path, "content": path}).to_string();
    let command = r#"{"command": "touch made"}"#;
    let model = Model::answering(vec![
        calls(&[("file_write", write("one").as_str())]),
        calls(&[("file_write", write("two").as_str())]),
        calls(&[("file_delete", r#"{"path": "one"}"#)]),
        calls(&[("shell_exec", command)]),
        text("It is done."),
    ]);
    let mut person = run_agent_as_person(&fixture, &model, "");
    let question = person.wait_for_text(QUESTION_END);
    assert!(question.contains("file_write") && question.contains(FOR_ALL), "{question}");
    person.type_line("s");
    // The next question is about another tool, because an answer for the session covers one tool only.
    let question = person.wait_for_text(QUESTION_END);
    assert!(question.contains("file_delete") && question.contains(FOR_ALL), "{question}");
    assert_eq!(fs::read_to_string(fixture.shared("two")).expect("written"), "two");
    person.type_line("n");
    // For a privileged call, `s` is not offered and counts as a no.
    let question = person.wait_for_text(QUESTION_END);
    assert!(question.contains("shell_exec") && !question.contains(FOR_ALL), "{question}");
    person.type_line("s");
    let (rest, code) = person.wait_for_end();
    assert_eq!(code, Some(0), "{rest}");
    assert!(!fixture.shared("made").exists() && fixture.shared("one").exists());
    let approvals: Vec<_> = end_rows(&fixture).into_iter().map(|row| (row.tool, row.approval)).collect();
    let expected = [
        ("file_write", "approved"),
        ("file_write", "approved"),
        ("file_delete", "approval_refused"),
        ("shell_exec", "approval_refused"),
    ];
    assert_eq!(approvals, expected.map(|(tool, approval)| (tool.into(), Some(approval.into()))));
}

#[test]
fn ctrl_c_at_the_terminal_ends_a_command_in_order_and_says_so() {
    let fixture = Fixture::new();
    // No other process sleeps for exactly this long.
    let seconds = format!("600.{}", std::process::id());
    let command = format!(r#"{{"command": "echo started > started; sleep {seconds}"}}"#);
    let model = Model::answering(vec![calls(&[("shell_exec", command.as_str())])]);
    let mut person = run_agent_as_person(&fixture, &model, "");
    person.wait_for_text(QUESTION_END);
    person.type_line("y");
    let started = fixture.shared("started");
    person.wait_until(|| started.exists() && is_process_argument(&seconds));
    person.press_keys(CTRL_C);
    let (rest, code) = person.wait_for_end();
    assert_eq!(code, Some(130), "{rest}");
    assert!(rest.contains("given up"), "{rest}");
    assert_eq!(fs::read_to_string(&started).expect("the file is readable"), "started\n", "once");
    let end_rows = end_rows(&fixture);
    assert_eq!(end_rows.len(), 1, "{end_rows:?}");
    assert_eq!((&*end_rows[0].tool, end_rows[0].approval.as_deref()), ("shell_exec", Some("approved")));
    assert_eq!(end_rows[0].outcome, Some(Outcome::Error(ToolErrorKind::Cancelled)), "{end_rows:?}");
    // The terminal's signal did not reach the sidecar, which therefore could kill the command and report its usage.
    assert!(end_rows[0].peak_memory.is_some_and(|bytes| bytes > 0), "{end_rows:?}");
    assert_eq!(model.requests().len(), 1, "the model is not asked again");
    person.wait_until(|| !is_process_argument(&seconds));
}

#[test]
fn ctrl_c_during_an_open_question_runs_nothing() {
    let fixture = Fixture::new();
    let model = Model::answering(vec![calls(&[("shell_exec", WRITE)])]);
    let mut person = run_agent_as_person(&fixture, &model, "");
    assert_question_is_complete(&person.wait_for_text(QUESTION_END));
    person.press_keys(CTRL_C);
    let (rest, code) = person.wait_for_end();
    assert_eq!(code, Some(130), "{rest}");
    assert!(rest.contains("given up"), "{rest}");
    assert!(!rest.contains("Approve?") && !rest.contains("  approved\n"), "{rest}");
    assert!(!fixture.shared("made").exists());
    let rows = fixture.rows();
    assert_eq!(rows.len(), 1, "it never began: {rows:?}");
    assert_eq!((&*rows[0].tool, rows[0].event), ("shell_exec", RowEvent::End));
    assert_eq!(rows[0].outcome, Some(Outcome::Error(ToolErrorKind::Cancelled)), "{rows:?}");
    assert_eq!(rows[0].approval, None, "nobody has answered");
    assert_eq!(model.requests().len(), 1, "the model is not asked again");
}
