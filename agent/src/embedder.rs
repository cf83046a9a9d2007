//! Guards a run against the embedder's parts. A part may panic, and must not hold up a cancelled run.

use std::{
    any::Any,
    future::Future,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::Duration,
};

use futures_util::FutureExt;
use parking_lot::Mutex;
use portcullis_types::CancellationToken;
use thiserror::Error;

use super::{AgentEvent, EventEmitter};

/// A failure of an embedder's part.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(super) enum EmbedderError {
    #[error("the {part} panicked: {message}")]
    Panicked { part: &'static str, message: String },
    #[error("the {part} did not end within the grace time of a cancelled run")]
    Stuck { part: &'static str },
}

/// Bounds each wait for an embedder's part. A cancelled run waits for a part at most for the grace period,
/// which begins at the cancellation.
#[derive(Debug, Clone)]
pub(super) struct EmbedderGuard {
    pub(super) cancel: CancellationToken,
    pub(super) grace: Duration,
}

impl EmbedderGuard {
    /// Awaits a part, and catches its panic.
    pub(super) async fn run<T>(
        &self,
        part: &'static str,
        future: impl Future<Output = T>,
    ) -> Result<T, EmbedderError> {
        tokio::select! {
            // `biased`: a part that finished counts, even if the grace period ends at the same moment.
            biased;
            caught = AssertUnwindSafe(future).catch_unwind() => caught.map_err(|panic| panicked(part, &*panic)),
            () = self.wait_until_over() => Err(EmbedderError::Stuck { part }),
        }
    }

    /// Completes when the grace period of a cancelled run has expired.
    pub(super) async fn wait_until_over(&self) {
        self.cancel.cancelled().await;
        tokio::time::sleep(self.grace).await;
    }
}

/// Calls a synchronous part, and catches its panic.
pub(super) fn catch_panic<T>(part: &'static str, function: impl FnOnce() -> T) -> Result<T, EmbedderError> {
    catch_unwind(AssertUnwindSafe(function)).map_err(|panic| panicked(part, &*panic))
}

pub(super) fn panicked(part: &'static str, panic: &(dyn Any + Send)) -> EmbedderError {
    let message = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("no message");
    EmbedderError::Panicked { part, message: message.to_owned() }
}

/// Guards a run's calls against a faulty emitter. After a panic the emitter gets no more events. If the emitter
/// outlasts the grace period of a cancelled run, the run no longer waits for it.
pub(super) struct GuardedEmitter {
    emitter: Arc<dyn EventEmitter>,
    guard: EmbedderGuard,
    fault: Mutex<Option<EmbedderError>>,
}

impl GuardedEmitter {
    pub(super) fn new(emitter: Arc<dyn EventEmitter>, guard: EmbedderGuard) -> Self {
        Self { emitter, guard, fault: Mutex::new(None) }
    }

    /// Reports an event, and waits until the emitter has taken it.
    pub(super) async fn report(&self, event: AgentEvent) {
        if self.fault().is_some() {
            self.report_now(event);
            return;
        }
        // Copy an event that must arrive: dropping the emitter's future drops its event too.
        let event_copy = event.must_arrive().then(|| event.clone());
        let reported = self.guard.run("emitter", async { self.emitter.emit(event).await }).await;
        let is_stuck = matches!(reported, Err(EmbedderError::Stuck { .. }));
        self.note(reported);
        if let Some(event) = event_copy.filter(|_| is_stuck) {
            self.report_now(event);
        }
    }

    /// Reports an event without waiting.
    pub(super) fn report_now(&self, event: AgentEvent) {
        if !matches!(self.fault(), Some(EmbedderError::Panicked { .. })) {
            self.note(catch_panic("emitter", || self.emitter.emit_now(event)));
        }
    }

    /// Returns whether the emitter takes events.
    pub(super) fn listens(&self) -> bool {
        catch_panic("emitter", || self.emitter.listens()).unwrap_or(false)
    }

    /// Returns the emitter's fault, if there was one.
    pub(super) fn fault(&self) -> Option<EmbedderError> {
        self.fault.lock().clone()
    }

    fn note(&self, reported: Result<(), EmbedderError>) {
        let Err(fault) = reported else { return };
        let mut noted = self.fault.lock();
        // A panic is final: no later fault replaces it.
        if !matches!(*noted, Some(EmbedderError::Panicked { .. })) {
            *noted = Some(fault);
        }
    }
}
