//! Arguments of a tool: which are refused before the tool runs, and which arrive.

use std::sync::atomic::Ordering;

use portcullis_testing::Fixture;
use portcullis_types::{SafetyTier, ToolErrorKind::InvalidArguments};
use serde_json::{Value, json};

use crate::support::{Spy, caller, fixture_enabling, native_registry, raw_call};

fn spy(tier: SafetyTier) -> Spy {
    let properties = json!({
        "n": {"type": "integer", "format": "uint8"},
        "big": {"type": "integer"},
        "flag": {"type": "boolean"},
        "text": {"type": "string"},
        "inner": {"type": "object"},
        "bounded": {"type": "integer", "minimum": 1, "maximum": 9},
        "choice": {"enum": ["a", "b"]},
    });
    Spy::repeating("spy").tier(tier).parameters(json!({
        "type": "object", "properties": properties, "required": [],
    }))
}

async fn refusal_message(arguments: &str) -> String {
    let fixture = fixture_enabling(&["spy"]);
    let spy = spy(SafetyTier::SideEffecting);
    let calls = spy.calls();
    let registry = native_registry(&fixture, [spy]);
    let result = registry.execute_with_policy(raw_call("spy", arguments), &caller()).await;
    let excerpt: String = arguments.chars().take(60).collect();
    let error = result.into_result().expect_err(&excerpt);
    assert_eq!((error.kind(), error.code()), (InvalidArguments, "invalid_arguments"), "{excerpt}");
    assert_eq!(calls.load(Ordering::SeqCst), 0, "{excerpt}");
    assert_eq!(fixture.rows().len(), 1, "{excerpt}");
    assert!(error.message().len() < 2000, "{excerpt}: {} bytes of error", error.message().len());
    error.to_string()
}

