//! Guards an embedder's parts within a run: they may panic, and must not hold up a cancelled run.

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

/// A failure of an embedder's part.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(super) enum EmbedderFault {
    #[error("the {part} panicked: {message}")]
    Panicked { part: &'static str, message: String },
    #[error("the {part} did not end within the grace time of a cancelled run")]
    Stuck { part: &'static str },
}

/// How long to wait for an embedder's part: until it ends, or until the grace period of a cancelled run is
/// over.
#[derive(Debug, Clone)]
pub(super) struct GracePeriod {
    pub(super) cancel: CancellationToken,
    pub(super) grace: Duration,
}

impl GracePeriod {
    /// Awaits a part, and catches its panic.
    pub(super) async fn with<T>(
        &self,
        part: &'static str,
        future: impl Future<Output = T>,
    ) -> Result<T, EmbedderFault> {
        tokio::select! {
            // `biased`: a part that is done counts, even if the grace period ends at the same time.
            biased;
            caught = AssertUnwindSafe(future).catch_unwind() => caught.map_err(|panic| panicked(part, &*panic)),
            () = self.over() => Err(EmbedderFault::Stuck { part }),
        }
    }

    /// Completes when the grace period of a cancelled run is over.
    pub(super) async fn over(&self) {
        self.cancel.cancelled().await;
        tokio::time::sleep(self.grace).await;
    }
}

/// Calls a synchronous part, and catches its panic.
pub(super) fn call<T>(part: &'static str, function: impl FnOnce() -> T) -> Result<T, EmbedderFault> {
    catch_unwind(AssertUnwindSafe(function)).map_err(|panic| panicked(part, &*panic))
}

pub(super) fn panicked(part: &'static str, panic: &(dyn Any + Send)) -> EmbedderFault {
    let message = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("no message");
    EmbedderFault::Panicked { part, message: message.to_owned() }
}

/// Guard around a run's emitter, which must not affect the calls. After a panic it gets no more events. After
/// it took longer than the grace period of a cancelled run, the run no longer waits for it.
pub(super) struct GuardedEmitter {
    emitter: Arc<dyn EventEmitter>,
    grace_period: GracePeriod,
    fault: Mutex<Option<EmbedderFault>>,
}

impl GuardedEmitter {
    pub(super) fn new(emitter: Arc<dyn EventEmitter>, grace_period: GracePeriod) -> Self {
        Self { emitter, grace_period, fault: Mutex::new(None) }
    }

    /// Reports an event, and waits until the emitter took it.
    pub(super) async fn report(&self, event: AgentEvent) {
        if self.fault().is_some() {
            self.report_now(event);
            return;
        }
        // Keep a copy: dropping the emitter's future drops its event too.
        let kept = event.must_arrive().then(|| event.clone());
        let reported = self.grace_period.with("emitter", async { self.emitter.emit(event).await }).await;
        let is_stuck = matches!(reported, Err(EmbedderFault::Stuck { .. }));
        self.note(reported);
        if let Some(event) = kept.filter(|_| is_stuck) {
            self.report_now(event);
        }
    }

    /// Reports an event without waiting.
    pub(super) fn report_now(&self, event: AgentEvent) {
        if !matches!(self.fault(), Some(EmbedderFault::Panicked { .. })) {
            self.note(call("emitter", || self.emitter.emit_now(event)));
        }
    }

    /// Whether the emitter takes events.
    pub(super) fn listens(&self) -> bool {
        call("emitter", || self.emitter.listens()).unwrap_or(false)
    }

    /// The emitter's failure, if it had one.
    pub(super) fn fault(&self) -> Option<EmbedderFault> {
        self.fault.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn note(&self, reported: Result<(), EmbedderFault>) {
        let Err(fault) = reported else { return };
        let mut noted = self.fault.lock().unwrap_or_else(PoisonError::into_inner);
        if !matches!(*noted, Some(EmbedderFault::Panicked { .. })) {
            *noted = Some(fault);
        }
    }
}
