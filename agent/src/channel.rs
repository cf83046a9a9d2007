//! Bounded stream of a run's events that never drops the end of anything.
//!
//! A run waits for a reader that lags. A tool's callback cannot wait, so while the reader lags only the
//! latest update and the latest progress of each call are kept, and dropped events are counted. A cancelled
//! run does not wait forever: events that open or end something have reserved room, which one run cannot
//! fill.

use std::{
    collections::VecDeque,
    mem::{Discriminant, discriminant},
    num::NonZeroUsize,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use portcullis_types::{ToolEvent, async_trait};
use tokio::sync::Notify;

use super::{AgentEvent, EventEmitter, MAX_LISTED_CALLS};

/// Default capacity: how many events may wait for the reader before the run waits for it.
pub const DEFAULT_EVENT_CAPACITY: NonZeroUsize = NonZeroUsize::new(1024).expect("1024 is not 0");

/// Room beyond the capacity for events of running calls, since a call cannot wait: the latest update and
/// progress of each, and the few other events of a call. Events past it are dropped and counted.
pub const MAX_EVENTS_BEYOND_CAPACITY: usize = 1024;

/// Room beyond all that for events that open or end something, in a cancelled run that no longer waits for
/// its reader. It is more than one run can still have to report. Only several runs on one unread stream can
/// fill it; events past it are dropped and counted.
///
/// A run stops waiting only after it was cancelled, and then ends with its turn. A turn has fewer than 2 ×
/// [`MAX_LISTED_CALLS`] calls (as many may be kept, and the first of them split into as many), and each call
/// has two such events, [`ToolEvent::Requested`] and [`AgentEvent::ToolEnd`]. The rest is for events that a
/// turn and a run have once: starts and ends, the answer, steering.
pub const MAX_ENDS_BEYOND_CAPACITY: usize = 2 * 2 * MAX_LISTED_CALLS + 16;

/// Limit of a text to which further pieces are joined while the reader lags, in bytes.
pub const MAX_JOINED_BYTES: usize = 64 * 1024;

/// Creates a stream of events, and returns its sending and its receiving end.
#[must_use]
pub fn event_channel(capacity: NonZeroUsize) -> (EventSender, EventReceiver) {
    let shared = Arc::new(Channel {
        state: Mutex::new(ChannelState {
            queue: VecDeque::new(),
            capacity: capacity.get(),
            coalesced: 0,
            senders: 1,
            has_receiver: true,
        }),
        filled: Notify::new(),
        drained: Notify::new(),
    });
    (EventSender { shared: Arc::clone(&shared) }, EventReceiver { shared })
}

/// The sending end. Clones send into the same stream.
#[derive(Debug)]
pub struct EventSender {
    shared: Arc<Channel>,
}

/// The receiving end. Dropping it does not end the run, which goes on unobserved.
#[derive(Debug)]
pub struct EventReceiver {
    shared: Arc<Channel>,
}

impl EventReceiver {
    /// Returns the next event, or none when the stream is over.
    ///
    /// # Cancellation
    /// Dropping the future loses no event.
    pub async fn recv(&mut self) -> Option<AgentEvent> {
        loop {
            let filled = self.shared.filled.notified();
            {
                let mut state = self.shared.lock();
                if let Some(event) = state.queue.pop_front() {
                    let more = state.has_room();
                    drop(state);
                    if more {
                        self.shared.drained.notify_one();
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

    /// Returns the next event, if one waits.
    pub fn try_recv(&mut self) -> Option<AgentEvent> {
        let event = self.shared.lock().queue.pop_front();
        if event.is_some() {
            self.shared.drained.notify_one();
        }
        event
    }

    /// How many events were dropped: updates and progress texts that a later one of the same call replaced,
    /// and events past [`MAX_EVENTS_BEYOND_CAPACITY`] and [`MAX_ENDS_BEYOND_CAPACITY`].
    #[must_use]
    pub fn coalesced(&self) -> u64 {
        self.shared.lock().coalesced
    }

    /// How many events wait to be read.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.shared.lock().queue.len()
    }
}

impl Drop for EventReceiver {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.has_receiver = false;
        state.queue.clear();
        drop(state);
        self.shared.drained.notify_waiters();
        // `notify_waiters` misses a sender that is about to wait; this stored permit wakes it.
        self.shared.drained.notify_one();
    }
}

#[async_trait]
impl EventEmitter for EventSender {
    async fn emit(&self, event: AgentEvent) {
        let mut event = event;
        loop {
            let drained = self.shared.drained.notified();
            {
                let mut state = self.shared.lock();
                match state.take(event) {
                    Ok(()) => {
                        let room = state.has_room() || !state.has_receiver;
                        drop(state);
                        self.shared.filled.notify_one();
                        // Pass the wake-up on: the reader wakes one waiting sender at a time.
                        if room {
                            self.shared.drained.notify_one();
                        }
                        return;
                    }
                    Err(back) => event = back,
                }
            }
            drained.await;
        }
    }

    fn emit_now(&self, event: AgentEvent) {
        self.shared.lock().take_now(event);
        self.shared.filled.notify_one();
    }

    fn listens(&self) -> bool {
        self.shared.lock().has_receiver
    }
}

impl Clone for EventSender {
    fn clone(&self) -> Self {
        self.shared.lock().senders += 1;
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl Drop for EventSender {
    fn drop(&mut self) {
        self.shared.lock().senders -= 1;
        self.shared.filled.notify_one();
    }
}

#[derive(Debug)]
struct Channel {
    state: Mutex<ChannelState>,
    /// The single reader waits here.
    filled: Notify,
    /// Senders wait here.
    drained: Notify,
}

impl Channel {
    fn lock(&self) -> MutexGuard<'_, ChannelState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
struct ChannelState {
    queue: VecDeque<AgentEvent>,
    capacity: usize,
    coalesced: u64,
    senders: usize,
    /// Whether the receiver still exists.
    has_receiver: bool,
}

impl ChannelState {
    fn has_room(&self) -> bool {
        self.queue.len() < self.capacity
    }

    /// Whether the reader lags: at least half of the capacity is filled.
    fn lags(&self) -> bool {
        self.queue.len() >= self.capacity.div_ceil(2)
    }

    /// Enqueues an event, or returns it if there is no room.
    fn take(&mut self, event: AgentEvent) -> Result<(), AgentEvent> {
        if !self.has_receiver {
            return Ok(());
        }
        let event = match self.lags() {
            true => match join(self.queue.back_mut(), event) {
                Some(event) => event,
                None => return Ok(()),
            },
            false => event,
        };
        if !self.has_room() {
            return Err(event);
        }
        self.queue.push_back(event);
        Ok(())
    }

    /// Enqueues an event that cannot wait: of a running call, or of a run that no longer waits.
    fn take_now(&mut self, event: AgentEvent) {
        if !self.has_receiver {
            return;
        }
        if self.lags()
            && let Some(key) = coalescing_key(&event)
        {
            let earlier = self.queue.iter().rposition(|queued| coalescing_key(queued) == Some(key));
            if let Some(at) = earlier {
                self.coalesced += 1;
                self.queue[at] = event;
                return;
            }
        }
        let room_of_its_own = if event.must_arrive() { MAX_ENDS_BEYOND_CAPACITY } else { 0 };
        let limit = self.capacity.saturating_add(MAX_EVENTS_BEYOND_CAPACITY + room_of_its_own);
        if self.queue.len() >= limit {
            self.coalesced += 1;
            return;
        }
        self.queue.push_back(event);
    }
}

/// Joins a piece of text to the last queued event of the same kind; returns the event if it cannot be joined.
fn join(last: Option<&mut AgentEvent>, event: AgentEvent) -> Option<AgentEvent> {
    let (text, piece) = match (last, &event) {
        (Some(AgentEvent::TextDelta { delta }), AgentEvent::TextDelta { delta: piece })
        | (Some(AgentEvent::ThinkingDelta { delta }), AgentEvent::ThinkingDelta { delta: piece }) => {
            (delta, piece)
        }
        (
            Some(AgentEvent::Tool(ToolEvent::ArgumentsDelta { call_id, delta, .. })),
            AgentEvent::Tool(ToolEvent::ArgumentsDelta { call_id: other, delta: piece, .. }),
        ) if call_id == other => (delta, piece),
        _ => return Some(event),
    };
    if text.len() + piece.len() > MAX_JOINED_BYTES {
        return Some(event);
    }
    text.push_str(piece);
    None
}

/// The call and kind of an event of which the latest suffices; none for all other events.
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
