//! A server that is stopped: it cancels the calls of its clients, and answers each request.

use portcullis_testing::World;
use rustix::process::Signal;
use serde_json::{Value, json};

use super::client::{Client, ends, text};

/// More calls than run at a time, so that some wait for a slot.
const CALLS: usize = 14;

/// A command that leaves a file when it starts and does not end by itself.
fn endless(number: usize) -> Value {
    json!({"name": "shell_exec", "arguments": {"command": format!("echo > started{number}; sleep 600")}})
}

/// Makes calls, waits until one runs, and tells the server to end. Returns its remaining messages and its
/// exit code.
fn end_while_running(world: &World, mut client: Client, calls: usize) -> (Vec<Value>, Option<i32>) {
    let started = || (0..calls).any(|number| world.shared(&format!("started{number}")).exists());
    for number in 0..calls {
        client.ask("tools/call", endless(number));
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
fn each_call_is_answered_when_the_server_is_told_to_end() {
    let world = World::new();
    let client = Client::of_program(&world, &["--approve"]).begin(json!({}));
    let (said, code) = end_while_running(&world, client, CALLS);
    assert_eq!(code, Some(0));
    let answers: Vec<_> = said.iter().filter(|message| message.get("id").is_some()).collect();
    // The first request began the session; answers that came before the signal are not among these.
    let cancelled = answers.iter().filter(|answer| text(&answer["result"]).contains("cancelled")).count();
    assert_eq!(cancelled, CALLS, "{said:?}");
    let rows = ends(&world, "shell_exec");
    assert_eq!(rows.len(), CALLS);
    assert!(rows.iter().all(|row| row.code.as_deref() == Some("cancelled")), "{rows:?}");
}

#[test]
fn a_call_that_waits_for_approval_is_answered_at_shutdown() {
    let world = World::new();
    let mut client = Client::of_program(&world, &[]).begin(json!({"elicitation": {}}));
    let id = client.ask("tools/call", endless(0));
    client.until(|message| message["method"] == "elicitation/create");
    let (said, code) = client.end_by_signal(Signal::INT);
    assert_eq!(code, Some(0));
    let answer = said.iter().find(|message| message["id"] == id && message.get("method").is_none());
    assert!(text(&answer.expect("an answer")["result"]).contains("cancelled"), "{said:?}");
    assert!(!world.shared("started0").exists());
}

#[test]
fn a_server_without_a_session_ends_when_it_is_told_to() {
    let world = World::new();
    let mut client = Client::of_program(&world, &[]);
    assert_eq!(client.request("ping", json!({}))["result"], json!({}));
    let (said, code) = client.end_by_signal(Signal::TERM);
    assert_eq!((said, code), (Vec::new(), Some(0)));
}