#[tokio::test]
async fn ambiguous_or_endless_json_is_refused_before_anything_runs() {
    for (arguments, words) in [
        (r#"{"n":1,"n":1}"#.to_owned(), "duplicate key 'n'"),
        (r#"{"n":1,"\u006e":2}"#.to_owned(), "duplicate key 'n'"),
        (r#"{"inner":{"a":1,"a":2}}"#.to_owned(), "duplicate key 'a'"),
        (r#"{"n":NaN}"#.to_owned(), "not valid JSON"),
        (r#"{"n":Infinity}"#.to_owned(), "not valid JSON"),
        (r#"{"n":-Infinity}"#.to_owned(), "not valid JSON"),
        (r#"{"big":1e999}"#.to_owned(), "out of range"),
        (r#"{"text":"\ud800"}"#.to_owned(), "not valid JSON"),
        (r#"{"text":"\udfff\ud800"}"#.to_owned(), "not valid JSON"),
        (r#"{"\ud800":1}"#.to_owned(), "not valid JSON"),
        ("[".repeat(100_000), "nested deeper than 64 levels"),
        ("{\"inner\":".repeat(100_000), "nested deeper than 64 levels"),
        (format!("{{\"inner\":{}1{}}}", "[".repeat(100_000), "]".repeat(100_000)), "nested deeper"),
        (format!("{{\"text\":\"{}\"}}", "x".repeat(1 << 20)), "too large"),
        ("{} {}".to_owned(), "trailing"),
        ("{}x".to_owned(), "trailing"),
        ("{},".to_owned(), "trailing"),
        ("{'n':1}".to_owned(), "not valid JSON"),
        ("{\"n\":1,}".to_owned(), "not valid JSON"),
        ("{\"n\":01}".to_owned(), "not valid JSON"),
        ("{\"n\":1 // one\n}".to_owned(), "not valid JSON"),
        ("{\"text\":\"line\nbreak\"}".to_owned(), "not valid JSON"),
        ("{\"n\":".to_owned(), "not complete JSON"),
        ("\u{feff}{}".to_owned(), "not valid JSON"),
        ("[]".to_owned(), "must be a JSON object"),
        ("7".to_owned(), "must be a JSON object"),
    ] {
        let message = refusal_message(&arguments).await;
        let excerpt: String = arguments.chars().take(60).collect();
        assert!(message.contains(words), "{excerpt}: {message}");
    }
}

#[tokio::test]
async fn a_schema_mismatch_is_refused_in_words_a_model_can_act_on() {
    for (arguments, expected_message) in [
        (r#"{"n":256}"#, "field 'n': 256 is greater than the maximum 255"),
        (r#"{"n":-1}"#, "field 'n': -1 is less than the minimum 0"),
        (r#"{"n":1.5}"#, "field 'n': 1.5 is not an integer"),
        (r#"{"n":"x"}"#, "field 'n': \"x\" is not an integer"),
        (r#"{"bounded":0}"#, "field 'bounded': 0 is less than the minimum 1"),
        (r#"{"bounded":10}"#, "field 'bounded': 10 is greater than the maximum 9"),
        (r#"{"choice":"c"}"#, "field 'choice': \"c\" is not one of \"a\", \"b\""),
        (r#"{"flag":"yes"}"#, "field 'flag': \"yes\" is not a boolean"),
        (
            r#"{"n":"x","bounded":[]}"#,
            "field 'bounded': [] is not an integer; field 'n': \"x\" is not an integer",
        ),
    ] {
        assert_eq!(refusal_message(arguments).await, expected_message, "{arguments}");
    }
}

#[tokio::test]
async fn the_message_of_a_missing_field_is_the_specifications() {
    let fixture = Fixture::new();
    let registry = fixture.registry().await;
    for arguments in ["{}", "", "  "] {
        let result = registry.execute_with_policy(raw_call("file_read", arguments), &caller()).await;
        assert_eq!(
            result.model_text(),
            "Tool execution failed: missing required field 'path' in arguments",
            "{arguments:?}"
        );
    }
}

/// Calls a spy of this tier. Returns the arguments that it got, and the repairs that the details list.
async fn received_arguments(tier: SafetyTier, arguments: &str) -> Result<(String, Value), String> {
    let fixture = fixture_enabling(&["spy"]).with_policy_edit(
        "privileged     = { profile = \"Nothing\",       approval = \"ask\" }",
        "privileged     = { profile = \"Nothing\",       approval = \"allow\" }",
    );
    let registry = native_registry(&fixture, [spy(tier)]);
    let result = registry.execute_with_policy(raw_call("spy", arguments), &caller()).await;
    let details = result.details.clone();
    match result.into_result() {
        Ok(output) => Ok((output.joined_text(), details)),
        Err(error) => Err(error.to_string()),
    }
}

#[tokio::test]
async fn repairs_are_recorded_and_a_privileged_tool_gets_none() {
    for (arguments, repaired, places) in [
        (r#"{"n":"5"}"#, r#"{"n":5}"#, json!(["n"])),
        (r#"{"n":5.0}"#, r#"{"n":5}"#, json!(["n"])),
        (r#"{"flag":"true"}"#, r#"{"flag":true}"#, json!(["flag"])),
        (r#"{"n":null}"#, "{}", json!(["n"])),
        (r#"{"inner":"{\"a\":1}"}"#, r#"{"inner":{"a":1}}"#, json!(["inner"])),
    ] {
        for tier in [SafetyTier::ReadOnly, SafetyTier::SideEffecting] {
            let (text, details) = received_arguments(tier, arguments).await.expect(arguments);
            assert_eq!((text.as_str(), &details["repaired"]), (repaired, &places), "{tier} {arguments}");
        }
        let refused = received_arguments(SafetyTier::Privileged, arguments).await;
        assert!(refused.is_err(), "{arguments}: {refused:?}");
    }
    let (_, details) = received_arguments(SafetyTier::Privileged, r#"{"n":5}"#).await.expect("fits");
    assert_eq!(details, json!({}), "nothing was done, so nothing is said");
}

#[tokio::test]
async fn unrepaired_arguments_arrive_byte_for_byte() {
    for arguments in [
        r#"{"big":340282366920938463463374607431768211455}"#,
        r#"{"text":"a\u0000b\ud83d\ude00"}"#,
        r#" { "n" : 7 } "#,
    ] {
        let (text, details) = received_arguments(SafetyTier::ReadOnly, arguments).await.expect(arguments);
        assert_eq!((text.trim(), details), (arguments.trim(), json!({})));
    }
    assert_eq!(received_arguments(SafetyTier::ReadOnly, "").await.expect("empty means none").0, "{}");
}

#[tokio::test]
async fn a_key_that_a_tool_does_not_know_is_dropped_and_listed() {
    let (text, details) =
        received_arguments(SafetyTier::ReadOnly, r#"{"n":1,"Nn":2,"x":{"y":3}}"#).await.expect("runs");
    assert_eq!(text, r#"{"n":1}"#);
    assert_eq!(details["ignored"], json!(["Nn", "x"]));
}
