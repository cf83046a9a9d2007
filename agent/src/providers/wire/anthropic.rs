//! Anthropic's Messages API (docs.anthropic.com/en/api/messages): the request.

use std::borrow::Cow;

use portcullis_types::{FunctionDecl, Message, MessageRole, SchemaDialect};
use serde::Serialize;
use serde_json::{Value, value::RawValue};

use super::{
    WireRequest,
    history::{self, CallHistory},
};
use crate::{ProviderError, ProviderErrorKind};

/// The API version.
pub(super) const VERSION: &str = "2023-06-01";

/// The maximum number of a response's tokens if the request sets none. The API requires a maximum.
const DEFAULT_MAX_TOKENS: u32 = 8192;

/// Replaces an empty user message, because the API refuses a conversation without any user message.
const EMPTY_MESSAGE: &str = "[empty message]";

pub(super) fn body(request: WireRequest<'_>) -> Result<Vec<u8>, ProviderError> {
    let body = MessagesRequest {
        model: request.model,
        max_tokens: request.chat.max_tokens.unwrap_or(DEFAULT_MAX_TOKENS),
        stream: true,
        system: history::instructions(&request.chat.messages).filter(|text| !is_blank(text)),
        messages: conversation(&request.chat.messages)?,
        tools: request.chat.tools.iter().map(|tool| declare_tool(tool, request.strict)).collect(),
        // The API accepts temperatures up to 1.
        temperature: request.chat.temperature.map(|temperature| temperature.min(1.0)),
    };
    serde_json::to_vec(&body).map_err(|error| {
        ProviderError::new(ProviderErrorKind::Rejected, "the request is not JSON").with_source(error)
    })
}

/// Groups the messages into user and assistant turns. The API requires all results of a turn in one message,
/// before any other content of that user message.
fn conversation(messages: &[Message]) -> Result<Vec<InputMessage<'_>>, ProviderError> {
    let mut calls = CallHistory::default();
    let mut turns: Vec<InputMessage<'_>> = Vec::new();
    for message in messages {
        let (role, content) = match message.role {
            MessageRole::System => continue,
            MessageRole::User => {
                let mut content = content_blocks(message);
                if content.is_empty() {
                    // The API refuses a conversation without any user message.
                    content.push(ContentBlockParam::Text { text: EMPTY_MESSAGE.into() });
                }
                ("user", content)
            }
            MessageRole::Assistant => {
                let mut content = content_blocks(message);
                content.extend(message.tool_calls.iter().map(|call| {
                    let on_wire = calls.assign_wire_id(call);
                    ContentBlockParam::ToolUse {
                        id: on_wire.id,
                        name: on_wire.name,
                        input: history::arguments(call),
                    }
                }));
                ("assistant", content)
            }
            MessageRole::Tool => {
                let tool_use_id = calls.answered_call(message)?.id;
                let result = ContentBlockParam::ToolResult {
                    tool_use_id,
                    content: content_blocks(message),
                    is_error: message.is_error,
                };
                ("user", vec![result])
            }
        };
        match turns.last_mut() {
            // Merge consecutive messages of one role into one turn, so that all results of a turn stay
            // together.
            Some(last) if last.role == role => last.content.extend(content),
            _ if content.is_empty() => {}
            _ => turns.push(InputMessage { role, content }),
        }
    }
    Ok(turns)
}

fn content_blocks(message: &Message) -> Vec<ContentBlockParam<'_>> {
    let takes = |mime: &str| matches!(mime, "image/jpeg" | "image/png" | "image/gif" | "image/webp");
    history::blocks(&message.content, takes)
        .into_iter()
        .filter(|block| !matches!(block, history::HistoryBlock::Text(text) if is_blank(text)))
        .map(|block| match block {
            history::HistoryBlock::Text(text) => ContentBlockParam::Text { text },
            history::HistoryBlock::Image { data, mime_type } => ContentBlockParam::Image {
                source: ImageSource { kind: "base64", media_type: mime_type, data },
            },
        })
        .collect()
}

/// Returns whether a text is only white space. The API refuses such text, so a stored conversation with it
/// could never be sent again. The four separators U+001C to U+001F are included, because some languages count
/// them as white space.
fn is_blank(text: &str) -> bool {
    text.chars().all(|c| c.is_whitespace() || matches!(c, '\u{1c}'..='\u{1f}'))
}

fn declare_tool(tool: &FunctionDecl, strict: bool) -> ToolDefinition<'_> {
    let rendered = history::schema(tool, strict.then_some(SchemaDialect::Anthropic));
    ToolDefinition {
        name: &tool.name,
        description: tool.description.as_deref(),
        strict: rendered.is_some(),
        input_schema: rendered
            .map_or(Cow::Borrowed(tool.parameters.as_value()), |schema| Cow::Owned(schema.into_value())),
    }
}

#[derive(Serialize)]
struct MessagesRequest<'a> {
    model: &'a str,
    max_tokens: u32,
    stream: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    system: Option<String>,
    messages: Vec<InputMessage<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<ToolDefinition<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
}

#[derive(Serialize)]
struct InputMessage<'a> {
    role: &'static str,
    content: Vec<ContentBlockParam<'a>>,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum ContentBlockParam<'a> {
    Text {
        text: Cow<'a, str>,
    },
    Image {
        source: ImageSource<'a>,
    },
    ToolUse {
        id: String,
        name: String,
        input: Box<RawValue>,
    },
    ToolResult {
        tool_use_id: String,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        content: Vec<ContentBlockParam<'a>>,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        is_error: bool,
    },
}

#[derive(Serialize)]
struct ImageSource<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    media_type: &'a str,
    data: &'a str,
}

#[derive(Serialize)]
struct ToolDefinition<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<&'a str>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    strict: bool,
    input_schema: Cow<'a, Value>,
}
