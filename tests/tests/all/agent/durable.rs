//! Runs that outlive their process: in the background, killed, answered from another terminal, resumed.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    process::{Command, Output, Stdio},
};

use portcullis_testing::{Fixture, wait_until};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::model::{Model, calls, text};
use crate::{
    modules::{portcullis, stderr, stdout},
    support::is_process_argument,
};

#[track_caller]
pub(super) fn answered(output: &Output) -> String {
    assert!(output.status.success(), "{}{}", stdout(output), stderr(output));
    stdout(output)
}

/// Starts a run in the background, and returns its id.
#[track_caller]
fn detach(fixture: &Fixture, model: &Model) -> String {
    detach_with(fixture, model, &[])
}

/// Like `detach`, with further options.
#[track_caller]
pub(super) fn detach_with(fixture: &Fixture, model: &Model, options: &[&str]) -> String {
    let words = ["agent", "--detach", "Do it.", "--model", "m", "--base-url", model.address()];
    answered(&portcullis(fixture, &[&words[..], options].concat())).trim().to_owned()
}

fn resume(fixture: &Fixture, model: &Model, id: &str) -> Output {
    portcullis(fixture, &["runs", "resume", id, "--model", "m", "--base-url", model.address(), "--approve"])
}

pub(super) fn json(fixture: &Fixture, words: &[&str]) -> Value {
    serde_json::from_str(&answered(&portcullis(fixture, words))).expect("JSON")
}

/// Returns the status of a run, as the list shows it.
fn status(fixture: &Fixture, id: &str) -> String {
    let runs = json(fixture, &["runs", "list", "--json"]);
    let run = runs.as_array().expect("a list").iter().find(|run| run["id"] == id).expect("listed");
    run["shown_as"].as_str().expect("a word").to_owned()
}

/// Waits for the pending question, and returns its id.
fn question(fixture: &Fixture) -> String {
    let question = || json(fixture, &["approvals", "list", "--json"])[0]["id"].as_str().map(str::to_owned);
    wait_until("a question waits", || question().is_some());
    question().expect("waits")
}

/// Kills the process that drives a run of this fixture with SIGKILL.
#[track_caller]
pub(super) fn kill(fixture: &Fixture) {
    let state = fixture.state().display().to_string();
    let mut killed = 0;
    for entry in fs::read_dir("/proc").expect("listed").flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        let arguments = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let arguments: Vec<_> = arguments.split(|byte| *byte == 0).map(String::from_utf8_lossy).collect();
        let is_agent = arguments.iter().any(|argument| *argument == "agent");
        if is_agent && arguments.iter().any(|argument| **argument == *state) {
            kill_process(Pid::from_raw(pid).expect("a process"), Signal::KILL).expect("killed");
            killed += 1;
        }
    }
    assert_eq!(killed, 1, "one process drives the run");
}

/// Returns the texts of the results in a request to the model.
pub(super) fn results(request: &Value) -> Vec<String> {
    let messages = request["messages"].as_array().expect("messages").iter();
    let results = messages.filter(|message| message["role"] == "tool");
    results
        .map(|message| message["content"].as_str().expect("the value is a JSON string").to_owned())
        .collect()
}

#[test]
fn a_killed_run_is_approved_elsewhere_and_goes_on() {
    let fixture = Fixture::new();
    let command = r#"{"command": "echo once >> /shared/log"}"#;
    let model = Model::answering(vec![calls(&[("shell_exec", command)]), text("Done.")]);
    let id = detach(&fixture, &model);
    let question = question(&fixture);
    assert_eq!(status(&fixture, &id), "needs approval");
    let shown = answered(&portcullis(&fixture, &["approvals", "show", &question]));
    assert!(shown.contains("echo once >> /shared/log") && shown.contains("status: waiting"), "{shown}");
    kill(&fixture);
    let approved = answered(&portcullis(&fixture, &["approvals", "approve", &question]));
    assert!(approved.starts_with("approved: the call of shell_exec"), "{approved}");
    assert!(!fixture.shared("log").exists(), "the process that asked is dead");
    let again = portcullis(&fixture, &["approvals", "deny", &question]);
    assert_eq!(again.status.code(), Some(1), "{}", stderr(&again));
    assert!(stderr(&again).contains("is approved"), "{}", stderr(&again));

    let resumed = portcullis(
        &fixture,
        &["runs", "resume", &id, "--detach", "--model", "m", "--base-url", model.address()],
    );
    assert_eq!(answered(&resumed).trim(), id);
    let watched = answered(&portcullis(&fixture, &["runs", "watch", &id]));
    assert!(watched.ends_with("completed\n"), "{watched}");
    assert_eq!(fs::read_to_string(fixture.shared("log")).expect("written"), "once\n");
    let row = fixture.rows().into_iter().rfind(|row| &*row.tool == "shell_exec").expect("a row");
    let approver = row.approver.expect("an approver");
    assert_eq!(approver.by.as_str(), "store");
    assert!(approver.name.is_some_and(|name| name.starts_with("user ")));
}

