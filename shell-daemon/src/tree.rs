//! All processes below one process, and how to end them.
//!
//! They are found by the kernel's list of processes, since a command may leave its process group and its
//! session. The command's init or the session's guard adopts every orphan, so a process stays below the
//! process that it came from as long as that one lives. Signals are sent by pidfd, since a process number may
//! have been reused.
//!
//! A process whose first thread has ended looks like a zombie, but it lives as long as it has another thread.

mod table;

use std::{
    collections::{HashMap, HashSet},
    hash::Hash,
    time::{Duration, Instant},
};

use rustix::process::{Pid, PidfdFlags, Signal};

pub(crate) use self::table::{ProcessEntry, ProcessTable, near_below, thread_number, threads};
use self::table::{children, entry};
use crate::{
    ShellError,
    kill_stall::{StallDetector, Survivors},
    limits::LONGEST_KILL,
};

/// A process, identified so that a reused number cannot be mistaken for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Process {
    pub(crate) pid: Pid,
    /// Its start time in the kernel's ticks. Number and time together identify a process.
    started: u64,
}

impl Process {
    /// The process with this number, if `parent` is its parent.
    pub(crate) fn child_of(parent: Pid, pid: Pid) -> Option<Self> {
        let entry = entry(pid)?;
        (entry.parent == parent.as_raw_pid()).then_some(entry.process)
    }

    /// The calling process.
    pub(crate) fn current() -> Option<Self> {
        entry(rustix::process::getpid()).map(|entry| entry.process)
    }

    /// Whether the process exists and is not a zombie.
    pub(crate) fn is_alive(self) -> bool {
        entry(self.pid).is_some_and(|entry| entry.process == self && !entry.ended)
    }

    /// The size of the process's address space, backed by memory or not. `None` if the process has ended.
    pub(crate) fn virtual_bytes(self) -> Option<u64> {
        entry(self.pid).filter(|entry| entry.process == self).map(|entry| entry.virtual_bytes)
    }

    pub(crate) fn kill(self) {
        self.signal(Signal::KILL);
    }

    /// Gives the process the lowest priority. If that is not permitted, the priority stays.
    pub(crate) fn yield_to_others(self) {
        if self.is_alive() {
            let _ = rustix::process::setpriority_process(Some(self.pid), LOWEST_PRIORITY);
        }
    }

    /// Restores the usual priority, if permitted: a killed process needs a processor to end.
    fn hurry(self) {
        if self.is_alive() {
            let _ = rustix::process::setpriority_process(Some(self.pid), USUAL_PRIORITY);
        }
    }

    fn signal(self, signal: Signal) {
        let Ok(handle) = rustix::process::pidfd_open(self.pid, PidfdFlags::empty()) else { return };
        // The check comes after the open: the pidfd belongs to the process that had the number at that time,
        // which is known only now.
        if entry(self.pid).is_some_and(|entry| entry.process == self) {
            // An error means that the process has ended meanwhile.
            let _ = rustix::process::pidfd_send_signal(&handle, signal);
        }
    }
}

/// Stops and kills everything below `root`, but not `root`, until two samples find nothing. It continues
/// while the number of survivors falls.
///
/// A missing `root` is a success, since a command's init ends after the last process below it. If the init
/// was killed, its processes belong to the guard, which kills them at the session's end.
///
/// # Errors
/// [`ShellError::NotKilled`] if the number of survivors has not fallen for `time`, or the kill takes longer
/// than any may, see [`StallDetector`]; [`ShellError::Processes`] without `/proc`.
pub(crate) fn kill_below(root: Process, time: Duration) -> Result<(), ShellError> {
    // Process groups are stopped first: processes that multiply faster than they are listed cannot be killed
    // one by one.
    let known = match near_below(root, FIRST_STOPPED) {
        Some(known) => known,
        None => ProcessTable::read()?.below(root),
    };
    let stopped = StoppedProcesses::at_once(root, &known.living, Instant::now() + time);
    let sample = || {
        let living = ProcessTable::read()?.below(root).living;
        Ok(living.iter().map(KillTarget::of).collect())
    };
    let killed = kill_all(time, sample, |process: Process, signal| {
        if signal == Signal::KILL {
            process.hurry();
        }
        process.signal(signal);
    });
    // The groups are continued, since they may have members that are not below `root`.
    for group in stopped.groups {
        let _ = rustix::process::kill_process_group(group, Signal::CONT);
    }
    killed
}

