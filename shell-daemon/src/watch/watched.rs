//! The samples of one command: when the next one is due, how it is counted, and when the command is killed.

use std::{
    sync::{Arc, Mutex, PoisonError, atomic::Ordering},
    time::{Duration, Instant},
};

use rustix::time::{ClockId, clock_gettime};

use super::{Breach, BreachSignal, CommandBounds, KillReason, shell_start::ShellStart};
use crate::{
    ShellError,
    limits::{
        COUNT_TIME, FREEZE_TIME, FULL_SAMPLE_INTERVAL, HIDDEN_GROWTH, HIDDEN_SAMPLES, INCOMPLETE_SAMPLES,
        KILL_TIME, MEMORY_GROWTH, MIN_SAMPLE_INTERVAL, SAMPLE_INTERVAL, THREADS_PER_PROCESS,
    },
    memory::{MappedExtents, MemoryMeter, MemoryUse, PartialSample, SampledWhile, shared_by_all},
    tree::{self, Process, ProcessEntry, ProcessTable, ProcessesBelow},
};

/// One watched command.
#[derive(Clone, Debug)]
pub(super) struct WatchedCommand {
    root: Process,
    bounds: CommandBounds,
    pub(super) signal: Arc<BreachSignal>,
    /// The time of the next sample.
    pub(super) next: Instant,
    next_whole: Instant,
    /// The number of processes when the command was last stopped or slowed down.
    count_when_slowed: usize,
    pub(super) threads: usize,
    pub(super) memory_bytes: u64,
    extents: Arc<Mutex<MappedExtents>>,
    shell_start: ShellStart,
    /// Consecutive samples that may have missed processes.
    gaps: u32,
    /// Set while a process hides its memory.
    hidden: Option<HiddenMemory>,
    /// The time at which the memory began to be doubtful.
    doubt: Option<Instant>,
    /// The last count for which the command had to be stopped, because one sample could not read all its
    /// mappings.
    counted: Option<MemoryCount>,
}

/// A count that stays valid for a while.
#[derive(Clone, Copy, Debug)]
struct MemoryCount {
    at: Instant,
    /// See [`crate::memory::MemoryUse`].
    shared_and_kernel_bytes: u64,
    /// The memory that all processes of the machine shared at the count.
    shared_by_all: u64,
}

impl MemoryCount {
    /// Whether this count is still valid, given that all processes of the machine share `shared` bytes. An
    /// unknown number makes it invalid.
    fn holds(&self, shared: Option<u64>) -> bool {
        let grown_to = self.shared_by_all.saturating_add(HIDDEN_GROWTH);
        self.at.elapsed() < COUNT_TIME && shared.is_some_and(|shared| shared < grown_to)
    }
}

/// Consecutive samples that found a process that hides its memory.
#[derive(Clone, Copy, Debug)]
struct HiddenMemory {
    samples: u32,
    /// The memory shared by all processes of the machine at the first of these samples, and its growth since.
    began_with: Option<u64>,
    grown: u64,
}

impl HiddenMemory {
    /// The next sample in a row, at which all processes of the machine share `shared` bytes. Unknown growth
    /// counts as `u64::MAX`.
    fn next(previous: Option<Self>, shared: Option<u64>) -> Self {
        let (samples, began_with) =
            previous.map_or((0, None), |previous| (previous.samples, previous.began_with));
        let began_with = began_with.or(shared);
        let grown = match (shared, began_with) {
            (Some(shared), Some(began_with)) => shared.saturating_sub(began_with),
            _ => u64::MAX,
        };
        Self { samples: samples.saturating_add(1), began_with, grown }
    }
}

impl WatchedCommand {
    pub(super) fn new(root: Process, bounds: CommandBounds, signal: Arc<BreachSignal>) -> Self {
        let now = Instant::now();
        Self {
            root,
            bounds,
            signal,
            next: now + SAMPLE_INTERVAL,
            next_whole: now + FULL_SAMPLE_INTERVAL,
            count_when_slowed: 0,
            threads: 0,
            memory_bytes: 0,
            extents: Arc::default(),
            shell_start: ShellStart::Pending,
            gaps: 0,
            hidden: None,
            doubt: None,
            counted: None,
        }
    }

    /// Counts the command, and kills it if it breaks a limit.
    pub(super) fn sample(&mut self, meter: &MemoryMeter) {
        let begun = processor_time();
        if let Err(breach) = self.judge(meter) {
            self.end(breach);
        }
        let spent = processor_time().saturating_sub(begun);
        let now = Instant::now();
        self.next = now + self.time_until_next(spent);
    }

