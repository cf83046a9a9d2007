//! [`AgentHandle`]: what a person says to a run while it runs.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use portcullis_types::{CancellationToken, Message};
use thiserror::Error;

/// How many messages may wait for a run, of each kind. Without it a front end that nobody reads could fill the
/// memory.
pub const MAX_QUEUED_MESSAGES: usize = 64;

/// A hold on a loop: says something in between, adds a question, gives the run up. Clones are holds on the same
/// loop, and work while it runs.
#[derive(Debug, Clone, Default)]
pub struct AgentHandle {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    steering: VecDeque<Message>,
    follow_ups: VecDeque<Message>,
    cancel: CancellationToken,
}

/// The messages that wait are too many; this one was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("{MAX_QUEUED_MESSAGES} messages wait for the run already")]
pub struct QueueFull;

impl AgentHandle {
    /// Says something as soon as possible: calls of the turn that have not begun are skipped, each with a
    /// result that says so, and the model reads the message next. Without a run it waits for the next one.
    ///
    /// # Errors
    /// [`QueueFull`] past [`MAX_QUEUED_MESSAGES`].
    pub fn steer(&self, text: impl Into<String>) -> Result<(), QueueFull> {
        push(&mut self.lock().steering, text.into())
    }

    /// Says something once the model has given its answer; the run goes on with it.
    ///
    /// # Errors
    /// [`QueueFull`] past [`MAX_QUEUED_MESSAGES`].
    pub fn follow_up(&self, text: impl Into<String>) -> Result<(), QueueFull> {
        push(&mut self.lock().follow_ups, text.into())
    }

    /// Gives the run up; without a run, the next one. Calls that run have the grace time to end, and every call
    /// has a result in the history afterwards.
    pub fn cancel(&self) {
        self.token().cancel();
    }

    /// Fires when the current run, or without one the next, is given up. A run's end puts a new one in its
    /// place.
    pub(super) fn token(&self) -> CancellationToken {
        self.lock().cancel.clone()
    }

    /// Puts a token for the next run in place of the last one's.
    pub(super) fn renew(&self) {
        self.lock().cancel = CancellationToken::new();
    }

    pub(super) fn wants_to_steer(&self) -> bool {
        !self.lock().steering.is_empty()
    }

    pub(super) fn take_steering(&self) -> Vec<Message> {
        self.lock().steering.drain(..).collect()
    }

    pub(super) fn take_follow_ups(&self) -> Vec<Message> {
        self.lock().follow_ups.drain(..).collect()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn push(queue: &mut VecDeque<Message>, text: String) -> Result<(), QueueFull> {
    if queue.len() >= MAX_QUEUED_MESSAGES {
        return Err(QueueFull);
    }
    queue.push_back(Message::user(text));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_so_many_messages_wait() {
        let handle = AgentHandle::default();
        for _ in 0..MAX_QUEUED_MESSAGES {
            handle.steer("now").expect("room");
            handle.follow_up("later").expect("room");
        }
        assert_eq!(handle.steer("now"), Err(QueueFull));
        assert_eq!(handle.follow_up("later"), Err(QueueFull));
        assert_eq!(handle.take_steering().len(), MAX_QUEUED_MESSAGES);
        assert_eq!(handle.steer("now"), Ok(()));
    }
}
