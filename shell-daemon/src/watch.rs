//! Watches a session's commands: counts their processes, threads and memory while they and their jobs run.
//!
//! The kernel's limits bound one process, or all processes of a user. This watch bounds a command and a session, with
//! or without a control group. The watch has its own thread, so a client that reads output slowly does not delay the
//! samples.
//!
//! A fork bomb grows while it is counted. The closer a command is to its limits, the more frequent are the samples.
//! Above three eighths of its process limit, a command gets the lowest priority. At half of the limit, and before a
//! kill, the whole command is stopped and counted, then killed or continued.

mod shell_start;
mod watched;

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Instant,
};

use parking_lot::{Condvar, Mutex, MutexGuard};
use portcullis_confine::ProcessUser;
use rustix::event::EventfdFlags;

use self::watched::WatchedCommand;
use crate::{
    ShellError,
    limits::KILL_STALL_TIMEOUT,
    memory::MemoryMeter,
    tree::{self, Process},
};

/// Limits of one command and its jobs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CommandLimits {
    pub(crate) processes: usize,
    pub(crate) memory_bytes: u64,
}

/// Limits of all commands of a session and their jobs together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SessionTotals {
    /// Processes and threads.
    pub(crate) threads: usize,
    pub(crate) memory_bytes: u64,
}

/// The reason why a watch killed a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Breach {
    /// There are too many processes or threads.
    Processes,
    /// The processes have too much memory.
    Memory,
    /// A process hides its memory, or there are more mappings than can be counted.
    MemoryUncountable,
    /// The command's processes could not be listed.
    ProcessesUnlisted,
}

/// The thread that watches the commands of one session. Dropping this ends the thread.
#[derive(Debug)]
pub(crate) struct Watcher {
    shared_watch: Arc<SharedWatch>,
    memory_bytes: u64,
}

/// The watch of one command. Dropping this ends the watch.
#[derive(Debug)]
pub(crate) struct CommandWatch {
    root: Process,
    signal: Arc<BreachSignal>,
    shared_watch: Arc<SharedWatch>,
}

#[derive(Debug, Default)]
struct SharedWatch {
    state: Mutex<WatchState>,
    change_signal: Condvar,
}

#[derive(Debug, Default)]
struct WatchState {
    commands: Vec<WatchedCommand>,
    is_over: bool,
}

/// The reason for a kill, and the command's memory at that time.
#[derive(Clone, Copy, Debug)]
struct KillReason {
    breach: Breach,
    memory_bytes: u64,
}

/// The signal from the watch to the thread that waits for the command.
#[derive(Debug)]
struct BreachSignal {
    breach: OnceLock<KillReason>,
    /// An eventfd that becomes readable at a breach.
    wake: OwnedFd,
    is_forgotten: AtomicBool,
}

impl Watcher {
    /// Starts the thread. The thread sleeps until there is a command.
    ///
    /// # Errors
    /// The I/O error if the thread cannot be started.
    pub(crate) fn start(
        memory_bytes: u64,
        session: Option<SessionTotals>,
        user: Option<ProcessUser>,
        meter: MemoryMeter,
    ) -> io::Result<Self> {
        let shared = Arc::new(SharedWatch::default());
        let thread_shared = Arc::clone(&shared);
        thread::Builder::new().name("shell-watch".to_owned()).spawn(move || {
            // A fork bomb could leave the watch too little processor time. Ignore an error: realtime priority is
            // not permitted everywhere.
            let _ = portcullis_confine::process::set_realtime_priority();
            if let Some(user) = user {
                // Ignore an error: memory that cannot be read is counted by its addresses.
                let _ = portcullis_confine::process::set_thread_user(user);
            }
            thread_shared.serve(session, &meter);
        })?;
        Ok(Self { shared_watch: shared, memory_bytes })
    }

