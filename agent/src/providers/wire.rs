//! The protocol of each provider: the address and body of a request, and the events of a response.
//!
//! | file | what it is |
//! |---|---|
//! | `openai.rs` | chat completions |
//! | `anthropic.rs` | the Messages API; `anthropic_response.rs` its events |
//! | `gemini.rs` | `streamGenerateContent` |
//! | `ollama.rs` | `/api/chat` |
//! | `history.rs` | converts a conversation: call ids, names, blocks, arguments |
//! | `bounded_list.rs` | a list in an event, with a limit |
//! | `fault.rs` | reads the errors that providers send |

mod anthropic;
mod anthropic_response;
mod bounded_list;
mod fault;
mod gemini;
mod history;
mod ollama;
mod openai;

use std::fmt;

use http::{HeaderMap, HeaderName, HeaderValue};
use serde::Deserialize;
use serde_json::value::RawValue;
use url::Url;

use super::{
    ApiKey, ProviderKind,
    event_splitter::{EventFault, EventFormat},
};
use crate::{Delta, ModelRequest, ProviderError, StopReason, ToolCallDelta};

pub(super) use fault::{ReportedError, kind_of_status, printable_excerpt};

/// A request, with the options of its encoding.
#[derive(Debug, Clone, Copy)]
pub(super) struct WireRequest<'a> {
    /// The model that is asked.
    pub(super) model: &'a str,
    /// Messages, tools and limits.
    pub(super) chat: &'a ModelRequest,
    /// Whether tools are declared in the provider's strict mode.
    pub(super) strict: bool,
    /// Whether the request goes to the provider itself, rather than to a compatible server.
    pub(super) official: bool,
}

/// Reads the events of one response.
pub(super) trait ResponseReader: Send + fmt::Debug {
    /// Reads the data of one event, and appends its pieces to `out`.
    fn read(&mut self, data: &str, out: &mut Vec<Delta>) -> Result<ResponseProgress, ReadError>;

    /// Emits pieces that were held back until the response is complete.
    fn emit_held_back(&mut self, _out: &mut Vec<Delta>) {}

    /// Returns the stop reason, once the provider has given one.
    fn stop(&self) -> Option<StopReason>;
}

/// Whether a response continues after an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ResponseProgress {
    /// More events may follow.
    More,
    /// The provider has ended the response.
    Finished,
}

/// Why an event cannot be read.
#[derive(Debug)]
pub(super) enum ReadError {
    /// The bytes are not an event.
    Event(EventFault),
    /// The event is not the JSON that the protocol prescribes.
    Json(serde_json::Error),
    /// The provider reports an error in the middle of its response.
    Reported(ReportedError),
    /// The response is larger than the limit.
    TooLarge,
    /// The provider ended the response without a stop reason.
    NoStopReason,
}

impl From<EventFault> for ReadError {
    fn from(fault: EventFault) -> Self {
        Self::Event(fault)
    }
}

impl From<serde_json::Error> for ReadError {
    fn from(error: serde_json::Error) -> Self {
        Self::Json(error)
    }
}

/// Returns the URL of a request.
pub(super) fn endpoint(kind: ProviderKind, base: &Url, model: &str) -> Url {
    match kind {
        ProviderKind::OpenAi if has_no_path(base) => append_segments(base, &["v1", "chat", "completions"]),
        ProviderKind::OpenAi => append_segments(base, &["chat", "completions"]),
        ProviderKind::Anthropic if base.path().trim_end_matches('/').ends_with("/v1") => {
            append_segments(base, &["messages"])
        }
        ProviderKind::Anthropic => append_segments(base, &["v1", "messages"]),
        ProviderKind::Gemini => gemini::endpoint(base, model),
        ProviderKind::Ollama => append_segments(base, &["api", "chat"]),
    }
}

/// Returns the headers for the key and the protocol version.
pub(super) fn headers(kind: ProviderKind, key: Option<&ApiKey>) -> HeaderMap {
    let mut headers = HeaderMap::new();
    let (name, prefix) = match kind {
        ProviderKind::OpenAi | ProviderKind::Ollama => ("authorization", "Bearer "),
        ProviderKind::Anthropic => ("x-api-key", ""),
        // Send the key in a header, because URLs end up in logs.
        ProviderKind::Gemini => ("x-goog-api-key", ""),
    };
    if let Some(key) = key {
        headers.insert(HeaderName::from_static(name), key.header(prefix));
    }
    if kind == ProviderKind::Anthropic {
        headers.insert("anthropic-version", HeaderValue::from_static(anthropic::VERSION));
    }
    headers
}

/// Encodes the request's body.
pub(super) fn body(kind: ProviderKind, request: WireRequest<'_>) -> Result<Vec<u8>, ProviderError> {
    match kind {
        ProviderKind::OpenAi => openai::body(request),
        ProviderKind::Anthropic => anthropic::body(request),
        ProviderKind::Gemini => gemini::body(request),
        ProviderKind::Ollama => ollama::body(request),
    }
}

