//! The thread that advances the engine's epoch and interrupts overdue calls. It sleeps while no call runs,
//! and ends with the runner.

use std::{
    io,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use wasmtime::Engine;

use super::control::CallControl;

/// Interval of the epoch while a call runs; a guest overruns its deadline by at most one tick.
pub(super) const TICK: Duration = Duration::from_millis(5);

/// How many ticks without a call until the thread sleeps. Staying awake for a while saves the next call the
/// cost of waking it.
const IDLE_TICKS: u32 = 40;

/// Owns the ticking thread.
#[derive(Debug)]
pub(super) struct Ticker {
    shared: Arc<TickerState>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct TickerState {
    calls: Mutex<Vec<Arc<CallControl>>>,
    wake: Condvar,
    asleep: AtomicBool,
    ends: AtomicBool,
}

impl TickerState {
    /// A panic while locked leaves the list valid: it is only pushed to and removed from.
    fn calls(&self) -> MutexGuard<'_, Vec<Arc<CallControl>>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ticker {
    pub(super) fn start(engine: Engine) -> io::Result<Self> {
        let shared = Arc::new(TickerState::default());
        let thread = {
            let shared = Arc::clone(&shared);
            std::thread::Builder::new()
                .name("portcullis-tick".to_owned())
                .spawn(move || tick(&shared, &engine))?
        };
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Watches a call until the guard is dropped.
    pub(super) fn watch(&self, control: Arc<CallControl>) -> TickerGuard {
        let shared = Arc::clone(&self.shared);
        shared.calls().push(Arc::clone(&control));
        if shared.asleep.load(Ordering::Acquire) {
            shared.wake.notify_one();
        }
        TickerGuard { shared, control }
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        {
            let _calls = self.shared.calls();
            self.shared.ends.store(true, Ordering::Release);
        }
        self.shared.wake.notify_one();
        if let Some(thread) = self.thread.take() {
            // A panic of the ticker is a bug, but `drop` must not raise it again.
            let _joined = thread.join();
        }
    }
}

/// Guard that keeps a call watched by the ticker.
#[derive(Debug)]
pub(super) struct TickerGuard {
    shared: Arc<TickerState>,
    control: Arc<CallControl>,
}

impl Drop for TickerGuard {
    fn drop(&mut self) {
        let mut calls = self.shared.calls();
        if let Some(place) = calls.iter().position(|call| Arc::ptr_eq(call, &self.control)) {
            calls.swap_remove(place);
        }
    }
}

fn tick(shared: &TickerState, engine: &Engine) {
    let mut idle = 0;
    let mut calls = shared.calls();
    loop {
        if shared.ends.load(Ordering::Acquire) {
            return;
        }
        if calls.is_empty() && idle >= IDLE_TICKS {
            shared.asleep.store(true, Ordering::Release);
            calls = shared.wake.wait(calls).unwrap_or_else(PoisonError::into_inner);
            shared.asleep.store(false, Ordering::Release);
            idle = 0;
            continue;
        }
        let (guard, _) = shared.wake.wait_timeout(calls, TICK).unwrap_or_else(PoisonError::into_inner);
        calls = guard;
        idle = if calls.is_empty() { idle + 1 } else { 0 };
        engine.increment_epoch();
        for call in calls.iter() {
            call.interrupt_if_overdue();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use portcullis_confine::interrupt::{ThreadTarget, install_handler};
    use rustix::thread::{NanosleepRelativeResult, Timespec, nanosleep};

    use super::*;

    #[test]
    fn a_thread_blocked_in_the_kernel_is_freed_when_overdue() {
        install_handler().expect("nobody else handles it");
        let engine = super::super::engine::build(1).expect("an engine");
        let ticker = Ticker::start(engine).expect("starts");
        let control = Arc::new(CallControl::new(Instant::now() + Duration::from_millis(20), None));
        control.runs_on(ThreadTarget::current());
        let watch = ticker.watch(Arc::clone(&control));
        // Only the signal ends this early.
        let waited = nanosleep(&Timespec { tv_sec: 20, tv_nsec: 0 });
        drop(watch);
        assert!(matches!(waited, NanosleepRelativeResult::Interrupted(_)), "{waited:?}");
    }
}
