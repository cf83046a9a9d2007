//! Clients that send invalid messages, or too many, or leave in the middle: the server answers with an error
//! or ends, and the calls that it ran are on record.

use std::{sync::Arc, time::Duration};

use portcullis_testing::World;
use portcullis_tools::audit::Event;
use portcullis_types::{SafetyTier, ToolError, ToolOutput};
use rustix::process::Signal;
use serde_json::{Value, json};

use super::client::{Client, Setup, ends, natives, text};
use crate::support::{Spy, world_enabling};

fn of_natives(world: &World, setup: Setup) -> Client {
    Client::of(natives(world, |builder| builder), setup).begin(json!({}))
}

/// A call whose answer is longer than itself.
fn long_echo(id: usize) -> String {
    let params = json!({"name": "echo", "arguments": {"message": "x".repeat(8_000)}});
    format!("{}\n", json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}))
}

/// A client that does not read its answers, with a server that takes no more of its messages.
fn unread(world: &World) -> Client {
    let mut client = Client::of_program(world, &[]).begin(json!({}));
    client.stop_reading();
    assert!(client.write_until_full(20_000, long_echo) < 20_000, "the server reads on and on");
    client
}

/// Sends a line, and returns the code and the id of the error that answers it.
#[track_caller]
fn refused(client: &mut Client, line: &str) -> (Value, Value) {
    client.send(line);
    let answer = client.until(|message| message["error"].is_object());
    (answer["error"]["code"].clone(), answer["id"].clone())
}

#[test]
fn an_invalid_message_gets_its_error_and_the_session_goes_on() {
    let world = World::new();
    let mut client = of_natives(&world, Setup::default());
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
        assert_eq!(refused(&mut client, line), (json!(code), id), "{line}");
    }
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    assert_eq!(refused(&mut client, &deep).0, -32700);
    let call = format!(
        r#"{{"jsonrpc":"2.0","id":8,"method":"tools/call","params":{{"name":"echo","arguments":{{"message":{}1{}}}}}}}"#,
        "[".repeat(100),
        "]".repeat(100)
    );
    client.send(&call);
    let answer = client.until(|message| message["id"] == 8);
    assert!(answer["error"].is_object() || answer["result"]["isError"] == true, "{answer}");
    assert!(text(&client.call("echo", json!({"message": "alive"}))).contains("alive"));
    client.leave();
}

#[test]
fn wrong_parameters_of_a_call_are_refused_and_run_nothing() {
    let world = World::new();
    let mut client = of_natives(&world, Setup::default());
    for params in [json!({}), json!({"name": 7}), json!({"name": "echo", "arguments": [1]}), json!(null)] {
        let answer = client.request("tools/call", params.clone());
        assert_eq!(answer["error"]["code"], -32602, "{params}: {answer}");
    }
    client.leave();
    let ran = ends(&world, "echo").iter().filter(|row| row.code.is_none()).count();
    assert_eq!(ran, 0);
}

#[test]
fn a_client_that_sends_nothing_but_garbage_is_left() {
    let world = World::new();
    let mut setup = Setup::default();
    setup.limits.unreadable = 5;
    let mut client = of_natives(&world, setup);
    for _ in 0..5 {
        client.send("garbage");
    }
    let rest = client.leave();
    assert_eq!(rest.len(), 5, "{rest:?}");
}

#[test]
fn bytes_that_are_no_text_do_not_stop_the_next_message() {
    let world = World::new();
    let mut client = of_natives(&world, Setup::default());
    client.write(b"\xff\xfe\x00\n").expect("written");
    assert_eq!(client.next()["error"]["code"], -32700);
    assert_eq!(client.request("ping", json!({}))["result"], json!({}));
}

