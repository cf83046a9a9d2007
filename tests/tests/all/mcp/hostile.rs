//! Clients that send invalid or too many messages, or disconnect in the middle. The server answers with an
//! error or ends, and the calls that it ran are recorded.

use std::{sync::Arc, time::Duration};

use portcullis_testing::Fixture;
use portcullis_tools::audit::RowEvent;
use portcullis_types::{SafetyTier, ToolError, ToolOutput};
use rustix::process::Signal;
use serde_json::{Value, json};

use super::client::{Client, Setup, end_rows, native_registry, text};
use crate::support::{Spy, fixture_enabling};

fn native_client(fixture: &Fixture, setup: Setup) -> Client {
    Client::start(native_registry(fixture, |builder| builder), setup).begin(json!({}))
}

/// Creates a call whose answer is longer than the request.
fn long_echo(id: usize) -> String {
    let params = json!({"name": "echo", "arguments": {"message": "x".repeat(8_000)}});
    format!("{}\n", json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}))
}

/// Returns a client that does not read its answers, so that its server has stopped reading its messages.
fn client_that_does_not_read(fixture: &Fixture) -> Client {
    let mut client = Client::start_program(fixture, &[]).begin(json!({}));
    client.stop_reading();
    assert!(client.write_until_full(20_000, long_echo) < 20_000, "the server reads on and on");
    client
}

/// Sends a line, and returns the code and the id of the error in its answer.
#[track_caller]
fn refusal_code_and_id(client: &mut Client, line: &str) -> (Value, Value) {
    client.send(line);
    let answer = client.wait_for_message(|message| message["error"].is_object());
    (answer["error"]["code"].clone(), answer["id"].clone())
}

