//! A bounded stream of a run's events. Events that start or end something are never lost, as long as only one
//! run sends into the stream.
//!
//! Backpressure: a run waits for a lagging reader, but the callback of a running tool cannot wait. While the
//! reader lags, only the latest update and progress of each call are kept, and dropped events are counted. A
//! cancelled run stops waiting after its grace period. Room is reserved for the events that it still sends,
//! and one run cannot fill that room.

use std::{
    collections::VecDeque,
    mem::{Discriminant, discriminant},
    num::NonZeroUsize,
    sync::Arc,
};

use parking_lot::{Mutex, MutexGuard};
use portcullis_types::{ToolEvent, async_trait};
use tokio::sync::Notify;

use super::{AgentEvent, EventEmitter, MAX_LISTED_CALLS};

/// Default capacity: how many events may wait for the reader before the run waits for it.
pub const DEFAULT_EVENT_CAPACITY: NonZeroUsize = NonZeroUsize::new(1024).expect("1024 is not 0");

/// Room beyond the capacity for events of running calls, because a call cannot wait. It holds the latest
/// update and progress of each call, and its few other events. Events past it are dropped and counted.
pub const MAX_EVENTS_BEYOND_CAPACITY: usize = 1024;

/// Room beyond [`MAX_EVENTS_BEYOND_CAPACITY`] for events that open or end something, in a cancelled run that
/// stopped waiting for its reader. One run cannot fill this room. Several runs on one unread stream can.
/// Events past it are dropped and counted.
///
/// A run stops waiting only after a cancellation, and then ends with its turn. A turn has fewer than 2 ×
/// [`MAX_LISTED_CALLS`] calls: that many are kept, and the first of them may be split into that many again.
/// Each call has two events that open or end it, [`ToolEvent::Requested`] and [`AgentEvent::ToolEnd`]. The
/// rest of the room is for events that occur once in a turn or run: starts and ends, the answer, steering.
pub const MAX_ENDS_BEYOND_CAPACITY: usize = 2 * 2 * MAX_LISTED_CALLS + 16;

/// The maximum length of the joined text while the reader lags, in bytes.
pub const MAX_JOINED_BYTES: usize = 64 * 1024;

/// Creates a stream of events, and returns its sending and its receiving end.
#[must_use]
pub fn event_channel(capacity: NonZeroUsize) -> (EventSender, EventReceiver) {
    let shared = Arc::new(Channel {
        state: Mutex::new(ChannelState {
            queue: VecDeque::new(),
            capacity: capacity.get(),
            dropped_events: 0,
            senders: 1,
            has_receiver: true,
        }),
        event_added: Notify::new(),
        event_taken: Notify::new(),
    });
    (EventSender { channel: Arc::clone(&shared) }, EventReceiver { channel: shared })
}

/// The sending end. Clones send into the same stream.
#[derive(Debug)]
pub struct EventSender {
    channel: Arc<Channel>,
}

/// The receiving end. If it is dropped, the run continues without an observer.
#[derive(Debug)]
pub struct EventReceiver {
    channel: Arc<Channel>,
}

impl EventReceiver {
    /// Returns the next event, or `None` when the stream has ended.
    ///
    /// # Cancellation
    /// Dropping the future loses no event.
    pub async fn recv(&mut self) -> Option<AgentEvent> {
        loop {
            let filled = self.channel.event_added.notified();
            {
                let mut state = self.channel.lock();
                if let Some(event) = state.queue.pop_front() {
                    let has_room = state.has_room();
                    drop(state);
                    if has_room {
                        self.channel.event_taken.notify_one();
                    }
                    return Some(event);
                }
                if state.senders == 0 {
                    return None;
                }
            }
            filled.await;
        }
    }

    /// Returns the next event if one is queued.
    pub fn try_recv(&mut self) -> Option<AgentEvent> {
        let event = self.channel.lock().queue.pop_front();
        if event.is_some() {
            self.channel.event_taken.notify_one();
        }
        event
    }

    /// The number of dropped events: updates, progress texts and heartbeats that a later event of the same call
    /// replaced, and events past [`MAX_EVENTS_BEYOND_CAPACITY`] and [`MAX_ENDS_BEYOND_CAPACITY`].
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.channel.lock().dropped_events
    }

    /// The number of queued events.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.channel.lock().queue.len()
    }
}

impl Drop for EventReceiver {
    fn drop(&mut self) {
        let mut state = self.channel.lock();
        state.has_receiver = false;
        state.queue.clear();
        drop(state);
        self.channel.event_taken.notify_waiters();
        // `notify_waiters` stores no permit for a sender that is not waiting yet. An extra permit costs at
        // most one needless wake-up.
        self.channel.event_taken.notify_one();
    }
}

