//! Parts of an embedder within a run: they may panic, and, once the run is cancelled, must not hold it up.

use std::{
    any::Any,
    future::Future,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures_util::FutureExt;
use portcullis_types::CancellationToken;
use thiserror::Error;

use super::{AgentEvent, EventEmitter};

/// What an embedder's part did instead of giving its answer.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(super) enum Fault {
    #[error("the {part} panicked: {message}")]
    Panicked { part: &'static str, message: String },
    #[error("the {part} did not end within the grace time of a cancelled run")]
    Stuck { part: &'static str },
}

/// How long an embedder's part is waited for: until it ends, or until the grace time of a cancelled run is over.
#[derive(Debug, Clone)]
pub(super) struct GracePeriod {
    pub(super) cancel: CancellationToken,
    pub(super) grace: Duration,
}

impl GracePeriod {
    /// Awaits a part.
    pub(super) async fn with<T>(
        &self,
        part: &'static str,
        future: impl Future<Output = T>,
    ) -> Result<T, Fault> {
        tokio::select! {
            biased;
            caught = AssertUnwindSafe(future).catch_unwind() => caught.map_err(|panic| panicked(part, &*panic)),
            () = self.over() => Err(Fault::Stuck { part }),
        }
    }

    /// Ends when the grace time of a cancelled run is over.
    pub(super) async fn over(&self) {
        self.cancel.cancelled().await;
        tokio::time::sleep(self.grace).await;
    }
}

/// Calls a part that does not wait.
pub(super) fn call<T>(part: &'static str, function: impl FnOnce() -> T) -> Result<T, Fault> {
    catch_unwind(AssertUnwindSafe(function)).map_err(|panic| panicked(part, &*panic))
}

pub(super) fn panicked(part: &'static str, panic: &(dyn Any + Send)) -> Fault {
    let message = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("no message");
    Fault::Panicked { part, message: message.to_owned() }
}

/// The emitter of a run. A watcher must not decide what becomes of the calls: one that panicked is told nothing
/// more, and one that did not take an event within the grace time of a cancelled run is not waited for any more.
pub(super) struct Watch {
    emitter: Arc<dyn EventEmitter>,
    patience: GracePeriod,
    fault: Mutex<Option<Fault>>,
}

impl Watch {
    pub(super) fn new(emitter: Arc<dyn EventEmitter>, patience: GracePeriod) -> Self {
        Self { emitter, patience, fault: Mutex::new(None) }
    }

    /// Tells of an event, and waits until it was taken.
    pub(super) async fn tell(&self, event: AgentEvent) {
        if self.fault().is_some() {
            self.tell_now(event);
            return;
        }
        // A future that is dropped takes its event along.
        let kept = event.must_arrive().then(|| event.clone());
        let told = self.patience.with("emitter", async { self.emitter.emit(event).await }).await;
        let is_stuck = matches!(told, Err(Fault::Stuck { .. }));
        self.note(told);
        if let Some(event) = kept.filter(|_| is_stuck) {
            self.tell_now(event);
        }
    }

    /// Tells of an event without waiting.
    pub(super) fn tell_now(&self, event: AgentEvent) {
        if !matches!(self.fault(), Some(Fault::Panicked { .. })) {
            self.note(call("emitter", || self.emitter.emit_now(event)));
        }
    }

    /// Whether anybody listens.
    pub(super) fn listens(&self) -> bool {
        call("emitter", || self.emitter.listens()).unwrap_or(false)
    }

    /// What the emitter did instead of taking an event.
    pub(super) fn fault(&self) -> Option<Fault> {
        self.fault.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn note(&self, told: Result<(), Fault>) {
        let Err(fault) = told else { return };
        let mut noted = self.fault.lock().unwrap_or_else(PoisonError::into_inner);
        if !matches!(*noted, Some(Fault::Panicked { .. })) {
            *noted = Some(fault);
        }
    }
}
