//! `portcullis agent` on a pseudo terminal, where it asks a person.

use std::fs;

use portcullis_testing::World;
use portcullis_tools::audit::{Event, Outcome, Row, Verdict};
use portcullis_types::ToolErrorKind;
use serde_json::{Value, json};

use super::model::{Model, calls, text};
use crate::{
    person::{CTRL_C, Person},
    support::is_argument,
};

/// The text that each question ends with.
const QUESTION_END: &str = "any other text is a no with that reason: ";

/// The answer that the question offers for a tool that need not be asked about each time.
const FOR_ALL: &str = "s = yes, for each call of this tool";

/// A person who runs an agent after typing these keys at the terminal.
fn asks(world: &World, model: &Model, typed_before: &str) -> Person {
    let agent = ["agent", "Do it.", "--model", "m", "--base-url", model.address()];
    Person::starts(world, &agent, typed_before)
}

const WRITE: &str = r#"{"command": "echo done >> made"}"#;

/// The text of a request's last message: the result of the call that the model reads.
fn result_text(request: &Value) -> &str {
    let messages = request["messages"].as_array().expect("messages");
    let last = messages.last().expect("a message");
    assert_eq!(last["role"], "tool");
    last["content"].as_str().expect("text")
}

fn ends(world: &World) -> Vec<Row> {
    world.rows().into_iter().filter(|row| row.event == Event::End).collect()
}

#[track_caller]
fn assert_whole(question: &str) {
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
        let found = rest.find(words).unwrap_or_else(|| panic!("no `{words}` in the rest of\n{question}"));
        rest = &rest[found + words.len()..];
    }
}

#[test]
fn a_call_approved_at_the_terminal_runs_once() {
    let world = World::new();
    let model = Model::answering(vec![calls(&[("shell_exec", WRITE)]), text("It is done.")]);
    let mut person = asks(&world, &model, "");
    let question = person.sees(QUESTION_END);
    assert_whole(&question);
    assert!(!world.shared("made").exists(), "nothing happens before the answer");
    assert_eq!(model.heard().len(), 1, "the model waits as well");
    person.types("y");
    let (rest, code) = person.sees_the_end();
    assert_eq!(code, Some(0), "{rest}");
    for words in ["  approved\n", "  ✓ ", "It is done."] {
        assert!(rest.contains(words), "no `{words}` in\n{rest}");
    }
    assert!(!rest.contains("Approve?"), "asked once: {rest}");
    // Printed before the question or after it: the approval does not refer to this line.
    assert!(person.seen.contains("→ shell_exec {\"command\": \"echo done >> made\"}"), "{}", person.seen);
    assert_eq!(fs::read_to_string(world.shared("made")).expect("made"), "done\n", "once");
    let heard = model.heard();
    assert_eq!((heard.len(), result_text(&heard[1])), (2, ""), "what the command wrote: nothing");
    let ends = ends(&world);
    assert_eq!(ends.len(), 1, "{ends:?}");
    assert_eq!((&*ends[0].tool, ends[0].approval.as_deref()), ("shell_exec", Some("approved")));
    assert_eq!((ends[0].decision, ends[0].code.as_deref()), (Some(Verdict::Allow), None));
}

#[test]
fn a_call_refused_at_the_terminal_tells_the_model_why() {
    let world = World::new();
    let call = || calls(&[("shell_exec", WRITE)]);
    let model = Model::answering(vec![call(), call(), text("Then not.")]);
    // Input that was typed before the question is no answer to it.
    let mut person = asks(&world, &model, "y\ny\n");
    assert_whole(&person.sees(QUESTION_END));
    person.types("n");
    assert_whole(&person.sees(QUESTION_END));
    person.types("yes, but after lunch");
    let (rest, code) = person.sees_the_end();
    assert_eq!(code, Some(0), "{rest}");
    assert!(rest.contains("  not approved\n") && rest.contains("Then not."), "{rest}");
    assert!(rest.contains("(yes, but after lunch) [approval_refused]"), "{rest}");
    assert!(!world.shared("made").exists());
    let heard = model.heard();
    let refusals: Vec<&str> = heard[1..].iter().map(result_text).collect();
    let refusal = "Tool execution failed: the call of `shell_exec` was not approved";
    assert_eq!(refusals, [refusal.to_owned(), format!("{refusal} (yes, but after lunch)")]);
    let ends = ends(&world);
    assert_eq!(ends.len(), 2, "{ends:?}");
    for row in ends {
        assert_eq!((&*row.tool, row.approval.as_deref()), ("shell_exec", Some("approval_refused")));
        assert_eq!((row.decision, row.code.as_deref()), (Some(Verdict::Deny), Some("approval_refused")));
    }
}

