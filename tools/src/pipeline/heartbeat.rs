//! Heartbeats, which show a watcher that a long, silent call is still running.

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

/// The interval of heartbeats, and the delay of the first one: 5 s.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(5);

/// A call with a watcher.
pub(super) struct WatchedCall {
    /// The caller that the call reports to. Its listener also records that the call has reported.
    pub(super) caller: Caller,
    listener: EventFn,
    has_spoken: Arc<AtomicBool>,
}

impl WatchedCall {
    /// `None` if the caller has no event listener.
    pub(super) fn start(call_id: &str, caller: &Caller) -> Option<Self> {
        let listener = caller.on_event.clone()?;
        let has_spoken = Arc::new(AtomicBool::new(false));
        let (forward_to, spoken_flag, own_call_id) =
            (Arc::clone(&listener), Arc::clone(&has_spoken), call_id.to_owned());
        let mut caller = caller.clone();
        caller.on_event = Some(Arc::new(move |event| {
            // Forward the reports of nested calls, but do not count them as reports of this call.
            if event.call_id() == own_call_id {
                spoken_flag.store(true, Ordering::Relaxed);
            }
            forward_to(event);
        }));
        Some(Self { caller, listener, has_spoken })
    }

    /// Polls the call's future, and sends heartbeats while the call is silent.
    pub(super) async fn drive<T>(&self, call_id: &str, mut future: Pin<&mut impl Future<Output = T>>) -> T {
        let started = Instant::now();
        let mut ticks = tokio::time::interval_at(started + HEARTBEAT_INTERVAL, HEARTBEAT_INTERVAL);
        // After a stall of the executor, send one heartbeat instead of all missed ones.
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            // `biased`: a finished call gets no more heartbeats.
            tokio::select! {
                biased;
                output = &mut future => return output,
                now = ticks.tick() => {
                    // `swap` also clears the flag, so each interval counts by itself.
                    if !self.has_spoken.swap(false, Ordering::Relaxed) {
                        let elapsed = now.saturating_duration_since(started);
                        (self.listener)(&ToolEvent::Heartbeat { call_id: call_id.to_owned(), elapsed });
                    }
                }
            }
        }
    }
}
