//! [`AgentHandle`]: steers, continues or cancels a run from outside.

use std::{collections::VecDeque, sync::Arc};

use parking_lot::{Mutex, MutexGuard};
use portcullis_types::{CancellationToken, Message};
use thiserror::Error;

/// The maximum number of queued steering messages, and of queued follow-ups. Without the limit, a front end
/// could fill the memory while no run reads its messages.
pub const MAX_QUEUED_MESSAGES: usize = 64;

/// A handle to a loop: steers it, adds a follow-up prompt, cancels the run. Clones control the same loop, even
/// while it runs.
#[derive(Debug, Clone, Default)]
pub struct AgentHandle {
    state: Arc<Mutex<QueueState>>,
}

#[derive(Debug, Default)]
struct QueueState {
    steering: VecDeque<Message>,
    follow_ups: VecDeque<Message>,
    cancel: CancellationToken,
}

/// The error of a message that was not queued because the queue is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("{MAX_QUEUED_MESSAGES} messages already wait for the run")]
pub struct QueueFull;

impl AgentHandle {
    /// Sends a message to the model as soon as possible. Calls of the turn that have not begun are skipped,
    /// each with a result that says so. The message is the next that the model reads. Without an active run,
    /// it waits for the next run.
    ///
    /// # Errors
    /// [`QueueFull`] past [`MAX_QUEUED_MESSAGES`].
    pub fn steer(&self, text: impl Into<String>) -> Result<(), QueueFull> {
        self.steer_with(Message::user(text))
    }

    /// Like [`AgentHandle::steer`], with a message that may have other content than text.
    ///
    /// # Errors
    /// Same as [`AgentHandle::steer`].
    pub fn steer_with(&self, message: Message) -> Result<(), QueueFull> {
        push(&mut self.lock().steering, message)
    }

    /// Queues a message for after the model's answer. The run then continues with this message.
    ///
    /// # Errors
    /// [`QueueFull`] past [`MAX_QUEUED_MESSAGES`].
    pub fn follow_up(&self, text: impl Into<String>) -> Result<(), QueueFull> {
        push(&mut self.lock().follow_ups, Message::user(text))
    }

    /// Cancels the current run, or the next run if none is active. Running calls get the grace period to end.
    /// Then every call has a result in the history.
    pub fn cancel(&self) {
        self.token().cancel();
    }

    /// Returns the token that is cancelled with the current run, or with the next run if none is active. It
    /// is replaced at the end of a run.
    pub(super) fn token(&self) -> CancellationToken {
        self.lock().cancel.clone()
    }

    /// Replaces the token, for the next run.
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

    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock()
    }
}

fn push(queue: &mut VecDeque<Message>, message: Message) -> Result<(), QueueFull> {
    if queue.len() >= MAX_QUEUED_MESSAGES {
        return Err(QueueFull);
    }
    queue.push_back(message);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_messages_are_bounded() {
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