#[test]
fn a_begun_call_is_unknown_and_a_finished_one_runs_once() {
    let fixture = Fixture::new().with_policy("[tools.shell_exec]\napproval = \"allow\"\n");
    let seconds = format!("605.{}", std::process::id());
    let sleep = format!(r#"{{"command": "sleep {seconds}"}}"#);
    let write = r#"{"path": "/shared/log", "content": "once\n", "mode": "append"}"#;
    let model = Model::answering(vec![
        calls(&[("file_write", write), ("shell_exec", &sleep), ("file_write", write)]),
        text("Done."),
    ]);
    let id = detach(&fixture, &model);
    wait_until("the command runs", || is_process_argument(&seconds));
    kill(&fixture);
    wait_until("the command has ended with its process", || !is_process_argument(&seconds));
    let output = resume(&fixture, &model, &id);
    assert_eq!(answered(&output), "Done.\n", "{}", stderr(&output));
    let results = results(&model.requests()[1]);
    assert_eq!(results.len(), 3, "{results:?}");
    assert!(results[1].contains("whether the call took effect is not known"), "{results:?}");
    // The first call has its stored result, and the third had not begun.
    assert_eq!(fs::read_to_string(fixture.shared("log")).expect("written"), "once\nonce\n");
    let shown = answered(&portcullis(&fixture, &["runs", "show", &id]));
    assert!(
        shown.contains("completed") && shown.contains("call_model") && shown.contains("begun"),
        "{shown}"
    );
    let export = json(&fixture, &["runs", "export", &id]);
    assert_eq!(export["calls"].as_array().map(Vec::len), Some(3));
    let output = resume(&fixture, &model, &id);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(stderr(&output).contains("has its answer"), "{}", stderr(&output));
}

#[test]
fn a_question_to_an_interrupted_run_goes_on_with_it() {
    let fixture = Fixture::new();
    let model = Model::answering(vec![
        calls(&[("shell_exec", r#"{"command": "true"}"#)]),
        text("You asked for something else."),
    ]);
    let id = detach(&fixture, &model);
    question(&fixture);
    kill(&fixture);
    wait_until("the run counts as interrupted or expired", || status(&fixture, &id) != "running");
    let output = portcullis(
        &fixture,
        &["agent", "Stop that.", "--resume", &id, "--model", "m", "--base-url", model.address()],
    );
    assert_eq!(answered(&output), "You asked for something else.\n");
    let last = &model.requests()[1];
    let questions: Vec<&Value> = last["messages"]
        .as_array()
        .expect("messages")
        .iter()
        .filter(|message| message["role"] == "user")
        .map(|message| &message["content"])
        .collect();
    assert_eq!(questions, ["Do it.", "Stop that."]);
    assert_eq!(results(last).len(), 1);
}

#[test]
fn a_run_in_the_background_is_cancelled() {
    let fixture = Fixture::new();
    let model = Model::answering(vec![calls(&[("shell_exec", r#"{"command": "true"}"#)])]);
    let id = detach(&fixture, &model);
    question(&fixture);
    assert!(answered(&portcullis(&fixture, &["runs", "cancel", &id])).contains("was asked to end it"));
    wait_until("the run has ended", || status(&fixture, &id) == "cancelled");
    let output = portcullis(&fixture, &["runs", "cancel", &id]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(stderr(&output).contains("has ended"), "{}", stderr(&output));
}

#[test]
fn runs_and_questions_that_are_not_there_are_wrong_usage() {
    let fixture = Fixture::new();
    assert_eq!(answered(&portcullis(&fixture, &["runs", "list"])), "no runs are stored\n");
    assert_eq!(answered(&portcullis(&fixture, &["approvals", "list"])), "no call waits for an approval\n");
    for (words, reason) in [
        (&["runs", "show", "run_0123456789abcdef"][..], "no run `run_0123456789abcdef`"),
        (&["runs", "watch", "x"], "16 hexadecimal digits"),
        (&["runs", "cancel", "run_0123456789abcdef"], "no run"),
        (&["runs", "export", "run_0123456789abcdef"], "no run"),
        (&["approvals", "show", "approval_1"], "no approval `approval_1`"),
        (&["approvals", "approve", "approval_1", "--arguments", "[]"], "not a JSON object"),
        (&["approvals", "deny", "approval_1"], "no approval"),
        (&["runs", "list", "--store", "mysql://x"], "its scheme is not"),
    ] {
        let output = portcullis(&fixture, words);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(reason), "{words:?}: {}", stderr(&output));
    }
}

#[test]
fn the_store_is_private_and_one_of_another_program_is_refused() {
    let fixture = Fixture::new();
    let model = Model::answering(vec![text("Hi.")]);
    let ask = ["agent", "Hello", "--model", "m", "--base-url", model.address()];
    assert_eq!(answered(&portcullis(&fixture, &ask)), "Hi.\n");
    let mode = fs::metadata(fixture.state().join("runs.db")).expect("the path exists").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let other = fixture.root().join("other");
    fs::create_dir(&other).expect("the folder can be made");
    fs::set_permissions(&other, fs::Permissions::from_mode(0o700)).expect("set");
    fs::write(other.join("x.db"), "no database").expect("written");
    fs::set_permissions(other.join("x.db"), fs::Permissions::from_mode(0o600)).expect("set");
    let place = other.join("x.db").display().to_string();
    let output = portcullis(&fixture, &[&ask[..], &["--store", &place]].concat());
    assert!(!output.status.success() && stdout(&output).is_empty(), "{}", stderr(&output));
    assert_eq!(model.requests().len(), 1, "the model is not asked");
}

/// Returns the block of docs/durable.md after this heading or text.
fn block(after: &str, language: &str) -> &'static str {
    let document = include_str!("../../../../docs/durable.md");
    let (_, rest) = document.split_once(after).expect("the text");
    let (_, rest) = rest.split_once(&format!("```{language}\n")).expect("a block");
    rest.split_once("```\n").expect("an end").0
}

/// Runs commands of the document in a shell, in the folder of the fixture, and returns their output. `settings` are
/// lines of the agent's settings file.
#[expect(clippy::disallowed_methods, reason = "the shell of the document's commands")]
fn run_commands(fixture: &Fixture, model: &Model, settings: &str, commands: &str) -> String {
    let config = fixture.root().join("config");
    fs::create_dir_all(config.join("portcullis")).expect("the folder can be made");
    let settings = format!("[agent]\nmodel = \"m\"\nbase_url = \"{}\"\n{settings}", model.address());
    fs::write(config.join("portcullis/agent.toml"), settings).expect("written");
    let script = format!("set -eu -o pipefail\nportcullis() {{ \"$program\" \"$@\"; }}\n{commands}");
    // A script in place of the program adds the fixture's options.
    let program = fixture.root().join("portcullis");
    let options: Vec<String> =
        fixture.options().iter().map(|option| format!("'{}'", option.to_string_lossy())).collect();
    let wrapper = format!(
        "#!/bin/sh\nexec '{}' {} \"$@\"\n",
        portcullis_testing::binary().display(),
        options.join(" ")
    );
    fs::write(&program, wrapper).expect("written");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("set");
    let output = Command::new("bash")
        .arg("-c")
        .arg(script)
        .current_dir(fixture.root())
        .env("XDG_CONFIG_HOME", &config)
        .env("program", &program)
        .stdin(Stdio::null())
        .output()
        .expect("starts");
    answered(&output)
}

#[test]
fn the_commands_of_the_document_do_what_it_says() {
    let fixture = Fixture::new();
    let command = r#"{"command": "echo once >> /shared/log"}"#;
    let model = Model::answering(vec![calls(&[("shell_exec", command)]), text("Written.")]);
    let told = fixture.root().join("told");
    let settings = format!(
        "\n[approvals]\nnotify = [\"sh\", \"-c\", \"echo $PORTCULLIS_TOOL $PORTCULLIS_QUESTION >> '{}'\"]\n",
        told.display()
    );
    let shown = run_commands(&fixture, &model, &settings, block("## In the background", "sh"));
    assert!(shown.contains("Written.") && shown.contains("completed"), "{shown}");
    let told = fs::read_to_string(told).expect("the program was started");
    assert_eq!(told.lines().count(), 1, "{told}");
    assert!(told.starts_with("shell_exec approval_"), "{told}");
    assert_eq!(fs::read_to_string(fixture.shared("log")).expect("written"), "once\n");
}

#[test]
fn the_commands_of_the_document_submit_a_result() {
    let fixture = Fixture::new();
    let section = "## Results from outside";
    fs::write(fixture.root().join("tools.json"), block(section, "json")).expect("written");
    let model = Model::answering(vec![
        calls(&[("confirm_action", r#"{"message": "Book it?"}"#)]),
        text("It is booked."),
    ]);
    let shown = run_commands(&fixture, &model, "", block(section, "sh"));
    assert!(
        shown.contains("submitted the result of confirm_action") && shown.ends_with("completed\n"),
        "{shown}"
    );
    assert_eq!(results(&model.requests()[1]), [r#"{"confirmed":true}"#]);
}
