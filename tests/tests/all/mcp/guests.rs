//! Hostile modules behind both front ends of models, MCP and the agent loop. The client and the model get the
//! pipeline's result of the guest's call. The call has one row, and the next call is served.

use std::sync::Arc;

use portcullis_agent::{
    AgentConfig, AgentLoop, Delta, InMemoryMessageStore, MessageStore as _, ScriptedProvider, StopReason,
    ToolCallDelta,
};
use portcullis_testing::{Fixture, approving_caller};
use portcullis_tools::{RegistryExecutor, ToolRegistry, new_call};
use portcullis_types::{Message, MessageRole};
use serde_json::{Value, json};

use super::client::{Client, Setup, end_rows, text};
use crate::support::{Spy, fixture_enabling};

/// Guests whose call ends in an error: arguments and the error's code.
const GUESTS: [(&str, &str, &str); 21] = [
    ("loop_forever", "{}", "timeout"),
    ("loop_in_host_calls", "{}", "timeout"),
    ("sleep_for_an_hour", "{}", "timeout"),
    ("frame_then_loop", "{}", "timeout"),
    ("huge_directory", r#"{"path":"/shared","times":4000000000}"#, "timeout"),
    ("memory_bomb", r#"{"then":"abort"}"#, "memory_limit"),
    ("deep_recursion", "{}", "stack_overflow"),
    ("stdout_flood", "{}", "frame_too_large"),
    ("exit_without_frame", "{}", "no_final_frame"),
    ("exit_nonzero", "{}", "guest_exit"),
    ("panics", "{}", "guest_trap"),
    ("two_final_frames", "{}", "output_after_final_frame"),
    ("sends_a_chunk", "{}", "unwanted_chunk"),
    ("invalid_utf8", "{}", "malformed_frame"),
    ("malformed_frame", "{}", "malformed_frame"),
    ("deep_frame", "{}", "malformed_frame"),
    ("claims_timeout", "{}", "malformed_frame"),
    ("echo_error", r#"{"kind":"denied","message":"{\"ok\":\"a\"}"}"#, "denied"),
    ("progress_flood", "{}", "too_many_frames"),
    ("oversized_progress", "{}", "frame_too_large"),
    ("oversized_result", "{}", "frame_too_large"),
];

/// Returns whether a text is the expected answer of a guest.
type Expected = fn(&str) -> bool;

/// Guests that answer although they attack, and the check of the answer.
const ANSWERING: [(&str, &str, Expected); 3] = [
    ("stderr_flood", r#"{"bytes":67108864}"#, |text| text == "wrote 67108864 bytes"),
    ("state_left_in_memory", "{}", |text| text == "0"),
    ("probe_environment", "{}", |text| {
        text.contains("arg 0: tool")
            && !["env: ", "preopen ", "fd 3: "].iter().any(|word| text.contains(word))
    }),
];

/// Creates a fixture that lets a guest run with the mounts that its arguments name, and with a short timeout
/// for a guest that never ends.
fn fixture_for_guest(guest: &str, arguments: &str, code: Option<&str>) -> Fixture {
    let profile = if arguments.contains("/shared") { "WorkspaceRead" } else { "Nothing" };
    let timeout = if code == Some("timeout") { "300ms" } else { "15s" };
    Fixture::new().with_policy(&format!(
        "[tools.{guest}]\nprofile = \"{profile}\"\napproval = \"allow\"\ntimeout = \"{timeout}\"\n"
    ))
}

pub(super) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
}

/// Makes a call through the pipeline, and returns its result as a model reads it.
async fn direct_result_text(registry: &ToolRegistry, guest: &str, arguments: &str) -> String {
    registry
        .execute_with_policy(new_call(guest, arguments.to_owned()), &approving_caller())
        .await
        .model_text()
}

#[track_caller]
fn assert_rows(fixture: &Fixture, guest: &str, code: Option<&str>, calls: usize) {
    let rows = end_rows(fixture, guest);
    assert_eq!(rows.len(), calls, "{guest}: {rows:#?}");
    assert!(rows.iter().all(|row| row.code.as_deref() == code), "{guest}: {rows:#?}");
}

#[test]
fn a_client_gets_the_pipelines_error_of_a_hostile_guest() {
    for (guest, arguments, code) in GUESTS {
        let fixture = fixture_for_guest(guest, arguments, Some(code));
        let runtime = runtime();
        let registry = runtime.block_on(fixture.registry_with(&[guest]));
        let direct_text = runtime.block_on(direct_result_text(&registry, guest, arguments));
        let mut client = Client::start(registry, Setup::default()).begin(json!({}));
        let arguments: Value = serde_json::from_str(arguments).expect("JSON");
        let result = client.call(guest, arguments);
        assert_eq!((&result["isError"], text(&result)), (&json!(true), direct_text.as_str()), "{guest}");
        assert!(text(&client.call("echo", json!({"message": "alive"}))).contains("alive"), "{guest}");
        assert_eq!(client.leave(), Vec::<Value>::new(), "{guest}");
        assert_rows(&fixture, guest, Some(code), 2);
    }
}

#[test]
fn concurrent_read_modify_writes_lose_nothing() {
    const CALLS: usize = 40;
    let entry = "[tools.read_modify_write]\nprofile = \"FileReadWrite\"\napproval = \"allow\"\n";
    let fixture = Fixture::new().with_policy(entry);
    fixture.put("list.txt", "");
    let runtime = runtime();
    let registry = runtime.block_on(fixture.registry_with(&["read_modify_write"]));
    let mut client = Client::start(registry, Setup::default()).begin(json!({}));
    let request_ids: Vec<u64> = (0..CALLS)
        .map(|number| {
            let arguments = json!({"path": "/shared/list.txt", "line": format!("item {number}")});
            client.ask("tools/call", json!({"name": "read_modify_write", "arguments": arguments}))
        })
        .collect();
    let mut open_ids: Vec<u64> = request_ids;
    while !open_ids.is_empty() {
        let answer = client.next();
        let position = open_ids.iter().position(|id| answer["id"] == *id).expect("one of them");
        open_ids.remove(position);
        assert_eq!(answer["result"]["isError"], false, "{answer}");
    }
    let text = std::fs::read_to_string(fixture.shared("list.txt")).expect("readable");
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines.dedup();
    assert_eq!(lines.len(), CALLS, "{text}");
}

fn calls(calls: &[(&str, &str)]) -> Vec<Delta> {
    let call = |(index, (tool, arguments)): (usize, &(&str, &str))| {
        Delta::ToolCall(ToolCallDelta {
            index: index as u64,
            id: Some(format!("call_{index}")),
            name: Some((*tool).to_owned()),
            arguments: Some((*arguments).to_owned()),
        })
    };
    calls.iter().enumerate().map(call).chain([Delta::End(StopReason::ToolCalls)]).collect()
}

/// Lets an agent run these calls one after the other, and returns the messages that give a model the results.
pub(super) async fn results(registry: Arc<ToolRegistry>, requested_calls: &[(&str, &str)]) -> Vec<Message> {
    let done = [Delta::Text("done".to_owned()), Delta::End(StopReason::Stop)];
    let script = ScriptedProvider::new().then(calls(requested_calls)).then(done);
    let store = InMemoryMessageStore::new();
    let executor = RegistryExecutor::new(registry, approving_caller());
    let mut agent = AgentLoop::new(AgentConfig::new("agent"), (), store.clone(), script, executor);
    let run = agent.run("go").await;
    assert_eq!(run.answer(), Some("done"), "{:?}", run.end);
    let messages = store.load().await.expect("the store has the messages");
    messages.into_iter().filter(|message| message.role == MessageRole::Tool).collect()
}

/// Returns the texts that give a model the results of these calls.
async fn result_texts(registry: Arc<ToolRegistry>, requested_calls: &[(&str, &str)]) -> Vec<String> {
    results(registry, requested_calls).await.iter().map(Message::text).collect()
}

#[test]
fn a_model_gets_the_pipelines_error_of_a_hostile_guest() {
    for (guest, arguments, code) in GUESTS {
        let fixture = fixture_for_guest(guest, arguments, Some(code));
        let runtime = runtime();
        let registry = Arc::new(runtime.block_on(fixture.registry_with(&[guest])));
        let direct_text = runtime.block_on(direct_result_text(&registry, guest, arguments));
        let texts = runtime
            .block_on(result_texts(registry, &[(guest, arguments), ("echo", r#"{"message":"alive"}"#)]));
        assert_eq!(texts[0], direct_text, "{guest}");
        assert!(texts.len() == 2 && texts[1].contains("alive"), "{guest}: {texts:?}");
        assert_rows(&fixture, guest, Some(code), 2);
    }
}

#[test]
fn a_hostile_guests_answer_reaches_model_and_client_unchanged() {
    for (guest, arguments, is_expected) in ANSWERING {
        let fixture = fixture_for_guest(guest, arguments, None);
        let runtime = runtime();
        let registry = Arc::new(runtime.block_on(fixture.registry_with(&[guest])));
        let direct_text = runtime.block_on(direct_result_text(&registry, guest, arguments));
        assert!(is_expected(&direct_text), "{guest}: {direct_text}");
        let texts = runtime.block_on(result_texts(registry, &[(guest, arguments), (guest, arguments)]));
        assert_eq!(texts, [direct_text.as_str(), direct_text.as_str()], "{guest}");
        let registry = runtime.block_on(fixture.registry_with(&[guest]));
        let mut client = Client::start(registry, Setup::default()).begin(json!({}));
        for _ in 0..2 {
            let arguments: Value = serde_json::from_str(arguments).expect("JSON");
            let result = client.call(guest, arguments);
            assert_eq!((&result["isError"], text(&result)), (&json!(false), direct_text.as_str()), "{guest}");
        }
        assert!(text(&client.call("echo", json!({"message": "alive"}))).contains("alive"), "{guest}");
        assert_eq!(client.leave(), Vec::<Value>::new(), "{guest}");
        assert_rows(&fixture, guest, None, 5);
    }
}

#[test]
fn a_panicking_or_blocking_native_fails_only_its_own_call() {
    // Reporting a panic may be slow.
    for (name, timeout) in [("panicking", 120_000), ("blocking", 300)] {
        let fixture = fixture_enabling(&[name]);
        let spy = || {
            Spy::new(name, move |_, _| async move {
                assert!(name != "panicking", "as asked");
                std::thread::park_timeout(std::time::Duration::from_secs(20));
                Ok(portcullis_types::ToolOutput::text("late"))
            })
            .timeout(std::time::Duration::from_millis(timeout))
        };
        let runtime = runtime();
        let registry = Arc::new(super::client::native_registry(&fixture, |builder| builder.tool(spy())));
        let direct_text = runtime.block_on(direct_result_text(&registry, name, "{}"));
        let requested_calls = [(name, "{}"), ("echo", r#"{"message":"alive"}"#)];
        let texts = runtime.block_on(result_texts(registry, &requested_calls));
        assert_eq!(texts[0], direct_text);
        assert!(texts[1].contains("alive"), "{texts:?}");
        let registry = super::client::native_registry(&fixture, |builder| builder.tool(spy()));
        let mut client = Client::start(registry, Setup::default()).begin(json!({}));
        assert_eq!(text(&client.call(name, json!({}))), direct_text);
        assert!(text(&client.call("echo", json!({"message": "alive"}))).contains("alive"));
        client.leave();
        let codes: Vec<_> = end_rows(&fixture, name).iter().filter_map(|row| row.code.clone()).collect();
        assert_eq!(codes.len(), 3, "{codes:?}");
        assert!(codes.iter().all(|found| *found == codes[0]), "{codes:?}");
        runtime.shutdown_background();
    }
}

#[test]
fn without_a_log_neither_client_nor_model_gets_a_result() {
    let fixture = fixture_enabling(&["spy"]);
    let spy = Spy::repeating("spy");
    let registry = super::client::native_registry(&fixture, |builder| builder.tool(spy));
    // Put a folder in place of the log, so that no row can be written.
    let log = portcullis_tools::audit::log_path(&fixture.state());
    std::fs::remove_file(&log).expect("was there");
    std::fs::create_dir(&log).expect("the folder can be made");
    let registry = Arc::new(registry);
    let runtime = runtime();
    let texts = runtime.block_on(result_texts(Arc::clone(&registry), &[("spy", "{}")]));
    assert!(texts[0].starts_with("Tool execution failed: the call cannot be recorded"), "{texts:?}");
    drop(runtime);
    let registry = Arc::into_inner(registry).expect("its only holder");
    let mut client = Client::start(registry, Setup::default()).begin(json!({}));
    let result = client.call("spy", json!({}));
    assert!(text(&result).starts_with("Tool execution failed: the call cannot be recorded"), "{result}");
    client.leave();
}
