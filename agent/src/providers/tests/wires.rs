//! The messages of a server in each protocol, for tests of faults: the same texts, errors and malformed data
//! in each.

use super::*;

/// A protocol, and a server's messages in it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wire {
    pub(super) kind: ProviderKind,
    /// Events without content.
    nothing: fn() -> Vec<Value>,
    text: fn(&str) -> Value,
    /// The event with the stop reason.
    reason: fn() -> Value,
    /// Sent after the last event; empty where the protocol has no such marker.
    pub(super) end_marker: &'static str,
    /// An error, as a body and as an event.
    pub(super) error: fn(&str) -> Value,
    /// An error that a retry cannot overcome; none where the protocol has only one kind.
    pub(super) lasting: Option<fn(&str) -> Value>,
    /// Only a token count.
    count: fn() -> Value,
    /// An answer that is not streamed.
    pub(super) unstreamed: fn() -> Value,
    /// The pieces of an answer without text.
    wordless: fn() -> Vec<Value>,
    /// Data that are not an event of the protocol.
    pub(super) malformed: &'static [&'static str],
}

/// All protocols.
pub(super) const WIRES: [Wire; 4] = [OPEN_AI, ANTHROPIC, GEMINI, OLLAMA];

const OPEN_AI: Wire = Wire {
    kind: ProviderKind::OpenAi,
    nothing: || vec![json!({"choices": []})],
    text: |words| json!({"choices": [{"index": 0, "delta": {"content": words}}]}),
    reason: || json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}),
    end_marker: "data: [DONE]\n\n",
    error: |message| json!({"error": {"message": message}}),
    lasting: Some(|message| json!({"error": {"message": message, "type": "authentication_error"}})),
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
    end_marker: "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
    error: |message| json!({"type": "error", "error": {"type": "a_new_error", "message": message}}),
    lasting: Some(
        |message| json!({"type": "error", "error": {"type": "authentication_error", "message": message}}),
    ),
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

const GEMINI: Wire = Wire {
    kind: ProviderKind::Gemini,
    nothing: || {
        vec![
            json!({"candidates": [], "modelVersion": "m"}),
            json!({"usageMetadata": {"promptTokenCount": 5}}),
        ]
    },
    text: |words| json!({"candidates": [{"content": {"parts": [{"text": words}], "role": "model"}, "index": 0}]}),
    reason: || json!({"candidates": [{"content": {"parts": []}, "finishReason": "STOP", "index": 0}]}),
    end_marker: "",
    error: |message| json!({"error": {"code": 503, "message": message, "status": "UNAVAILABLE"}}),
    lasting: Some(|message| json!({"error": {"code": 401, "message": message, "status": "UNAUTHENTICATED"}})),
    count: || json!({"usageMetadata": {"promptTokenCount": 1}}),
    unstreamed: || json!([{"candidates": [{"content": {"parts": [{"text": "not streamed"}]}}]}]),
    wordless: || {
        vec![
            json!({}),
            json!({"candidates": []}),
            json!({"candidates": null}),
            json!({"candidates": [{}]}),
            json!({"candidates": [{"content": null, "finishReason": null}]}),
            json!({"candidates": [{"content": {}}]}),
            json!({"candidates": [{"content": {"parts": null, "role": "model"}}]}),
            json!({"candidates": [{"content": {"parts": [{}]}}]}),
            json!({"candidates": [{"content": {"parts": [{"text": ""}]}}]}),
            json!({"promptFeedback": {}}),
        ]
    },
    malformed: &[
        "{\"candidates\":[{\"content\"",
        "null",
        "[]",
        "\"x\"",
        "{\"candidates\":5}",
        "{\"candidates\":[{\"index\":-1}]}",
        "{\"candidates\":[{\"content\":\"x\"}]}",
        "{\"candidates\":[{\"content\":{\"parts\":[{\"functionCall\":{}}]}}]}",
    ],
};

