//! The watch of a session's commands: counts their processes, threads and memory while they and their jobs
//! run.
//!
//! The kernel's limits bound one process, or all processes of a user. This watch bounds a command and a
//! session, with or without a control group. It has its own thread, so a client that reads output slowly does
//! not delay the looks.
//!
//! A bomb grows while it is counted. So looks follow faster the closer a command is to its limits. From a
//! quarter of its process limit on, a command gets the lowest priority. At half of the limit, and before it is
//! killed, it is stopped as a whole and counted, and then killed or continued.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use portcullis_confine::ProcessUser;
use rustix::{
    event::EventfdFlags,
    time::{ClockId, clock_gettime},
};

use crate::{
    ShellError,
    limits::{
        COUNT_TIME, FREEZE_TIME, HIDDEN_GROWTH, HIDDEN_LOOKS, KILL_TIME, LOOK_TIME, MEMORY_GROWTH,
        SHORTEST_LOOK_TIME, THREADS_PER_PROCESS, WHOLE_LOOK_TIME,
    },
    memory::{Marks, Meter, Motion, Partial, shared_by_all},
    tree::{self, Below, Entry, Process, Table},
};

/// Limits of one command and its jobs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) processes: usize,
    pub(crate) memory_bytes: u64,
}

/// Limits of all commands of a session and their jobs together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SessionBounds {
    /// Processes and threads.
    pub(crate) threads: usize,
    pub(crate) memory_bytes: u64,
}

/// The reason why a watch killed a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Breach {
    Processes,
    Memory,
    /// A process hides its memory, or there is too much to count.
    Hidden,
    /// Its processes could not be listed.
    Unseen,
}

/// The thread that watches the commands of one session. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Watcher {
    shared: Arc<Shared>,
    memory_bytes: u64,
}

/// The watch of one command, until this is dropped.
#[derive(Debug)]
pub(crate) struct Watch {
    root: Process,
    told: Arc<Told>,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    commands: Vec<Watched>,
    is_over: bool,
}

#[derive(Clone, Debug)]
struct Watched {
    root: Process,
    bounds: Bounds,
    told: Arc<Told>,
    next: Instant,
    next_whole: Instant,
    /// The number of processes when it was last stopped or slowed down.
    checked: usize,
    threads: usize,
    memory_bytes: u64,
    marks: Arc<Mutex<Marks>>,
    /// Its shell has been seen. Before that, its process runs our program, which hides its memory.
    is_born: bool,
    /// Set while a process hides its memory.
    hidden: Option<Hidden>,
    /// The time since when its memory may be too much.
    doubt: Option<Instant>,
    /// The last count for which it had to be stopped, because one look could not read all its mappings.
    counted: Option<Counted>,
}

/// A count that stays valid for a while.
#[derive(Clone, Copy, Debug)]
struct Counted {
    at: Instant,
    /// As in [`crate::memory::Used`].
    beside_private: i64,
    /// The memory that all processes of the machine shared then.
    shared_by_all: u64,
}

/// Looks in a row that have found a process that hides its memory.
#[derive(Clone, Copy, Debug)]
struct Hidden {
    looks: u32,
    /// The shared memory of the machine's processes at the first of these looks, and its growth since.
    began_with: u64,
    grown: u64,
}

/// The reason for which a command is killed, and its memory then.
#[derive(Clone, Copy, Debug)]
struct Verdict {
    breach: Breach,
    memory_bytes: u64,
}

/// The message from the watch to the thread that waits for the command.
#[derive(Debug)]
struct Told {
    breach: OnceLock<Verdict>,
    /// Readable once there is a breach.
    wake: OwnedFd,
    is_forgotten: AtomicBool,
}

impl Watcher {
    /// Starts the thread, which sleeps until there is a command.
    ///
    /// # Errors
    /// If it cannot be started.
    pub(crate) fn start(
        memory_bytes: u64,
        session: Option<SessionBounds>,
        user: Option<ProcessUser>,
        meter: Meter,
    ) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let theirs = Arc::clone(&shared);
        thread::Builder::new().name("shell-watch".to_owned()).spawn(move || {
            // Realtime priority, where permitted: a bomb would leave the watch too little of the processors
            // to stop it.
            let _ = portcullis_confine::process::run_before_others();
            if let Some(user) = user {
                // An error is ignored: unreadable memory is counted by its addresses.
                let _ = portcullis_confine::process::look_as(user);
            }
            theirs.serve(session, &meter);
        })?;
        Ok(Self { shared, memory_bytes })
    }

    /// Watches everything below `root` from now on.
    ///
    /// # Errors
    /// If no descriptor is left.
    pub(crate) fn watch(&self, root: Process, processes: usize) -> Result<Watch, ShellError> {
        let wake = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(ShellError::channel)?;
        let told = Arc::new(Told { breach: OnceLock::new(), wake, is_forgotten: AtomicBool::new(false) });
        let now = Instant::now();
        self.shared.lock().commands.push(Watched {
            root,
            bounds: Bounds { processes, memory_bytes: self.memory_bytes },
            told: Arc::clone(&told),
            next: now + LOOK_TIME,
            next_whole: now + WHOLE_LOOK_TIME,
            checked: 0,
            threads: 0,
            memory_bytes: 0,
            marks: Arc::default(),
            is_born: false,
            hidden: None,
            doubt: None,
            counted: None,
        });
        self.shared.changed.notify_one();
        Ok(Watch { root, told, shared: Arc::clone(&self.shared) })
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.shared.lock().is_over = true;
        self.shared.changed.notify_one();
    }
}

