//! [`EventEmitter`]: who is told what happens in a run.

use std::sync::Arc;

use portcullis_types::async_trait;

use super::AgentEvent;

/// Somebody who watches runs. [`EventSender`](super::EventSender) is the one that ships; `()` is nobody.
#[async_trait]
pub trait EventEmitter: Send + Sync {
    /// Takes an event; the run waits meanwhile, so one that is slow slows the run down. One that panics ends
    /// the run as [`AgentEnd::Internal`](super::AgentEnd::Internal), after its calls have their results.
    ///
    /// # Cancellation
    /// The future is dropped where it does not end within the grace time of a cancelled run. From then on the run
    /// waits no more: [`EventEmitter::emit_now`] gets the rest, and first once more the event whose future was
    /// dropped, if it opens or ends something.
    async fn emit(&self, event: AgentEvent);

    /// Takes an event of a running call, and those of a cancelled run whose `emit` was given up. Called
    /// synchronously, from within the call, on any thread: it must not block, and may leave an update out where it
    /// cannot keep up. An end should stay: it comes once.
    fn emit_now(&self, event: AgentEvent);

    /// Whether anybody listens at all; calls without listeners cost less. Default: yes.
    fn listens(&self) -> bool {
        true
    }
}

#[async_trait]
impl<E: EventEmitter + ?Sized> EventEmitter for Arc<E> {
    async fn emit(&self, event: AgentEvent) {
        (**self).emit(event).await;
    }

    fn emit_now(&self, event: AgentEvent) {
        (**self).emit_now(event);
    }

    fn listens(&self) -> bool {
        (**self).listens()
    }
}

/// Nobody watches.
#[async_trait]
impl EventEmitter for () {
    async fn emit(&self, _event: AgentEvent) {}

    fn emit_now(&self, _event: AgentEvent) {}

    fn listens(&self) -> bool {
        false
    }
}