const OLLAMA: Wire = Wire {
    kind: ProviderKind::Ollama,
    nothing: || vec![json!({"model": "m", "message": {"role": "assistant", "content": ""}, "done": false})],
    text: |words| json!({"model": "m", "message": {"role": "assistant", "content": words}, "done": false}),
    reason: || json!({"message": {"content": ""}, "done": true, "done_reason": "stop", "eval_count": 2}),
    end_marker: "",
    error: |message| json!({"error": message}),
    lasting: None,
    count: || json!({"done": false, "prompt_eval_count": 1, "eval_count": 1}),
    unstreamed: || json!({"message": {"content": "not streamed"}, "done": true, "done_reason": "stop"}),
    wordless: || {
        vec![
            json!({}),
            json!({"done": null}),
            json!({"message": null, "done": false}),
            json!({"message": {}, "done": false}),
            json!({"message": {"role": "assistant", "content": null, "tool_calls": null}}),
            json!({"message": {"content": "", "tool_calls": []}, "done": false}),
        ]
    },
    malformed: &[
        "{\"message\":{\"content\"",
        "null",
        "[]",
        "\"x\"",
        "{\"message\":5}",
        "{\"message\":{\"content\":7}}",
        "{\"message\":{\"tool_calls\":[{}]}}",
        "{\"done\":\"yes\"}",
    ],
};

impl Wire {
    /// Whether events are JSON lines rather than server-sent events.
    fn has_lines(&self) -> bool {
        self.kind == ProviderKind::Ollama
    }

    /// The media type of an answer.
    pub(super) fn media_type(&self) -> &'static str {
        if self.has_lines() { "application/x-ndjson" } else { "text/event-stream" }
    }

    /// Returns an answer that begins with this body.
    pub(super) fn reply(&self, body: impl AsRef<[u8]>) -> Reply {
        Reply::new(200, self.media_type(), body)
    }

    /// Returns data as an event.
    pub(super) fn event(&self, data: impl AsRef<[u8]>) -> Vec<u8> {
        [self.frame_prefix(), data.as_ref(), self.frame_suffix()].concat()
    }

    /// Returns the bytes before an event's data.
    pub(super) fn frame_prefix(&self) -> &'static [u8] {
        if self.has_lines() { b"" } else { b"data: " }
    }

    fn frame_suffix(&self) -> &'static [u8] {
        if self.has_lines() { b"\n" } else { b"\n\n" }
    }

    /// Returns bytes that keep the connection open without an event.
    pub(super) fn still_here(&self) -> &'static str {
        if self.has_lines() { " \r\n\n" } else { ": still here\n\n" }
    }

    pub(super) fn nothing(&self) -> String {
        self.framed(&(self.nothing)())
    }

    pub(super) fn text(&self, words: &str) -> String {
        self.framed(&[(self.text)(words)])
    }

    pub(super) fn count(&self) -> String {
        self.framed(&[(self.count)()])
    }

    pub(super) fn error_event(&self, message: &str) -> String {
        self.framed(&[(self.error)(message)])
    }

    pub(super) fn wordless(&self) -> Vec<String> {
        (self.wordless)().into_iter().map(|data| self.framed(&[data])).collect()
    }

    /// Returns the end of a complete answer.
    pub(super) fn end(&self) -> String {
        self.framed(&[(self.reason)()]) + self.end_marker
    }

    /// Returns an answer that says `fine`.
    pub(super) fn fine(&self) -> Reply {
        self.reply(self.nothing() + &self.text("fine") + &self.end())
    }

    /// Returns the number of requests for an answer that ends without text and without a stop reason. In a
    /// protocol without an end marker, such an answer looks like a connection that broke before the first
    /// piece, so the request is retried.
    pub(super) fn attempts_without_stop_reason(&self) -> usize {
        if self.end_marker.is_empty() { 4 } else { 1 }
    }

    /// Returns a refusal because of too many requests.
    pub(super) fn limited(&self, wait: &str) -> Reply {
        Reply::error(429, &(self.error)("slow down")).with_header("retry-after", wait)
    }

    /// Returns events in the protocol's framing, with event names if the protocol has them.
    pub(super) fn framed(&self, data: &[Value]) -> String {
        let one = |data: &Value| match data["type"].as_str() {
            _ if self.has_lines() => format!("{data}\n"),
            Some(name) => format!("event: {name}\ndata: {data}\n\n"),
            None => format!("data: {data}\n\n"),
        };
        data.iter().map(one).collect()
    }
}

#[test]
fn every_protocol_is_tested() {
    assert_eq!(WIRES.map(|wire| wire.kind), ProviderKind::ALL);
}