#[test]
fn a_person_is_asked_once_for_a_session_approval() {
    let allowed = r#"side_effecting = { profile = "FileReadWrite", approval = "allow" }"#;
    let world = World::new().with_policy_edit(allowed, &allowed.replace("allow", "ask"));
    let write = |path: &str| json!({"path": path, "content": path}).to_string();
    let command = r#"{"command": "touch made"}"#;
    let model = Model::answering(vec![
        calls(&[("file_write", write("one").as_str())]),
        calls(&[("file_write", write("two").as_str())]),
        calls(&[("file_delete", r#"{"path": "one"}"#)]),
        calls(&[("shell_exec", command)]),
        text("It is done."),
    ]);
    let mut person = asks(&world, &model, "");
    let question = person.sees(QUESTION_END);
    assert!(question.contains("file_write") && question.contains(FOR_ALL), "{question}");
    person.types("s");
    // The next question is about another tool: an answer for the session holds for one tool.
    let question = person.sees(QUESTION_END);
    assert!(question.contains("file_delete") && question.contains(FOR_ALL), "{question}");
    assert_eq!(fs::read_to_string(world.shared("two")).expect("written"), "two");
    person.types("n");
    // A privileged call has no answer for the session: `s` is a no.
    let question = person.sees(QUESTION_END);
    assert!(question.contains("shell_exec") && !question.contains(FOR_ALL), "{question}");
    person.types("s");
    let (rest, code) = person.sees_the_end();
    assert_eq!(code, Some(0), "{rest}");
    assert!(!world.shared("made").exists() && world.shared("one").exists());
    let approvals: Vec<_> = ends(&world).into_iter().map(|row| (row.tool, row.approval)).collect();
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
    let world = World::new();
    // No other process sleeps for exactly this long.
    let seconds = format!("600.{}", std::process::id());
    let command = format!(r#"{{"command": "echo started > started; sleep {seconds}"}}"#);
    let model = Model::answering(vec![calls(&[("shell_exec", command.as_str())])]);
    let mut person = asks(&world, &model, "");
    person.sees(QUESTION_END);
    person.types("y");
    let started = world.shared("started");
    person.waits_until(|| started.exists() && is_argument(&seconds));
    person.presses(CTRL_C);
    let (rest, code) = person.sees_the_end();
    assert_eq!(code, Some(130), "{rest}");
    assert!(rest.contains("given up"), "{rest}");
    assert_eq!(fs::read_to_string(&started).expect("made"), "started\n", "once");
    let ends = ends(&world);
    assert_eq!(ends.len(), 1, "{ends:?}");
    assert_eq!((&*ends[0].tool, ends[0].approval.as_deref()), ("shell_exec", Some("approved")));
    assert_eq!(ends[0].outcome, Some(Outcome::Error(ToolErrorKind::Cancelled)), "{ends:?}");
    // The terminal's signal did not reach the sidecar: the sidecar killed the command and reported its usage.
    assert!(ends[0].peak_memory.is_some_and(|bytes| bytes > 0), "{ends:?}");
    assert_eq!(model.heard().len(), 1, "the model is not asked again");
    person.waits_until(|| !is_argument(&seconds));
}

#[test]
fn ctrl_c_during_an_open_question_runs_nothing() {
    let world = World::new();
    let model = Model::answering(vec![calls(&[("shell_exec", WRITE)])]);
    let mut person = asks(&world, &model, "");
    assert_whole(&person.sees(QUESTION_END));
    person.presses(CTRL_C);
    let (rest, code) = person.sees_the_end();
    assert_eq!(code, Some(130), "{rest}");
    assert!(rest.contains("given up"), "{rest}");
    assert!(!rest.contains("Approve?") && !rest.contains("  approved\n"), "{rest}");
    assert!(!world.shared("made").exists());
    let rows = world.rows();
    assert_eq!(rows.len(), 1, "it never began: {rows:?}");
    assert_eq!((&*rows[0].tool, rows[0].event), ("shell_exec", Event::End));
    assert_eq!(rows[0].outcome, Some(Outcome::Error(ToolErrorKind::Cancelled)), "{rows:?}");
    assert_eq!(rows[0].approval, None, "nobody has answered");
    assert_eq!(model.heard().len(), 1, "the model is not asked again");
}
