//! Tests of blocks as calls: shapes, faults and removed characters.

use super::*;

#[track_caller]
fn read(code: &str) -> BlockCall {
    BlockCall::parse(code).expect("a call")
}

#[track_caller]
fn refused(code: &str) -> &'static str {
    BlockCall::parse(code).expect_err("no call").code()
}

#[test]
fn the_two_examples_of_the_specification_are_calls() {
    let search = read(
        r#"{
  "tool_call": {
    "name": "search_web",
    "parameters": {
      "query": "latest developments in AI agents",
      "num_results": 3
    }
  }
}
"#,
    );
    assert_eq!(search.tool, "search_web");
    assert!(search.parameters.contains("\"num_results\": 3"));
    let notification = read(
        r#"{
  "tool_call": {
    "name": "send_notification",
    "parameters": {
      "recipient": "user@example.com",
      "subject": "Task Update",
      "body": "The task has been completed successfully.",
      "method": "email"
    }
  }
}
"#,
    );
    assert_eq!(notification.tool, "send_notification");
}

#[test]
fn json_of_another_shape_is_not_a_call() {
    for code in ["{}", "[]", "3", "\"tool_call\"", r#"{"tool_calls": {}}"#] {
        assert_eq!(refused(code), "no_call", "{code}");
    }
    for code in [
        r#"{"tool_call": {}}"#,
        r#"{"tool_call": []}"#,
        r#"{"tool_call": {"name": "a"}}"#,
        r#"{"tool_call": {"name": 3, "parameters": {}}}"#,
        r#"{"tool_call": {"name": "a", "parameters": []}}"#,
        r#"{"tool_call": {"name": "a", "parameters": null}}"#,
        r#"{"tool_call": {"name": "a", "parameters": {}, "more": 1}}"#,
        r#"{"tool_call": {"name": "a", "parameters": {}}, "more": 1}"#,
        r#"{"tool_call": {"name": "a", "name": "b", "parameters": {}}}"#,
        r#"{"tool_call": {"name": "a", "parameters": {}}, "tool_call": {"name": "b", "parameters": {}}}"#,
    ] {
        assert_eq!(refused(code), "malformed_call", "{code}");
    }
}

#[test]
fn only_text_that_names_a_call_counts_as_a_broken_call() {
    assert_eq!(refused(r#"{"tool_call": {"name": "a", "parameters": {}}"#), "malformed_json");
    let error = BlockCall::parse("// a comment\n{}").expect_err("no JSON");
    assert!(error.is_other_data());
    assert!(!BlockCall::parse("{\"tool_call\":").expect_err("no JSON").is_other_data());
    let deep = format!("{{\"tool_call\": {}", "[".repeat(100_000));
    assert_eq!(refused(&deep), "malformed_json");
}

#[test]
fn parameters_stay_as_written() {
    let code = r#"{"tool_call":{"name":"a","parameters":{ "n": 1.50, "n": 12345678901234567890123, "t":"\u00e9\ud83d\ude00\n\t" }}}"#;
    let request = read(code);
    assert_eq!(
        request.parameters,
        r#"{ "n": 1.50, "n": 12345678901234567890123, "t":"\u00e9\ud83d\ude00\n\t" }"#
    );
    assert!(request.sanitized.is_empty());
}

#[test]
fn control_characters_are_removed_and_named() {
    let request = read(
        "{\"tool_call\":{\"name\":\"a\\u202e\",\"parameters\":{\"x\":\"a\\u001b[31mb\\b\\f\\u0085\",\"y\":\"c\u{202e}d\",\"z\":\"e\\\\u001b\"}}}",
    );
    assert_eq!(request.tool, "a");
    assert_eq!(request.parameters, r#"{"x":"a[31mb","y":"cd","z":"e\\u001b"}"#);
    assert_eq!(request.sanitized, ["x", "y"]);
}

#[test]
fn a_nul_character_is_refused() {
    assert_eq!(refused(r#"{"tool_call":{"name":"a","parameters":{"x":"a\u0000"}}}"#), "nul_character");
    assert_eq!(refused(r#"{"tool_call":{"name":"a\u0000","parameters":{}}}"#), "nul_character");
}
