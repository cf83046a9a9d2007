//! Controls one call: its deadline, its cancellation, and the thread that both must stop.

use std::{
    any::Any,
    sync::{
        OnceLock,
        atomic::{AtomicU8, AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use portcullis_confine::interrupt::ThreadTarget;

use super::{runner::STOP_GRACE, ticker::TICK};

/// A call counts as stuck when its thread still runs this long after the first interrupt. The slot of a
/// stuck call is released. The value exceeds the caller's own limit ([`STOP_GRACE`]), so the caller gives
/// up first.
const STUCK_AFTER: Duration = STOP_GRACE.saturating_add(TICK.saturating_mul(10));

/// A resource that a call holds until its thread is free. Dropping it releases the resource.
pub type CallResource = Box<dyn Any + Send>;

/// The reason why a call was stopped before its guest ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum CallStop {
    #[error("the deadline passed")]
    Deadline,
    #[error("the caller gave up")]
    Cancelled,
}

/// The state of a call, shared by its caller, its worker thread and the ticker.
#[derive(Debug)]
pub(super) struct CallControl {
    deadline: Instant,
    state: AtomicU8,
    thread: OnceLock<ThreadTarget>,
    /// Owned by the call and not by its caller, because the caller may return long before the thread is
    /// free.
    resources: Mutex<Vec<CallResource>>,
    overdue_ticks: AtomicU32,
}

const RUNNING: u8 = 0;
const CANCELLED: u8 = 1;
const DONE: u8 = 2;
const WRITTEN_OFF: u8 = 3;

impl CallControl {
    pub(super) fn new(deadline: Instant, resource: Option<CallResource>) -> Self {
        Self {
            deadline,
            state: AtomicU8::new(RUNNING),
            thread: OnceLock::new(),
            resources: Mutex::new(resource.into_iter().collect()),
            overdue_ticks: AtomicU32::new(0),
        }
    }

    pub(super) fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Returns why the call must stop, or `None` if it may continue.
    pub(super) fn stop_reason(&self) -> Option<CallStop> {
        if self.state.load(Ordering::Relaxed) == CANCELLED {
            return Some(CallStop::Cancelled);
        }
        (Instant::now() >= self.deadline).then_some(CallStop::Deadline)
    }

    /// Requests cancellation, which the ticker enforces.
    pub(super) fn cancel(&self) {
        // Only a running call can be cancelled. A call that has ended keeps its state.
        let _already_over =
            self.state.compare_exchange(RUNNING, CANCELLED, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// Sets the thread on which the call runs. That thread calls this once.
    pub(super) fn set_thread(&self, thread: ThreadTarget) {
        let _set_once = self.thread.set(thread);
    }

    /// Interrupts a blocking system call of the call's thread, if the call should stop. The ticker repeats
    /// this at every tick until the call has ended, because a signal that arrives just before the system
    /// call does not interrupt it.
    pub(super) fn interrupt_if_overdue(&self) {
        let is_over = matches!(self.state.load(Ordering::Acquire), DONE | WRITTEN_OFF);
        if !is_over
            && self.stop_reason().is_some()
            && let Some(thread) = self.thread.get()
        {
            thread.interrupt();
            let ticks = self.overdue_ticks.fetch_add(1, Ordering::Relaxed);
            if TICK.saturating_mul(ticks) >= STUCK_AFTER {
                self.release_resources();
            }
        }
    }

    /// Releases the call's resources. Called when its thread is free or counts as stuck.
    pub(super) fn release_resources(&self) {
        drop(std::mem::take(&mut *self.resources.lock()));
    }

    /// Holds a resource until the call's thread is free, or counts as stuck. If the call has ended or was
    /// written off, the resource is released immediately.
    pub(super) fn hold(&self, resource: CallResource) {
        let mut resources = self.resources.lock();
        // Checked under the lock: the state changes before the last release takes the lock, so a resource is
        // never added after it.
        if !matches!(self.state.load(Ordering::Acquire), DONE | WRITTEN_OFF) {
            resources.push(resource);
        }
    }

    /// Ends the call from the worker's side. Returns `false` if the caller had written the call off.
    pub(super) fn finish(&self) -> bool {
        self.state.swap(DONE, Ordering::AcqRel) != WRITTEN_OFF
    }

    /// Ends the call from the caller's side. Returns `false` if the worker finished first.
    pub(super) fn write_off(&self) -> bool {
        // A single atomic exchange decides which side was first: this write-off or the worker's `finish`.
        let written_off = self
            .state
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |state| (state != DONE).then_some(WRITTEN_OFF))
            .is_ok();
        if written_off {
            self.release_resources();
        }
        written_off
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_ends_once_from_either_side() {
        let later = Instant::now() + Duration::from_secs(60);
        let worker_first = CallControl::new(later, None);
        assert!(worker_first.finish());
        assert!(!worker_first.write_off());
        let caller_first = CallControl::new(later, None);
        caller_first.cancel();
        assert_eq!(caller_first.stop_reason(), Some(CallStop::Cancelled));
        assert!(caller_first.write_off());
        assert!(!caller_first.finish());
    }

    #[test]
    fn a_passed_deadline_is_a_reason_to_stop() {
        assert_eq!(CallControl::new(Instant::now(), None).stop_reason(), Some(CallStop::Deadline));
    }
}
