//! Decodes bytes into the pieces of a response, within limits. It does not read from the network, so it also
//! decodes recordings.

use std::collections::VecDeque;

use super::{
    event_splitter::{EventFault, EventSplitter},
    failure::FailureContext,
    wire::{self, ReadError, ResponseProgress, ResponseReader},
};
use crate::{Delta, StopReason};

/// The maximum number of bytes of an event beyond its content: names, ids, counts, escape sequences.
const MAX_EVENT_OVERHEAD_BYTES: usize = 64 * 1024;

/// The maximum ratio between the size of a response on the wire and the size of its content. Providers wrap
/// each word into some 200 bytes, and send comments to keep the connection open. Without a limit, the
/// comments could go on forever.
const MAX_WIRE_FACTOR: u64 = 64;

/// Fixed cost of a call's piece, in bytes. Even an empty piece costs its holder memory.
const CALL_PIECE_BYTES: usize = 32;

/// Reads one response.
#[derive(Debug)]
pub(super) struct ResponseDecoder {
    event_splitter: EventSplitter,
    wire_bytes_left: u64,
    response: ResponseState,
}

impl ResponseDecoder {
    /// Creates a decoder for a response of at most `response_bytes` from this provider.
    pub(super) fn new(identity: FailureContext, response_bytes: usize) -> Self {
        let kind = identity.kind;
        Self {
            event_splitter: EventSplitter::new(
                wire::event_format(kind),
                response_bytes.saturating_add(MAX_EVENT_OVERHEAD_BYTES),
            ),
            wire_bytes_left: (response_bytes as u64)
                .saturating_add(MAX_EVENT_OVERHEAD_BYTES as u64)
                .saturating_mul(MAX_WIRE_FACTOR),
            response: ResponseState {
                identity,
                reader: wire::reader(kind),
                bytes_left: response_bytes,
                ended: false,
            },
        }
    }

    /// Decodes more bytes, and appends the pieces to `out`. On a fault, `out` has the pieces that precede it.
    pub(super) fn push(&mut self, bytes: &[u8], out: &mut VecDeque<Delta>) -> Result<(), ReadError> {
        self.wire_bytes_left =
            self.wire_bytes_left.checked_sub(bytes.len() as u64).ok_or(ReadError::TooLarge)?;
        let Self { event_splitter, response, .. } = self;
        event_splitter.push(bytes, |data| response.read(data, out)).map_err(as_answer_fault)
    }

    /// Ends the input. Returns `false` if the provider has not said that the response is complete.
    pub(super) fn finish(&mut self, out: &mut VecDeque<Delta>) -> Result<bool, ReadError> {
        let Self { event_splitter, response, .. } = self;
        event_splitter.finish(|data| response.read(data, out)).map_err(as_answer_fault)?;
        self.end(out)
    }

    /// Ends the response if the provider has given a stop reason, and returns whether the response is complete.
    /// If the connection breaks after the stop reason, at most the token count is lost.
    pub(super) fn end(&mut self, out: &mut VecDeque<Delta>) -> Result<bool, ReadError> {
        if !self.response.ended
            && let Some(stop) = self.response.reader.stop()
        {
            self.response.end(stop, out)?;
        }
        Ok(self.response.ended)
    }

    /// Returns whether the response is complete.
    pub(super) fn ended(&self) -> bool {
        self.response.ended
    }
}

/// The content of the events.
#[derive(Debug)]
struct ResponseState {
    identity: FailureContext,
    reader: Box<dyn ResponseReader>,
    bytes_left: usize,
    ended: bool,
}

impl ResponseState {
    fn read(&mut self, data: &str, out: &mut VecDeque<Delta>) -> Result<(), ReadError> {
        if self.ended || data.trim().is_empty() {
            return Ok(());
        }
        let mut deltas = Vec::new();
        let progress = self.reader.read(data, &mut deltas)?;
        self.emit(deltas, out)?;
        if progress == ResponseProgress::Finished {
            // An end without a stop reason is an error: a cut response must not look whole.
            let stop = self.reader.stop().ok_or(ReadError::NoStopReason)?;
            self.end(stop, out)?;
        }
        Ok(())
    }

