//! Ollama's own chat API (github.com/ollama/ollama/blob/main/docs/api.md): one JSON text per line.

use portcullis_types::{Message, MessageRole};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json, value::RawValue};

use super::{
    ReadError, ResponseProgress, ResponseReader, WireRequest,
    bounded_list::BoundedList,
    event,
    history::{self, CallHistory, HistoryBlock},
    non_blank, push_text, stop_reason_with_calls, whole_call,
};
use crate::{Delta, ProviderError, ProviderErrorKind, StopReason, Usage};

pub(super) fn body(request: WireRequest<'_>) -> Result<Vec<u8>, ProviderError> {
    let mut calls = CallHistory::default();
    let mut messages = Vec::new();
    for message in &request.chat.messages {
        messages.push(chat_message(message, &mut calls)?);
    }
    let mut options = json!({});
    if let Some(limit) = request.chat.max_tokens {
        options["num_predict"] = limit.into();
    }
    if let Some(temperature) = request.chat.temperature {
        options["temperature"] = temperature.into();
    }
    let tools = request.chat.tools.iter().map(|tool| json!({"type": "function", "function": tool})).collect();
    let body = ChatRequest { model: request.model, messages, tools, stream: true, options };
    serde_json::to_vec(&body).map_err(|error| {
        ProviderError::new(ProviderErrorKind::Rejected, "the request is not JSON").with_source(error)
    })
}

fn chat_message<'a>(
    message: &'a Message,
    calls: &mut CallHistory<'a>,
) -> Result<ChatMessage<'a>, ProviderError> {
    let (role, takes_images) = match message.role {
        MessageRole::System => ("system", false),
        MessageRole::User => ("user", true),
        MessageRole::Assistant => ("assistant", false),
        MessageRole::Tool => ("tool", false),
    };
    let mut texts = Vec::new();
    let mut images = Vec::new();
    for block in history::blocks(&message.content, |mime| takes_images && mime.starts_with("image/")) {
        match block {
            HistoryBlock::Text(text) => texts.push(text),
            HistoryBlock::Image { data, .. } => images.push(data),
        }
    }
    let tool_name = match message.role {
        MessageRole::Tool => Some(calls.answered_call(message)?.name),
        _ => None,
    };
    let tool_calls = message.tool_calls.iter().map(|call| ChatCall {
        function: Function { name: calls.assign_wire_id(call).name, arguments: history::arguments(call) },
    });
    Ok(ChatMessage { role, content: texts.join("\n"), images, tool_calls: tool_calls.collect(), tool_name })
}

#[derive(Serialize)]
struct ChatRequest<'a> {
    model: &'a str,
    messages: Vec<ChatMessage<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Value>,
    stream: bool,
    options: Value,
}

#[derive(Serialize)]
struct ChatMessage<'a> {
    role: &'static str,
    content: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    images: Vec<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<ChatCall>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_name: Option<String>,
}

#[derive(Serialize)]
struct ChatCall {
    function: Function,
}

#[derive(Serialize, Deserialize)]
struct Function {
    name: String,
    arguments: Box<RawValue>,
}

/// Reader state of one response.
#[derive(Debug, Default)]
pub(super) struct ChatReader {
    stop: Option<StopReason>,
    /// Number of calls so far. It serves as the index, because each call arrives whole.
    calls: u64,
}

impl ResponseReader for ChatReader {
    fn read(&mut self, data: &str, out: &mut Vec<Delta>) -> Result<ResponseProgress, ReadError> {
        let chunk: ChatResponse = event(data)?;
        if let Some(message) = chunk.message {
            push_text(out, Delta::Thinking, message.thinking);
            push_text(out, Delta::Text, message.content);
            for call in message.tool_calls.items()? {
                let Function { name, arguments } = call.function;
                out.push(whole_call(&mut self.calls, call.id, name, Some(&arguments)));
            }
        }
        if !chunk.done.unwrap_or(false) {
            return Ok(ResponseProgress::More);
        }
        out.push(Delta::Usage(Usage {
            input_tokens: chunk.prompt_eval_count.unwrap_or(0),
            output_tokens: chunk.eval_count.unwrap_or(0),
        }));
        // Old versions send no stop reason.
        self.stop = Some(match non_blank(chunk.done_reason) {
            None => StopReason::Stop,
            Some(reason) => stop(reason),
        });
        Ok(ResponseProgress::Finished)
    }

    fn stop(&self) -> Option<StopReason> {
        self.stop.clone().map(|stop| stop_reason_with_calls(stop, self.calls > 0))
    }
}

fn stop(reason: String) -> StopReason {
    match reason.as_str() {
        "stop" => StopReason::Stop,
        "length" => StopReason::Length,
        _ => StopReason::Other(reason),
    }
}

#[derive(Deserialize)]
struct ChatResponse {
    message: Option<ChatResponseMessage>,
    done: Option<bool>,
    done_reason: Option<String>,
    prompt_eval_count: Option<u64>,
    eval_count: Option<u64>,
}

#[derive(Deserialize)]
struct ChatResponseMessage {
    content: Option<String>,
    thinking: Option<String>,
    #[serde(default)]
    tool_calls: BoundedList<ChatResponseCall>,
}

#[derive(Deserialize)]
struct ChatResponseCall {
    id: Option<String>,
    function: Function,
}
