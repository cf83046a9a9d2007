//! Approvals through the client: the shown question, the answers that count as a yes, and the effect of a no.

use std::sync::{Arc, atomic::Ordering};

use portcullis_mcp::{McpLimits, McpServer, serve_lines};
use portcullis_testing::Fixture;
use portcullis_tools::{
    approval::APPROVAL_TIMEOUT,
    audit::{ApproverKind, QUESTIONS_DIR},
};
use portcullis_types::{CancellationToken, SafetyTier};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    time::Instant,
};

use super::client::{Client, Setup, end_rows, native_registry, text};
use crate::support::{Spy, enabling_entry};

/// Returns the capabilities of a client that supports questions.
fn elicitation_capabilities() -> Value {
    json!({"elicitation": {}})
}

/// Calls a tool, answers the question, and returns the question and the call's result.
fn ask_and_answer(client: &mut Client, tool: &str, arguments: &Value, answer: &Value) -> (Value, Value) {
    let id = client.ask("tools/call", json!({"name": tool, "arguments": arguments}));
    let question = client.wait_for_message(|message| message["method"] == "elicitation/create");
    client.send(&json!({"jsonrpc": "2.0", "id": question["id"], "result": answer}).to_string());
    (question["params"].clone(), client.answer(id)["result"].clone())
}

fn accept(answer: &str) -> Value {
    json!({"action": "accept", "content": {"answer": answer}})
}

/// Creates a fixture in which `side` needs approval, and a spy of that name.
fn fixture_asking(tier: SafetyTier) -> (Fixture, Spy) {
    let fixture = Fixture::new().with_policy(&enabling_entry("side"));
    let parameters = json!({"type": "object", "properties": {"x": {}, "y": {}, "n": {}}, "required": []});
    (fixture, Spy::repeating("side").parameters(parameters).tier(tier).requiring_approval())
}

/// Creates this fixture, and returns it with the spy's call count and a client.
fn setup(
    tier: SafetyTier,
    capabilities: Value,
) -> (Fixture, std::sync::Arc<std::sync::atomic::AtomicUsize>, Client) {
    let (fixture, spy) = fixture_asking(tier);
    let calls = spy.calls();
    let registry = native_registry(&fixture, |builder| builder.tool(spy));
    let client = Client::start(registry, Setup::default()).begin(capabilities);
    (fixture, calls, client)
}

