//! Anthropic's Messages API: the events of a response (docs.anthropic.com/en/docs/build-with-claude/streaming).

use serde::Deserialize;
use serde_json::value::RawValue;

use super::{
    ReadError, ResponseProgress, ResponseReader, event, non_blank, push_text, stop_reason_with_calls,
};
use crate::{Delta, StopReason, ToolCallDelta, Usage};

/// Reader state of one response.
#[derive(Debug, Default)]
pub(super) struct MessagesReader {
    stop: Option<StopReason>,
    usage: Usage,
    has_calls: bool,
    /// The index and initial arguments of the last call: some servers send complete arguments there. Pieces
    /// of the arguments replace them. Otherwise they are emitted when the call or the response ends.
    initial_input: Option<(u64, Box<RawValue>)>,
}

impl ResponseReader for MessagesReader {
    fn read(&mut self, data: &str, out: &mut Vec<Delta>) -> Result<ResponseProgress, ReadError> {
        let event: MessageStreamEvent = event(data)?;
        let index = event.index.unwrap_or(0);
        match event.kind.as_str() {
            "message_start" => self.report_usage(event.message.and_then(|message| message.usage), out),
            "content_block_start" => self.block(index, event.content_block, out),
            "content_block_delta" => self.piece(index, event.delta.unwrap_or_default(), out),
            "content_block_stop" => self.emit_initial_input(out),
            "message_delta" => {
                if let Some(reason) = non_blank(event.delta.and_then(|delta| delta.stop_reason)) {
                    self.stop = Some(stop(reason));
                }
                self.report_usage(event.usage, out);
            }
            "message_stop" => return Ok(ResponseProgress::Finished),
            // `ping`, and event types of later versions.
            _ => {}
        }
        Ok(ResponseProgress::More)
    }

    /// Emits initial arguments at the response's end. Some servers never send a block's end, and the call must
    /// not run without its arguments.
    fn emit_held_back(&mut self, out: &mut Vec<Delta>) {
        self.emit_initial_input(out);
    }

    fn stop(&self) -> Option<StopReason> {
        self.stop.clone().map(|stop| stop_reason_with_calls(stop, self.has_calls))
    }
}

impl MessagesReader {
    fn block(&mut self, index: u64, block: Option<ContentBlock>, out: &mut Vec<Delta>) {
        // A new block ends the previous one.
        self.emit_initial_input(out);
        let Some(block) = block else { return };
        match block.kind.as_str() {
            "text" => push_text(out, Delta::Text, block.text),
            "thinking" => push_text(out, Delta::Thinking, block.thinking),
            "tool_use" => {
                self.has_calls = true;
                if let Some(input) = block.input.filter(|input| !is_empty_object(input)) {
                    self.initial_input = Some((index, input));
                }
                out.push(Delta::ToolCall(ToolCallDelta {
                    index,
                    id: block.id,
                    name: block.name,
                    arguments: None,
                }));
            }
            _ => {}
        }
    }

    fn piece(&mut self, index: u64, piece: EventDelta, out: &mut Vec<Delta>) {
        match piece.kind.as_deref() {
            Some("text_delta") => push_text(out, Delta::Text, piece.text),
            Some("thinking_delta") => push_text(out, Delta::Thinking, piece.thinking),
            Some("input_json_delta") => {
                if let Some(text) = piece.partial_json.filter(|text| !text.is_empty()) {
                    self.initial_input.take_if(|(block_index, _)| *block_index == index);
                    out.push(arguments(index, text));
                }
            }
            _ => {}
        }
    }

    /// Emits the initial arguments if no pieces replaced them.
    fn emit_initial_input(&mut self, out: &mut Vec<Delta>) {
        out.extend(self.initial_input.take().map(|(index, input)| arguments(index, input.get().to_owned())));
    }

    /// Updates the token counts. Each count covers the whole turn so far, and an event may have only some of
    /// them.
    fn report_usage(&mut self, message_usage: Option<MessageUsage>, out: &mut Vec<Delta>) {
        let Some(message_usage) = message_usage else { return };
        let input = [
            message_usage.input_tokens,
            message_usage.cache_creation_input_tokens,
            message_usage.cache_read_input_tokens,
        ];
        // Later events repeat only some counts. Cached tokens are not part of `input_tokens`.
        if message_usage.input_tokens.is_some() {
            self.usage.input_tokens = input.into_iter().flatten().fold(0, u64::saturating_add);
        }
        self.usage.output_tokens = message_usage.output_tokens.unwrap_or(self.usage.output_tokens);
        out.push(Delta::Usage(self.usage));
    }
}

fn arguments(index: u64, text: String) -> Delta {
    Delta::ToolCall(ToolCallDelta { index, arguments: Some(text), ..ToolCallDelta::default() })
}

fn is_empty_object(input: &RawValue) -> bool {
    input.get() == "null" || input.get().chars().filter(|c| !c.is_whitespace()).eq("{}".chars())
}

fn stop(reason: String) -> StopReason {
    match reason.as_str() {
        "end_turn" | "stop_sequence" => StopReason::Stop,
        "tool_use" => StopReason::ToolCalls,
        "max_tokens" | "model_context_window_exceeded" => StopReason::Length,
        "refusal" => StopReason::ContentFilter,
        _ => StopReason::Other(reason),
    }
}

#[derive(Deserialize)]
struct MessageStreamEvent {
    #[serde(rename = "type")]
    kind: String,
    index: Option<u64>,
    message: Option<StartedMessage>,
    content_block: Option<ContentBlock>,
    delta: Option<EventDelta>,
    usage: Option<MessageUsage>,
}

#[derive(Deserialize)]
struct StartedMessage {
    usage: Option<MessageUsage>,
}

#[derive(Deserialize)]
struct ContentBlock {
    #[serde(rename = "type")]
    kind: String,
    id: Option<String>,
    name: Option<String>,
    input: Option<Box<RawValue>>,
    text: Option<String>,
    thinking: Option<String>,
}

#[derive(Deserialize, Default)]
struct EventDelta {
    #[serde(rename = "type")]
    kind: Option<String>,
    text: Option<String>,
    thinking: Option<String>,
    partial_json: Option<String>,
    stop_reason: Option<String>,
}

#[derive(Deserialize)]
struct MessageUsage {
    input_tokens: Option<u64>,
    cache_creation_input_tokens: Option<u64>,
    cache_read_input_tokens: Option<u64>,
    output_tokens: Option<u64>,
}