#[async_trait]
impl EventEmitter for EventSender {
    async fn emit(&self, event: AgentEvent) {
        let mut event = event;
        loop {
            // Create the future before checking the queue: `notify_waiters` wakes only futures that already
            // exist.
            let drained = self.channel.event_taken.notified();
            {
                let mut state = self.channel.lock();
                match state.try_enqueue(event) {
                    Ok(()) => {
                        let has_room = state.has_room() || !state.has_receiver;
                        drop(state);
                        self.channel.event_added.notify_one();
                        // Wake the next sender, because the reader wakes only one at a time.
                        if has_room {
                            self.channel.event_taken.notify_one();
                        }
                        return;
                    }
                    Err(returned_event) => event = returned_event,
                }
            }
            drained.await;
        }
    }

    fn emit_now(&self, event: AgentEvent) {
        self.channel.lock().enqueue_now(event);
        self.channel.event_added.notify_one();
    }

    fn listens(&self) -> bool {
        self.channel.lock().has_receiver
    }
}

impl Clone for EventSender {
    fn clone(&self) -> Self {
        self.channel.lock().senders += 1;
        Self { channel: Arc::clone(&self.channel) }
    }
}

impl Drop for EventSender {
    fn drop(&mut self) {
        self.channel.lock().senders -= 1;
        self.channel.event_added.notify_one();
    }
}

#[derive(Debug)]
struct Channel {
    state: Mutex<ChannelState>,
    /// The single reader waits here.
    event_added: Notify,
    /// Senders wait here.
    event_taken: Notify,
}

impl Channel {
    fn lock(&self) -> MutexGuard<'_, ChannelState> {
        self.state.lock()
    }
}

#[derive(Debug)]
struct ChannelState {
    queue: VecDeque<AgentEvent>,
    capacity: usize,
    dropped_events: u64,
    senders: usize,
    /// Whether the receiver still exists.
    has_receiver: bool,
}

impl ChannelState {
    fn has_room(&self) -> bool {
        self.queue.len() < self.capacity
    }

    /// Returns whether the reader lags: at least half of the capacity is filled.
    fn is_lagging(&self) -> bool {
        self.queue.len() >= self.capacity.div_ceil(2)
    }

    /// Enqueues an event, or returns it if there is no room.
    fn try_enqueue(&mut self, event: AgentEvent) -> Result<(), AgentEvent> {
        if !self.has_receiver {
            return Ok(());
        }
        let event = if self.is_lagging() {
            match join_delta(self.queue.back_mut(), event) {
                Some(event) => event,
                None => return Ok(()),
            }
        } else {
            event
        };
        if !self.has_room() {
            return Err(event);
        }
        self.queue.push_back(event);
        Ok(())
    }

    /// Enqueues an event whose sender cannot wait: a running call, or a run that stopped waiting.
    fn enqueue_now(&mut self, event: AgentEvent) {
        if !self.has_receiver {
            return;
        }
        if self.is_lagging()
            && let Some(key) = coalescing_key(&event)
        {
            let earlier_position = self.queue.iter().rposition(|queued| coalescing_key(queued) == Some(key));
            if let Some(position) = earlier_position {
                self.dropped_events += 1;
                self.queue[position] = event;
                return;
            }
        }
        // The loop sends such an event only once, so it may use the reserved room.
        let reserve = if event.must_arrive() { MAX_ENDS_BEYOND_CAPACITY } else { 0 };
        let limit = self.capacity.saturating_add(MAX_EVENTS_BEYOND_CAPACITY + reserve);
        if self.queue.len() >= limit {
            self.dropped_events += 1;
            return;
        }
        self.queue.push_back(event);
    }
}

/// Joins a piece of text to the last queued event of the same kind, or returns the event if that is not
/// possible.
fn join_delta(last: Option<&mut AgentEvent>, event: AgentEvent) -> Option<AgentEvent> {
    let (text, piece) = match (last, &event) {
        (Some(AgentEvent::TextDelta { delta }), AgentEvent::TextDelta { delta: piece })
        | (Some(AgentEvent::ThinkingDelta { delta }), AgentEvent::ThinkingDelta { delta: piece }) => {
            (delta, piece)
        }
        (
            Some(AgentEvent::Tool(ToolEvent::ArgumentsDelta { call_id, delta, .. })),
            AgentEvent::Tool(ToolEvent::ArgumentsDelta { call_id: piece_call_id, delta: piece, .. }),
        ) if call_id == piece_call_id => (delta, piece),
        _ => return Some(event),
    };
    if text.len() + piece.len() > MAX_JOINED_BYTES {
        return Some(event);
    }
    text.push_str(piece);
    None
}

/// Returns the call and kind of an event that a later event of the same call and kind replaces; `None` for
/// other events.
fn coalescing_key(event: &AgentEvent) -> Option<(&str, Discriminant<ToolEvent>)> {
    match event {
        AgentEvent::Tool(
            event @ (ToolEvent::Update { call_id, .. }
            | ToolEvent::Progress { call_id, .. }
            | ToolEvent::Heartbeat { call_id, .. }),
        ) => Some((call_id, discriminant(event))),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