    /// Watches everything below `root` from now on.
    ///
    /// # Errors
    /// [`ShellError::Channel`] if no descriptor is left.
    pub(crate) fn watch(&self, root: Process, processes: usize) -> Result<CommandWatch, ShellError> {
        let wake = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(ShellError::channel)?;
        let signal =
            Arc::new(BreachSignal { breach: OnceLock::new(), wake, is_forgotten: AtomicBool::new(false) });
        let bounds = CommandLimits { processes, memory_bytes: self.memory_bytes };
        self.shared_watch.lock().commands.push(WatchedCommand::new(root, bounds, Arc::clone(&signal)));
        self.shared_watch.change_signal.notify_one();
        Ok(CommandWatch { root, signal, shared_watch: Arc::clone(&self.shared_watch) })
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.shared_watch.lock().is_over = true;
        self.shared_watch.change_signal.notify_one();
    }
}

impl CommandWatch {
    /// Returns the reason for which the command was killed, if the watch killed it.
    pub(crate) fn breach(&self) -> Option<Breach> {
        self.signal.breach.get().map(|reason| reason.breach)
    }

    /// The memory of the command and its jobs when it was killed for a breach.
    pub(crate) fn breach_memory_bytes(&self) -> Option<u64> {
        let reason = self.signal.breach.get().filter(|reason| reason.breach == Breach::Memory)?;
        Some(reason.memory_bytes)
    }

    /// Kills everything below the command's init.
    pub(crate) fn kill(&self) -> Result<(), ShellError> {
        tree::kill_descendants(self.root, KILL_STALL_TIMEOUT)
    }
}

impl AsFd for CommandWatch {
    /// The descriptor becomes readable at a breach.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.signal.wake.as_fd()
    }
}

impl Drop for CommandWatch {
    fn drop(&mut self) {
        self.signal.is_forgotten.store(true, Ordering::Release);
        self.shared_watch.lock().commands.retain(|watched| !Arc::ptr_eq(&watched.signal, &self.signal));
    }
}

impl SharedWatch {
    fn lock(&self) -> MutexGuard<'_, WatchState> {
        self.state.lock()
    }

    fn serve(&self, session: Option<SessionTotals>, meter: &MemoryMeter) {
        while let Some(due) = self.wait_for_due() {
            for mut watched in due {
                // Do not hold the lock here: a sample takes time, and a kill can take seconds.
                watched.sample(meter);
                let mut state = self.lock();
                if let Some(current) =
                    state.commands.iter_mut().find(|current| Arc::ptr_eq(&current.signal, &watched.signal))
                {
                    *current = watched;
                }
            }
            if let Some(bounds) = session {
                self.judge_session(bounds);
            }
        }
    }

    /// Waits until samples are due, and returns the commands to sample. `None` at the end of the watch.
    fn wait_for_due(&self) -> Option<Vec<WatchedCommand>> {
        let mut state = self.lock();
        loop {
            if state.is_over {
                return None;
            }
            let now = Instant::now();
            let due: Vec<WatchedCommand> =
                state.commands.iter().filter(|watched| watched.next_sample <= now).cloned().collect();
            if !due.is_empty() {
                return Some(due);
            }
            let next = state.commands.iter().map(|watched| watched.next_sample).min();
            match next {
                Some(next) => {
                    self.change_signal.wait_until(&mut state, next);
                }
                None => self.change_signal.wait(&mut state),
            }
        }
    }

    /// Compares the sum of all commands with the session's limits. If the sum exceeds a limit, the largest command is
    /// killed.
    fn judge_session(&self, bounds: SessionTotals) {
        let state = self.lock();
        let memory: u64 = state.commands.iter().map(|watched| watched.memory_bytes).sum();
        let threads: usize = state.commands.iter().map(|watched| watched.threads).sum();
        let (breach, largest) = if memory > bounds.memory_bytes {
            (Breach::Memory, state.commands.iter().max_by_key(|watched| watched.memory_bytes))
        } else if threads > bounds.threads {
            (Breach::Processes, state.commands.iter().max_by_key(|watched| watched.threads))
        } else {
            return;
        };
        let largest = largest.cloned();
        // Release the lock: the kill can take seconds.
        drop(state);
        if let Some(largest) = largest {
            largest.kill_for(breach);
        }
    }
}
