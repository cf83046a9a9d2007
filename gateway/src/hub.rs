//! [`EventHub`]: delivers events to readers. Stored events of all processes come from the store. Events of an
//! unfinished stream are not stored.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use portcullis_store::{Event, PageRequest, SpaceStore, StoreError};
use serde_json::{Value, json};
use tokio::sync::{Notify, broadcast, watch};

/// The maximum number of stored events that are kept in memory: 4,096. A reader that lags further reads from
/// the store.
const MAX_KEPT_EVENTS: usize = 4096;

/// The maximum number of unstored events that a slow reader may lag: 1,024. A reader that lags further misses
/// some, and gets the complete text at the end.
const LIVE_CHANNEL_CAPACITY: usize = 1024;

/// How often the store is polled for events that another process has written.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// The pause after a failed read.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// The number of events that are read from the store at a time.
const PAGE_ROWS: u32 = 256;

/// The maximum number of concurrent streams. The text of a further one is shown when it is complete.
const MAX_ARRIVING_TEXTS: usize = 4096;

/// An event that is not stored.
#[derive(Debug, Clone)]
pub(crate) struct LiveEvent {
    pub(crate) topics: Arc<[String]>,
    pub(crate) kind: &'static str,
    pub(crate) data: String,
}

/// The newest stored events, and the unfinished streams.
#[derive(Debug)]
pub(crate) struct EventHub {
    store: Arc<dyn SpaceStore>,
    recent_events: Mutex<Recent>,
    newest: watch::Sender<i64>,
    /// Notified when this process has written events.
    event_written: Notify,
    live: broadcast::Sender<LiveEvent>,
    streams: Mutex<HashMap<String, Subscription>>,
}

#[derive(Debug, Default)]
struct Recent {
    events: VecDeque<Arc<Event>>,
    /// Every event with a greater id is in `events`.
    complete_after: i64,
}

#[derive(Debug, Clone)]
struct Subscription {
    topics: Arc<[String]>,
    text: String,
}

impl EventHub {
    /// Creates a hub over the events of this store, beginning with the present.
    ///
    /// # Errors
    /// [`StoreError`] if the store cannot be read.
    pub(crate) async fn new(store: Arc<dyn SpaceStore>) -> Result<Self, StoreError> {
        let newest = store.event_bounds().await?.newest;
        let recent = Recent { events: VecDeque::new(), complete_after: newest };
        Ok(Self {
            store,
            recent_events: Mutex::new(recent),
            newest: watch::Sender::new(newest),
            event_written: Notify::new(),
            live: broadcast::Sender::new(LIVE_CHANNEL_CAPACITY),
            streams: Mutex::default(),
        })
    }

    /// Tells the hub that this process has written events.
    pub(crate) fn notify_written(&self) {
        // A notification during a read is kept, so no write waits for the poll.
        self.event_written.notify_one();
    }

    /// Returns the id of the newest event that readers can have, as a channel that follows it.
    pub(crate) fn newest(&self) -> watch::Receiver<i64> {
        self.newest.subscribe()
    }

    /// Returns a receiver of the events of unfinished streams, from now on.
    pub(crate) fn live(&self) -> broadcast::Receiver<LiveEvent> {
        self.live.subscribe()
    }

    /// Reads new events of the store forever.
    pub(crate) async fn follow(&self) {
        loop {
            match self.read_new().await {
                Ok(true) => continue,
                Ok(false) => {}
                Err(error) => {
                    tracing::warn!(error = &error as &dyn std::error::Error, "cannot read new events");
                    tokio::time::sleep(RETRY_PAUSE).await;
                    continue;
                }
            }
            // A timeout is normal: the next poll finds the writes of other processes.
            let _ = tokio::time::timeout(POLL_INTERVAL, self.event_written.notified()).await;
        }
    }

    /// Reads new events. Returns whether there may be more.
    async fn read_new(&self) -> Result<bool, StoreError> {
        let newest = *self.newest.borrow();
        let page = self.store.events(None, PageRequest::after(newest, PAGE_ROWS)).await?;
        let Some(last) = page.items.last().map(|event| event.id) else { return Ok(false) };
        let has_more = page.next.is_some();
        {
            let mut recent = self.recent_events.lock();
            for event in page.items {
                if recent.events.len() == MAX_KEPT_EVENTS
                    && let Some(oldest) = recent.events.pop_front()
                {
                    // Readers that are further behind must use the store from now on.
                    recent.complete_after = oldest.id;
                }
                recent.events.push_back(Arc::new(event));
            }
        }
        // Keep the events before announcing their id, so that a reader that sees the id finds them.
        self.newest.send_replace(last);
        Ok(has_more)
    }

