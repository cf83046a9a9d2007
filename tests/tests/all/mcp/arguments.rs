//! Invalid arguments through both front ends of models, MCP and the agent loop. Each call with invalid arguments has
//! its own answer and row and runs nothing, and the next call is served.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use portcullis_types::SafetyTier;
use serde_json::{Value, json};

use super::{
    client::{Client, Setup, native_registry, text},
    guests::{results, runtime},
};
use crate::support::{Spy, fixture_enabling};

/// Creates a tool that must not run, and its call count.
fn spy() -> (Spy, Arc<AtomicUsize>) {
    let properties = json!({
        "n": {"type": "integer"},
        "big": {"type": "integer"},
        "text": {"type": "string"},
        "inner": {"type": "object"},
    });
    // Not read-only, because a read-only tool is called once for each of several objects.
    let spy = Spy::repeating("spy").tier(SafetyTier::SideEffecting).parameters(json!({
        "type": "object", "properties": properties, "required": [],
    }));
    let calls = spy.calls();
    (spy, calls)
}

/// Returns texts that are JSON objects, and the messages that refuse them.
fn refused_objects() -> Vec<(String, &'static str)> {
    let nested = |depth: usize| format!("{{\"inner\":{}1{}}}", "[".repeat(depth), "]".repeat(depth));
    vec![
        (r#"{"n":1,"n":1}"#.to_owned(), "duplicate key 'n'"),
        (r#"{"n":1,"\u006e":2}"#.to_owned(), "duplicate key 'n'"),
        (r#"{"inner":{"a":1,"a":2}}"#.to_owned(), "duplicate key 'a'"),
        (r#"{"big":1e999}"#.to_owned(), "out of range"),
        (r#"{"text":"\ud800"}"#.to_owned(), "not valid JSON"),
        (r#"{"text":"\udfff\ud800"}"#.to_owned(), "not valid JSON"),
        (r#"{"\ud800":1}"#.to_owned(), "not valid JSON"),
        (nested(64), "nested deeper than 64 levels"),
        (nested(100_000), "nested deeper than 64 levels"),
        (r#"{"n":"x"}"#.to_owned(), "field 'n': \"x\" is not an integer"),
    ]
}

/// Creates an object of 1 MiB and one byte.
fn too_large() -> String {
    let arguments = format!("{{\"text\":\"{}\"}}", "x".repeat((1 << 20) - 10));
    assert_eq!(arguments.len(), (1 << 20) + 1);
    arguments
}

/// Returns texts that are not JSON, and a registry's messages about them.
fn non_json_texts() -> Vec<(String, &'static str)> {
    vec![
        (r#"{"n":NaN}"#.to_owned(), "not valid JSON"),
        (r#"{"n":-Infinity}"#.to_owned(), "not valid JSON"),
        ("{\"text\":\"a\u{0}b\"}".to_owned(), "not valid JSON"),
        ("[".repeat(100_000), "nested deeper than 64 levels"),
        ("{\"inner\":".repeat(100_000), "nested deeper than 64 levels"),
        ("{}x".to_owned(), "trailing"),
        ("{},".to_owned(), "trailing"),
        ("{'n':1}".to_owned(), "not valid JSON"),
        ("{\"n\":1,}".to_owned(), "not valid JSON"),
        ("{\"n\":01}".to_owned(), "not valid JSON"),
        ("{\"n\":1 // one }".to_owned(), "not valid JSON"),
        ("{\"n\":".to_owned(), "not complete JSON"),
        ("\u{feff}{}".to_owned(), "not valid JSON"),
    ]
}

/// Returns the first characters of a text, to identify it in messages.
fn excerpt(text: &str) -> String {
    text.chars().take(60).collect()
}

/// Calls the tool with the unchanged text, and returns the answer: the next message that is not a notification or a
/// request of the server.
#[track_caller]
fn answer(client: &mut Client, id: usize, arguments: &str) -> Value {
    client.send(&format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"spy","arguments":{arguments}}}}}"#
    ));
    client.wait_for_message(|message| message.get("method").is_none())
}

#[test]
fn invalid_objects_are_error_results_with_one_row_each() {
    let fixture = fixture_enabling(&["spy"]);
    let (spy, ran) = spy();
    let registry = native_registry(&fixture, |builder| builder.tool(spy));
    let mut client = Client::start(registry, Setup::default()).begin(json!({}));
    let refused = refused_objects().into_iter().chain([(too_large(), "too large")]);
    for (id, (arguments, words)) in (1000..).zip(refused) {
        let arguments_excerpt = excerpt(&arguments);
        let answer = answer(&mut client, id, &arguments);
        let result = &answer["result"];
        assert_eq!(
            (&answer["id"], &result["isError"]),
            (&json!(id), &json!(true)),
            "{arguments_excerpt}: {answer}"
        );
        let result_text = text(result);
        assert!(
            result_text.starts_with("Tool execution failed: ") && result_text.contains(words),
            "{arguments_excerpt}: {result_text}"
        );
        let mut rows = fixture.rows();
        assert_eq!(rows.len(), id - 999, "{arguments_excerpt}: {rows:#?}");
        let row = rows.pop().expect("one at least");
        assert_eq!(
            (&*row.tool, row.code.as_deref()),
            ("spy", Some("invalid_arguments")),
            "{arguments_excerpt}"
        );
    }
    assert_eq!(ran.load(Ordering::SeqCst), 0);
    assert!(text(&client.call("echo", json!({"message": "alive"}))).contains("alive"));
    assert_eq!(client.leave(), Vec::<Value>::new());
}

#[test]
fn arguments_other_than_objects_make_no_call() {
    let fixture = fixture_enabling(&["spy"]);
    let (spy, ran) = spy();
    let registry = native_registry(&fixture, |builder| builder.tool(spy));
    let mut client = Client::start(registry, Setup::default()).begin(json!({}));
    let garbage = non_json_texts().into_iter().map(|(arguments, _)| arguments).chain(["{} {}".to_owned()]);
    for (id, arguments) in (1000..).zip(garbage) {
        // The message is not JSON, so its id is unknown and the answer's id is null.
        let answer = answer(&mut client, id, &arguments);
        let id_and_code = (&answer["id"], &answer["error"]["code"]);
        assert_eq!(id_and_code, (&Value::Null, &json!(-32700)), "{}: {answer}", excerpt(&arguments));
    }
    for (id, arguments) in (2000..).zip(["[]", "7", "true", "\"{}\""]) {
        let answer = answer(&mut client, id, arguments);
        let id_and_code = (&answer["id"], &answer["error"]["code"]);
        assert_eq!(id_and_code, (&json!(id), &json!(-32602)), "{arguments}: {answer}");
    }
    assert!(text(&client.call("echo", json!({"message": "alive"}))).contains("alive"));
    assert_eq!(client.leave(), Vec::<Value>::new());
    let tools: Vec<_> = fixture.rows().into_iter().map(|row| row.tool.to_string()).collect();
    assert_eq!((ran.load(Ordering::SeqCst), tools), (0, vec!["echo".to_owned()]));
}

#[test]
fn a_model_gets_one_error_for_each_call_with_invalid_arguments() {
    let fixture = fixture_enabling(&["spy"]);
    let (spy, ran) = spy();
    let registry = Arc::new(native_registry(&fixture, |builder| builder.tool(spy)));
    let runtime = runtime();
    let refused = [
        ("{\"text\":\"line\nbreak\"}", "not valid JSON"),
        ("[]", "must be a JSON object"),
        ("7", "must be a JSON object"),
        // A tool with effects must not guess which of several objects was meant.
        ("{} {}", "make one call for each"),
    ];
    let refused = refused.into_iter().map(|(arguments, words)| (arguments.to_owned(), words));
    let refused = refused_objects().into_iter().chain(non_json_texts()).chain(refused);
    let refused = refused.map(|(arguments, words)| (arguments, words, "invalid_arguments"));
    let refused = refused.chain([(too_large(), "1048576 bytes", "resource_limit")]);
    for (before, (arguments, words, code)) in refused.enumerate() {
        let arguments_excerpt = excerpt(&arguments);
        let messages = runtime.block_on(results(Arc::clone(&registry), &[("spy", arguments.as_str())]));
        assert_eq!(messages.len(), 1, "{arguments_excerpt}: {messages:?}");
        assert_eq!(
            (messages[0].tool_call_id.as_deref(), messages[0].is_error),
            (Some("call_0"), true),
            "{arguments_excerpt}"
        );
        let answer_text = messages[0].text();
        assert!(
            answer_text.starts_with("Tool execution failed: ") && answer_text.contains(words),
            "{arguments_excerpt}: {answer_text}"
        );
        let mut rows = fixture.rows();
        assert_eq!(rows.len(), before + 1, "{arguments_excerpt}: {rows:#?}");
        let row = rows.pop().expect("one at least");
        assert_eq!((&*row.tool, row.code.as_deref()), ("spy", Some(code)), "{arguments_excerpt}");
    }
    assert_eq!(ran.load(Ordering::SeqCst), 0);
    let messages = runtime.block_on(results(registry, &[("spy", r#"{"n":1}"#)]));
    assert_eq!((messages[0].text().as_str(), messages[0].is_error), (r#"{"n":1}"#, false));
}
