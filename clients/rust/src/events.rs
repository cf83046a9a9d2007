//! [`EventStream`]: the events of an agent, from server-sent events (WHATWG HTML, section 9.2).
//!
//! `sse-stream` parses the fields. Before that, [`EventSize`] limits the size of an event while it arrives,
//! and a timeout ends a silent stream.

use std::{fmt, mem, pin::Pin, task, time::Duration};

use bytes::Bytes;
use futures_util::{
    Stream, StreamExt as _, TryStreamExt as _, future,
    stream::{self, BoxStream},
};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use serde::Deserialize as _;
use serde_json::Value;
use sse_stream::{Sse, SseStream};
use tokio::time::timeout;

use crate::{Call, ClientError, address::check_id};

#[cfg(test)]
mod tests;

/// The maximum size of an event, in bytes. The largest events contain a call's arguments and result, 1 MiB
/// each, with escapes.
pub(crate) const MAX_EVENT_BYTES: usize = 8 << 20;

/// After this time of silence a stream counts as lost. The gateway sends a comment every 15 s.
pub(crate) const MAX_SILENCE: Duration = Duration::from_secs(60);

/// The kind of an event that names none.
const DEFAULT_KIND: &str = "message";

/// The kind of the event for a call that accepts a result.
const CALL_PENDING: &str = "call.pending";

/// An event of an agent.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Event {
    /// The id, to resume with [`Gateway::events`](crate::Gateway::events) after a lost connection. `None` if
    /// the event is not stored.
    pub id: Option<String>,
    /// The kind, such as `call.pending`. `reset` means that events were lost: read the resources again.
    pub kind: String,
    /// The content of the event, as JSON.
    pub data: Value,
}

impl Event {
    /// Returns the call of an event `call.pending`, or `None` for any other event.
    ///
    /// # Errors
    /// [`ClientError::Unreadable`] if the data of the event does not have the form of a call.
    pub fn call(&self) -> Result<Option<Call>, ClientError> {
        if self.kind != CALL_PENDING {
            return Ok(None);
        }
        let call =
            Call::deserialize(&self.data).map_err(|source| ClientError::unreadable("event", source))?;
        call.checked("event").map(Some)
    }

    /// Returns `None` if the fields are not an event, but for example the time after which a reader
    /// reconnects.
    fn read(fields: Sse) -> Result<Option<Self>, ClientError> {
        let Some(data) = fields.data else { return Ok(None) };
        let data = serde_json::from_str(&data).map_err(|source| ClientError::unreadable("event", source))?;
        if let Some(id) = &fields.id {
            check_id("event", id).map_err(|source| ClientError::unreadable("event", source))?;
        }
        let kind = fields.event.unwrap_or_else(|| DEFAULT_KIND.to_owned());
        Ok(Some(Self { id: fields.id, kind, data }))
    }
}

/// The events of an agent. The stream ends when the gateway ends it, or after the first error:
///
/// - [`ClientError::Connection`] if the connection is lost,
/// - [`ClientError::Silent`] after 60 s without a byte,
/// - [`ClientError::TooLarge`] for an event of more than 8 MiB,
/// - [`ClientError::Unreadable`] for an event that is not in the gateway's form.
pub struct EventStream {
    events: BoxStream<'static, Result<Event, ClientError>>,
}

impl Stream for EventStream {
    type Item = Result<Event, ClientError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> task::Poll<Option<Self::Item>> {
        self.events.as_mut().poll_next(cx)
    }
}

impl fmt::Debug for EventStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventStream").finish_non_exhaustive()
    }
}

/// Returns the events of a body.
pub(crate) fn of_body(body: Incoming) -> EventStream {
    let chunks = stream::try_unfold(body, async |mut body: Incoming| {
        loop {
            let frame = match timeout(MAX_SILENCE, body.frame()).await {
                Ok(Some(frame)) => frame.map_err(ClientError::connection)?,
                Ok(None) => return Ok(None),
                Err(_elapsed) => return Err(ClientError::Silent { after: MAX_SILENCE }),
            };
            // A frame without data carries trailers, which are not needed.
            if let Ok(data) = frame.into_data() {
                return Ok(Some((data, body)));
            }
        }
    });
    of_chunks(chunks)
}

/// Returns the events of a byte stream with any chunk boundaries.
fn of_chunks(chunks: impl Stream<Item = Result<Bytes, ClientError>> + Send + 'static) -> EventStream {
    let mut size = EventSize::default();
    let bounded = chunks.and_then(move |chunk| future::ready(size.add(&chunk).map(|()| chunk)));
    let events = SseStream::from_bytes_stream(bounded.boxed())
        .map_err(client_error)
        .try_filter_map(|fields| future::ready(Event::read(fields)));
    // End the stream after an error, because the parser would continue in the middle of an event.
    let until_error = events.scan(false, |has_failed, event| {
        let is_over = mem::replace(has_failed, event.is_err());
        future::ready((!is_over).then_some(event))
    });
    EventStream { events: until_error.boxed() }
}

/// Unwraps an error of the bytes, and wraps an error of the parser.
fn client_error(error: sse_stream::Error) -> ClientError {
    match error {
        sse_stream::Error::Body(source) => match source.downcast::<ClientError>() {
            Ok(error) => *error,
            Err(source) => ClientError::Connection { source },
        },
        error => ClientError::unreadable("event", error),
    }
}

/// Counts the bytes of the current event. The parser buffers an event until the empty line at its end, so a
/// stream without one could fill the memory.
#[derive(Debug)]
struct EventSize {
    bytes: usize,
    is_line_empty: bool,
    /// Whether the last byte was a carriage return. A line feed after it belongs to the same line end.
    is_after_carriage_return: bool,
}

impl Default for EventSize {
    fn default() -> Self {
        Self { bytes: 0, is_line_empty: true, is_after_carriage_return: false }
    }
}

impl EventSize {
    fn add(&mut self, chunk: &[u8]) -> Result<(), ClientError> {
        for &byte in chunk {
            let is_after_carriage_return = mem::replace(&mut self.is_after_carriage_return, byte == b'\r');
            match byte {
                // This line feed belongs to the line end that has just been counted.
                b'\n' if is_after_carriage_return => {}
                b'\n' | b'\r' => {
                    if mem::replace(&mut self.is_line_empty, true) {
                        self.bytes = 0;
                    }
                }
                _ => {
                    self.is_line_empty = false;
                    self.bytes += 1;
                    if self.bytes > MAX_EVENT_BYTES {
                        return Err(ClientError::TooLarge { subject: "event", limit_bytes: MAX_EVENT_BYTES });
                    }
                }
            }
        }
        Ok(())
    }
}
