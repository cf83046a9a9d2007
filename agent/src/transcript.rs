//! Makes a conversation acceptable to every provider. Each call of a model has exactly one result, which
//! follows the call directly, and a name and arguments that can be sent back.

use std::collections::HashSet;

use portcullis_types::{Message, MessageRole, ToolCall, ToolError, ToolErrorCode};
use serde_json::{Map, Value, json};

/// The maximum length of a tool's name in a conversation, in characters: the strictest provider's limit.
pub(super) const MAX_NAME_CHARS: usize = 64;

/// The maximum length of unreadable arguments that are sent back to the model, in bytes.
pub const MAX_UNREADABLE_BYTES: usize = 4096;

/// The key under which a conversation has unreadable arguments.
pub const UNREADABLE_KEY: &str = "INVALID_JSON";

/// Converts a call into the form that is stored in the conversation. Providers refuse names beyond
/// `[A-Za-z0-9_-]{1,64}` and arguments that are not an object. The executor still gets the original call.
pub(super) fn stored_form(call: &ToolCall) -> ToolCall {
    ToolCall {
        id: call.id.clone(),
        tool: sendable_name(&call.tool),
        arguments: sendable_arguments(&call.arguments),
    }
}

/// Returns a tool's name with characters and a length that every provider accepts.
pub(super) fn sendable_name(name: &str) -> String {
    if name.is_empty() {
        return "unnamed".to_owned();
    }
    let to_name_char = |c: char| if c.is_ascii_alphanumeric() || c == '_' || c == '-' { c } else { '_' };
    name.chars().take(MAX_NAME_CHARS).map(to_name_char).collect()
}

fn sendable_arguments(text: &str) -> String {
    if text.trim().is_empty() {
        return "{}".to_owned();
    }
    // Keep the text: encoding the parsed object could change large numbers.
    if serde_json::from_str::<Map<String, Value>>(text).is_ok() {
        return text.to_owned();
    }
    let excerpt = &text[..text.floor_char_boundary(MAX_UNREADABLE_BYTES)];
    json!({ UNREADABLE_KEY: excerpt }).to_string()
}

/// The error of a call that must not be repeated and that had begun when its process ended.
#[must_use]
pub fn interrupted_error() -> ToolError {
    ToolError::cancelled("the run was interrupted; whether the call took effect is not known")
        .with_code(ToolErrorCode::Unknown)
        .with_hint("look at what the call would have changed before you call it again")
}

/// Repairs a conversation so that providers accept it. A run writes only valid conversations, but another program may
/// have written to the store, or the store may have lost its last messages.
pub(super) fn repair(messages: Vec<Message>) -> Vec<Message> {
    let mut repaired_messages = Vec::with_capacity(messages.len());
    let mut open_ids: Vec<String> = Vec::new();
    let mut seen_ids = HashSet::new();
    for mut message in messages {
        if message.role == MessageRole::Tool {
            let answered = open_ids.iter().position(|id| Some(id) == message.tool_call_id.as_ref());
            // Drop a result without an open call, and any second result of a call.
            if let Some(position) = answered {
                open_ids.remove(position);
                repaired_messages.push(message);
            }
            continue;
        }
        answer_open_calls(&mut open_ids, &mut repaired_messages);
        message.tool_calls.retain(|call| seen_ids.insert(call.id.clone()));
        // Dropping duplicate calls can leave an empty message, which providers refuse.
        if message.content.is_empty() && message.tool_calls.is_empty() {
            continue;
        }
        open_ids.extend(message.tool_calls.iter().map(|call| call.id.clone()));
        repaired_messages.push(message);
    }
    answer_open_calls(&mut open_ids, &mut repaired_messages);
    repaired_messages
}

/// Adds an error result for each call that has none.
fn answer_open_calls(open_ids: &mut Vec<String>, messages: &mut Vec<Message>) {
    for id in open_ids.drain(..) {
        messages.push(Message::tool_failure(id, &interrupted_error()));
    }
}