/// Returns how the response's events are delimited.
pub(super) fn event_format(kind: ProviderKind) -> EventFormat {
    match kind {
        ProviderKind::OpenAi | ProviderKind::Anthropic | ProviderKind::Gemini => EventFormat::Events,
        ProviderKind::Ollama => EventFormat::Lines,
    }
}

/// Returns the media type of a response.
pub(super) fn media_type(kind: ProviderKind) -> &'static str {
    match event_format(kind) {
        EventFormat::Events => "text/event-stream",
        EventFormat::Lines => "application/x-ndjson",
    }
}

/// Creates a reader for one response.
pub(super) fn reader(kind: ProviderKind) -> Box<dyn ResponseReader> {
    match kind {
        ProviderKind::OpenAi => Box::<openai::ChatCompletionReader>::default(),
        ProviderKind::Anthropic => Box::<anthropic_response::MessagesReader>::default(),
        ProviderKind::Gemini => Box::<gemini::GenerateContentReader>::default(),
        ProviderKind::Ollama => Box::<ollama::ChatReader>::default(),
    }
}

/// Parses an event, unless it reports an error. Check for the error first: almost all fields are optional, so
/// an error would parse as an event without content.
fn event<'data, T: Deserialize<'data>>(data: &'data str) -> Result<T, ReadError> {
    match ReportedError::from_event(data) {
        Some(reported) => Err(ReadError::Reported(reported)),
        None => Ok(serde_json::from_str(data)?),
    }
}

/// Emits text, unless it is empty.
fn push_text(out: &mut Vec<Delta>, delta: fn(String) -> Delta, text: Option<String>) {
    if let Some(text) = text.filter(|text| !text.is_empty()) {
        out.push(delta(text));
    }
}

/// Returns the stop reason, if there is one. Some servers send an empty one with every piece, and that must
/// not make the response look complete.
fn non_blank(word: Option<String>) -> Option<String> {
    word.filter(|word| !word.trim().is_empty())
}

/// Converts a call that arrives complete and without an index. The call gets the next index.
fn whole_call(calls: &mut u64, id: Option<String>, name: String, arguments: Option<&RawValue>) -> Delta {
    let index = *calls;
    *calls += 1;
    Delta::ToolCall(ToolCallDelta {
        index,
        id: id.filter(|id| !id.is_empty()),
        name: Some(name),
        arguments: arguments.map(RawValue::get).filter(|text| *text != "null").map(str::to_owned),
    })
}

/// Corrects the stop reason of a response with calls: some servers report `stop` where others report that the
/// model waits for its calls.
fn stop_reason_with_calls(stop: StopReason, has_calls: bool) -> StopReason {
    if has_calls && stop == StopReason::Stop { StopReason::ToolCalls } else { stop }
}

fn has_no_path(base: &Url) -> bool {
    base.path().trim_matches('/').is_empty()
}

/// Returns the URL with these segments after its path.
fn append_segments(base: &Url, segments: &[&str]) -> Url {
    let mut url = base.clone();
    url.path_segments_mut()
        .expect("an http or https URL with a host, which settings check, has a path")
        .pop_if_empty()
        .extend(segments);
    url
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(kind: ProviderKind, base: &str, expected: &str) {
        let base = Url::parse(base).expect("a URL");
        assert_eq!(endpoint(kind, &base, "m").as_str(), expected);
    }

    #[test]
    fn an_address_is_completed_however_it_is_written() {
        let check_default = |kind: ProviderKind, expected| check(kind, kind.default_base_url(), expected);
        check_default(ProviderKind::OpenAi, "https://api.openai.com/v1/chat/completions");
        check_default(ProviderKind::Anthropic, "https://api.anthropic.com/v1/messages");
        check_default(ProviderKind::Ollama, "http://127.0.0.1:11434/api/chat");
        check_default(
            ProviderKind::Gemini,
            "https://generativelanguage.googleapis.com/v1beta/models/m:streamGenerateContent?alt=sse",
        );
        for base in ["http://h:1", "http://h:1/", "http://h:1/v1", "http://h:1/v1/"] {
            check(ProviderKind::OpenAi, base, "http://h:1/v1/chat/completions");
            check(ProviderKind::Anthropic, base, "http://h:1/v1/messages");
        }
        check(ProviderKind::OpenAi, "http://h/api/openai", "http://h/api/openai/chat/completions");
        check(ProviderKind::Anthropic, "http://h/proxy/", "http://h/proxy/v1/messages");
    }

    #[test]
    fn a_models_name_stays_one_part_of_an_address() {
        let base = Url::parse("https://h/v1beta").expect("a URL");
        let address = |model| endpoint(ProviderKind::Gemini, &base, model).to_string();
        assert_eq!(address("models/m"), "https://h/v1beta/models/m:streamGenerateContent?alt=sse");
        check(ProviderKind::Gemini, "https://h", "https://h/v1beta/models/m:streamGenerateContent?alt=sse");
        assert_eq!(
            address("../../a?b#c"),
            "https://h/v1beta/models/..%2F..%2Fa%3Fb%23c:streamGenerateContent?alt=sse"
        );
    }
}
