//! External tools: their results are submitted from another terminal, in time, late, or to another process.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Output,
};

use portcullis_testing::{Fixture, wait_until};
use portcullis_tools::audit::{Outcome, RowEvent};
use portcullis_types::ToolErrorKind;
use serde_json::{Value, json};

use super::{
    durable::{answered, json as json_of, kill, results},
    model::{Model, calls, text},
};
use crate::modules::{portcullis, stderr};

pub(crate) const MESSAGE: &str = r#"{"message": "Confirm booking?"}"#;

/// Writes a file with one tool, `confirm_action`.
pub(crate) fn tool_file(fixture: &Fixture, extra: &Value) -> PathBuf {
    let mut tool = json!({
        "name": "confirm_action",
        "description": "Asks a person to confirm an action.",
        "inputSchema": {
            "type": "object", "properties": {"message": {"type": "string"}}, "required": ["message"],
        },
        "executionType": "external",
    });
    tool.as_object_mut().expect("an object").extend(extra.as_object().expect("an object").clone());
    let file = fixture.workspace().with_file_name("tools.json");
    fs::write(&file, tool.to_string()).expect("written");
    file
}

fn with_tools(fixture: &Fixture, model: &Model, file: &Path, words: &[&str]) -> Output {
    let file = file.to_str().expect("the path is UTF-8");
    let options = ["--tool-file", file, "--model", "m", "--base-url", model.address()];
    portcullis(fixture, &[words, &options].concat())
}

/// Returns the call that takes a result.
pub(crate) fn open_call(fixture: &Fixture) -> Value {
    let listed = || json_of(fixture, &["calls", "list", "--json"])[0].clone();
    wait_until("a call takes a result", || !listed().is_null());
    listed()
}

pub(crate) fn submit(fixture: &Fixture, call: &Value, result: &str) -> Output {
    portcullis(fixture, &["calls", "resolve", call["id"].as_str().expect("an id"), result])
}