#[test]
fn the_client_sees_caller_tool_and_escaped_arguments() {
    let (fixture, calls, mut client) = setup(SafetyTier::SideEffecting, elicitation_capabilities());
    let (question, result) =
        ask_and_answer(&mut client, "side", &json!({"x": "\u{202e}gpj", "y": 1}), &accept("approve"));
    let question_text = question["message"].as_str().expect("a text");
    for part in ["side", "side_effecting", "agent      mcp:tester", "unconfined", r"\u{202e}gpj", r#""y":1"#]
    {
        assert!(question_text.contains(part), "{part} is not in {question_text}");
    }
    assert!(!question_text.contains('\u{202e}'));
    assert_eq!(question["requestedSchema"]["required"], json!(["answer"]));
    assert_eq!(result["isError"], false, "{result}");
    assert_eq!(calls.load(Ordering::SeqCst), 1);
    client.leave();
    let row = end_rows(&fixture, "side").remove(0);
    assert_eq!(row.approval.as_deref(), Some("approved"));
    let approver = row.approver.expect("approved");
    assert_eq!((approver.by, approver.name.as_deref()), (ApproverKind::Elicitation, Some("tester")));
    let sha256 = approver.question_sha256.expect("a question was shown");
    let kept_file = fixture.state().join(QUESTIONS_DIR).join(format!("{sha256}.txt"));
    let kept = std::fs::read_to_string(kept_file).expect("the file is readable");
    assert_eq!(hex::encode(Sha256::digest(&kept)), *sha256);
    assert!(kept.contains("side_effecting") && kept.contains(r"\u{202e}gpj"), "{kept}");
}

#[test]
fn only_a_clear_yes_runs_the_call() {
    let (_world, calls, mut client) = setup(SafetyTier::SideEffecting, elicitation_capabilities());
    for answer in [
        json!({"action": "decline"}),
        json!({"action": "cancel"}),
        json!({"action": "accept"}),
        json!({"action": "accept", "content": {}}),
        json!({"action": "accept", "content": {"answer": "yes"}}),
        json!({"action": "accept", "content": {"answer": true}}),
        accept("deny"),
    ] {
        let (_, result) = ask_and_answer(&mut client, "side", &json!({}), &answer);
        assert_eq!(result["isError"], true, "{answer}");
    }
    let reason = json!({"action": "accept", "content": {"answer": "deny", "reason": "not on a Friday"}});
    let (_, result) = ask_and_answer(&mut client, "side", &json!({}), &reason);
    assert!(text(&result).contains("not on a Friday"), "{result}");
    assert_eq!(calls.load(Ordering::SeqCst), 0);
}

#[test]
fn an_error_in_place_of_an_answer_is_a_no() {
    let (_world, calls, mut client) = setup(SafetyTier::SideEffecting, elicitation_capabilities());
    let id = client.ask("tools/call", json!({"name": "side", "arguments": {}}));
    let question = client.wait_for_message(|message| message["method"] == "elicitation/create");
    client.send(
        &json!({"jsonrpc": "2.0", "id": question["id"], "error": {"code": -1, "message": "no"}}).to_string(),
    );
    assert_eq!(client.answer(id)["result"]["isError"], true);
    assert_eq!(calls.load(Ordering::SeqCst), 0);
}

#[test]
fn an_approval_for_the_session_spares_the_next_question() {
    let (_world, calls, mut client) = setup(SafetyTier::SideEffecting, elicitation_capabilities());
    let (question, _) = ask_and_answer(&mut client, "side", &json!({"n": 1}), &accept("approve_for_session"));
    assert!(question["requestedSchema"].to_string().contains("approve_for_session"));
    assert_eq!(client.call("side", json!({"n": 2}))["isError"], false);
    assert_eq!(calls.load(Ordering::SeqCst), 2);
}

#[test]
fn a_privileged_call_has_no_approval_for_the_session() {
    let (_world, calls, mut client) = setup(SafetyTier::Privileged, elicitation_capabilities());
    let (question, result) = ask_and_answer(&mut client, "side", &json!({}), &accept("approve_for_session"));
    assert!(!question["requestedSchema"].to_string().contains("approve_for_session"));
    assert_eq!(result["isError"], true);
    let (_, once) = ask_and_answer(&mut client, "side", &json!({}), &accept("approve"));
    assert_eq!(once["isError"], false);
    let (_, again) = ask_and_answer(&mut client, "side", &json!({}), &accept("deny"));
    assert_eq!(again["isError"], true);
    assert_eq!(calls.load(Ordering::SeqCst), 1);
}

#[test]
fn a_client_without_elicitation_gets_a_hint() {
    let (fixture, calls, mut client) = setup(SafetyTier::SideEffecting, json!({}));
    let result = client.call("side", json!({}));
    assert_eq!(result["isError"], true);
    assert!(text(&result).contains("--approve"), "{result}");
    assert_eq!(calls.load(Ordering::SeqCst), 0);
    client.leave();
    assert_eq!(end_rows(&fixture, "side").len(), 1);
}

#[test]
fn the_operator_can_approve_of_everything_in_advance() {
    let fixture = Fixture::new();
    let mut client = Client::start_program(&fixture, &["--approve"]).begin(elicitation_capabilities());
    let result = client.call("shell_exec", json!({"command": "echo hi"}));
    assert_eq!((text(&result), &result["isError"]), ("hi\n", &json!(false)));
}

#[test]
fn a_question_is_withdrawn_when_its_call_is_cancelled() {
    let (fixture, calls, mut client) = setup(SafetyTier::SideEffecting, elicitation_capabilities());
    let id = client.ask("tools/call", json!({"name": "side", "arguments": {}}));
    let question = client.wait_for_message(|message| message["method"] == "elicitation/create");
    client.notify("notifications/cancelled", json!({"requestId": id, "reason": "enough"}));
    let withdrawn = client.wait_for_message(|message| message["method"] == "notifications/cancelled");
    assert_eq!(withdrawn["params"]["requestId"], question["id"]);
    // This approval comes too late.
    client.send(&json!({"jsonrpc": "2.0", "id": question["id"], "result": accept("approve")}).to_string());
    let rest = client.leave();
    assert!(rest.iter().all(|message| message["id"] != id), "a cancelled request has no answer: {rest:?}");
    assert_eq!(calls.load(Ordering::SeqCst), 0);
    assert_eq!(end_rows(&fixture, "side").len(), 1);
}

/// The paused clock advances whenever all tasks are idle, so the minutes of this test pass immediately.
#[tokio::test(start_paused = true)]
async fn an_unanswered_question_is_withdrawn_and_denied() {
    let (fixture, spy) = fixture_asking(SafetyTier::SideEffecting);
    let calls = spy.calls();
    let registry = Arc::new(native_registry(&fixture, |builder| builder.tool(spy)));
    let server = McpServer::new(registry, McpLimits::default()).expect("a server");
    let (client, server_stream) = tokio::io::duplex(1 << 16);
    let (input, output) = tokio::io::split(server_stream);
    let (answers, mut requests) = tokio::io::split(client);
    let mut answers = BufReader::new(answers).lines();
    let begun = Instant::now();
    let talk = async {
        for message in [
            json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
                "protocolVersion": "2025-06-18",
                "capabilities": elicitation_capabilities(),
                "clientInfo": {"name": "tester", "version": "1"},
            }}),
            json!({"jsonrpc": "2.0", "method": "notifications/initialized"}),
            json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "side", "arguments": {}}}),
        ] {
            requests.write_all(format!("{message}\n").as_bytes()).await.expect("the server reads");
        }
        let mut messages = Vec::new();
        loop {
            let line = answers.next_line().await.expect("readable").expect("the server is there");
            let message: Value = serde_json::from_str(&line).expect("JSON");
            let is_answer = message["id"] == 2 && message.get("method").is_none();
            messages.push(message);
            if is_answer {
                break messages;
            }
        }
    };
    let serving = serve_lines(&server, input, output, CancellationToken::new());
    let messages = tokio::select! {
        served = serving => panic!("it ended by itself: {served:?}"),
        messages = talk => messages,
    };
    let waited = begun.elapsed();
    assert!((APPROVAL_TIMEOUT / 2..APPROVAL_TIMEOUT).contains(&waited), "{waited:?}");
    let message_of =
        |method: &str| messages.iter().find(|message| message["method"] == method).expect(method);
    let question = message_of("elicitation/create");
    assert_eq!(message_of("notifications/cancelled")["params"]["requestId"], question["id"]);
    let result = &messages.last().expect("an answer")["result"];
    assert_eq!(result["isError"], true, "{result}");
    assert!(text(result).contains("the client gave no answer"), "{result}");
    assert_eq!(calls.load(Ordering::SeqCst), 0);
    assert_eq!(end_rows(&fixture, "side")[0].approval.as_deref(), Some("approval_refused"));
}

#[test]
fn a_command_is_shown_with_where_it_runs() {
    let fixture = Fixture::new();
    let mut client = Client::start_program(&fixture, &[]).begin(elicitation_capabilities());
    let (question, result) =
        ask_and_answer(&mut client, "shell_exec", &json!({"command": "touch made"}), &accept("deny"));
    let question_text = question["message"].as_str().expect("a text");
    assert!(
        question_text.contains("in a shell session, confined at least as")
            && question_text.contains("touch made"),
        "{question_text}"
    );
    assert_eq!(result["isError"], true);
    assert!(!fixture.shared("made").exists());
}