impl Watch {
    /// The reason for which the command was killed, if it was.
    pub(crate) fn breach(&self) -> Option<Breach> {
        self.told.breach.get().map(|verdict| verdict.breach)
    }

    /// The memory of the command and its jobs when it was killed for that.
    pub(crate) fn memory_of_breach(&self) -> Option<u64> {
        let verdict = self.told.breach.get().filter(|verdict| verdict.breach == Breach::Memory)?;
        Some(verdict.memory_bytes)
    }

    /// Kills everything below the command's init.
    pub(crate) fn kill(&self) -> Result<(), ShellError> {
        tree::kill_below(self.root, KILL_TIME)
    }
}

impl AsFd for Watch {
    /// Readable once there is a breach.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.told.wake.as_fd()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.told.is_forgotten.store(true, Ordering::Release);
        self.shared.lock().commands.retain(|watched| !Arc::ptr_eq(&watched.told, &self.told));
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(&self, session: Option<SessionBounds>, meter: &Meter) {
        while let Some(due) = self.due() {
            for mut watched in due {
                // Without the lock: a look takes time, and a kill can take seconds.
                watched.look(meter);
                let mut state = self.lock();
                if let Some(known) =
                    state.commands.iter_mut().find(|known| Arc::ptr_eq(&known.told, &watched.told))
                {
                    *known = watched;
                }
            }
            if let Some(bounds) = session {
                self.look_at_all(bounds);
            }
        }
    }

