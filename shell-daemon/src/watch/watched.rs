//! The samples of one command: decides when the next sample is due, counts the command, and kills it on a breach.

use std::{
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use rustix::time::{ClockId, clock_gettime};

use super::{Breach, BreachSignal, CommandLimits, KillReason, shell_start::ShellStart};
use crate::{
    ShellError,
    limits::{
        COUNT_TTL, FREEZE_TIMEOUT, FULL_SAMPLE_INTERVAL, KILL_STALL_TIMEOUT, MAX_INCOMPLETE_SAMPLES,
        MAX_UNREADABLE_GROWTH_BYTES, MAX_UNREADABLE_SAMPLES, MEMORY_GROWTH, MIN_SAMPLE_INTERVAL,
        SAMPLE_INTERVAL, THREADS_PER_PROCESS,
    },
    memory::{MappedExtents, MemoryMeter, MemoryUse, PartialSample, SampledWhile, system_shared_bytes},
    tree::{self, Descendants, Process, ProcessEntry, ProcessTable},
};

#[derive(Clone, Debug)]
pub(super) struct WatchedCommand {
    root: Process,
    bounds: CommandLimits,
    pub(super) signal: Arc<BreachSignal>,
    /// The time of the next sample.
    pub(super) next_sample: Instant,
    next_full_sample: Instant,
    /// The number of processes when the command was last stopped or slowed down.
    count_when_slowed: usize,
    pub(super) threads: usize,
    pub(super) memory_bytes: u64,
    extents: Arc<Mutex<MappedExtents>>,
    shell_start: ShellStart,
    /// Consecutive samples that may have missed processes.
    gaps: u32,
    /// Set while the memory of a process is unreadable.
    unreadable: Option<UnreadableMemory>,
    /// The time since which the memory has been doubtful.
    unreadable_since: Option<Instant>,
    /// The last count of the stopped command. Set if one sample could not read all mappings of the running command.
    last_count: Option<MemoryCount>,
}

/// A count that stays valid for a while.
#[derive(Clone, Copy, Debug)]
struct MemoryCount {
    counted_at: Instant,
    /// See [`crate::memory::MemoryUse`].
    shared_and_kernel_bytes: u64,
    /// The memory that all processes of the machine shared at the count.
    system_shared_bytes: u64,
}

impl MemoryCount {
    /// Whether this count is still valid if all processes of the machine share `shared` bytes. The count is invalid if
    /// that number is unknown.
    fn is_valid(&self, shared: Option<u64>) -> bool {
        let limit = self.system_shared_bytes.saturating_add(MAX_UNREADABLE_GROWTH_BYTES);
        self.counted_at.elapsed() < COUNT_TTL && shared.is_some_and(|shared| shared < limit)
    }
}

/// Consecutive samples that found a process with unreadable memory.
#[derive(Clone, Copy, Debug)]
struct UnreadableMemory {
    samples: u32,
    /// The memory that all processes of the machine shared at the first of these samples.
    began_with: Option<u64>,
    /// The growth of that memory since then.
    grown_bytes: u64,
}

impl UnreadableMemory {
    /// The state after one more sample that found unreadable memory. All processes of the machine then share `shared`
    /// bytes. Unknown growth counts as `u64::MAX`.
    fn next(previous: Option<Self>, shared: Option<u64>) -> Self {
        let (samples, began_with) =
            previous.map_or((0, None), |previous| (previous.samples, previous.began_with));
        let began_with = began_with.or(shared);
        let grown = match (shared, began_with) {
            (Some(shared), Some(began_with)) => shared.saturating_sub(began_with),
            _ => u64::MAX,
        };
        Self { samples: samples.saturating_add(1), began_with, grown_bytes: grown }
    }
}

impl WatchedCommand {
    pub(super) fn new(root: Process, bounds: CommandLimits, signal: Arc<BreachSignal>) -> Self {
        let now = Instant::now();
        Self {
            root,
            bounds,
            signal,
            next_sample: now + SAMPLE_INTERVAL,
            next_full_sample: now + FULL_SAMPLE_INTERVAL,
            count_when_slowed: 0,
            threads: 0,
            memory_bytes: 0,
            extents: Arc::default(),
            shell_start: ShellStart::Pending,
            gaps: 0,
            unreadable: None,
            unreadable_since: None,
            last_count: None,
        }
    }

    /// Counts the command, and kills it if it breaks a limit.
    pub(super) fn sample(&mut self, meter: &MemoryMeter) {
        let begun = processor_time();
        if let Err(breach) = self.judge(meter) {
            self.kill_for(breach);
        }
        let spent = processor_time().saturating_sub(begun);
        let now = Instant::now();
        self.next_sample = now + self.time_until_next(spent);
    }

    fn judge(&mut self, meter: &MemoryMeter) -> Result<(), Breach> {
        let Ok(descendants) = self.list_descendants() else { return Err(Breach::ProcessesUnlisted) };
        self.gaps = if descendants.has_gap { self.gaps + 1 } else { 0 };
        let mut partial = None;
        // Count the processes before reading anything else: a fork bomb grows faster than its details can be read.
        if descendants.count() <= self.max_unfrozen_processes() {
            partial = self.record_sample(&descendants, SampledWhile::Running, meter).err();
            if partial.is_none() && self.gaps < MAX_INCOMPLETE_SAMPLES && self.breach(&descendants).is_none()
            {
                let slowed = self.count_when_slowed.max(self.bounds.processes.div_ceil(4));
                if descendants.count() > slowed + self.growth_step() {
                    yield_to_others(&descendants.living_processes);
                    self.count_when_slowed = descendants.count();
                } else {
                    self.count_when_slowed = self.count_when_slowed.min(descendants.count());
                }
                return Ok(());
            }
        }
        // Stop the processes before the next count: running ones would grow while others are counted.
        let Ok(frozen) =
            tree::freeze(self.root, &descendants.living_processes, self.bounds.processes, FREEZE_TIMEOUT)
        else {
            return Err(Breach::ProcessesUnlisted);
        };
        self.gaps = 0;
        self.count_when_slowed = frozen.descendants.count();
        let Ok(used) = self.record_sample(&frozen.descendants, SampledWhile::Stopped, meter) else {
            return Err(Breach::MemoryUncountable);
        };
        // If one sample could not read all mappings of the running processes, the next sample could not either, so
        // keep the count of the stopped processes. Only a complete sample ends a doubt.
        let has_many = partial == Some(PartialSample::TooMany) || self.last_count.is_some();
        self.last_count =
            (has_many && used.doubtful == 0).then(system_shared_bytes).flatten().map(|system_shared_bytes| {
                MemoryCount {
                    counted_at: Instant::now(),
                    shared_and_kernel_bytes: used.shared_and_kernel_bytes,
                    system_shared_bytes,
                }
            });
        match self.breach(&frozen.descendants) {
            // The command stays stopped until it is killed.
            Some(breach) => Err(breach),
            // A process did not stay stopped, so the command cannot be counted.
            None if frozen.continues => Err(Breach::Processes),
            None => {
                if self.count_when_slowed > self.bounds.processes.div_ceil(4) {
                    yield_to_others(&frozen.descendants.living_processes);
                }
                frozen.thaw();
                Ok(())
            }
        }
    }

    fn list_descendants(&mut self) -> Result<Descendants, ShellError> {
        let now = Instant::now();
        let has_gap = match tree::nearby_descendants(self.root, self.max_unfrozen_processes()) {
            Some(near) if now < self.next_full_sample || near.count() > self.max_unfrozen_processes() => {
                return Ok(near);
            }
            near => near.is_some_and(|near| near.has_gap),
        };
        self.next_full_sample = now + FULL_SAMPLE_INTERVAL;
        Ok(Descendants { has_gap, ..ProcessTable::read()?.descendants_of(self.root) })
    }

    /// Returns the maximum number of processes that are counted without being stopped: half of the limit. If
    /// the last count was at least half of the limit: that count plus one step, so that a large command is
    /// not stopped at every sample.
    fn max_unfrozen_processes(&self) -> usize {
        let half = self.bounds.processes.div_ceil(2);
        if self.count_when_slowed < half {
            half
        } else {
            self.count_when_slowed.saturating_add(self.growth_step())
        }
    }

    fn growth_step(&self) -> usize {
        self.bounds.processes.div_ceil(8)
    }

    /// Stores the result of one sample and returns it.
    ///
    /// # Errors
    /// The reason why the sample is not a valid count. The last valid count is kept.
    fn record_sample(
        &mut self,
        descendants: &Descendants,
        sampled_while: SampledWhile,
        meter: &MemoryMeter,
    ) -> Result<MemoryUse, PartialSample> {
        self.threads = descendants.threads();
        if self.shell_start != ShellStart::Running {
            self.shell_start = self.shell_start.next_stage(descendants, self.root.virtual_bytes());
        }
        if self.shell_start != ShellStart::Running {
            // The process still runs this program, whose memory does not count for the command.
            return Ok(MemoryUse::default());
        }
        if sampled_while == SampledWhile::Running
            && let Some(used) = self.use_since_count(descendants)
        {
            self.memory_bytes = used.bytes;
            return Ok(used);
        }
        let mut extents = self.extents.lock();
        let used = meter.measure_used(
            &descendants.living_processes,
            self.bounds.memory_bytes,
            sampled_while,
            &mut extents,
        );
        drop(extents);
        if let Some(partial) = used.partial_sample {
            return Err(partial);
        }
        self.memory_bytes =
            used.counted_bytes(self.bounds.memory_bytes, &mut self.unreadable_since, Instant::now());
        self.unreadable =
            used.has_unreadable.then(|| UnreadableMemory::next(self.unreadable, system_shared_bytes()));
        Ok(used)
    }

    /// Returns the current memory, based on the last full count: private memory is read again, the rest is
    /// taken from the count. `None` if the count is no longer valid.
    fn use_since_count(&self, descendants: &Descendants) -> Option<MemoryUse> {
        let last_count = self.last_count.filter(|last_count| last_count.is_valid(system_shared_bytes()))?;
        let shared_and_kernel_bytes = last_count.shared_and_kernel_bytes;
        let limit = self.bounds.memory_bytes.saturating_sub(shared_and_kernel_bytes);
        let used = MemoryMeter::private(&descendants.living_processes, limit);
        let bytes = used.bytes.saturating_add(shared_and_kernel_bytes);
        used.partial_sample.is_none().then_some(MemoryUse { bytes, shared_and_kernel_bytes, ..used })
    }

    fn breach(&self, descendants: &Descendants) -> Option<Breach> {
        if descendants.count() > self.bounds.processes || self.threads > self.most_threads() {
            Some(Breach::Processes)
        } else if self.memory_bytes > self.bounds.memory_bytes {
            Some(Breach::Memory)
        } else if self.unreadable.is_some_and(|unreadable| {
            unreadable.samples >= MAX_UNREADABLE_SAMPLES
                && unreadable.grown_bytes > MAX_UNREADABLE_GROWTH_BYTES
        }) {
            Some(Breach::MemoryUncountable)
        } else {
            None
        }
    }

    fn most_threads(&self) -> usize {
        self.bounds.processes.saturating_mul(THREADS_PER_PROCESS)
    }

    /// Reports the breach and kills the command. Surviving processes are sampled again.
    pub(super) fn kill_for(&self, breach: Breach) {
        if self.signal.is_forgotten.load(Ordering::Acquire) {
            return;
        }
        // Keep the first reason: later samples of a command that is being killed may find other breaches.
        let _ = self.signal.breach.set(KillReason { breach, memory_bytes: self.memory_bytes });
        let _ = rustix::io::write(&self.signal.wake, &1_u64.to_ne_bytes());
        // Ignore a stalled kill: the survivors are sampled, and killed, again.
        let _ = tree::kill_descendants(self.root, KILL_STALL_TIMEOUT);
    }

    /// Returns the time until the next sample, after one that took `spent` processor time.
    fn time_until_next(&self, spent: Duration) -> Duration {
        let remaining_bytes = self.bounds.memory_bytes.saturating_sub(self.memory_bytes);
        let until_full = Duration::from_millis(remaining_bytes / (MEMORY_GROWTH / 1000));
        let grows = self.threads > self.bounds.processes.div_ceil(4);
        // While the limits are far, use at most a fifth of a processor. Near them, use at most half.
        let is_new = self.unreadable.is_some_and(|unreadable| unreadable.samples <= MAX_UNREADABLE_SAMPLES);
        let is_near = remaining_bytes < self.bounds.memory_bytes / 2 || grows || is_new;
        let pause = if is_near { spent } else { 4 * spent };
        let interval = if grows || is_new { MIN_SAMPLE_INTERVAL } else { SAMPLE_INTERVAL };
        interval.min(until_full).max(MIN_SAMPLE_INTERVAL).max(pause).min(FULL_SAMPLE_INTERVAL)
    }
}

fn yield_to_others(entries: &[ProcessEntry]) {
    entries.iter().for_each(|entry| entry.process.yield_to_others());
}

/// This thread's processor time. Wall-clock time is unsuitable: on a busy machine a sample takes longer, and
/// that would postpone the next sample when it matters most.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_ends_when_shared_memory_cannot_be_read() {
        let count =
            MemoryCount { counted_at: Instant::now(), shared_and_kernel_bytes: 0, system_shared_bytes: 4096 };
        assert!(count.is_valid(Some(4096)));
        assert!(!count.is_valid(Some(4096 + MAX_UNREADABLE_GROWTH_BYTES)));
        assert!(!count.is_valid(None));
    }

    #[test]
    fn unreadable_memory_of_unknown_growth_counts_as_grown() {
        let first = UnreadableMemory::next(None, Some(4096));
        assert_eq!((first.samples, first.grown_bytes), (1, 0));
        let second = UnreadableMemory::next(Some(first), Some(8192));
        assert_eq!((second.samples, second.grown_bytes), (2, 4096));
        assert_eq!(UnreadableMemory::next(Some(second), None).grown_bytes, u64::MAX);
        let unread = UnreadableMemory::next(None, None);
        assert_eq!(UnreadableMemory::next(Some(unread), Some(8192)).grown_bytes, 0);
    }
}
