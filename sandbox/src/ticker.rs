//! The thread that advances the engine's epoch and interrupts overdue calls. It sleeps while no call runs,
//! and ends with the runner.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use parking_lot::{Condvar, Mutex, MutexGuard};
use wasmtime::Engine;

use super::control::CallControl;

/// The interval of the epoch while a call runs: 5 ms. Guest code overruns its deadline by at most one tick.
pub(super) const TICK: Duration = Duration::from_millis(5);

/// The number of ticks without a call before the thread sleeps. A thread that is still awake spares the
/// next call a wake-up.
const IDLE_TICKS: u32 = 40;

/// Owns the ticker's thread.
#[derive(Debug)]
pub(super) struct Ticker {
    state: Arc<TickerState>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct TickerState {
    calls: Mutex<Vec<Arc<CallControl>>>,
    wake: Condvar,
    asleep: AtomicBool,
    is_ending: AtomicBool,
}

impl TickerState {
    /// Locks the list. It is only pushed to and removed from, so it stays valid even if a holder of the
    /// lock panicked.
    fn calls(&self) -> MutexGuard<'_, Vec<Arc<CallControl>>> {
        self.calls.lock()
    }
}

impl Ticker {
    pub(super) fn start(engine: Engine) -> io::Result<Self> {
        let shared = Arc::new(TickerState::default());
        let thread = {
            let shared = Arc::clone(&shared);
            std::thread::Builder::new()
                .name("portcullis-tick".to_owned())
                .spawn(move || run_ticker(&shared, &engine))?
        };
        Ok(Self { state: shared, thread: Some(thread) })
    }

    /// Watches a call until the guard is dropped.
    pub(super) fn watch(&self, control: Arc<CallControl>) -> TickerGuard {
        let shared = Arc::clone(&self.state);
        shared.calls().push(Arc::clone(&control));
        // The ticker sets `asleep` under the lock of the list. It has therefore either seen this call or is
        // already asleep.
        if shared.asleep.load(Ordering::Acquire) {
            shared.wake.notify_one();
        }
        TickerGuard { state: shared, control }
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        {
            // The lock ensures that the thread either sees the flag or already waits for the wake-up.
            let _calls = self.state.calls();
            self.state.is_ending.store(true, Ordering::Release);
        }
        self.state.wake.notify_one();
        if let Some(thread) = self.thread.take() {
            // A panic of the ticker is a bug, but `drop` must not raise it again.
            let _joined = thread.join();
        }
    }
}

/// Keeps a call watched by the ticker until the guard is dropped.
#[derive(Debug)]
pub(super) struct TickerGuard {
    state: Arc<TickerState>,
    control: Arc<CallControl>,
}

impl Drop for TickerGuard {
    fn drop(&mut self) {
        let mut calls = self.state.calls();
        if let Some(position) = calls.iter().position(|call| Arc::ptr_eq(call, &self.control)) {
            calls.swap_remove(position);
        }
    }
}

fn run_ticker(shared: &TickerState, engine: &Engine) {
    let mut idle = 0;
    let mut calls = shared.calls();
    loop {
        if shared.is_ending.load(Ordering::Acquire) {
            return;
        }
        if calls.is_empty() && idle >= IDLE_TICKS {
            shared.asleep.store(true, Ordering::Release);
            shared.wake.wait(&mut calls);
            shared.asleep.store(false, Ordering::Release);
            idle = 0;
            continue;
        }
        shared.wake.wait_for(&mut calls, TICK);
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
        install_handler().expect("no other handler is installed");
        let engine = super::super::engine::build(1).expect("an engine");
        let ticker = Ticker::start(engine).expect("starts");
        let control = Arc::new(CallControl::new(Instant::now() + Duration::from_millis(20), None));
        control.set_thread(ThreadTarget::current());
        let watch = ticker.watch(Arc::clone(&control));
        // Only the signal can end this sleep early.
        let waited = nanosleep(&Timespec { tv_sec: 20, tv_nsec: 0 });
        drop(watch);
        assert!(matches!(waited, NanosleepRelativeResult::Interrupted(_)), "{waited:?}");
    }
}
