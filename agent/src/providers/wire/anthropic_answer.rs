//! Anthropic's Messages API: the events of an answer (docs.anthropic.com/en/docs/build-with-claude/streaming).

use serde::Deserialize;
use serde_json::value::RawValue;

use super::{AnswerReader, Progress, ReadFault, event, push_text, reason, with_calls};
use crate::{Delta, StopReason, ToolCallDelta, Usage};

/// Reader state of one answer.
#[derive(Debug, Default)]
pub(super) struct MessagesReader {
    stop: Option<StopReason>,
    usage: Usage,
    has_calls: bool,
    /// The initial arguments of the last call: some servers send them whole. Kept until pieces of them come,
    /// or the call or the answer ends.
    begun: Option<(u64, Box<RawValue>)>,
}

impl AnswerReader for MessagesReader {
    fn read(&mut self, data: &str, out: &mut Vec<Delta>) -> Result<Progress, ReadFault> {
        let event: MessageStreamEvent = event(data)?;
        let index = event.index.unwrap_or(0);
        match event.kind.as_str() {
            "message_start" => self.count(event.message.and_then(|message| message.usage), out),
            "content_block_start" => self.block(index, event.content_block, out),
            "content_block_delta" => self.piece(index, event.delta.unwrap_or_default(), out),
            "content_block_stop" => self.keep_begun(out),
            "message_delta" => {
                if let Some(reason) = reason(event.delta.and_then(|delta| delta.stop_reason)) {
                    self.stop = Some(stop(reason));
                }
                self.count(event.usage, out);
            }
            "message_stop" => return Ok(Progress::Over),
            // `ping`, and event types of later versions.
            _ => {}
        }
        Ok(Progress::More)
    }

    /// Some servers never send a block's end. The call must not run without its initial arguments.
    fn rest(&mut self, out: &mut Vec<Delta>) {
        self.keep_begun(out);
    }

    fn stop(&self) -> Option<StopReason> {
        self.stop.clone().map(|stop| with_calls(stop, self.has_calls))
    }
}

impl MessagesReader {
    fn block(&mut self, index: u64, block: Option<ContentBlock>, out: &mut Vec<Delta>) {
        // A new block ends the one before.
        self.keep_begun(out);
        let Some(block) = block else { return };
        match block.kind.as_str() {
            "text" => push_text(out, Delta::Text, block.text),
            "thinking" => push_text(out, Delta::Thinking, block.thinking),
            "tool_use" => {
                self.has_calls = true;
                if let Some(input) = block.input.filter(|input| !is_empty_object(input)) {
                    self.begun = Some((index, input));
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
                    self.begun.take_if(|(begun, _)| *begun == index);
                    out.push(arguments(index, text));
                }
            }
            _ => {}
        }
    }

    /// Emits the initial arguments if no pieces replaced them.
    fn keep_begun(&mut self, out: &mut Vec<Delta>) {
        out.extend(self.begun.take().map(|(index, whole)| arguments(index, whole.get().to_owned())));
    }

    /// Updates the token counts. They cover the whole turn so far, and each event has only some of them.
    fn count(&mut self, count: Option<MessageUsage>, out: &mut Vec<Delta>) {
        let Some(count) = count else { return };
        let input = [count.input_tokens, count.cache_creation_input_tokens, count.cache_read_input_tokens];
        if count.input_tokens.is_some() {
            self.usage.input_tokens = input.into_iter().flatten().fold(0, u64::saturating_add);
        }
        self.usage.output_tokens = count.output_tokens.unwrap_or(self.usage.output_tokens);
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
