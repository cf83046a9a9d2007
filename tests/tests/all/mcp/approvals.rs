//! Approvals through the client: the question shown, the answers that count as a yes, and the effect of a no.

use std::sync::{Arc, atomic::Ordering};

use portcullis_mcp::{McpLimits, McpServer, serve_lines};
use portcullis_testing::World;
use portcullis_tools::approval::APPROVAL_TIMEOUT;
use portcullis_types::{CancellationToken, SafetyTier};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    time::Instant,
};

use super::client::{Client, Setup, ends, natives, text};
use crate::support::{Spy, enabled};

/// Capabilities of a client that takes questions.
fn asking() -> Value {
    json!({"elicitation": {}})
}

/// Calls a tool, answers the question, and returns the question and the call's result.
fn ask(client: &mut Client, tool: &str, arguments: &Value, answer: &Value) -> (Value, Value) {
    let id = client.ask("tools/call", json!({"name": tool, "arguments": arguments}));
    let question = client.until(|message| message["method"] == "elicitation/create");
    client.send(&json!({"jsonrpc": "2.0", "id": question["id"], "result": answer}).to_string());
    (question["params"].clone(), client.answer(id)["result"].clone())
}

fn accept(answer: &str) -> Value {
    json!({"action": "accept", "content": {"answer": answer}})
}

/// A world in which `side` needs approval, and a spy of that name.
fn asked_about(tier: SafetyTier) -> (World, Spy) {
    let world = World::new().with_policy(&enabled("side"));
    let parameters = json!({"type": "object", "properties": {"x": {}, "y": {}, "n": {}}, "required": []});
    (world, Spy::repeating("side").parameters(parameters).tier(tier).requiring_approval())
}

/// The same world, the spy's call count, and a client.
fn setup(
    tier: SafetyTier,
    capabilities: Value,
) -> (World, std::sync::Arc<std::sync::atomic::AtomicUsize>, Client) {
    let (world, spy) = asked_about(tier);
    let calls = spy.calls();
    let registry = natives(&world, |builder| builder.tool(spy));
    let client = Client::of(registry, Setup::default()).begin(capabilities);
    (world, calls, client)
}