#[test]
fn an_overlong_line_is_skipped_in_bounded_memory_and_answered() {
    let world = World::new();
    let mut client = Client::of_program(&world, &[]).begin(json!({}));
    let before = client.memory();
    let chunk = vec![b'x'; 1 << 20];
    for _ in 0..100 {
        client.write(&chunk).expect("the server reads");
    }
    client.send("");
    let answer = client.until(|message| message["error"].is_object());
    assert_eq!(answer["error"]["code"], -32600, "{answer}");
    assert_eq!(client.request("ping", json!({}))["result"], json!({}));
    let grown = client.memory().saturating_sub(before);
    assert!(grown < 40 << 20, "{grown} bytes more");
    client.leave();
}

#[test]
fn half_a_message_at_the_end_counts_for_none() {
    let world = World::new();
    let mut client = of_natives(&world, Setup::default());
    client
        .write(br#"{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"echo","arguments":{"message":"x"}}}"#)
        .expect("written");
    assert!(client.leave().is_empty());
    assert!(ends(&world, "echo").is_empty());
}

#[test]
fn a_client_that_leaves_before_it_begins_is_no_error() {
    let world = World::new();
    Client::of(natives(&world, |builder| builder), Setup::default()).leave();
    let mut client = Client::of_program(&world, &[]);
    client.write(b"{\"jsonrpc\"").expect("written");
    client.leave();
}

#[test]
fn nothing_is_called_before_a_session_begins() {
    let world = World::new();
    let mut client = Client::of(natives(&world, |builder| builder), Setup::default());
    client.ask("tools/call", json!({"name": "echo", "arguments": {"message": "x"}}));
    assert!(client.next()["error"].is_object());
    assert!(ends(&world, "echo").is_empty());
}

#[test]
fn a_thousand_calls_at_once_whose_client_leaves_have_their_rows() {
    let world = World::new();
    world.put("note", "seen");
    let mut client = Client::of_program(&world, &[]).begin(json!({}));
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
    let rows = world.rows();
    let ended = rows.iter().filter(|row| row.event == Event::End).count();
    // Each call has exactly one end, whatever its outcome.
    let mut ids: Vec<_> =
        rows.iter().filter(|row| row.event == Event::End).map(|row| row.call_id.to_string()).collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), ended);
    assert_eq!(ended, 1000, "{answered} were answered");
}

#[test]
fn the_calls_of_a_client_that_leaves_are_cancelled() {
    let world = world_enabling(&["waiting"]);
    let spy = Spy::new("waiting", |ctx, _| async move {
        ctx.progress("running");
        ctx.cancel.cancelled().await;
        Err(ToolError::cancelled("it was cancelled"))
    })
    .tier(SafetyTier::SideEffecting)
    .timeout(Duration::from_secs(600));
    let mut setup = Setup::default();
    setup.limits.leave = Duration::ZERO;
    let mut client = Client::of(natives(&world, |builder| builder.tool(spy)), setup).begin(json!({}));
    client.ask("tools/call", json!({"name": "waiting"}));
    client.until(|message| message["method"] == "notifications/message");
    client.leave();
    let rows = ends(&world, "waiting");
    assert_eq!((rows.len(), rows[0].code.as_deref()), (1, Some("cancelled")));
}

#[test]
fn quick_calls_of_a_client_that_leaves_are_answered() {
    let world = World::new();
    world.put("note", "seen");
    let mut client = Client::of_program(&world, &[]).begin(json!({}));
    // The first call loads the tools, which may take longer than the server's grace period for a client that
    // has left.
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
    let world = world_enabling(&["reporting"]);
    let spy = Spy::new("reporting", |ctx, _| async move {
        let mut again = tokio::time::interval(Duration::from_millis(10));
        while ctx.cancel.run_until_cancelled(again.tick()).await.is_some() {
            ctx.progress("running");
        }
        Err(ToolError::cancelled("it was cancelled"))
    })
    .timeout(Duration::from_secs(600));
    let mut setup = Setup::default();
    setup.limits.leave = Duration::from_millis(200);
    let mut client = Client::of(natives(&world, |builder| builder.tool(spy)), setup).begin(json!({}));
    client.ask("tools/call", json!({"name": "reporting"}));
    client.until(|message| message["method"] == "notifications/message");
    client.leave();
    assert_eq!(ends(&world, "reporting")[0].code.as_deref(), Some("cancelled"));
}