    fn judge(&mut self, meter: &MemoryMeter) -> Result<(), Breach> {
        let Ok(below) = self.below() else { return Err(Breach::Unlisted) };
        self.gaps = if below.has_gap { self.gaps + 1 } else { 0 };
        let mut partial = None;
        // The processes are counted before anything else is read: a bomb grows faster than its details can be
        // read.
        if below.count() <= self.max_unfrozen_processes() {
            partial = self.record_sample(&below, SampledWhile::Running, meter).err();
            if partial.is_none() && self.gaps < INCOMPLETE_SAMPLES && self.breach(&below).is_none() {
                let slowed = self.count_when_slowed.max(self.bounds.processes.div_ceil(4));
                if below.count() > slowed + self.step() {
                    yield_to_others(&below.living);
                    self.count_when_slowed = below.count();
                } else {
                    self.count_when_slowed = self.count_when_slowed.min(below.count());
                }
                return Ok(());
            }
        }
        // Running processes are counted at several moments and grow meanwhile. Stopped ones do not.
        let Ok(frozen) = tree::freeze(self.root, &below.living, self.bounds.processes, FREEZE_TIME) else {
            return Err(Breach::Unlisted);
        };
        self.gaps = 0;
        self.count_when_slowed = frozen.below.count();
        let Ok(used) = self.record_sample(&frozen.below, SampledWhile::Stopped, meter) else {
            return Err(Breach::Hidden);
        };
        // If one sample could not read all mappings of the running processes, the next one could not either.
        // So the count of the stopped processes is kept. Only a complete sample ends a doubt.
        let has_many = partial == Some(PartialSample::TooMany) || self.counted.is_some();
        self.counted =
            (has_many && used.doubtful == 0).then(shared_by_all).flatten().map(|shared_by_all| MemoryCount {
                at: Instant::now(),
                shared_and_kernel_bytes: used.shared_and_kernel_bytes,
                shared_by_all,
            });
        match self.breach(&frozen.below) {
            // The command stays stopped until it is killed.
            Some(breach) => Err(breach),
            // A process continues by itself, so the command cannot be counted.
            None if frozen.continues => Err(Breach::Processes),
            None => {
                if self.count_when_slowed > self.bounds.processes.div_ceil(4) {
                    yield_to_others(&frozen.below.living);
                }
                frozen.thaw();
                Ok(())
            }
        }
    }

    fn below(&mut self) -> Result<ProcessesBelow, ShellError> {
        let now = Instant::now();
        let has_gap = match tree::near_below(self.root, self.max_unfrozen_processes()) {
            Some(near) if now < self.next_whole || near.count() > self.max_unfrozen_processes() => {
                return Ok(near);
            }
            near => near.is_some_and(|near| near.has_gap),
        };
        self.next_whole = now + FULL_SAMPLE_INTERVAL;
        Ok(ProcessesBelow { has_gap, ..ProcessTable::read()?.below(self.root) })
    }

    /// The most processes that are counted without being stopped: half of the limit, or the last count and
    /// one step, if that is more.
    fn max_unfrozen_processes(&self) -> usize {
        let half = self.bounds.processes.div_ceil(2);
        if self.count_when_slowed < half { half } else { self.count_when_slowed.saturating_add(self.step()) }
    }

    fn step(&self) -> usize {
        self.bounds.processes.div_ceil(8)
    }

    /// Stores the result of one sample and returns it.
    ///
    /// # Errors
    /// The sample is not a valid count. The last valid count is kept.
    fn record_sample(
        &mut self,
        below: &ProcessesBelow,
        sampled_while: SampledWhile,
        meter: &MemoryMeter,
    ) -> Result<MemoryUse, PartialSample> {
        self.threads = below.threads();
        if self.shell_start != ShellStart::Running {
            self.shell_start = self.shell_start.after(below, self.root.virtual_bytes());
        }
        if self.shell_start != ShellStart::Running {
            // The command does not own the memory of this program.
            return Ok(MemoryUse::default());
        }
        if sampled_while == SampledWhile::Running
            && let Some(used) = self.use_since_count(below)
        {
            self.memory_bytes = used.bytes;
            return Ok(used);
        }
        let mut extents = self.extents.lock().unwrap_or_else(PoisonError::into_inner);
        let used = meter.used(&below.living, self.bounds.memory_bytes, sampled_while, &mut extents);
        drop(extents);
        if let Some(partial) = used.partial {
            return Err(partial);
        }
        self.memory_bytes = used.settled(self.bounds.memory_bytes, &mut self.doubt, Instant::now());
        self.hidden = used.is_hidden.then(|| HiddenMemory::next(self.hidden, shared_by_all()));
        Ok(used)
    }

