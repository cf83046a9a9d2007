//! Converts a conversation into a form that every provider accepts: call ids and names, blocks, arguments.

use std::{
    borrow::Cow,
    collections::{HashMap, HashSet, VecDeque},
};

use portcullis_types::{Content, FunctionDecl, JsonSchema, Message, MessageRole, SchemaDialect, ToolCall};
use serde_json::value::RawValue;

use crate::{ProviderError, ProviderErrorKind, UNREADABLE_KEY, transcript::sendable_name};

/// The maximum length of a call id that every provider accepts, in bytes: OpenAI's limit.
const MAX_ID_BYTES: usize = 40;

/// A call with an id and a name that every provider accepts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WireCall {
    /// Unique within the conversation.
    pub(super) id: String,
    /// The tool's name.
    pub(super) name: String,
}

/// The calls of a conversation so far, with the ids that are sent for them.
///
/// A model may ask for a tool by an invalid name. Another provider may have chosen ids that this provider
/// refuses, or may have reused an id. The history must be valid nevertheless, because every later request
/// contains it.
#[derive(Debug, Default)]
pub(super) struct CallHistory<'a> {
    /// The sent ids so far.
    used_ids: HashSet<String>,
    /// The calls without a result, by their id in the conversation. Calls with the same id are answered in order.
    unanswered: HashMap<&'a str, VecDeque<WireCall>>,
}

impl<'a> CallHistory<'a> {
    /// Assigns a call the id that is sent for it.
    pub(super) fn assign_wire_id(&mut self, call: &'a ToolCall) -> WireCall {
        let mut id = call.id.clone();
        let mut number = self.used_ids.len();
        while !is_word(&id, MAX_ID_BYTES) || self.used_ids.contains(&id) {
            id = format!("call_{number}");
            number += 1;
        }
        self.used_ids.insert(id.clone());
        let call_on_wire = WireCall { id, name: wire_name(&call.tool) };
        self.unanswered.entry(&call.id).or_default().push_back(call_on_wire.clone());
        call_on_wire
    }

    /// Returns the call that a tool message answers, as it was sent.
    pub(super) fn answered_call(&mut self, message: &Message) -> Result<WireCall, ProviderError> {
        message.tool_call_id.as_deref().and_then(|id| self.unanswered.get_mut(id)?.pop_front()).ok_or_else(
            || {
                ProviderError::new(
                    ProviderErrorKind::Rejected,
                    "the conversation answers a call that the model did not ask for",
                )
            },
        )
    }
}

/// A content block as providers distinguish them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum HistoryBlock<'a> {
    /// Text, never empty.
    Text(Cow<'a, str>),
    /// An image that the provider takes.
    Image {
        /// Base64.
        data: &'a str,
        /// Its media type.
        mime_type: &'a str,
    },
}

/// Converts a message's content. A note replaces content that the provider cannot take.
pub(super) fn blocks(content: &[Content], takes_image: impl Fn(&str) -> bool) -> Vec<HistoryBlock<'_>> {
    content
        .iter()
        .map(|content| match content {
            Content::Image { data, mime_type } if takes_image(mime_type) => {
                HistoryBlock::Image { data, mime_type }
            }
            other => HistoryBlock::Text(as_text(other)),
        })
        .filter(|block| !matches!(block, HistoryBlock::Text(text) if text.is_empty()))
        .collect()
}

/// Converts a message's content into text.
pub(super) fn text(content: &[Content]) -> String {
    let texts: Vec<Cow<'_, str>> = content.iter().map(as_text).filter(|text| !text.is_empty()).collect();
    texts.join("\n")
}

/// Returns the operator's instructions: all system messages, at any position.
pub(super) fn instructions(messages: &[Message]) -> Option<String> {
    let texts: Vec<String> = messages
        .iter()
        .filter(|message| message.role == MessageRole::System)
        .map(|message| text(&message.content))
        .filter(|text| !text.is_empty())
        .collect();
    (!texts.is_empty()).then(|| texts.join("\n\n"))
}

/// Returns the arguments of a call as a JSON object, copied verbatim so that no number changes. Text that is
/// not an object was refused when the call was made. Wrap it into an object, so that the model sees its own
/// text.
pub(super) fn arguments(call: &ToolCall) -> Box<RawValue> {
    let text = if call.arguments.trim().is_empty() { "{}" } else { call.arguments.trim() };
    match RawValue::from_string(text.to_owned()) {
        Ok(raw) if raw.get().starts_with('{') => raw,
        _ => serde_json::value::to_raw_value(&HashMap::from([(UNREADABLE_KEY, &call.arguments)]))
            .expect("a map from text to text is JSON"),
    }
}

/// Renders a tool's schema in a dialect, if the dialect can express it.
pub(super) fn schema(tool: &FunctionDecl, dialect: Option<SchemaDialect>) -> Option<JsonSchema> {
    dialect?.render(&tool.parameters).ok()
}

/// Returns the tool's name in characters that every provider accepts.
fn wire_name(tool: &str) -> String {
    if tool.is_empty() { "_".to_owned() } else { sendable_name(tool) }
}

