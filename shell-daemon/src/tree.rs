//! Finds, stops and kills all processes below one process.
//!
//! The processes are found in the kernel's list of processes, because a command may leave its process group and its
//! session. The command's init or the session's guard adopts every orphan. A process therefore stays below that init or
//! guard as long as the init or guard lives. Signals are sent by pidfd, because a process number may have been reused.
//!
//! A process whose first thread has ended looks like a zombie, but lives as long as it has another thread.

mod table;

use std::{
    collections::{HashMap, HashSet},
    hash::Hash,
    time::{Duration, Instant},
};

use rustix::process::{Pid, PidfdFlags, Signal};

pub(crate) use self::table::{ProcessEntry, ProcessTable, nearby_descendants, thread_number, threads};
use self::table::{children, entry};
use crate::{
    ShellError,
    kill_stall::{StallDetector, SurvivorState},
    limits::KILL_TIMEOUT,
};

/// A process, identified by its number and start time: another process with a reused number is not equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Process {
    pub(crate) pid: Pid,
    /// The process's start time in the kernel's ticks.
    start_time: u64,
}

impl Process {
    /// Returns the process with this number, if `parent` is its parent.
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
        entry(self.pid).is_some_and(|entry| entry.process == self && !entry.has_ended)
    }

    /// The size of the process's address space, backed by memory or not. `None` if the process has ended.
    pub(crate) fn virtual_bytes(self) -> Option<u64> {
        entry(self.pid).filter(|entry| entry.process == self).map(|entry| entry.virtual_bytes)
    }

    pub(crate) fn kill(self) {
        self.signal(Signal::KILL);
    }

    /// Gives the process the lowest priority, if permitted.
    pub(crate) fn yield_to_others(self) {
        if self.is_alive() {
            let _ = rustix::process::setpriority_process(Some(self.pid), LOWEST_PRIORITY);
        }
    }

    /// Restores the default priority, if permitted: a killed process needs processor time to end.
    fn restore_priority(self) {
        if self.is_alive() {
            let _ = rustix::process::setpriority_process(Some(self.pid), USUAL_PRIORITY);
        }
    }

    fn signal(self, signal: Signal) {
        let Ok(handle) = rustix::process::pidfd_open(self.pid, PidfdFlags::empty()) else { return };
        // Check the identity after the open: the pidfd belongs to the process that had the number when it was opened.
        if entry(self.pid).is_some_and(|entry| entry.process == self) {
            // Ignore an error: it means that the process has ended.
            let _ = rustix::process::pidfd_send_signal(&handle, signal);
        }
    }
}

/// Stops and kills everything below `root`, but not `root` itself, until two samples find nothing. Continues as long as
/// the number of survivors falls.
///
/// A missing `root` is a success, because a command's init ends after the last process below it. If the init was
/// killed, its processes belong to the guard, which kills them at the session's end.
///
/// # Errors
/// [`ShellError::NotKilled`] if the number of survivors has not fallen for `time`, or the kill exceeds the total time
/// of [`StallDetector`]. [`ShellError::Processes`] without `/proc`.
pub(crate) fn kill_descendants(root: Process, time: Duration) -> Result<(), ShellError> {
    // Stop process groups first: processes that multiply faster than they are listed cannot be killed one by one.
    let listed = match nearby_descendants(root, FIRST_STOPPED) {
        Some(listed) => listed,
        None => ProcessTable::read()?.descendants_of(root),
    };
    let stopped = StoppedProcesses::stop_tree(root, &listed.living_processes, Instant::now() + time);
    let sample = || {
        let living = ProcessTable::read()?.descendants_of(root).living_processes;
        Ok(living.iter().map(KillTarget::from_entry).collect())
    };
    let killed = kill_all(time, sample, |process: Process, signal| {
        if signal == Signal::KILL {
            process.restore_priority();
        }
        process.signal(signal);
    });
    // Continue the groups: they may have members that are not below `root`.
    for group in stopped.groups {
        let _ = rustix::process::kill_process_group(group, Signal::CONT);
    }
    killed
}