    /// The current memory, based on the last full count: private memory is read again, and the rest is taken
    /// from that count. `None` if the count is no longer valid.
    fn use_since_count(&self, below: &ProcessesBelow) -> Option<MemoryUse> {
        let counted = self.counted.filter(|counted| counted.holds(shared_by_all()))?;
        let shared_and_kernel_bytes = counted.shared_and_kernel_bytes;
        let limit = self.bounds.memory_bytes.saturating_sub(shared_and_kernel_bytes);
        let used = MemoryMeter::private(&below.living, limit);
        let bytes = used.bytes.saturating_add(shared_and_kernel_bytes);
        used.partial.is_none().then_some(MemoryUse { bytes, shared_and_kernel_bytes, ..used })
    }

    fn breach(&self, below: &ProcessesBelow) -> Option<Breach> {
        if below.count() > self.bounds.processes || self.threads > self.most_threads() {
            Some(Breach::Processes)
        } else if self.memory_bytes > self.bounds.memory_bytes {
            Some(Breach::Memory)
        } else if self
            .hidden
            .is_some_and(|hidden| hidden.samples >= HIDDEN_SAMPLES && hidden.grown > HIDDEN_GROWTH)
        {
            Some(Breach::Hidden)
        } else {
            None
        }
    }

    fn most_threads(&self) -> usize {
        self.bounds.processes.saturating_mul(THREADS_PER_PROCESS)
    }

    /// Reports the breach, and kills. Survivors are sampled again.
    pub(super) fn end(&self, breach: Breach) {
        if self.signal.is_forgotten.load(Ordering::Acquire) {
            return;
        }
        let _ = self.signal.breach.set(KillReason { breach, memory_bytes: self.memory_bytes });
        let _ = rustix::io::write(&self.signal.wake, &1_u64.to_ne_bytes());
        let _ = tree::kill_below(self.root, KILL_TIME);
    }

    /// The time until the next sample, after one that took `spent` processor time.
    fn time_until_next(&self, spent: Duration) -> Duration {
        let left = self.bounds.memory_bytes.saturating_sub(self.memory_bytes);
        let until_full = Duration::from_millis(left / (MEMORY_GROWTH / 1000));
        let grows = self.threads > self.bounds.processes.div_ceil(4);
        // Use at most a fifth of a processor while the limits are far, then at most half.
        let is_new = self.hidden.is_some_and(|hidden| hidden.samples <= HIDDEN_SAMPLES);
        let is_near = left < self.bounds.memory_bytes / 2 || grows || is_new;
        let spared = if is_near { spent } else { 4 * spent };
        let usual = if grows || is_new { MIN_SAMPLE_INTERVAL } else { SAMPLE_INTERVAL };
        usual.min(until_full).max(MIN_SAMPLE_INTERVAL).max(spared).min(FULL_SAMPLE_INTERVAL)
    }
}

fn yield_to_others(entries: &[ProcessEntry]) {
    entries.iter().for_each(|entry| entry.process.yield_to_others());
}

/// This thread's processor time. On a busy machine a sample takes more wall-clock time, which would postpone
/// the next one when it matters most.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_ends_when_shared_memory_cannot_be_read() {
        let counted = MemoryCount { at: Instant::now(), shared_and_kernel_bytes: 0, shared_by_all: 4096 };
        assert!(counted.holds(Some(4096)));
        assert!(!counted.holds(Some(4096 + HIDDEN_GROWTH)));
        assert!(!counted.holds(None));
    }

    #[test]
    fn hidden_memory_that_cannot_be_read_counts_as_grown() {
        let first = HiddenMemory::next(None, Some(4096));
        assert_eq!((first.samples, first.grown), (1, 0));
        let second = HiddenMemory::next(Some(first), Some(8192));
        assert_eq!((second.samples, second.grown), (2, 4096));
        assert_eq!(HiddenMemory::next(Some(second), None).grown, u64::MAX);
        let unread = HiddenMemory::next(None, None);
        assert_eq!(HiddenMemory::next(Some(unread), Some(8192)).grown, 0);
    }
}
