//! Heartbeats of silent calls. They tell a watcher that a long call is alive.

use std::{
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use portcullis_types::{EventFn, ToolEvent};
use tokio::time::{Instant, MissedTickBehavior};

use crate::call::Caller;

/// The interval of heartbeats, and the time that a call must be silent before the first.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(5);

/// A call with a watcher.
pub(super) struct WatchedCall {
    /// The caller that the call reports to. Its listener also records the time of each report.
    pub(super) caller: Caller,
    listener: EventFn,
    has_spoken: Arc<AtomicBool>,
}

impl WatchedCall {
    /// `None` if the caller has no event listener.
    pub(super) fn of(call_id: &str, caller: &Caller) -> Option<Self> {
        let listener = caller.on_event.clone()?;
        let has_spoken = Arc::new(AtomicBool::new(false));
        let (passed_to, noted, own) = (Arc::clone(&listener), Arc::clone(&has_spoken), call_id.to_owned());
        let mut caller = caller.clone();
        caller.on_event = Some(Arc::new(move |event| {
            // Reports of nested calls go to the same listener but do not count as the call's own.
            if event.call_id() == own {
                noted.store(true, Ordering::Relaxed);
            }
            passed_to(event);
        }));
        Some(Self { caller, listener, has_spoken })
    }

    /// Drives the call's work and sends heartbeats while it is silent.
    pub(super) async fn drive<T>(&self, call_id: &str, mut work: Pin<&mut impl Future<Output = T>>) -> T {
        let begun = Instant::now();
        let mut ticks = tokio::time::interval_at(begun + HEARTBEAT_INTERVAL, HEARTBEAT_INTERVAL);
        // After a stall of the executor, send one heartbeat, not all missed ones.
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            // `biased`: a call that has ended gets no further heartbeat.
            tokio::select! {
                biased;
                done = &mut work => return done,
                now = ticks.tick() => {
                    if !self.has_spoken.swap(false, Ordering::Relaxed) {
                        let elapsed = now.saturating_duration_since(begun);
                        (self.listener)(&ToolEvent::Heartbeat { call_id: call_id.to_owned(), elapsed });
                    }
                }
            }
        }
    }
}
