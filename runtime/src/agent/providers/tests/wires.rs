//! What servers say in the protocols in which faults are tested: the same words, errors and rubbish in each.

use super::*;

/// A protocol, and what a server says in it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wire {
    pub(super) kind: ProviderKind,
    /// Events that say nothing of the answer.
    nothing: fn() -> Vec<Value>,
    text: fn(&str) -> Value,
    /// Why the answer ended.
    reason: fn() -> Value,
    /// What comes after the last event.
    pub(super) over: &'static str,
    /// An error, as a body and as an event.
    pub(super) error: fn(&str) -> Value,
    /// A count of tokens alone.
    count: fn() -> Value,
    /// An answer that is not streamed.
    pub(super) unstreamed: fn() -> Value,
    /// Pieces of an answer in which there is not a word.
    wordless: fn() -> Vec<Value>,
    /// Data that are no event of the protocol.
    pub(super) malformed: &'static [&'static str],
}

/// The two that most servers speak.
pub(super) const WIRES: [Wire; 2] = [OPEN_AI, ANTHROPIC];

const OPEN_AI: Wire = Wire {
    kind: ProviderKind::OpenAi,
    nothing: || vec![json!({"choices": []})],
    text: |words| json!({"choices": [{"index": 0, "delta": {"content": words}}]}),
    reason: || json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}),
    over: "data: [DONE]\n\n",
    error: |message| json!({"error": {"message": message}}),
    count: || json!({"usage": {"prompt_tokens": 1}}),
    unstreamed: || json!({"choices": [{"message": {"content": "not streamed"}}]}),
    wordless: || {
        vec![
            json!({"choices": []}),
            json!({"choices": null}),
            json!({"choices": [{}]}),
            json!({"choices": [{"delta": null}]}),
            json!({"choices": [{"delta": {"role": "assistant", "content": null, "tool_calls": null}}]}),
            json!({"choices": [{"delta": {"content": "", "tool_calls": []}}]}),
        ]
    },
    malformed: &[
        "{\"choices\":[{\"delta\"",
        "null",
        "[]",
        "\"x\"",
        "{\"choices\":5}",
        "{\"choices\":[{\"index\":-1}]}",
    ],
};

const ANTHROPIC: Wire = Wire {
    kind: ProviderKind::Anthropic,
    nothing: || {
        vec![
            json!({"type": "message_start", "message": {"content": [], "usage": {"input_tokens": 5}}}),
            json!({"type": "ping"}),
            json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
        ]
    },
    text: |words| json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": words}}),
    reason: || json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 9}}),
    over: "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
    error: |message| json!({"type": "error", "error": {"type": "a_new_error", "message": message}}),
    count: || json!({"type": "message_delta", "usage": {"output_tokens": 1}}),
    unstreamed: || json!({"type": "message", "content": [{"type": "text", "text": "not streamed"}]}),
    wordless: || {
        vec![
            json!({"type": "message_start"}),
            json!({"type": "message_start", "message": {"content": []}}),
            json!({"type": "content_block_start", "index": 0}),
            json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
            json!({"type": "content_block_delta", "index": 0}),
            json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": ""}}),
            json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": null}}),
            json!({"type": "content_block_stop", "index": 0}),
        ]
    },
    malformed: &[
        "{\"type\":\"content_block_delta\"",
        "null",
        "[]",
        "\"x\"",
        "{}",
        "{\"type\":5}",
        "{\"type\":\"content_block_delta\",\"index\":-1}",
        "{\"type\":\"content_block_delta\",\"delta\":\"x\"}",
        "{\"type\":\"content_block_start\",\"content_block\":{}}",
    ],
};

impl Wire {
    pub(super) fn nothing(&self) -> String {
        said(&(self.nothing)())
    }

    pub(super) fn text(&self, words: &str) -> String {
        said(&[(self.text)(words)])
    }

    pub(super) fn count(&self) -> String {
        said(&[(self.count)()])
    }

    pub(super) fn error_event(&self, message: &str) -> String {
        said(&[(self.error)(message)])
    }

    pub(super) fn wordless(&self) -> Vec<String> {
        (self.wordless)().into_iter().map(|data| said(&[data])).collect()
    }

    /// The end of an answer that is whole.
    pub(super) fn end(&self) -> String {
        said(&[(self.reason)()]) + self.over
    }

    /// An answer that says `fine`.
    pub(super) fn fine(&self) -> Reply {
        Reply::events(self.nothing() + &self.text("fine") + &self.end())
    }

    /// A refusal for too many requests.
    pub(super) fn limited(&self, wait: &str) -> Reply {
        Reply::error(429, &(self.error)("slow down")).with("retry-after", wait)
    }
}

/// Events, named where the protocol names them.
fn said(data: &[Value]) -> String {
    let one = |data: &Value| match data["type"].as_str() {
        Some(name) => format!("event: {name}\ndata: {data}\n\n"),
        None => format!("data: {data}\n\n"),
    };
    data.iter().map(one).collect()
}
