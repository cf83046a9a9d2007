//! Sends a topic's events to one reader, as server-sent events (WHATWG HTML, 9.2).

use std::{collections::VecDeque, convert::Infallible, sync::Arc, time::Duration};

use axum::{
    http::HeaderMap,
    response::{
        IntoResponse, Response, Sse,
        sse::{Event as SseEvent, KeepAlive},
    },
};
use futures_util::stream;
use portcullis_store::Event;
use tokio::sync::{
    broadcast::{self, error::RecvError},
    watch,
};

use crate::{
    error::{ApiError, ErrorCode},
    hub::LiveEvent,
    state::GatewayState,
    stream_access::StreamAccess,
};

/// How long a reader waits before it reconnects.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// How often a comment keeps a silent connection open.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(15);

/// The header with the id of the last event that the reader got.
const LAST_EVENT_ID: &str = "last-event-id";

/// The reader of one topic.
struct Reader {
    state: Arc<GatewayState>,
    topic: String,
    stream_access: StreamAccess,
    /// The id up to which the reader has read.
    position: i64,
    newest: watch::Receiver<i64>,
    live: broadcast::Receiver<LiveEvent>,
    ready_events: VecDeque<SseEvent>,
    /// An event of an unfinished stream, held until the stored events before it are sent.
    held_event: Option<LiveEvent>,
}

/// Answers a request for the events of a topic.
///
/// # Errors
/// [`ApiError`] if the id is not a number, or if the store cannot be read.
pub(crate) async fn respond(
    state: Arc<GatewayState>,
    stream_access: StreamAccess,
    headers: &HeaderMap,
    parameter: Option<&str>,
) -> Result<Response, ApiError> {
    let topic = stream_access.topic();
    // Subscribe before reading the position, so that no event is missed in between.
    let (newest, live) = (state.hub.newest(), state.hub.live());
    // A reader that reconnects may repeat its first URL, so the header is newer than the parameter.
    let last_event_id = match headers.get(LAST_EVENT_ID) {
        Some(value) => Some(value.to_str().unwrap_or_default()),
        None => parameter,
    };
    let mut ready = VecDeque::from([SseEvent::default().retry(RETRY_PAUSE)]);
    let position = match last_event_id {
        None => *newest.borrow(),
        Some(text) => {
            let id = text.parse::<i64>().ok().filter(|id| *id >= 0);
            let id = id.ok_or_else(|| {
                ApiError::new(ErrorCode::BadRequest, "`Last-Event-ID` is the id of an event: a number")
            })?;
            if state.hub.has_lost(id).await? {
                let newest = *newest.borrow();
                // Send the id, so that the reader can continue from here.
                ready.push_back(SseEvent::default().id(newest.to_string()).event("reset").data("{}"));
                newest
            } else {
                id
            }
        }
    };
    // A reader that begins in the middle of a text needs the text so far.
    ready.extend(state.hub.streams(&topic).into_iter().map(live_event));
    let reader =
        Reader { state, topic, stream_access, position, newest, live, ready_events: ready, held_event: None };
    let events = stream::unfold(reader, async |mut reader| {
        let event = reader.next().await?;
        Some((Ok::<_, Infallible>(event), reader))
    });
    let mut response =
        Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE_INTERVAL)).into_response();
    // Tell proxies not to buffer the response, which would delay the events.
    let no = axum::http::HeaderValue::from_static("no");
    response.headers_mut().insert("x-accel-buffering", no);
    Ok(response)
}

impl Reader {
    /// Returns the next event, or `None` when the gateway stops or the reader has lost its right.
    async fn next(&mut self) -> Option<SseEvent> {
        let stop = self.state.stop.clone();
        loop {
            // Check the right before each event, so that a reader gets no event that was written after the
            // right was lost. A reader whose right cannot be checked must reconnect.
            if let Err(error) = self.stream_access.ensure_allowed().await {
                tracing::debug!(error = error.message(), "a stream ends");
                return None;
            }
            if let Some(event) = self.ready_events.pop_front() {
                return Some(event);
            }
            if *self.newest.borrow_and_update() > self.position {
                match self.state.hub.events_after(&self.topic, self.position).await {
                    Ok((events, position)) => {
                        self.position = position;
                        self.ready_events.extend(events.iter().map(|event| stored_event(event)));
                        continue;
                    }
                    // End the stream: the reader reconnects with its last id.
                    Err(error) => {
                        tracing::warn!(error = &error as &dyn std::error::Error, "cannot read events");
                        return None;
                    }
                }
            }
            // Send stored events first: a reader must know a message before it gets parts of its text.
            if let Some(event) = self.held_event.take() {
                return Some(live_event(event));
            }
            tokio::select! {
                () = stop.cancelled() => return None,
                () = self.stream_access.wait_for_possible_change() => {}
                // An error means that the hub was dropped, so the gateway has stopped.
                changed = self.newest.changed() => changed.ok()?,
                event = self.live.recv() => match event {
                    Ok(event) if event.topics.contains(&self.topic) => self.held_event = Some(event),
                    // Ignore a gap: a stored event has the complete text.
                    Ok(_) | Err(RecvError::Lagged(_)) => {}
                    Err(RecvError::Closed) => return None,
                },
            }
        }
    }
}

fn stored_event(event: &Event) -> SseEvent {
    SseEvent::default().id(event.id.to_string()).event(&event.kind).data(event.data.as_str())
}

fn live_event(event: LiveEvent) -> SseEvent {
    SseEvent::default().event(event.kind).data(event.data)
}
