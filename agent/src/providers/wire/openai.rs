//! OpenAI's chat completions (platform.openai.com/docs/api-reference/chat), which most model servers also speak.

use portcullis_types::{FunctionDecl, Message, MessageRole, SchemaDialect};
use serde::Deserialize;
use serde_json::{Value, json, value::RawValue};

use super::{
    ReadError, ResponseProgress, ResponseReader, WireRequest,
    bounded_list::{BoundedList, MAX_CHOICES},
    event,
    history::{self, CallHistory, HistoryBlock},
    non_blank, push_text, stop_reason_with_calls,
};
use crate::{Delta, ProviderError, StopReason, ToolCallDelta, Usage};

/// The marker after the last event.
const DONE: &str = "[DONE]";

pub(super) fn body(request: WireRequest<'_>) -> Result<Vec<u8>, ProviderError> {
    let mut calls = CallHistory::default();
    let mut messages = Vec::new();
    for message in &request.chat.messages {
        messages.extend(chat_message(message, &mut calls)?);
    }
    let mut body = json!({
        "model": request.model,
        "messages": messages,
        "stream": true,
        "stream_options": {"include_usage": true},
    });
    if !request.chat.tools.is_empty() {
        let tools: Vec<Value> =
            request.chat.tools.iter().map(|tool| declare_tool(tool, request.strict)).collect();
        body["tools"] = tools.into();
    }
    if let Some(limit) = request.chat.max_tokens {
        // OpenAI's newer models refuse `max_tokens`, and other servers know only that.
        let word = if request.official { "max_completion_tokens" } else { "max_tokens" };
        body[word] = limit.into();
    }
    if let Some(temperature) = request.chat.temperature {
        body["temperature"] = temperature.into();
    }
    Ok(body.to_string().into_bytes())
}

fn declare_tool(tool: &FunctionDecl, strict: bool) -> Value {
    let dialect = strict.then_some(SchemaDialect::OpenAiStrict);
    let mut function = json!({"name": tool.name});
    match history::schema(tool, dialect) {
        Some(schema) => {
            function["parameters"] = schema.into_value();
            function["strict"] = true.into();
        }
        None => function["parameters"] = tool.parameters.as_value().clone(),
    }
    if let Some(description) = &tool.description {
        function["description"] = description.as_str().into();
    }
    json!({"type": "function", "function": function})
}

fn chat_message<'a>(
    message: &'a Message,
    calls: &mut CallHistory<'a>,
) -> Result<Option<Value>, ProviderError> {
    Ok(match message.role {
        MessageRole::System => Some(json!({"role": "system", "content": history::text(&message.content)})),
        MessageRole::User => Some(json!({"role": "user", "content": content(message)})),
        MessageRole::Assistant => {
            let text = history::text(&message.content);
            let tool_calls: Vec<Value> = message
                .tool_calls
                .iter()
                .map(|call| {
                    let on_wire = calls.assign_wire_id(call);
                    json!({
                        "id": on_wire.id,
                        "type": "function",
                        "function": {"name": on_wire.name, "arguments": history::arguments(call).get()},
                    })
                })
                .collect();
            match (text.is_empty(), tool_calls.is_empty()) {
                (true, true) => None,
                (false, true) => Some(json!({"role": "assistant", "content": text})),
                (true, false) => {
                    Some(json!({"role": "assistant", "content": null, "tool_calls": tool_calls}))
                }
                (false, false) => {
                    Some(json!({"role": "assistant", "content": text, "tool_calls": tool_calls}))
                }
            }
        }
        // The protocol cannot mark a failed call. Only the text says that it failed.
        MessageRole::Tool => Some(json!({
            "role": "tool",
            "tool_call_id": calls.answered_call(message)?.id,
            "content": history::text(&message.content),
        })),
    })
}

/// Converts the content of a user message. Text alone is sent as a string, because some servers accept only
/// that.
fn content(message: &Message) -> Value {
    let blocks = history::blocks(&message.content, |mime_type| mime_type.starts_with("image/"));
    if blocks.iter().all(|block| matches!(block, HistoryBlock::Text(_))) {
        return history::text(&message.content).into();
    }
    let part = |block: &HistoryBlock<'_>| match block {
        HistoryBlock::Text(text) => json!({"type": "text", "text": text}),
        HistoryBlock::Image { data, mime_type } => {
            json!({"type": "image_url", "image_url": {"url": format!("data:{mime_type};base64,{data}")}})
        }
    };
    blocks.iter().map(part).collect()
}