#[test]
fn a_result_that_comes_in_time_is_the_result_of_the_call() {
    let fixture = Fixture::new();
    let file = tool_file(&fixture, &json!({"timeout": 600_000}));
    let model = Model::answering(vec![calls(&[("confirm_action", MESSAGE)]), text("Booked.")]);
    let id = answered(&with_tools(&fixture, &model, &file, &["agent", "--detach", "Book it."]));
    let call = open_call(&fixture);
    assert_eq!((call["tool"].as_str(), call["status"].as_str()), (Some("confirm_action"), Some("waiting")));
    assert_eq!(call["arguments"]["message"], "Confirm booking?");
    let submitted = answered(&submit(&fixture, &call, r#"{"confirmed": true}"#));
    assert!(submitted.contains("is waiting for it"), "{submitted}");
    let watched = answered(&portcullis(&fixture, &["runs", "watch", id.trim()]));
    assert!(watched.ends_with("completed\n"), "{watched}");
    let requests = model.requests();
    assert_eq!(results(&requests[1]), [r#"{"confirmed":true}"#]);
    let again = submit(&fixture, &call, "1");
    assert_eq!(again.status.code(), Some(1), "{}", stderr(&again));
    let row = fixture.rows().into_iter().rfind(|row| &*row.tool == "confirm_action").expect("a row");
    assert_eq!((row.event, row.outcome), (RowEvent::End, Some(Outcome::Ok)));
    assert_eq!(row.operation_id.as_deref(), call["id"].as_str());
}

#[test]
fn the_result_of_a_pending_call_is_a_later_message() {
    let fixture = Fixture::new();
    let file = tool_file(&fixture, &json!({"isAsync": true}));
    let model = Model::answering(vec![
        calls(&[("confirm_action", MESSAGE)]),
        text("I have asked."),
        text("It is confirmed."),
    ]);
    let asked = with_tools(&fixture, &model, &file, &["agent", "Book it."]);
    assert_eq!(answered(&asked), "I have asked.\n", "{}", stderr(&asked));
    let call = open_call(&fixture);
    let id = call["id"].as_str().expect("an id");
    let pending: Value = serde_json::from_str(&results(&model.requests()[1])[0]).expect("JSON");
    assert_eq!(pending, json!({"status": "pending", "pendingToolCallId": id}));
    let run = call["run"].as_str().expect("a run").to_owned();
    let early = with_tools(&fixture, &model, &file, &["runs", "resume", &run]);
    assert_eq!(early.status.code(), Some(2), "nothing has come yet: {}", stderr(&early));

    let submitted = answered(&submit(&fixture, &call, r#"{"confirmed":true}"#));
    assert!(submitted.contains(&format!("portcullis runs resume {run}")), "{submitted}");
    let resumed = with_tools(&fixture, &model, &file, &["runs", "resume", &run]);
    assert_eq!(answered(&resumed), "It is confirmed.\n", "{}", stderr(&resumed));
    let messages = model.requests()[2]["messages"].as_array().expect("messages").clone();
    let last = messages.last().expect("a message");
    let text = format!(r#"[Tool Result: confirm_action] (callId: {id}) {{"confirmed":true}}"#);
    assert_eq!((last["role"].as_str(), last["content"].as_str()), (Some("user"), Some(&*text)));
    let rows = fixture.rows();
    let outcomes: Vec<_> = rows
        .iter()
        .filter(|row| row.operation_id.as_deref() == Some(id))
        .map(|row| (row.event, row.outcome))
        .collect();
    let (pending, ok) = (Some(Outcome::Pending), Some(Outcome::Ok));
    assert_eq!(outcomes, [(RowEvent::End, pending), (RowEvent::Result, ok)]);
    let again = with_tools(&fixture, &model, &file, &["runs", "resume", &run]);
    assert_eq!(again.status.code(), Some(2), "a result enters once: {}", stderr(&again));
}

#[test]
fn a_call_that_timed_out_takes_its_result_later() {
    let fixture = Fixture::new();
    let file = tool_file(&fixture, &json!({"timeout": 100}));
    let model = Model::answering(vec![
        calls(&[("confirm_action", MESSAGE)]),
        text("No answer."),
        text("Now it came."),
    ]);
    let asked = with_tools(&fixture, &model, &file, &["agent", "Book it."]);
    assert_eq!(answered(&asked), "No answer.\n");
    assert_eq!(results(&model.requests()[1]), ["Tool execution failed: Tool timed out after 100ms"]);
    let row = fixture.rows().into_iter().rfind(|row| &*row.tool == "confirm_action").expect("a row");
    assert_eq!(row.outcome, Some(Outcome::Error(ToolErrorKind::Timeout)));
    let call = open_call(&fixture);
    assert_eq!(call["status"], "pending");
    answered(&submit(&fixture, &call, r#""yes""#));
    let run = call["run"].as_str().expect("a run");
    let resumed = with_tools(&fixture, &model, &file, &["runs", "resume", run]);
    assert_eq!(answered(&resumed), "Now it came.\n", "{}", stderr(&resumed));
}

#[test]
fn a_waiting_call_survives_its_process() {
    let fixture = Fixture::new();
    let file = tool_file(&fixture, &json!({"timeout": 600_000}));
    let model = Model::answering(vec![calls(&[("confirm_action", MESSAGE)]), text("Booked.")]);
    let id = answered(&with_tools(&fixture, &model, &file, &["agent", "--detach", "Book it."]));
    let call = open_call(&fixture);
    kill(&fixture);
    answered(&submit(&fixture, &call, "true"));
    let resumed = with_tools(&fixture, &model, &file, &["runs", "resume", id.trim()]);
    assert_eq!(answered(&resumed), "Booked.\n", "{}", stderr(&resumed));
    assert_eq!(results(&model.requests()[1]), ["true"]);
    let calls = json_of(&fixture, &["calls", "list", "--all", "--json"]);
    assert_eq!(calls.as_array().map(Vec::len), Some(1), "the call was made once: {calls}");
}

#[test]
fn a_request_to_a_model_leaves_a_row() {
    let fixture = Fixture::new();
    let model = Model::answering(vec![text("Hello.")]);
    let words = ["agent", "Hi.", "--model", "m", "--base-url", model.address()];
    answered(&portcullis(&fixture, &words));
    let rows: Vec<_> = fixture.all_rows().into_iter().filter(|row| row.event == RowEvent::Model).collect();
    let [row] = &rows[..] else { panic!("one row: {rows:?}") };
    assert_eq!((row.model.as_deref(), row.outcome), (Some("m"), Some(Outcome::Ok)));
    assert_eq!((row.code.as_deref(), row.agent.as_deref()), (Some("stop"), Some("agent")));
    assert!(row.run_id.as_deref().is_some_and(|run| run.starts_with("run_")));
    let address = row.address.as_deref().expect("an address");
    assert!(model.address().starts_with(address) && address.starts_with("http://"), "{address}");
    assert!(row.duration_us.is_some());
}

#[test]
fn a_tool_file_with_mistakes_is_refused_with_all_of_them() {
    let fixture = Fixture::new();
    let file = tool_file(&fixture, &json!({"timeout": -1, "executionType": "cloud", "colour": "red"}));
    let output = portcullis(&fixture, &["tools", "--tool-file", file.to_str().expect("the path is UTF-8")]);
    assert_eq!(output.status.code(), Some(2));
    let told = stderr(&output);
    for place in ["timeout: ", "executionType: ", "colour: "] {
        assert!(told.contains(place), "{told}");
    }
}

#[test]
fn the_policy_judges_an_external_tool() {
    let fixture = Fixture::new().with_policy("[tools.confirm_action]\napproval = \"deny\"\n");
    let file = tool_file(&fixture, &json!({}));
    let file = file.to_str().expect("the path is UTF-8");
    let output = portcullis(&fixture, &["call", "confirm_action", MESSAGE, "--tool-file", file]);
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
}

/// A client without an agent loop waits for its call. A later result is stored with the call.
#[test]
fn a_call_of_the_command_line_is_kept_too() {
    let fixture = Fixture::new();
    let file = tool_file(&fixture, &json!({"isAsync": true}));
    let file = file.to_str().expect("the path is UTF-8");
    let words = ["call", "confirm_action", MESSAGE, "--json", "--tool-file", file];
    let called: Value = serde_json::from_str(&answered(&portcullis(&fixture, &words))).expect("JSON");
    let call = open_call(&fixture);
    assert_eq!(called["structured"]["pendingToolCallId"], call["id"], "{called}");
    assert_eq!(call["agent"], "cli");
    answered(&submit(&fixture, &call, "7"));
    let shown = json_of(&fixture, &["calls", "show", call["id"].as_str().expect("an id")]);
    assert_eq!((shown["status"].as_str(), &shown["result"]), (Some("resolved"), &json!(7)));
    let run = call["run"].as_str().expect("a run");
    let resumed =
        portcullis(&fixture, &["runs", "resume", run, "--model", "m", "--base-url", "http://127.0.0.1:1"]);
    assert_eq!(resumed.status.code(), Some(2), "{}", stderr(&resumed));
}