    /// Returns the events of a topic after this id, at most one page, and the id up to which the reader has
    /// then read.
    ///
    /// # Errors
    /// [`StoreError`] if the store cannot be read.
    pub(crate) async fn events_after(
        &self,
        topic: &str,
        after: i64,
    ) -> Result<(Vec<Arc<Event>>, i64), StoreError> {
        let newest = *self.newest.borrow();
        {
            let recent = self.recent_events.lock();
            if after >= recent.complete_after {
                let events = recent
                    .events
                    .iter()
                    // Skip events after `newest`: the next read returns them, and they would be delivered
                    // twice.
                    .filter(|event| event.id > after && event.id <= newest)
                    .filter(|event| event.topics.iter().any(|of| of == topic));
                return Ok((events.cloned().collect(), newest.max(after)));
            }
        }
        let page = self.store.events(Some(topic), PageRequest::after(after, PAGE_ROWS)).await?;
        // After the last page, the reader has read up to the newest event that existed before the page was
        // read.
        let read = match (page.next, page.items.last()) {
            (Some(next), _) => next,
            (None, Some(last)) => last.id.max(newest),
            (None, None) => newest,
        };
        Ok((page.items.into_iter().map(Arc::new).collect(), read.max(after)))
    }

    /// Returns whether events after this id have been removed. The reader must then read the resources
    /// again.
    ///
    /// # Errors
    /// [`StoreError`] if the store cannot be read.
    pub(crate) async fn has_lost(&self, after: i64) -> Result<bool, StoreError> {
        let bounds = self.store.event_bounds().await?;
        // An id that this log has not assigned yet comes from another store.
        Ok(bounds.has_gap_after(after) || after > bounds.newest)
    }

    /// Sends an event that is not stored.
    pub(crate) fn send(&self, event: LiveEvent) {
        // A send without readers fails and drops the event.
        let _ = self.live.send(event);
    }

    /// Shows the text so far of a message that is still arriving.
    pub(crate) fn stream_text(&self, message: &str, topics: &Arc<[String]>, text: &str) {
        let offset = {
            let mut streams = self.streams.lock();
            if !streams.contains_key(message) && streams.len() >= MAX_ARRIVING_TEXTS {
                return;
            }
            let stream = streams
                .entry(message.to_owned())
                .or_insert_with(|| Subscription { topics: Arc::clone(topics), text: String::new() });
            // Readers already have the common prefix.
            let common = stream.text.chars().zip(text.chars()).take_while(|(old, new)| old == new);
            let (bytes, units) = common.fold((0, 0), |(bytes, units), (character, _)| {
                (bytes + character.len_utf8(), units + character.len_utf16())
            });
            if bytes == text.len() && bytes == stream.text.len() {
                return;
            }
            text.clone_into(&mut stream.text);
            (bytes, units)
        };
        let (bytes, units) = offset;
        self.send(streaming(message, topics, units, text.get(bytes..).unwrap_or_default()));
    }

    /// Ends the stream of a message. A stored event has the complete message.
    pub(crate) fn end_stream(&self, message: &str) {
        self.streams.lock().remove(message);
    }

    /// Returns the unfinished streams of a topic, for a reader that begins now.
    pub(crate) fn streams(&self, topic: &str) -> Vec<LiveEvent> {
        let streams = self.streams.lock();
        let topic_streams = streams
            .iter()
            .filter(|(_, stream)| stream.topics.iter().any(|stream_topic| stream_topic == topic));
        topic_streams.map(|(message, stream)| streaming(message, &stream.topics, 0, &stream.text)).collect()
    }
}

/// Creates the event with the text of a message from this offset on. The offset counts UTF-16 units, as
/// strings in browsers do.
fn streaming(message: &str, topics: &Arc<[String]>, offset: usize, text: &str) -> LiveEvent {
    let data: Value = json!({ "messageId": message, "offset": offset, "text": text });
    LiveEvent { topics: Arc::clone(topics), kind: "message.streaming", data: data.to_string() }
}