    fn end(&mut self, stop: StopReason, out: &mut VecDeque<Delta>) -> Result<(), ReadError> {
        let mut rest = Vec::new();
        self.reader.emit_held_back(&mut rest);
        self.emit(rest, out)?;
        self.ended = true;
        out.push_back(Delta::End(self.identity.clean_stop_reason(stop)));
        Ok(())
    }

    fn emit(&mut self, deltas: Vec<Delta>, out: &mut VecDeque<Delta>) -> Result<(), ReadError> {
        for delta in deltas {
            self.bytes_left =
                self.bytes_left.checked_sub(content_bytes(&delta)).ok_or(ReadError::TooLarge)?;
            out.push_back(delta);
        }
        Ok(())
    }
}

/// Returns the memory cost of a piece, in bytes.
fn content_bytes(delta: &Delta) -> usize {
    let text_length = |text: &Option<String>| text.as_ref().map_or(0, String::len);
    match delta {
        Delta::Text(text) | Delta::Thinking(text) => text.len(),
        Delta::ToolCall(call) => {
            CALL_PIECE_BYTES + text_length(&call.id) + text_length(&call.name) + text_length(&call.arguments)
        }
        Delta::Usage(_) | Delta::End(_) => 0,
    }
}

/// Reports an event past its limit as a response past its limit.
fn as_answer_fault(fault: ReadError) -> ReadError {
    match fault {
        ReadError::Event(EventFault::TooLarge) => ReadError::TooLarge,
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::providers::ProviderKind;

    fn decoder(response_bytes: usize) -> ResponseDecoder {
        ResponseDecoder::new(FailureContext { kind: ProviderKind::OpenAi, key: None }, response_bytes)
    }

    fn text(words: &str) -> String {
        format!("data: {{\"choices\":[{{\"delta\":{{\"content\":\"{words}\"}}}}]}}\n\n")
    }

    #[test]
    fn an_answer_is_bounded_by_what_it_says() {
        let mut out = VecDeque::new();
        let mut decoder = decoder(10);
        decoder.push(text("12345").as_bytes(), &mut out).expect("within");
        decoder.push(text("12345").as_bytes(), &mut out).expect("just within");
        let fault = decoder.push(text("1").as_bytes(), &mut out).expect_err("too large");
        assert!(matches!(fault, ReadError::TooLarge));
        assert_eq!(out.len(), 2);
    }

    #[test]
    fn an_answer_that_says_nothing_for_ever_is_bounded() {
        let mut out = VecDeque::new();
        let mut decoder = decoder(1024);
        let comments = b": keep-alive\n\n".repeat(1000);
        let fed = (0..10_000).take_while(|_| decoder.push(&comments, &mut out).is_ok()).count();
        assert!((1..1000).contains(&fed), "{fed}");
    }

    #[test]
    fn nothing_follows_the_end() {
        let mut out = VecDeque::new();
        let mut decoder = decoder(1000);
        let end = "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";
        decoder.push(format!("{}{end}{}", text("a"), text("b")).as_bytes(), &mut out).expect("read");
        assert_eq!(out, [Delta::Text("a".into()), Delta::End(StopReason::Stop)]);
        assert!(decoder.finish(&mut out).expect("over"));
        assert_eq!(out.len(), 2);
    }

    #[test]
    fn an_end_without_a_reason_gives_none() {
        let mut out = VecDeque::new();
        let mut decoder = decoder(1000);
        let fault = decoder.push(format!("{}data: [DONE]\n\n", text("a")).as_bytes(), &mut out);
        assert!(matches!(fault, Err(ReadError::NoStopReason)));
        assert_eq!(out, [Delta::Text("a".into())]);
    }
}