/// Reader state of one response.
#[derive(Debug, Default)]
pub(super) struct ChatCompletionReader {
    stop: Option<StopReason>,
    /// Index of the last call, for servers that send no index.
    last: Option<u64>,
}

impl ResponseReader for ChatCompletionReader {
    fn read(&mut self, data: &str, out: &mut Vec<Delta>) -> Result<ResponseProgress, ReadError> {
        if data.trim() == DONE {
            return Ok(ResponseProgress::Finished);
        }
        let chunk: ChatCompletionChunk = event(data)?;
        let choices = chunk.choices.items()?.into_iter();
        // Requests ask for one choice. The text of further ones must not mix with it.
        for choice in choices.filter(|choice| choice.index.unwrap_or(0) == 0) {
            let piece = choice.delta.unwrap_or_default();
            push_text(out, Delta::Thinking, piece.reasoning_content.or(piece.reasoning));
            push_text(out, Delta::Text, piece.content);
            // A refusal is the model's response, so it counts as text.
            push_text(out, Delta::Text, piece.refusal);
            for call in piece.tool_calls.items()? {
                out.push(Delta::ToolCall(self.call(call)?));
            }
            if let Some(reason) = non_blank(choice.finish_reason) {
                self.stop = Some(stop(reason));
            }
        }
        if let Some(usage) = chunk.usage {
            out.push(Delta::Usage(Usage {
                input_tokens: usage.prompt_tokens.unwrap_or(0),
                output_tokens: usage.completion_tokens.unwrap_or(0),
            }));
        }
        Ok(ResponseProgress::More)
    }

    fn stop(&self) -> Option<StopReason> {
        self.stop.clone().map(|stop| stop_reason_with_calls(stop, self.last.is_some()))
    }
}

impl ChatCompletionReader {
    fn call(&mut self, piece: ChoiceDeltaToolCall) -> Result<ToolCallDelta, ReadError> {
        let id = piece.id.filter(|id| !id.is_empty());
        // Some servers send no index. A new id then starts a new call.
        let index = match (piece.index, self.last) {
            (Some(index), _) => index,
            (None, Some(last)) if id.is_some() => last.saturating_add(1),
            (None, last) => last.unwrap_or(0),
        };
        self.last = Some(index);
        let function = piece.function.unwrap_or_default();
        Ok(ToolCallDelta {
            index,
            id,
            name: function.name.filter(|name| !name.is_empty()),
            arguments: function.arguments.map(|raw| arguments(&raw)).transpose()?.flatten(),
        })
    }
}

/// Returns the arguments' text. Some servers send the object itself. `null` means no arguments.
fn arguments(raw: &RawValue) -> Result<Option<String>, serde_json::Error> {
    Ok(match raw.get().as_bytes().first() {
        Some(b'"') => Some(serde_json::from_str::<String>(raw.get())?).filter(|text| !text.is_empty()),
        Some(b'n') => None,
        _ => Some(raw.get().to_owned()),
    })
}

fn stop(reason: String) -> StopReason {
    match reason.as_str() {
        // `eos_token` and `stop_sequence` come from servers of local models.
        "stop" | "eos_token" | "stop_sequence" => StopReason::Stop,
        "tool_calls" | "function_call" => StopReason::ToolCalls,
        "length" => StopReason::Length,
        "content_filter" => StopReason::ContentFilter,
        _ => StopReason::Other(reason),
    }
}

#[derive(Deserialize)]
struct ChatCompletionChunk {
    #[serde(default)]
    choices: BoundedList<ChunkChoice, MAX_CHOICES>,
    usage: Option<CompletionUsage>,
}

#[derive(Deserialize)]
struct ChunkChoice {
    index: Option<u64>,
    delta: Option<ChoiceDelta>,
    finish_reason: Option<String>,
}

#[derive(Deserialize, Default)]
struct ChoiceDelta {
    content: Option<String>,
    refusal: Option<String>,
    /// Used by DeepSeek, vLLM, llama.cpp.
    reasoning_content: Option<String>,
    /// Used by gateways.
    reasoning: Option<String>,
    #[serde(default)]
    tool_calls: BoundedList<ChoiceDeltaToolCall>,
}

#[derive(Deserialize)]
struct ChoiceDeltaToolCall {
    index: Option<u64>,
    id: Option<String>,
    function: Option<ChoiceDeltaFunction>,
}

#[derive(Deserialize, Default)]
struct ChoiceDeltaFunction {
    name: Option<String>,
    arguments: Option<Box<RawValue>>,
}

#[derive(Deserialize)]
struct CompletionUsage {
    prompt_tokens: Option<u64>,
    completion_tokens: Option<u64>,
}