/// A process to kill.
#[derive(Clone, Copy, Debug)]
struct KillTarget<P> {
    process: P,
    is_stopped: bool,
    /// The process runs or waits for a processor.
    is_running: bool,
}

impl KillTarget<Process> {
    fn of(entry: &ProcessEntry) -> Self {
        Self { process: entry.process, is_stopped: entry.is_stopped, is_running: entry.is_running }
    }
}

/// Stops and kills every process that `sample` finds.
fn kill_all<P: Copy + Eq + Hash>(
    time: Duration,
    mut sample: impl FnMut() -> Result<Vec<KillTarget<P>>, ShellError>,
    mut signal: impl FnMut(P, Signal),
) -> Result<(), ShellError> {
    let stopping = StallDetector::new(time);
    // Half of the total time is reserved for the kill.
    let last_stop = Instant::now() + LONGEST_KILL / 2;
    // Only survivors of a kill count. Before the first kill, growth of a bomb is no reason to give up.
    let mut killing: Option<StallDetector> = None;
    let mut empty_looks = 0;
    loop {
        let mut found = sample()?;
        if found.is_empty() {
            empty_looks += 1;
            if empty_looks == 2 {
                return Ok(());
            }
            continue;
        }
        empty_looks = 0;
        if killing.as_mut().is_some_and(|detector| detector.is_over(found.len(), survivors(&found))) {
            return Err(ShellError::NotKilled { left: found.len() });
        }
        // A stopped process starts no others, so the kill waits until a sample finds no new one. Otherwise a
        // bomb could grow as fast as it is killed. A process that runs although it was stopped is killed at
        // once: something continues it, and a kill cannot be undone.
        let mut detector = stopping.anew();
        let mut stopped = HashSet::new();
        loop {
            for target in &found {
                if stopped.insert(target.process) {
                    signal(target.process, Signal::STOP);
                } else if !target.is_stopped {
                    signal(target.process, Signal::KILL);
                }
            }
            found = sample()?;
            let has_all = found.iter().all(|target| stopped.contains(&target.process));
            if has_all || detector.is_over(found.len(), Survivors::Blocked) || Instant::now() >= last_stop {
                break;
            }
        }
        for process in stopped {
            signal(process, Signal::KILL);
        }
        killing.get_or_insert_with(|| stopping.anew());
        std::thread::sleep(PAUSE);
    }
}

/// Whether the survivors only wait for a processor.
fn survivors<P>(found: &[KillTarget<P>]) -> Survivors {
    if found.iter().any(|target| target.is_running) { Survivors::Runnable } else { Survivors::Blocked }
}

/// The number of living processes below `root`, and whether they only wait for a processor.
///
/// # Errors
/// [`ShellError::Processes`] without `/proc`.
pub(crate) fn left_below(root: Process) -> Result<(usize, Survivors), ShellError> {
    let below = ProcessTable::read()?.below(root);
    let targets: Vec<KillTarget<Process>> = below.living.iter().map(KillTarget::of).collect();
    Ok((targets.len(), survivors(&targets)))
}

/// The processes below one process.
#[derive(Clone, Debug, Default)]
pub(crate) struct ProcessesBelow {
    /// The living processes, each after its parent.
    pub(crate) living: Vec<ProcessEntry>,
    /// The number of zombies. Each takes a process number and an entry in the kernel's list.
    pub(crate) ended: usize,
    /// New processes appeared during all attempts to list them, so there may be others. A process that ends
    /// hands its children to a process whose list was read before.
    pub(crate) has_gap: bool,
}

impl ProcessesBelow {
    /// The number of processes, zombies included.
    pub(crate) fn count(&self) -> usize {
        self.living.len() + self.ended
    }

    /// The number of threads. A zombie counts as one.
    pub(crate) fn threads(&self) -> usize {
        self.ended + self.living.iter().map(|entry| entry.threads).sum::<usize>()
    }

    fn add(&mut self, entry: ProcessEntry) {
        if entry.ended { self.ended += 1 } else { self.living.push(entry) }
    }
}

/// All processes below one process, stopped.
#[derive(Debug)]
pub(crate) struct FrozenTree {
    /// The processes that the last sample found.
    pub(crate) below: ProcessesBelow,
    /// A process continued although it was stopped, so `below` is not a count of stopped processes.
    pub(crate) continues: bool,
    stopped: StoppedProcesses,
}