    /// Waits until looks are due; `None` at the end.
    fn due(&self) -> Option<Vec<Watched>> {
        let mut state = self.lock();
        loop {
            if state.is_over {
                return None;
            }
            let now = Instant::now();
            let due: Vec<Watched> =
                state.commands.iter().filter(|watched| watched.next <= now).cloned().collect();
            if !due.is_empty() {
                return Some(due);
            }
            let next = state.commands.iter().map(|watched| watched.next).min();
            state = match next {
                Some(next) => {
                    let rest = next.saturating_duration_since(now);
                    self.changed.wait_timeout(state, rest).unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    /// Compares all commands together with the session's limits. If they exceed one, the largest command is
    /// killed.
    fn look_at_all(&self, bounds: SessionBounds) {
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
        drop(state);
        if let Some(largest) = largest {
            largest.end(breach);
        }
    }
}

impl Watched {
    fn look(&mut self, meter: &Meter) {
        let begun = processor_time();
        if let Err(breach) = self.judge(meter) {
            self.end(breach);
        }
        let spent = processor_time().saturating_sub(begun);
        let now = Instant::now();
        self.next = now + self.rest(spent);
    }

    fn judge(&mut self, meter: &Meter) -> Result<(), Breach> {
        let Ok(below) = self.below() else { return Err(Breach::Unseen) };
        let mut partial = None;
        // Count processes before anything else is read: a bomb grows faster than any details of it can be
        // read.
        if below.count() <= self.calm() {
            partial = self.note(&below, Motion::Runs, meter).err();
            if partial.is_none() && self.breach(&below).is_none() {
                let slowed = self.checked.max(self.bounds.processes.div_ceil(4));
                if below.count() > slowed + self.step() {
                    yield_to_others(&below.living);
                    self.checked = below.count();
                } else {
                    self.checked = self.checked.min(below.count());
                }
                return Ok(());
            }
        }
        // Running processes are counted at several moments and grow meanwhile; stopped ones do not.
        let Ok(frozen) = tree::freeze(self.root, &below.living, self.bounds.processes, FREEZE_TIME) else {
            return Err(Breach::Unseen);
        };
        self.checked = frozen.below.count();
        let Ok(beside_private) = self.note(&frozen.below, Motion::Stopped, meter) else {
            return Err(Breach::Hidden);
        };
        self.counted = (partial == Some(Partial::TooMany)).then(|| Counted {
            at: Instant::now(),
            beside_private,
            shared_by_all: shared_by_all(),
        });
        match self.breach(&frozen.below) {
            // It stays stopped until it is killed.
            Some(breach) => Err(breach),
            // A process continues by itself, so the command cannot be counted.
            None if frozen.goes_on => Err(Breach::Processes),
            None => {
                if self.checked > self.bounds.processes.div_ceil(4) {
                    yield_to_others(&frozen.below.living);
                }
                frozen.thaw();
                Ok(())
            }
        }
    }

    fn below(&mut self) -> Result<Below, ShellError> {
        let now = Instant::now();
        if let Some(near) = tree::near_below(self.root, self.calm())
            && (now < self.next_whole || near.count() > self.calm())
        {
            return Ok(near);
        }
        self.next_whole = now + WHOLE_LOOK_TIME;
        Ok(Table::read()?.below(self.root))
    }

    /// The most processes that need not be stopped to be counted: half of the limit, later the last count and
    /// a step.
    fn calm(&self) -> usize {
        let half = self.bounds.processes.div_ceil(2);
        if self.checked < half { half } else { self.checked.saturating_add(self.step()) }
    }

    fn step(&self) -> usize {
        self.bounds.processes.div_ceil(8)
    }

    /// Stores the result of one look, and returns its difference to the private memory, as in
    /// [`crate::memory::Used`].
    ///
    /// # Errors
    /// If the look is no valid count; the last count stays then.
    fn note(&mut self, below: &Below, motion: Motion, meter: &Meter) -> Result<i64, Partial> {
        self.threads = below.threads();
        self.is_born = self.is_born || !is_unborn(&below.living);
        if !self.is_born {
            // The memory of our own program is not the command's.
            return Ok(0);
        }
        if motion == Motion::Runs
            && let Some((bytes, beside_private)) = self.since_count(below)
        {
            self.memory_bytes = bytes;
            return Ok(beside_private);
        }
        let mut marks = self.marks.lock().unwrap_or_else(PoisonError::into_inner);
        let used = meter.used(&below.living, self.bounds.memory_bytes, motion, &mut marks);
        drop(marks);
        if let Some(partial) = used.partial {
            return Err(partial);
        }
        self.memory_bytes = used.settled(self.bounds.memory_bytes, &mut self.doubt, Instant::now());
        self.hidden = used.is_hidden.then(|| {
            let shared = shared_by_all();
            let Hidden { looks, began_with, .. } =
                self.hidden.unwrap_or(Hidden { looks: 0, began_with: shared, grown: 0 });
            Hidden { looks: looks.saturating_add(1), began_with, grown: shared.saturating_sub(began_with) }
        });
        Ok(used.beside_private)
    }

    /// The current memory in bytes, based on the last full count: only private memory is read again, and the
    /// difference of the full count is added. `None` if that count is no longer valid.
    fn since_count(&self, below: &Below) -> Option<(u64, i64)> {
        let counted = self.counted.filter(|counted| {
            counted.at.elapsed() < COUNT_TIME
                && shared_by_all() < counted.shared_by_all.saturating_add(HIDDEN_GROWTH)
        })?;
        let used = Meter::private(&below.living, self.bounds.memory_bytes);
        let beside_private = counted.beside_private;
        used.partial.is_none().then(|| (used.bytes.saturating_add_signed(beside_private), beside_private))
    }

    fn breach(&self, below: &Below) -> Option<Breach> {
        if below.count() > self.bounds.processes || self.threads > self.most_threads() {
            Some(Breach::Processes)
        } else if self.memory_bytes > self.bounds.memory_bytes {
            Some(Breach::Memory)
        } else if self
            .hidden
            .is_some_and(|hidden| hidden.looks >= HIDDEN_LOOKS && hidden.grown > HIDDEN_GROWTH)
        {
            Some(Breach::Hidden)
        } else {
            None
        }
    }

    fn most_threads(&self) -> usize {
        self.bounds.processes.saturating_mul(THREADS_PER_PROCESS)
    }

    /// Reports the breach, and kills. Survivors are looked at again.
    fn end(&self, breach: Breach) {
        if self.told.is_forgotten.load(Ordering::Acquire) {
            return;
        }
        let _ = self.told.breach.set(Verdict { breach, memory_bytes: self.memory_bytes });
        let _ = rustix::io::write(&self.told.wake, &1_u64.to_ne_bytes());
        let _ = tree::kill_below(self.root, KILL_TIME);
    }

    /// The time until the next look, after one that took `spent` processor time.
    fn rest(&self, spent: Duration) -> Duration {
        let left = self.bounds.memory_bytes.saturating_sub(self.memory_bytes);
        let until_full = Duration::from_millis(left / (MEMORY_GROWTH / 1000));
        let grows = self.threads > self.bounds.processes.div_ceil(4);
        // Use at most a fifth of a processor while the limits are far, then at most half.
        let is_new = self.hidden.is_some_and(|hidden| hidden.looks <= HIDDEN_LOOKS);
        let is_near = left < self.bounds.memory_bytes / 2 || grows || is_new;
        let spared = if is_near { spent } else { 4 * spent };
        let usual = if grows || is_new { SHORTEST_LOOK_TIME } else { LOOK_TIME };
        usual.min(until_full).max(SHORTEST_LOOK_TIME).max(spared).min(WHOLE_LOOK_TIME)
    }
}

/// Whether there is at most one process, which may be the shell before its `exec`.
fn is_unborn(entries: &[Entry]) -> bool {
    entries.len() <= 1 && entries.iter().all(Entry::may_be_unborn)
}

fn yield_to_others(entries: &[Entry]) {
    entries.iter().for_each(|entry| entry.process.yield_to_others());
}

/// This thread's processor time. Not the clock's: on a busy machine a look takes longer by the clock, and
/// exactly then the next one must not be put off.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or_default())
}