#[test]
fn an_invalid_message_gets_an_error_but_keeps_the_session() {
    let fixture = Fixture::new();
    let mut client = native_client(&fixture, Setup::default());
    for (line, code, id) in [
        ("hello", -32700, Value::Null),
        ("\u{0}\u{1}", -32700, Value::Null),
        (r#"{"jsonrpc":"2.0","id":4,"method":"tools/ca"#, -32700, Value::Null),
        ("[]", -32600, Value::Null),
        ("7", -32600, Value::Null),
        (r#"{"jsonrpc":"1.0","id":"seven","method":7}"#, -32600, json!("seven")),
        (r#"{"jsonrpc":"2.0","id":5,"method":"none/such"}"#, -32601, json!(5)),
        (r#"{"jsonrpc":"2.0","id":6,"method":"prompts/get","params":{"name":"x"}}"#, -32601, json!(6)),
    ] {
        assert_eq!(refusal_code_and_id(&mut client, line), (json!(code), id), "{line}");
    }
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    assert_eq!(refusal_code_and_id(&mut client, &deep).0, -32700);
    let call = format!(
        r#"{{"jsonrpc":"2.0","id":8,"method":"tools/call","params":{{"name":"echo","arguments":{{"message":{}1{}}}}}}}"#,
        "[".repeat(100),
        "]".repeat(100)
    );
    client.send(&call);
    let answer = client.wait_for_message(|message| message["id"] == 8);
    assert!(answer["error"].is_object() || answer["result"]["isError"] == true, "{answer}");
    assert!(text(&client.call("echo", json!({"message": "alive"}))).contains("alive"));
    client.leave();
}

#[test]
fn wrong_parameters_of_a_call_are_refused_and_run_nothing() {
    let fixture = Fixture::new();
    let mut client = native_client(&fixture, Setup::default());
    for params in [json!({}), json!({"name": 7}), json!({"name": "echo", "arguments": [1]}), json!(null)] {
        let answer = client.request("tools/call", params.clone());
        assert_eq!(answer["error"]["code"], -32602, "{params}: {answer}");
    }
    client.leave();
    let successful_count = end_rows(&fixture, "echo").iter().filter(|row| row.code.is_none()).count();
    assert_eq!(successful_count, 0);
}

#[test]
fn a_client_that_sends_nothing_but_garbage_is_left() {
    let fixture = Fixture::new();
    let mut setup = Setup::default();
    setup.limits.max_unreadable = 5;
    let mut client = native_client(&fixture, setup);
    for _ in 0..5 {
        client.send("garbage");
    }
    let rest = client.leave();
    assert_eq!(rest.len(), 5, "{rest:?}");
}

#[test]
fn bytes_that_are_not_text_do_not_stop_the_next_message() {
    let fixture = Fixture::new();
    let mut client = native_client(&fixture, Setup::default());
    client.write(b"\xff\xfe\x00\n").expect("written");
    assert_eq!(client.next()["error"]["code"], -32700);
    assert_eq!(client.request("ping", json!({}))["result"], json!({}));
}

#[test]
fn an_overlong_line_is_skipped_in_bounded_memory_and_answered() {
    let fixture = Fixture::new();
    let mut client = Client::start_program(&fixture, &[]).begin(json!({}));
    let before = client.memory();
    let chunk = vec![b'x'; 1 << 20];
    for _ in 0..100 {
        client.write(&chunk).expect("the server reads");
    }
    client.send("");
    let answer = client.wait_for_message(|message| message["error"].is_object());
    assert_eq!(answer["error"]["code"], -32600, "{answer}");
    assert_eq!(client.request("ping", json!({}))["result"], json!({}));
    let grown = client.memory().saturating_sub(before);
    assert!(grown < 40 << 20, "{grown} bytes more");
    client.leave();
}

#[test]
fn a_partial_message_at_the_end_is_ignored() {
    let fixture = Fixture::new();
    let mut client = native_client(&fixture, Setup::default());
    client
        .write(br#"{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"echo","arguments":{"message":"x"}}}"#)
        .expect("written");
    assert!(client.leave().is_empty());
    assert!(end_rows(&fixture, "echo").is_empty());
}

#[test]
fn a_client_that_leaves_before_it_begins_is_not_an_error() {
    let fixture = Fixture::new();
    Client::start(native_registry(&fixture, |builder| builder), Setup::default()).leave();
    let mut client = Client::start_program(&fixture, &[]);
    client.write(b"{\"jsonrpc\"").expect("written");
    client.leave();
}

#[test]
fn nothing_is_called_before_a_session_begins() {
    let fixture = Fixture::new();
    let mut client = Client::start(native_registry(&fixture, |builder| builder), Setup::default());
    client.ask("tools/call", json!({"name": "echo", "arguments": {"message": "x"}}));
    assert!(client.next()["error"].is_object());
    assert!(end_rows(&fixture, "echo").is_empty());
}

#[test]
fn a_thousand_calls_at_once_whose_client_leaves_have_their_rows() {
    let fixture = Fixture::new();
    fixture.put("note", "seen");
    let mut client = Client::start_program(&fixture, &[]).begin(json!({}));
    let calls: String = (0..1000)
        .map(|id| {
            let params = json!({"name": "file_read", "arguments": {"path": "note"}});
            format!(
                "{}\n",
                json!({"jsonrpc": "2.0", "id": format!("c{id}"), "method": "tools/call", "params": params})
            )
        })
        .collect();
    client.write(calls.as_bytes()).expect("the server reads");
    let answered = client.leave().len();
    assert!((1..=1000).contains(&answered), "{answered}");
    let rows = fixture.rows();
    let ended = rows.iter().filter(|row| row.event == RowEvent::End).count();
    // Each call has exactly one end, whatever its outcome.
    let mut ids: Vec<_> =
        rows.iter().filter(|row| row.event == RowEvent::End).map(|row| row.call_id.to_string()).collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), ended);
    assert_eq!(ended, 1000, "{answered} were answered");
}

#[test]
fn the_calls_of_a_client_that_leaves_are_cancelled() {
    let fixture = fixture_enabling(&["waiting"]);
    let spy = Spy::new("waiting", |ctx, _| async move {
        ctx.progress("running");
        ctx.cancel.cancelled().await;
        Err(ToolError::cancelled("it was cancelled"))
    })
    .tier(SafetyTier::SideEffecting)
    .timeout(Duration::from_secs(600));
    let mut setup = Setup::default();
    setup.limits.leave_grace = Duration::ZERO;
    let mut client =
        Client::start(native_registry(&fixture, |builder| builder.tool(spy)), setup).begin(json!({}));
    client.ask("tools/call", json!({"name": "waiting"}));
    client.wait_for_message(|message| message["method"] == "notifications/message");
    client.leave();
    let rows = end_rows(&fixture, "waiting");
    assert_eq!((rows.len(), rows[0].code.as_deref()), (1, Some("cancelled")));
}

#[test]
fn quick_calls_of_a_client_that_leaves_are_answered() {
    let fixture = Fixture::new();
    fixture.put("note", "seen");
    let mut client = Client::start_program(&fixture, &[]).begin(json!({}));
    // The first call loads the tools, which may take longer than the grace period of calls after their client
    // has disconnected.
    assert_eq!(text(&client.call("file_read", json!({"path": "note"}))), "seen");
    for _ in 0..5 {
        client.ask("tools/call", json!({"name": "file_read", "arguments": {"path": "note"}}));
    }
    let answers = client.leave();
    assert_eq!(answers.len(), 5, "{answers:?}");
    assert!(answers.iter().all(|answer| text(&answer["result"]) == "seen"), "{answers:?}");
}

#[test]
fn a_call_that_reports_on_and_on_has_no_more_time_than_others() {
    let fixture = fixture_enabling(&["reporting"]);
    let spy = Spy::new("reporting", |ctx, _| async move {
        let mut ticks = tokio::time::interval(Duration::from_millis(10));
        while ctx.cancel.run_until_cancelled(ticks.tick()).await.is_some() {
            ctx.progress("running");
        }
        Err(ToolError::cancelled("it was cancelled"))
    })
    .timeout(Duration::from_secs(600));
    let mut setup = Setup::default();
    setup.limits.leave_grace = Duration::from_millis(200);
    let mut client =
        Client::start(native_registry(&fixture, |builder| builder.tool(spy)), setup).begin(json!({}));
    client.ask("tools/call", json!({"name": "reporting"}));
    client.wait_for_message(|message| message["method"] == "notifications/message");
    client.leave();
    assert_eq!(end_rows(&fixture, "reporting")[0].code.as_deref(), Some("cancelled"));
}

#[test]
fn a_server_ends_on_a_signal_though_its_client_does_not_read() {
    let fixture = Fixture::new();
    let client = client_that_does_not_read(&fixture);
    assert_eq!(client.end_by_signals(&[Signal::TERM]), Some(0));
}

#[test]
fn a_second_signal_ends_a_server_without_its_client() {
    let fixture = Fixture::new();
    let client = client_that_does_not_read(&fixture);
    assert_eq!(client.end_by_signals(&[Signal::TERM, Signal::INT]), Some(130));
}

#[test]
fn a_second_request_with_an_id_in_flight_is_refused() {
    let fixture = fixture_enabling(&["waiting"]);
    let released = Arc::new(tokio::sync::Notify::new());
    let release = Arc::clone(&released);
    let spy = Spy::new("waiting", move |ctx, _| {
        let released = Arc::clone(&released);
        async move {
            ctx.progress("running");
            released.notified().await;
            Ok(ToolOutput::text("first"))
        }
    })
    .timeout(Duration::from_secs(600));
    let registry = native_registry(&fixture, |builder| builder.tool(spy));
    let mut client = Client::start(registry, Setup::default()).begin(json!({}));
    let call = json!({"jsonrpc": "2.0", "id": "same", "method": "tools/call", "params": {"name": "waiting"}});
    client.send(&call.to_string());
    client.wait_for_message(|message| message["method"] == "notifications/message");
    let repeated_ping = json!({"jsonrpc": "2.0", "id": "same", "method": "ping"}).to_string();
    assert_eq!(refusal_code_and_id(&mut client, &repeated_ping), (json!(-32600), json!("same")));
    release.notify_one();
    let answer = client.wait_for_message(|message| message["result"].is_object());
    assert_eq!((text(&answer["result"]), &answer["id"]), ("first", &json!("same")));
    // The first request is answered, so its id may be used again.
    client.send(&repeated_ping);
    assert_eq!(client.wait_for_message(|message| message["id"] == "same")["result"], json!({}));
    // A cancelled request gets no answer, and its id stays in use until its call has ended.
    client.send(&call.to_string());
    client.wait_for_message(|message| message["method"] == "notifications/message");
    client.notify("notifications/cancelled", json!({"requestId": "same"}));
    assert_eq!(refusal_code_and_id(&mut client, &repeated_ping), (json!(-32600), json!("same")));
    assert_eq!(client.leave(), Vec::<Value>::new());
    assert_eq!(end_rows(&fixture, "waiting").len(), 2);
}

#[test]
fn a_command_of_a_client_that_is_gone_is_killed() {
    let fixture = Fixture::new();
    let mut client = Client::start_program(&fixture, &["--approve"]).begin(json!({}));
    let command = "echo started > started; sleep 600; echo ended > ended";
    client.ask("tools/call", json!({"name": "shell_exec", "arguments": {"command": command}}));
    while !fixture.shared("started").exists() {
        assert_eq!(client.request("ping", json!({}))["result"], json!({}));
    }
    client.leave();
    assert!(!fixture.shared("ended").exists());
    assert_eq!(end_rows(&fixture, "shell_exec").len(), 1);
}

#[test]
fn a_client_that_does_not_read_is_not_read_either() {
    let fixture = Fixture::new();
    let mut client = Client::start_program(&fixture, &[]).begin(json!({}));
    client.stop_reading();
    let before = client.memory();
    // Each answer is larger than its request, so the pipes fill, and then the server stops reading.
    let sent = client.write_until_full(20_000, long_echo);
    assert!(sent < 20_000, "the server reads on and on");
    let grown = client.memory().saturating_sub(before);
    assert!(grown < 200 << 20, "{grown} bytes more");
}

#[test]
fn a_request_id_of_any_kind_comes_back_as_it_was() {
    let fixture = Fixture::new();
    let mut client = native_client(&fixture, Setup::default());
    for id in [json!("a\u{0}b"), json!(9_007_199_254_740_993_i64), json!(-1), json!("x".repeat(10_000))] {
        client.send(&json!({"jsonrpc": "2.0", "id": id, "method": "ping"}).to_string());
        assert_eq!(client.next()["id"], id);
    }
}