#[derive(Clone, Copy, Debug)]
struct KillTarget<P> {
    process: P,
    is_stopped: bool,
    /// The process runs or waits for a processor.
    is_running: bool,
}

impl KillTarget<Process> {
    fn from_entry(entry: &ProcessEntry) -> Self {
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
    let last_stop = Instant::now() + KILL_TIMEOUT / 2;
    // Only survivors of a kill count. Before the first kill, a growing fork bomb is not a reason to give up.
    let mut killing: Option<StallDetector> = None;
    let mut empty_samples = 0;
    loop {
        let mut targets = sample()?;
        if targets.is_empty() {
            empty_samples += 1;
            // One empty sample proves nothing: processes can be forked or reparented while the list is read.
            if empty_samples == 2 {
                return Ok(());
            }
            continue;
        }
        empty_samples = 0;
        if killing.as_mut().is_some_and(|detector| detector.record_sample(targets.len(), survivors(&targets)))
        {
            return Err(ShellError::NotKilled { left: targets.len() });
        }
        // A stopped process starts no others, so the kill waits until a sample finds no new process. Otherwise a fork
        // bomb could grow as fast as it is killed. A process that runs although it was stopped is killed immediately:
        // something continues it, and a kill cannot be undone.
        let mut detector = stopping.next_phase();
        let mut stopped = HashSet::new();
        loop {
            for target in &targets {
                if stopped.insert(target.process) {
                    signal(target.process, Signal::STOP);
                } else if !target.is_stopped {
                    signal(target.process, Signal::KILL);
                }
            }
            targets = sample()?;
            let has_all = targets.iter().all(|target| stopped.contains(&target.process));
            if has_all
                || detector.record_sample(targets.len(), SurvivorState::Blocked)
                || Instant::now() >= last_stop
            {
                break;
            }
        }
        for process in stopped {
            signal(process, Signal::KILL);
        }
        killing.get_or_insert_with(|| stopping.next_phase());
        std::thread::sleep(KILL_CHECK_PAUSE);
    }
}

/// Whether any of the survivors runs or waits for a processor.
fn survivors<P>(targets: &[KillTarget<P>]) -> SurvivorState {
    if targets.iter().any(|target| target.is_running) {
        SurvivorState::Runnable
    } else {
        SurvivorState::Blocked
    }
}

/// The number of living processes below `root`, and whether any of them runs or waits for a processor.
///
/// # Errors
/// [`ShellError::Processes`] without `/proc`.
pub(crate) fn count_surviving_descendants(root: Process) -> Result<(usize, SurvivorState), ShellError> {
    let descendants = ProcessTable::read()?.descendants_of(root);
    let targets: Vec<KillTarget<Process>> =
        descendants.living_processes.iter().map(KillTarget::from_entry).collect();
    Ok((targets.len(), survivors(&targets)))
}

/// The processes below one process.
#[derive(Clone, Debug, Default)]
pub(crate) struct Descendants {
    /// The living processes, each after its parent.
    pub(crate) living_processes: Vec<ProcessEntry>,
    /// The number of zombies. Each takes a process number and an entry in the kernel's list.
    pub(crate) ended: usize,
    /// Each attempt to list the processes found new ones, so some may be missing. A process that ends hands its
    /// children to a process whose list may already have been read.
    pub(crate) has_gap: bool,
}

impl Descendants {
    /// The number of processes, zombies included.
    pub(crate) fn count(&self) -> usize {
        self.living_processes.len() + self.ended
    }

    /// The number of threads. A zombie counts as one.
    pub(crate) fn threads(&self) -> usize {
        self.ended + self.living_processes.iter().map(|entry| entry.threads).sum::<usize>()
    }

