//! [`EventEmitter`]: receives the events of a run.

use std::sync::Arc;

use portcullis_types::async_trait;

use super::AgentEvent;

/// An observer of runs. This crate has two: [`EventSender`](super::EventSender), and `()`, which drops all
/// events.
#[async_trait]
pub trait EventEmitter: Send + Sync {
    /// Takes an event. The run waits for it, so a slow emitter slows the run down. A panic ends the run as
    /// [`AgentEnd::Internal`](super::AgentEnd::Internal), after its calls have their results.
    ///
    /// The future is dropped if it does not end within the grace period of a cancelled run. From then on the
    /// run does not wait: [`EventEmitter::emit_now`] gets the remaining events. They begin with the event of
    /// the dropped future, if it opens or ends something.
    async fn emit(&self, event: AgentEvent);

    /// Takes an event of a running call, or of a cancelled run that stopped waiting for `emit`. It is called
    /// synchronously from within the call, on any thread. It must not block, and may drop an update when it
    /// cannot keep up. It should not drop an event that ends something, because such an event is sent only
    /// once.
    fn emit_now(&self, event: AgentEvent);

    /// Returns `false` if the emitter takes no events, so that the loop can skip their cost. Default: `true`.
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

/// Drops all events.
#[async_trait]
impl EventEmitter for () {
    async fn emit(&self, _event: AgentEvent) {}

    fn emit_now(&self, _event: AgentEvent) {}

    fn listens(&self) -> bool {
        false
    }
}