fn is_word(text: &str, max_bytes: usize) -> bool {
    !text.is_empty() && text.len() <= max_bytes && text.chars().all(is_word_character)
}

fn is_word_character(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-')
}

fn as_text(content: &Content) -> Cow<'_, str> {
    match content {
        Content::Text { text } | Content::Resource { text: Some(text), .. } => Cow::Borrowed(text),
        Content::Image { data, mime_type } => omission_note("image", mime_type, data),
        Content::Audio { data, mime_type } => omission_note("audio", mime_type, data),
        Content::Resource { uri, mime_type, blob, .. } => {
            let kind = mime_type.as_deref().unwrap_or("of no known type");
            omission_note(&format!("resource {uri}"), kind, blob.as_deref().unwrap_or_default())
        }
        Content::ResourceLink { uri, name, .. } => Cow::Owned(format!("[link to {name}: {uri}]")),
        _ => Cow::Borrowed("[content of another kind, not shown]"),
    }
}

fn omission_note(what: &str, mime_type: &str, base64: &str) -> Cow<'static, str> {
    Cow::Owned(format!("[{what}, {mime_type}, about {} bytes, not shown]", base64.len() / 4 * 3))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transcript::MAX_NAME_CHARS;

    fn call(id: &str, tool: &str) -> ToolCall {
        ToolCall { id: id.into(), tool: tool.into(), arguments: String::new() }
    }

    fn answer(id: &str) -> Message {
        Message { role: MessageRole::Tool, tool_call_id: Some(id.into()), ..Message::user("x") }
    }

    #[test]
    fn ids_that_a_provider_takes_stay() {
        let first_call = call("toolu_01-a", "file_read");
        let mut calls = CallHistory::default();
        let on_wire = calls.assign_wire_id(&first_call);
        assert_eq!(on_wire, WireCall { id: "toolu_01-a".into(), name: "file_read".into() });
        assert_eq!(calls.answered_call(&answer("toolu_01-a")).expect("asked"), on_wire);
    }

    #[test]
    fn each_call_and_its_answer_share_a_unique_id() {
        let long = "x".repeat(100);
        let model_calls = ["call_1", "", "a.b", "a.b", "call_1", &long, "call_0"].map(|id| call(id, "t"));
        let mut calls = CallHistory::default();
        let ids: Vec<String> = model_calls.iter().map(|call| calls.assign_wire_id(call).id).collect();
        let distinct: HashSet<&String> = ids.iter().collect();
        assert_eq!(distinct.len(), ids.len(), "{ids:?}");
        assert!(ids.iter().all(|id| is_word(id, MAX_ID_BYTES)), "{ids:?}");
        let answered: Vec<String> = model_calls
            .iter()
            .map(|call| calls.answered_call(&answer(&call.id)).expect("asked").id)
            .collect();
        assert_eq!(answered, ids);
    }

    #[test]
    fn an_answer_to_nothing_is_refused() {
        let model_call = call("a", "t");
        let mut calls = CallHistory::default();
        calls.assign_wire_id(&model_call);
        calls.answered_call(&answer("a")).expect("asked");
        for message in [answer("a"), answer("b"), Message::user("x")] {
            assert_eq!(
                calls.answered_call(&message).expect_err("refused").kind(),
                ProviderErrorKind::Rejected
            );
        }
    }

    #[test]
    fn an_invalid_tool_name_becomes_one_that_providers_accept() {
        for tool in ["", "a b", "rm -rf /", &"é".repeat(300)] {
            assert!(is_word(&wire_name(tool), MAX_NAME_CHARS), "{tool}");
        }
        assert_eq!(wire_name("a b"), "a_b");
    }

    #[test]
    fn arguments_stay_word_for_word() {
        let sent_arguments = |text: &str| {
            let raw = arguments(&ToolCall { id: String::new(), tool: String::new(), arguments: text.into() });
            raw.get().to_owned()
        };
        assert_eq!(
            sent_arguments(" {\"n\": 340282366920938463463374607431768211455} "),
            "{\"n\": 340282366920938463463374607431768211455}"
        );
        assert_eq!(sent_arguments(""), "{}");
        assert_eq!(sent_arguments("{\"a\":"), r#"{"INVALID_JSON":"{\"a\":"}"#);
        assert_eq!(sent_arguments("[1]"), r#"{"INVALID_JSON":"[1]"}"#);
    }

    #[test]
    fn unsupported_content_becomes_a_note() {
        let image = Content::Image { data: "AAAA".into(), mime_type: "image/png".into() };
        let content = [Content::text("a"), image, Content::text("")];
        assert_eq!(text(&content), "a\n[image, image/png, about 3 bytes, not shown]");
        let wire_blocks = blocks(&content, |mime| mime == "image/png");
        assert_eq!(
            wire_blocks,
            [HistoryBlock::Text("a".into()), HistoryBlock::Image { data: "AAAA", mime_type: "image/png" }]
        );
    }
}
