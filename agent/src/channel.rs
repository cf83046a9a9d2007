//! The stream of a run's events: bounded, and no end is ever lost in it.
//!
//! A run waits where a reader lags. A tool's callback cannot wait, so behind a reader that lags only the latest
//! update and the latest progress of each call are kept, and what was left out is counted. A cancelled run does
//! not wait for ever: what opens and ends something has room of its own, which one run cannot fill.

use std::{
    collections::VecDeque,
    mem::{Discriminant, discriminant},
    num::NonZeroUsize,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use portcullis_types::{ToolEvent, async_trait};
use tokio::sync::Notify;

use super::{AgentEvent, EventEmitter, MAX_LISTED_CALLS};

/// How many events wait for a reader before a run waits for it.
pub const DEFAULT_EVENT_CAPACITY: NonZeroUsize = NonZeroUsize::new(1024).expect("1024 is not 0");

/// How many events of running calls may wait beyond the capacity, since a call cannot wait: the latest update
/// and progress of each, and the few that a call's life has. Past it they are left out, and counted.
pub const MAX_EVENTS_BEYOND_CAPACITY: usize = 1024;

/// How many events that open or end something may wait beyond all that, in a cancelled run that waits for its
/// reader no more: more than one run can have left to say. Past it, which takes several runs on one stream that
/// nobody reads, they are left out as well, and counted.
///
/// A run is given up only once it was cancelled, and then ends with its turn. A turn has fewer than
/// 2 × [`MAX_LISTED_CALLS`] calls (as many may be kept, and the first of them taken apart into as many), and each
/// of them two such events, [`ToolEvent::Requested`] and [`AgentEvent::ToolEnd`]. The rest is what a turn and a run
/// have once: their starts and ends, the answer, what a person said.
pub const MAX_ENDS_BEYOND_CAPACITY: usize = 2 * 2 * MAX_LISTED_CALLS + 16;

/// How long a text is that pieces are joined to behind a reader that lags, in bytes.
pub const MAX_JOINED_BYTES: usize = 64 * 1024;

/// A stream of events: where they go in, and where they come out.
#[must_use]
pub fn event_channel(capacity: NonZeroUsize) -> (EventSender, EventReceiver) {
    let shared = Arc::new(Shared {
        state: Mutex::new(State {
            queue: VecDeque::new(),
            capacity: capacity.get(),
            coalesced: 0,
            senders: 1,
            read: true,
        }),
        filled: Notify::new(),
        drained: Notify::new(),
    });
    (EventSender { shared: Arc::clone(&shared) }, EventReceiver { shared })
}

/// Where events go in. Clones go into the same stream.
#[derive(Debug)]
pub struct EventSender {
    shared: Arc<Shared>,
}

/// Where events come out. Dropping it ends nothing: the run goes on unwatched.
#[derive(Debug)]
pub struct EventReceiver {
    shared: Arc<Shared>,
}

impl EventReceiver {
    /// The next event; none when the stream is over.
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

    /// The next event, if one waits.
    pub fn try_recv(&mut self) -> Option<AgentEvent> {
        let event = self.shared.lock().queue.pop_front();
        if event.is_some() {
            self.shared.drained.notify_one();
        }
        event
    }

    /// How many events were left out since the reader lagged: updates and progress texts, of which the latest of
    /// each call was kept, and what came past [`MAX_EVENTS_BEYOND_CAPACITY`] and [`MAX_ENDS_BEYOND_CAPACITY`].
    #[must_use]
    pub fn coalesced(&self) -> u64 {
        self.shared.lock().coalesced
    }

    /// How many events wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.shared.lock().queue.len()
    }
}

impl Drop for EventReceiver {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.read = false;
        state.queue.clear();
        drop(state);
        self.shared.drained.notify_waiters();
        // One that is about to wait gets this one.
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
                        let room = state.has_room() || !state.read;
                        drop(state);
                        self.shared.filled.notify_one();
                        // The next one that waits gets the word, since a reader gives it to one at a time.
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
        self.shared.lock().read
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
struct Shared {
    state: Mutex<State>,
    /// The reader waits here, alone.
    filled: Notify,
    /// Runs wait here.
    drained: Notify,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
struct State {
    queue: VecDeque<AgentEvent>,
    capacity: usize,
    coalesced: u64,
    senders: usize,
    /// Whether there is a reader.
    read: bool,
}

impl State {
    fn has_room(&self) -> bool {
        self.queue.len() < self.capacity
    }

    /// Whether the reader lags: half of the capacity waits for it.
    fn lags(&self) -> bool {
        self.queue.len() >= self.capacity.div_ceil(2)
    }

    /// Takes an event, or gives it back where there is no room.
    fn take(&mut self, event: AgentEvent) -> Result<(), AgentEvent> {
        if !self.read {
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

    /// Takes an event that cannot wait: of a running call, or of a run that waits no more.
    fn take_now(&mut self, event: AgentEvent) {
        if !self.read {
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

/// Joins a piece of text to one of the same kind that waits; gives back what cannot be joined.
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

/// Of which call and of which kind an event is whose latest is enough; none for all others.
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