#[test]
fn the_client_sees_caller_tool_and_escaped_arguments() {
    let (world, calls, mut client) = setup(SafetyTier::SideEffecting, asking());
    let (question, result) =
        ask(&mut client, "side", &json!({"x": "\u{202e}gpj", "y": 1}), &accept("approve"));
    let shown = question["message"].as_str().expect("a text");
    for part in ["side", "side_effecting", "agent      mcp:tester", "unconfined", r"\u{202e}gpj", r#""y":1"#]
    {
        assert!(shown.contains(part), "{part} is not in {shown}");
    }
    assert!(!shown.contains('\u{202e}'));
    assert_eq!(question["requestedSchema"]["required"], json!(["answer"]));
    assert_eq!(result["isError"], false, "{result}");
    assert_eq!(calls.load(Ordering::SeqCst), 1);
    client.leave();
    assert_eq!(ends(&world, "side")[0].approval.as_deref(), Some("approved"));
}

#[test]
fn only_a_clear_yes_runs_the_call() {
    let (_world, calls, mut client) = setup(SafetyTier::SideEffecting, asking());
    for answer in [
        json!({"action": "decline"}),
        json!({"action": "cancel"}),
        json!({"action": "accept"}),
        json!({"action": "accept", "content": {}}),
        json!({"action": "accept", "content": {"answer": "yes"}}),
        json!({"action": "accept", "content": {"answer": true}}),
        accept("deny"),
    ] {
        let (_, result) = ask(&mut client, "side", &json!({}), &answer);
        assert_eq!(result["isError"], true, "{answer}");
    }
    let reason = json!({"action": "accept", "content": {"answer": "deny", "reason": "not on a Friday"}});
    let (_, result) = ask(&mut client, "side", &json!({}), &reason);
    assert!(text(&result).contains("not on a Friday"), "{result}");
    assert_eq!(calls.load(Ordering::SeqCst), 0);
}

#[test]
fn an_error_in_place_of_an_answer_is_a_no() {
    let (_world, calls, mut client) = setup(SafetyTier::SideEffecting, asking());
    let id = client.ask("tools/call", json!({"name": "side", "arguments": {}}));
    let question = client.until(|message| message["method"] == "elicitation/create");
    client.send(
        &json!({"jsonrpc": "2.0", "id": question["id"], "error": {"code": -1, "message": "no"}}).to_string(),
    );
    assert_eq!(client.answer(id)["result"]["isError"], true);
    assert_eq!(calls.load(Ordering::SeqCst), 0);
}

#[test]
fn an_approval_for_the_session_spares_the_next_question() {
    let (_world, calls, mut client) = setup(SafetyTier::SideEffecting, asking());
    let (question, _) = ask(&mut client, "side", &json!({"n": 1}), &accept("approve_for_session"));
    assert!(question["requestedSchema"].to_string().contains("approve_for_session"));
    assert_eq!(client.call("side", json!({"n": 2}))["isError"], false);
    assert_eq!(calls.load(Ordering::SeqCst), 2);
}

#[test]
fn a_privileged_call_has_no_approval_for_the_session() {
    let (_world, calls, mut client) = setup(SafetyTier::Privileged, asking());
    let (question, result) = ask(&mut client, "side", &json!({}), &accept("approve_for_session"));
    assert!(!question["requestedSchema"].to_string().contains("approve_for_session"));
    assert_eq!(result["isError"], true);
    let (_, once) = ask(&mut client, "side", &json!({}), &accept("approve"));
    assert_eq!(once["isError"], false);
    let (_, again) = ask(&mut client, "side", &json!({}), &accept("deny"));
    assert_eq!(again["isError"], true);
    assert_eq!(calls.load(Ordering::SeqCst), 1);
}

#[test]
fn a_client_that_takes_no_questions_is_told_what_would_help() {
    let (world, calls, mut client) = setup(SafetyTier::SideEffecting, json!({}));
    let result = client.call("side", json!({}));
    assert_eq!(result["isError"], true);
    assert!(text(&result).contains("--approve"), "{result}");
    assert_eq!(calls.load(Ordering::SeqCst), 0);
    client.leave();
    assert_eq!(ends(&world, "side").len(), 1);
}

#[test]
fn the_operator_can_approve_of_everything_in_advance() {
    let world = World::new();
    let mut client = Client::of_program(&world, &["--approve"]).begin(asking());
    let ran = client.call("shell_exec", json!({"command": "echo hi"}));
    assert_eq!((text(&ran), &ran["isError"]), ("hi\n", &json!(false)));
}

#[test]
fn a_question_is_withdrawn_when_its_call_is_cancelled() {
    let (world, calls, mut client) = setup(SafetyTier::SideEffecting, asking());
    let id = client.ask("tools/call", json!({"name": "side", "arguments": {}}));
    let question = client.until(|message| message["method"] == "elicitation/create");
    client.notify("notifications/cancelled", json!({"requestId": id, "reason": "enough"}));
    let withdrawn = client.until(|message| message["method"] == "notifications/cancelled");
    assert_eq!(withdrawn["params"]["requestId"], question["id"]);
    // This yes comes too late.
    client.send(&json!({"jsonrpc": "2.0", "id": question["id"], "result": accept("approve")}).to_string());
    let rest = client.leave();
    assert!(rest.iter().all(|message| message["id"] != id), "a cancelled request has no answer: {rest:?}");
    assert_eq!(calls.load(Ordering::SeqCst), 0);
    assert_eq!(ends(&world, "side").len(), 1);
}

/// The paused clock advances whenever all tasks are idle, so the minutes of this test pass at once.
#[tokio::test(start_paused = true)]
async fn a_question_that_nobody_answers_is_taken_back_and_means_no() {
    let (world, spy) = asked_about(SafetyTier::SideEffecting);
    let calls = spy.calls();
    let registry = Arc::new(natives(&world, |builder| builder.tool(spy)));
    let server = McpServer::new(registry, McpLimits::default()).expect("a server");
    let (client, theirs) = tokio::io::duplex(1 << 16);
    let (input, output) = tokio::io::split(theirs);
    let (answers, mut requests) = tokio::io::split(client);
    let mut answers = BufReader::new(answers).lines();
    let begun = Instant::now();
    let talk = async {
        for message in [
            json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
                "protocolVersion": "2025-06-18",
                "capabilities": asking(),
                "clientInfo": {"name": "tester", "version": "1"},
            }}),
            json!({"jsonrpc": "2.0", "method": "notifications/initialized"}),
            json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "side", "arguments": {}}}),
        ] {
            requests.write_all(format!("{message}\n").as_bytes()).await.expect("the server reads");
        }
        let mut heard = Vec::new();
        loop {
            let line = answers.next_line().await.expect("readable").expect("the server is there");
            let message: Value = serde_json::from_str(&line).expect("JSON");
            let is_answer = message["id"] == 2 && message.get("method").is_none();
            heard.push(message);
            if is_answer {
                break heard;
            }
        }
    };
    let serving = serve_lines(&server, input, output, CancellationToken::new());
    let heard = tokio::select! {
        served = serving => panic!("it ended by itself: {served:?}"),
        heard = talk => heard,
    };
    let waited = begun.elapsed();
    assert!((APPROVAL_TIMEOUT / 2..APPROVAL_TIMEOUT).contains(&waited), "{waited:?}");
    let of = |method: &str| heard.iter().find(|message| message["method"] == method).expect(method);
    let question = of("elicitation/create");
    assert_eq!(of("notifications/cancelled")["params"]["requestId"], question["id"]);
    let result = &heard.last().expect("an answer")["result"];
    assert_eq!(result["isError"], true, "{result}");
    assert!(text(result).contains("the client gave no answer"), "{result}");
    assert_eq!(calls.load(Ordering::SeqCst), 0);
    assert_eq!(ends(&world, "side")[0].approval.as_deref(), Some("approval_refused"));
}

#[test]
fn a_command_is_shown_with_where_it_runs() {
    let world = World::new();
    let mut client = Client::of_program(&world, &[]).begin(asking());
    let (question, result) =
        ask(&mut client, "shell_exec", &json!({"command": "touch made"}), &accept("deny"));
    let shown = question["message"].as_str().expect("a text");
    assert!(
        shown.contains("in a shell session, confined at least as") && shown.contains("touch made"),
        "{shown}"
    );
    assert_eq!(result["isError"], true);
    assert!(!world.shared("made").exists());
}