/// The processes that were stopped.
#[derive(Debug, Default)]
struct StoppedProcesses {
    /// Whether each process was running before. A process that the command itself had stopped is not
    /// continued.
    was_running: HashMap<Process, bool>,
    groups: HashSet<Pid>,
    /// Processes that were seen in the stopped state.
    confirmed_stopped: HashSet<Process>,
}

/// Stops everything below `root`. It ends when a sample finds no new process, finds more than `most`
/// processes, or `time` is over. `known` are processes that were listed before.
///
/// A bomb starts new processes faster than they can be listed. So the kernel first stops the known process
/// groups, each at once. Then each process is stopped before its children are listed, since a stopped process
/// starts no more.
///
/// A process's own timer (`timer_create` with `SIGCONT`), or a process outside the command, can continue a
/// stopped process. It is then stopped once more. If it continues again, waiting is useless.
///
/// # Errors
/// [`ShellError::Processes`] without `/proc`.
pub(crate) fn freeze(
    root: Process,
    known: &[ProcessEntry],
    most: usize,
    time: Duration,
) -> Result<FrozenTree, ShellError> {
    let deadline = Instant::now() + time;
    let mut stopped = StoppedProcesses::at_once(root, known, deadline);
    let mut continued = HashSet::new();
    loop {
        let below = ProcessTable::read()?.below(root);
        let (mut is_new, mut continues) = (false, false);
        for entry in &below.living {
            if stopped.stop_once(entry) {
                is_new = true;
            } else if entry.is_stopped {
                stopped.confirmed_stopped.insert(entry.process);
            } else if stopped.confirmed_stopped.remove(&entry.process) {
                continues |= !continued.insert(entry.process);
                is_new = true;
                entry.process.signal(Signal::STOP);
            }
        }
        if !is_new || continues || below.count() > most || Instant::now() >= deadline {
            return Ok(FrozenTree { below, continues, stopped });
        }
        stopped.stop_all_descendants(root, deadline);
    }
}

impl StoppedProcesses {
    /// Stops the known processes below `root`, and those that they have started meanwhile.
    fn at_once(root: Process, known: &[ProcessEntry], deadline: Instant) -> Self {
        let mut stopped = Self::default();
        let Some(above) = entry(root.pid).filter(|above| above.process == root) else { return stopped };
        for entry in known {
            // The group of the session's own processes is never stopped, even if a command has joined it.
            if entry.group != above.group
                && let Some(group) = Pid::from_raw(entry.group)
                && stopped.groups.insert(group)
            {
                let _ = rustix::process::kill_process_group(group, Signal::STOP);
            }
        }
        for entry in known {
            // `known` has the states from before the group was stopped.
            stopped.was_running.insert(entry.process, !entry.is_stopped);
            entry.process.signal(Signal::STOP);
        }
        stopped.stop_all_descendants(root, deadline);
        stopped
    }

    fn stop_all_descendants(&mut self, root: Process, deadline: Instant) {
        while let Some(above) = entry(root.pid).filter(|above| above.process == root)
            && self.stop_descendants(above)
            && Instant::now() < deadline
        {}
    }

    /// Stops a process unless it was stopped before. Returns whether it is new.
    fn stop_once(&mut self, entry: &ProcessEntry) -> bool {
        if self.was_running.contains_key(&entry.process) {
            return false;
        }
        // A process that was started in a stopped group inherits the stop, so it counts as running before.
        let is_in_group = Pid::from_raw(entry.group).is_some_and(|group| self.groups.contains(&group));
        self.was_running.insert(entry.process, !entry.is_stopped || is_in_group);
        entry.process.signal(Signal::STOP);
        true
    }

    /// Walks down from `above` and stops each process. Returns whether there was a new one. Where the kernel
    /// keeps no lists of children, it finds none.
    fn stop_descendants(&mut self, above: ProcessEntry) -> bool {
        let mut is_new = false;
        let mut seen = HashSet::new();
        let mut parents = vec![above];
        while let Some(parent) = parents.pop() {
            for pid in children(&parent).unwrap_or_default() {
                if seen.insert(pid)
                    && let Some(child) = entry(pid)
                {
                    is_new |= !child.ended && self.stop_once(&child);
                    parents.push(child);
                }
            }
        }
        is_new
    }
}

