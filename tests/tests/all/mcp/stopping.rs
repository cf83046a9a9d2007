//! A stopped server cancels its clients' calls, and answers each request.

use portcullis_testing::Fixture;
use rustix::process::Signal;
use serde_json::{Value, json};

use super::client::{Client, end_rows, text};

/// More calls than can run at a time, so that some wait for a slot.
const CALLS: usize = 14;

/// Returns a command that creates a file when it starts and never ends by itself.
fn endless_command(number: usize) -> Value {
    json!({"name": "shell_exec", "arguments": {"command": format!("echo > started{number}; sleep 600")}})
}

/// Makes calls, waits until one of them runs, and signals the server to end. Returns the remaining messages and the
/// exit code.
fn end_while_running(fixture: &Fixture, mut client: Client, calls: usize) -> (Vec<Value>, Option<i32>) {
    let started = || (0..calls).any(|number| fixture.shared(&format!("started{number}")).exists());
    for number in 0..calls {
        client.ask("tools/call", endless_command(number));
    }
    loop {
        // Requests are read in order: once this one is answered, all calls are read.
        assert_eq!(client.request("ping", json!({}))["result"], json!({}));
        if started() {
            break;
        }
    }
    client.end_by_signal(Signal::TERM)
}

#[test]
fn each_call_is_answered_when_the_server_is_asked_to_stop() {
    let fixture = Fixture::new();
    let client = Client::start_program(&fixture, &["--approve"]).begin(json!({}));
    let (messages, code) = end_while_running(&fixture, client, CALLS);
    assert_eq!(code, Some(0));
    let answers: Vec<_> = messages.iter().filter(|message| message.get("id").is_some()).collect();
    // The first request started the session; answers that came before the signal are not among these messages.
    let cancelled = answers.iter().filter(|answer| text(&answer["result"]).contains("cancelled")).count();
    assert_eq!(cancelled, CALLS, "{messages:?}");
    let rows = end_rows(&fixture, "shell_exec");
    assert_eq!(rows.len(), CALLS);
    assert!(rows.iter().all(|row| row.code.as_deref() == Some("cancelled")), "{rows:?}");
}

#[test]
fn a_call_that_waits_for_approval_is_answered_at_shutdown() {
    let fixture = Fixture::new();
    let mut client = Client::start_program(&fixture, &[]).begin(json!({"elicitation": {}}));
    let id = client.ask("tools/call", endless_command(0));
    client.wait_for_message(|message| message["method"] == "elicitation/create");
    let (messages, code) = client.end_by_signal(Signal::INT);
    assert_eq!(code, Some(0));
    let answer = messages.iter().find(|message| message["id"] == id && message.get("method").is_none());
    assert!(text(&answer.expect("an answer")["result"]).contains("cancelled"), "{messages:?}");
    assert!(!fixture.shared("started0").exists());
}

#[test]
fn a_server_without_a_session_stops_on_request() {
    let fixture = Fixture::new();
    let mut client = Client::start_program(&fixture, &[]);
    assert_eq!(client.request("ping", json!({}))["result"], json!({}));
    let (messages, code) = client.end_by_signal(Signal::TERM);
    assert_eq!((messages, code), (Vec::new(), Some(0)));
}