/// Returns why a provider would refuse a conversation, or `None` if every provider accepts it. For tests.
#[cfg(test)]
pub(super) fn find_fault(messages: &[Message]) -> Option<String> {
    let mut open_ids: Vec<&str> = Vec::new();
    let mut seen_ids = HashSet::new();
    for (index, message) in messages.iter().enumerate() {
        if message.role == MessageRole::Tool {
            let id = message.tool_call_id.as_deref().unwrap_or_default();
            match open_ids.iter().position(|open_id| *open_id == id) {
                Some(0) => drop(open_ids.remove(0)),
                _ => return Some(format!("message {index} answers `{id}`, open are {open_ids:?}")),
            }
            continue;
        }
        if !open_ids.is_empty() {
            return Some(format!("message {index} comes before the results of {open_ids:?}"));
        }
        if message.content.is_empty() && message.tool_calls.is_empty() {
            return Some(format!("message {index} is empty"));
        }
        for call in &message.tool_calls {
            if !seen_ids.insert(call.id.as_str()) {
                return Some(format!("message {index} has the id `{}` again", call.id));
            }
            if serde_json::from_str::<Map<String, Value>>(&call.arguments).is_err() {
                return Some(format!("message {index} has arguments that are not an object"));
            }
            let is_name_char = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
            if call.tool.is_empty()
                || call.tool.len() > MAX_NAME_CHARS
                || !call.tool.chars().all(is_name_char)
            {
                return Some(format!("message {index} calls a tool that cannot be named"));
            }
            open_ids.push(&call.id);
        }
    }
    (!open_ids.is_empty()).then(|| format!("without result: {open_ids:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(id: &str) -> ToolCall {
        ToolCall { id: id.into(), tool: "t".into(), arguments: "{}".into() }
    }

    fn result(id: &str) -> Message {
        Message::tool_failure(id, &ToolError::failed("x"))
    }

    #[test]
    fn calls_are_written_in_a_way_that_can_be_sent_back() {
        for (name, written) in [("file_read", "file_read"), ("", "unnamed"), ("a b/ü", "a_b__")] {
            assert_eq!(sendable_name(name), written);
        }
        assert_eq!(sendable_name(&"é".repeat(100)), "_".repeat(64));
        for (text, written) in [
            (r#" {"a": 1}"#, r#" {"a": 1}"#),
            ("", "{}"),
            ("[1]", r#"{"INVALID_JSON":"[1]"}"#),
            (r#"{"a"#, r#"{"INVALID_JSON":"{\"a"}"#),
            (r#"{"a":"\ud800"}"#, r#"{"INVALID_JSON":"{\"a\":\"\\ud800\"}"}"#),
        ] {
            assert_eq!(sendable_arguments(text), written);
        }
        let long = sendable_arguments(&"é".repeat(1 << 20));
        assert!(long.len() < MAX_UNREADABLE_BYTES + 100);
        let deep = format!("{}1{}", r#"{"a":"#.repeat(1000), "}".repeat(1000));
        assert!(sendable_arguments(&deep).starts_with(r#"{"INVALID_JSON""#));
    }

    #[test]
    fn a_broken_conversation_is_repaired() {
        let broken = vec![
            result("nobody"),
            Message::user("hi"),
            Message::assistant("", vec![call("a"), call("b"), call("a")]),
            result("a"),
            result("a"),
            Message::user("and?"),
            Message::assistant("", Vec::new()),
            Message::assistant("", vec![call("c")]),
        ];
        assert!(find_fault(&broken).is_some());
        let mended = repair(broken);
        assert_eq!(find_fault(&mended), None, "{mended:#?}");
        let answered: Vec<_> = mended.iter().filter_map(|message| message.tool_call_id.as_deref()).collect();
        assert_eq!(answered, ["a", "b", "c"]);
    }

    #[test]
    fn a_valid_conversation_is_not_changed() {
        let sound = vec![Message::user("hi"), Message::assistant("x", vec![call("a")]), result("a")];
        assert_eq!(repair(sound.clone()), sound);
    }
}
