//! Invalid arguments through both front ends that models use, MCP and the agent loop: each such call has its
//! own answer and row and runs nothing, and the next call is served.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use portcullis_types::SafetyTier;
use serde_json::{Value, json};

use super::{
    client::{Client, Setup, natives, text},
    guests::{results, runtime},
};
use crate::support::{Spy, world_enabling};

/// A tool that must not run, and its call count.
fn spy() -> (Spy, Arc<AtomicUsize>) {
    let properties = json!({
        "n": {"type": "integer"},
        "big": {"type": "integer"},
        "text": {"type": "string"},
        "inner": {"type": "object"},
    });
    // Not read-only: a read-only tool is called once for each of several objects.
    let spy = Spy::repeating("spy").tier(SafetyTier::SideEffecting).parameters(json!({
        "type": "object", "properties": properties, "required": [],
    }));
    let calls = spy.calls();
    (spy, calls)
}

/// Texts that are JSON objects, and the messages that refuse them.
fn objects() -> Vec<(String, &'static str)> {
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

/// An object of 1 MiB and one byte.
fn too_large() -> String {
    let arguments = format!("{{\"text\":\"{}\"}}", "x".repeat((1 << 20) - 10));
    assert_eq!(arguments.len(), (1 << 20) + 1);
    arguments
}

/// Texts that are not JSON, and the messages of a registry about them.
fn garbage() -> Vec<(String, &'static str)> {
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

/// The first characters of a text, to identify it in messages.
fn shown(text: &str) -> String {
    text.chars().take(60).collect()
}

/// Calls the tool with the text as it is, and returns the answer: the next message that is not one of the
/// server's notifications or requests.
#[track_caller]
fn answer(client: &mut Client, id: usize, arguments: &str) -> Value {
    client.send(&format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"spy","arguments":{arguments}}}}}"#
    ));
    client.until(|message| message.get("method").is_none())
}

#[test]
fn invalid_objects_are_error_results_with_one_row_each() {
    let world = world_enabling(&["spy"]);
    let (spy, ran) = spy();
    let registry = natives(&world, |builder| builder.tool(spy));
    let mut client = Client::of(registry, Setup::default()).begin(json!({}));
    let refused = objects().into_iter().chain([(too_large(), "too large")]);
    for (id, (arguments, words)) in (1000..).zip(refused) {
        let shown = shown(&arguments);
        let answer = answer(&mut client, id, &arguments);
        let result = &answer["result"];
        assert_eq!((&answer["id"], &result["isError"]), (&json!(id), &json!(true)), "{shown}: {answer}");
        let said = text(result);
        assert!(said.starts_with("Tool execution failed: ") && said.contains(words), "{shown}: {said}");
        let mut rows = world.rows();
        assert_eq!(rows.len(), id - 999, "{shown}: {rows:#?}");
        let row = rows.pop().expect("one at least");
        assert_eq!((&*row.tool, row.code.as_deref()), ("spy", Some("invalid_arguments")), "{shown}");
    }
    assert_eq!(ran.load(Ordering::SeqCst), 0);
    assert!(text(&client.call("echo", json!({"message": "alive"}))).contains("alive"));
    assert_eq!(client.leave(), Vec::<Value>::new());
}

#[test]
fn arguments_that_are_no_object_make_no_call_and_end_no_session() {
    let world = world_enabling(&["spy"]);
    let (spy, ran) = spy();
    let registry = natives(&world, |builder| builder.tool(spy));
    let mut client = Client::of(registry, Setup::default()).begin(json!({}));
    let garbage = garbage().into_iter().map(|(arguments, _)| arguments).chain(["{} {}".to_owned()]);
    for (id, arguments) in (1000..).zip(garbage) {
        // The message is not JSON, so the id of the answer is null.
        let answer = answer(&mut client, id, &arguments);
        let found = (&answer["id"], &answer["error"]["code"]);
        assert_eq!(found, (&Value::Null, &json!(-32700)), "{}: {answer}", shown(&arguments));
    }
    for (id, arguments) in (2000..).zip(["[]", "7", "true", "\"{}\""]) {
        let answer = answer(&mut client, id, arguments);
        let found = (&answer["id"], &answer["error"]["code"]);
        assert_eq!(found, (&json!(id), &json!(-32602)), "{arguments}: {answer}");
    }
    assert!(text(&client.call("echo", json!({"message": "alive"}))).contains("alive"));
    assert_eq!(client.leave(), Vec::<Value>::new());
    let tools: Vec<_> = world.rows().into_iter().map(|row| row.tool.to_string()).collect();
    assert_eq!((ran.load(Ordering::SeqCst), tools), (0, vec!["echo".to_owned()]));
}

#[test]
fn a_model_gets_one_error_for_each_call_with_invalid_arguments() {
    let world = world_enabling(&["spy"]);
    let (spy, ran) = spy();
    let registry = Arc::new(natives(&world, |builder| builder.tool(spy)));
    let runtime = runtime();
    let refused = [
        ("{\"text\":\"line\nbreak\"}", "not valid JSON"),
        ("[]", "must be a JSON object"),
        ("7", "must be a JSON object"),
        // For a tool with effects, several objects do not tell which call was meant.
        ("{} {}", "make one call for each"),
    ];
    let refused = refused.into_iter().map(|(arguments, words)| (arguments.to_owned(), words));
    let refused = objects().into_iter().chain(garbage()).chain(refused);
    let refused = refused.map(|(arguments, words)| (arguments, words, "invalid_arguments"));
    let refused = refused.chain([(too_large(), "1048576 bytes", "resource_limit")]);
    for (before, (arguments, words, code)) in refused.enumerate() {
        let shown = shown(&arguments);
        let told = runtime.block_on(results(Arc::clone(&registry), &[("spy", arguments.as_str())]));
        assert_eq!(told.len(), 1, "{shown}: {told:?}");
        assert_eq!((told[0].tool_call_id.as_deref(), told[0].is_error), (Some("call_0"), true), "{shown}");
        let said = told[0].text();
        assert!(said.starts_with("Tool execution failed: ") && said.contains(words), "{shown}: {said}");
        let mut rows = world.rows();
        assert_eq!(rows.len(), before + 1, "{shown}: {rows:#?}");
        let row = rows.pop().expect("one at least");
        assert_eq!((&*row.tool, row.code.as_deref()), ("spy", Some(code)), "{shown}");
    }
    assert_eq!(ran.load(Ordering::SeqCst), 0);
    let told = runtime.block_on(results(registry, &[("spy", r#"{"n":1}"#)]));
    assert_eq!((told[0].text().as_str(), told[0].is_error), (r#"{"n":1}"#, false));
}