impl FrozenTree {
    /// Continues the processes that were running before.
    pub(crate) fn thaw(self) {
        let StoppedProcesses { was_running, groups, confirmed_stopped: _ } = self.stopped;
        // Children before parents. Otherwise a running parent would see its children stopped, and a shell
        // with job control would continue its script.
        let listed = self.below.living.iter().rev().map(|entry| entry.process);
        let seen: HashSet<Process> = self.below.living.iter().map(|entry| entry.process).collect();
        let others = was_running.keys().copied().filter(|process| !seen.contains(process));
        for process in listed.chain(others).filter(|process| was_running.get(process) == Some(&true)) {
            process.signal(Signal::CONT);
        }
        // Whole groups are continued only if no process was stopped before. They may have members that are
        // not below the root.
        if was_running.values().all(|running| *running) {
            for group in groups {
                let _ = rustix::process::kill_process_group(group, Signal::CONT);
            }
        }
    }
}

/// The number of processes that usually names all process groups of a bomb that is too large to list.
const FIRST_STOPPED: usize = 32;

/// The lowest priority of ordinary scheduling.
const LOWEST_PRIORITY: i32 = 19;

/// The default priority.
const USUAL_PRIORITY: i32 = 0;

/// The pause between two samples, in which killed processes can end.
const PAUSE: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};

    use super::*;

    #[expect(clippy::disallowed_methods, reason = "the tests need a process to find")]
    fn sleeper() -> (Child, Pid) {
        let child = Command::new("sleep").arg("30").spawn().unwrap();
        let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
        (child, pid)
    }

    #[test]
    fn only_the_process_that_was_meant_is_killed() {
        let (mut child, pid) = sleeper();
        let this = rustix::process::getpid();
        assert_eq!(Process::child_of(pid, pid), None, "another parent");
        let process = Process::child_of(this, pid).unwrap();
        assert!(process.is_alive());
        // The same number with another start time looks like a reused number.
        let other = Process { started: process.started + 1, ..process };
        assert!(!other.is_alive());
        other.kill();
        kill_below(other, Duration::from_secs(1)).unwrap();
        assert!(process.is_alive() && child.try_wait().unwrap().is_none());
        process.kill();
        child.wait().unwrap();
        assert!(!process.is_alive());
    }

    /// Kills in a world where each sample finds so many processes.
    fn killed(left: impl IntoIterator<Item = usize>) -> Result<(), ShellError> {
        let mut left = left.into_iter();
        let sample = || {
            let left = left.next().expect("samples no more");
            Ok((0..left).map(|process| KillTarget { process, is_stopped: true, is_running: false }).collect())
        };
        kill_all(Duration::ZERO, sample, |_: usize, _| {})
    }

    #[test]
    fn a_growing_tree_is_killed_while_its_survivors_become_fewer() {
        let grows = (2..80).step_by(2);
        // Two samples each: one finds the survivors, the other finds that none was started since.
        let becomes_less = (1..80).rev().flat_map(|left| [left, left]);
        assert!(killed(grows.chain(becomes_less).chain([0, 0])).is_ok());
    }

    #[test]
    fn kill_gives_up_on_unkillable_processes() {
        let result = killed(std::iter::repeat(3));
        assert!(matches!(result, Err(ShellError::NotKilled { left: 3 })), "{result:?}");
        // The same if the number goes up and down, or grows for ever.
        assert!(killed([7, 9, 8].into_iter().cycle()).is_err());
        assert!(killed(1..).is_err());
    }

    /// A process that continues is killed before the rest is found.
    #[test]
    fn process_that_continues_itself_is_killed_at_once() {
        let killed = std::cell::RefCell::new(HashSet::new());
        let mut samples = 0;
        let sample = || {
            samples += 1;
            let is_left = |process: &usize| !killed.borrow().contains(process);
            // A new process at each sample, as long as the first one runs.
            let all = if is_left(&0) { 0..samples } else { 0..0 };
            Ok(all
                .filter(is_left)
                .map(|process| KillTarget { process, is_stopped: false, is_running: true })
                .collect())
        };
        let signal = |process, signal| {
            if signal == Signal::KILL {
                killed.borrow_mut().insert(process);
            }
        };
        kill_all(Duration::from_secs(60), sample, signal).unwrap();
        assert!(samples < 10, "{samples}");
    }

    #[test]
    fn descendants_die_and_siblings_live() {
        let (mut beside, _) = sleeper();
        let (mut root, pid) = sleeper();
        let process = Process::child_of(rustix::process::getpid(), pid).unwrap();
        assert_eq!(left_below(process).unwrap(), (0, Survivors::Blocked));
        kill_below(process, Duration::from_secs(1)).unwrap();
        assert!(process.is_alive(), "the root itself is not killed");
        assert!(beside.try_wait().unwrap().is_none());
        for child in [&mut root, &mut beside] {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
}