    fn add(&mut self, entry: ProcessEntry) {
        if entry.has_ended { self.ended += 1 } else { self.living_processes.push(entry) }
    }
}

/// All processes below one process, stopped.
#[derive(Debug)]
pub(crate) struct FrozenTree {
    /// The processes that the last sample found.
    pub(crate) descendants: Descendants,
    /// A process continued although it was stopped. `descendants` is then not a count of stopped processes.
    pub(crate) continues: bool,
    stopped_processes: StoppedProcesses,
}

/// The processes that were stopped.
#[derive(Debug, Default)]
struct StoppedProcesses {
    /// Whether each process was running before. A process that the command itself had stopped is not continued.
    was_running: HashMap<Process, bool>,
    groups: HashSet<Pid>,
    /// The processes that were seen in the stopped state.
    confirmed_stopped: HashSet<Process>,
}

/// Stops everything below `root`. Ends when a sample finds no new process, when a sample finds more than
/// `max_processes` processes, or after `time`. `known` are processes that were listed before.
///
/// A fork bomb starts new processes faster than they can be listed. The kernel therefore first stops the known process
/// groups, each with one signal. Then each process is stopped before its children are listed, because a stopped process
/// starts no others.
///
/// A process's own timer (`timer_create` with `SIGCONT`), or a process outside the command, can continue a stopped
/// process. Such a process is stopped once more. If it continues again, further attempts are useless.
///
/// # Errors
/// [`ShellError::Processes`] without `/proc`.
pub(crate) fn freeze(
    root: Process,
    known: &[ProcessEntry],
    max_processes: usize,
    time: Duration,
) -> Result<FrozenTree, ShellError> {
    let deadline = Instant::now() + time;
    let mut stopped = StoppedProcesses::stop_tree(root, known, deadline);
    let mut continued = HashSet::new();
    loop {
        let descendants = ProcessTable::read()?.descendants_of(root);
        let (mut is_new, mut continues) = (false, false);
        for entry in &descendants.living_processes {
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
        if !is_new || continues || descendants.count() > max_processes || Instant::now() >= deadline {
            return Ok(FrozenTree { descendants, continues, stopped_processes: stopped });
        }
        stopped.stop_all_descendants(root, deadline);
    }
}

impl StoppedProcesses {
    /// Stops the known processes below `root`, and the processes that they have started since.
    fn stop_tree(root: Process, known: &[ProcessEntry], deadline: Instant) -> Self {
        let mut stopped = Self::default();
        let Some(root_entry) = entry(root.pid).filter(|root_entry| root_entry.process == root) else {
            return stopped;
        };
        for entry in known {
            // Never stop the group of the session's own processes, even if a command has joined it.
            if entry.group != root_entry.group
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
        while let Some(root_entry) = entry(root.pid).filter(|root_entry| root_entry.process == root)
            && self.stop_descendants(root_entry)
            && Instant::now() < deadline
        {}
    }

    /// Stops a process that was not stopped before. Returns whether the process is new.
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

    /// Walks down from `root_entry` and stops each process. Returns whether any process was new. If the kernel keeps no
    /// lists of children, the walk finds no process.
    fn stop_descendants(&mut self, root_entry: ProcessEntry) -> bool {
        let mut is_new = false;
        let mut visited = HashSet::new();
        let mut parents = vec![root_entry];
        while let Some(parent) = parents.pop() {
            for pid in children(&parent).unwrap_or_default() {
                if visited.insert(pid)
                    && let Some(child) = entry(pid)
                {
                    is_new |= !child.has_ended && self.stop_once(&child);
                    parents.push(child);
                }
            }
        }
        is_new
    }
}

impl FrozenTree {
    /// Continues the processes that were running before the freeze.
    pub(crate) fn thaw(self) {
        let StoppedProcesses { was_running, groups, confirmed_stopped: _ } = self.stopped_processes;
        // Continue children before parents. A running parent would otherwise see stopped children, and a shell with
        // job control would then continue its script.
        let listed = self.descendants.living_processes.iter().rev().map(|entry| entry.process);
        let listed_processes: HashSet<Process> =
            self.descendants.living_processes.iter().map(|entry| entry.process).collect();
        let others = was_running.keys().copied().filter(|process| !listed_processes.contains(process));
        for process in listed.chain(others).filter(|process| was_running.get(process) == Some(&true)) {
            process.signal(Signal::CONT);
        }
        // Groups may have members that are not below the root. They are indistinguishable from processes that the
        // command itself had stopped, so continue whole groups only if it had stopped none.
        if was_running.values().all(|running| *running) {
            for group in groups {
                let _ = rustix::process::kill_process_group(group, Signal::CONT);
            }
        }
    }
}

/// The number of processes to list first. Even of a fork bomb that is too large to list, these processes usually belong
/// to all its process groups.
const FIRST_STOPPED: usize = 32;

/// The lowest priority of ordinary scheduling.
const LOWEST_PRIORITY: i32 = 19;

/// The default priority.
const USUAL_PRIORITY: i32 = 0;

/// The pause between two samples. It lets killed processes end.
const KILL_CHECK_PAUSE: Duration = Duration::from_millis(1);

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
        let parent = rustix::process::getpid();
        assert_eq!(Process::child_of(pid, pid), None, "another parent");
        let process = Process::child_of(parent, pid).unwrap();
        assert!(process.is_alive());
        // A number with another start time looks like a reused number.
        let reused_pid = Process { start_time: process.start_time + 1, ..process };
        assert!(!reused_pid.is_alive());
        reused_pid.kill();
        kill_descendants(reused_pid, Duration::from_secs(1)).unwrap();
        assert!(process.is_alive() && child.try_wait().unwrap().is_none());
        process.kill();
        child.wait().unwrap();
        assert!(!process.is_alive());
    }

    /// Kills, with one number of found processes for each sample.
    fn kill_with_samples(samples: impl IntoIterator<Item = usize>) -> Result<(), ShellError> {
        let mut samples = samples.into_iter();
        let sample = || {
            let count = samples.next().expect("samples no more");
            Ok((0..count)
                .map(|process| KillTarget { process, is_stopped: true, is_running: false })
                .collect())
        };
        kill_all(Duration::ZERO, sample, |_: usize, _| {})
    }

    #[test]
    fn a_growing_tree_is_killed_while_its_survivors_become_fewer() {
        let grows = (2..80).step_by(2);
        // Each number appears in two samples: one finds the survivors, the other finds no new process.
        let becomes_less = (1..80).rev().flat_map(|count| [count, count]);
        assert!(kill_with_samples(grows.chain(becomes_less).chain([0, 0])).is_ok());
    }

    #[test]
    fn kill_gives_up_on_unkillable_processes() {
        let result = kill_with_samples(std::iter::repeat(3));
        assert!(matches!(result, Err(ShellError::NotKilled { left: 3 })), "{result:?}");
        // The kill also fails if the number goes up and down, or never stops growing.
        assert!(kill_with_samples([7, 9, 8].into_iter().cycle()).is_err());
        assert!(kill_with_samples(1..).is_err());
    }

    /// A process that continues is killed before the rest is found.
    #[test]
    fn process_that_continues_itself_is_killed_immediately() {
        let killed = std::cell::RefCell::new(HashSet::new());
        let mut samples = 0;
        let sample = || {
            samples += 1;
            let is_alive = |process: &usize| !killed.borrow().contains(process);
            // A new process at each sample, as long as the first one runs.
            let processes = if is_alive(&0) { 0..samples } else { 0..0 };
            Ok(processes
                .filter(is_alive)
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
        let (mut sibling, _) = sleeper();
        let (mut root, pid) = sleeper();
        let process = Process::child_of(rustix::process::getpid(), pid).unwrap();
        assert_eq!(count_surviving_descendants(process).unwrap(), (0, SurvivorState::Blocked));
        kill_descendants(process, Duration::from_secs(1)).unwrap();
        assert!(process.is_alive(), "the root itself is not killed");
        assert!(sibling.try_wait().unwrap().is_none());
        for child in [&mut root, &mut sibling] {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
}
