//! Signs of life of calls that say nothing: whoever watches can tell a long call from a dead one.

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

/// How long a call says nothing until its watcher is told that it runs, and again: 5 s.
const SILENCE: Duration = Duration::from_secs(5);

/// A call that somebody watches.
pub(super) struct Watched {
    /// The caller that the call reports to, so that it is noted when it does.
    pub(super) caller: Caller,
    listener: EventFn,
    has_spoken: Arc<AtomicBool>,
}

impl Watched {
    /// None where nobody watches the caller's calls.
    pub(super) fn of(call_id: &str, caller: &Caller) -> Option<Self> {
        let listener = caller.on_event.clone()?;
        let has_spoken = Arc::new(AtomicBool::new(false));
        let (passed_to, noted, own) = (Arc::clone(&listener), Arc::clone(&has_spoken), call_id.to_owned());
        let mut caller = caller.clone();
        caller.on_event = Some(Arc::new(move |event| {
            // Calls that the tool makes report to the same listener, and that is no word of the tool's.
            if event.call_id() == own {
                noted.store(true, Ordering::Relaxed);
            }
            passed_to(event);
        }));
        Some(Self { caller, listener, has_spoken })
    }

    /// Drives the call's work, and tells its watcher of a silence.
    pub(super) async fn drive<T>(&self, call_id: &str, mut work: Pin<&mut impl Future<Output = T>>) -> T {
        let begun = Instant::now();
        let mut ticks = tokio::time::interval_at(begun + SILENCE, SILENCE);
        // An executor that was busy is no reason to tell twice.
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
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