#[test]
fn a_server_ends_on_a_signal_though_its_client_does_not_read() {
    let world = World::new();
    let client = unread(&world);
    assert_eq!(client.ends_when_it_is_told_to(&[Signal::TERM]), Some(0));
}

#[test]
fn a_second_signal_ends_a_server_without_its_client() {
    let world = World::new();
    let client = unread(&world);
    assert_eq!(client.ends_when_it_is_told_to(&[Signal::TERM, Signal::INT]), Some(130));
}

#[test]
fn a_second_request_with_an_id_in_flight_is_refused() {
    let world = world_enabling(&["waiting"]);
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
    let registry = natives(&world, |builder| builder.tool(spy));
    let mut client = Client::of(registry, Setup::default()).begin(json!({}));
    let call = json!({"jsonrpc": "2.0", "id": "same", "method": "tools/call", "params": {"name": "waiting"}});
    client.send(&call.to_string());
    client.until(|message| message["method"] == "notifications/message");
    let again = json!({"jsonrpc": "2.0", "id": "same", "method": "ping"}).to_string();
    assert_eq!(refused(&mut client, &again), (json!(-32600), json!("same")));
    release.notify_one();
    let answer = client.until(|message| message["result"].is_object());
    assert_eq!((text(&answer["result"]), &answer["id"]), ("first", &json!("same")));
    // The first request is answered, so its id may be used again.
    client.send(&again);
    assert_eq!(client.until(|message| message["id"] == "same")["result"], json!({}));
    // A cancelled request gets no answer, and its id stays in use until its call has ended.
    client.send(&call.to_string());
    client.until(|message| message["method"] == "notifications/message");
    client.notify("notifications/cancelled", json!({"requestId": "same"}));
    assert_eq!(refused(&mut client, &again), (json!(-32600), json!("same")));
    assert_eq!(client.leave(), Vec::<Value>::new());
    assert_eq!(ends(&world, "waiting").len(), 2);
}

#[test]
fn a_command_of_a_client_that_is_gone_is_killed() {
    let world = World::new();
    let mut client = Client::of_program(&world, &["--approve"]).begin(json!({}));
    let command = "echo started > started; sleep 600; echo ended > ended";
    client.ask("tools/call", json!({"name": "shell_exec", "arguments": {"command": command}}));
    while !world.shared("started").exists() {
        assert_eq!(client.request("ping", json!({}))["result"], json!({}));
    }
    client.leave();
    assert!(!world.shared("ended").exists());
    assert_eq!(ends(&world, "shell_exec").len(), 1);
}

#[test]
fn a_client_that_does_not_read_is_not_read_either() {
    let world = World::new();
    let mut client = Client::of_program(&world, &[]).begin(json!({}));
    client.stop_reading();
    let before = client.memory();
    // Each answer is larger than its request: the pipes fill, and then the server takes no more.
    let sent = client.write_until_full(20_000, long_echo);
    assert!(sent < 20_000, "the server reads on and on");
    let grown = client.memory().saturating_sub(before);
    assert!(grown < 200 << 20, "{grown} bytes more");
}

#[test]
fn a_request_id_of_any_kind_comes_back_as_it_was() {
    let world = World::new();
    let mut client = of_natives(&world, Setup::default());
    for id in [json!("a\u{0}b"), json!(9_007_199_254_740_993_i64), json!(-1), json!("x".repeat(10_000))] {
        client.send(&json!({"jsonrpc": "2.0", "id": id, "method": "ping"}).to_string());
        assert_eq!(client.next()["id"], id);
    }
}
