//! All processes below one, and their end.
//!
//! By the kernel's list of processes, since a command may leave its process group and its session. Every
//! orphan is adopted by its command's init or by the session's guard, so a process is below the one that it
//! came from as long as that one lives. Signals go by handles: a number could have changed hands.
//!
//! A process whose first thread has ended looks like one that waits to be buried; it lives as long as it has
//! another thread.

mod table;

use std::{
    collections::{HashMap, HashSet},
    hash::Hash,
    time::{Duration, Instant},
};

use rustix::process::{Pid, PidfdFlags, Signal};

pub(crate) use self::table::{Entry, Table, near_below, thread_number, threads};
use self::table::{children, entry};
use crate::{
    ShellError,
    kill_stall::{Pace, StallDetector},
    limits::LONGEST_KILL,
};

/// A process that is still the one that was meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Process {
    pub(crate) pid: Pid,
    /// When it was started, in the kernel's ticks: number and time together name one process.
    started: u64,
}

impl Process {
    /// The process that has this number now, if `parent` is its parent.
    pub(crate) fn child_of(parent: Pid, pid: Pid) -> Option<Self> {
        let entry = entry(pid)?;
        (entry.parent == parent.as_raw_pid()).then_some(entry.process)
    }

    /// The calling process.
    pub(crate) fn current() -> Option<Self> {
        entry(rustix::process::getpid()).map(|entry| entry.process)
    }

    /// Whether it has neither ended nor waits to be buried.
    pub(crate) fn is_alive(self) -> bool {
        entry(self.pid).is_some_and(|entry| entry.process == self && !entry.ended)
    }

    pub(crate) fn kill(self) {
        self.signal(Signal::KILL);
    }

    /// Lets it have processor time only when nothing else wants it. One that may not be told so keeps what it has.
    pub(crate) fn yield_to_others(self) {
        if self.is_alive() {
            let _ = rustix::process::setpriority_process(Some(self.pid), LOWEST_PRIORITY);
        }
    }

    /// Takes that back, where this process may: what is killed ends only when it has a processor.
    fn hurry(self) {
        if self.is_alive() {
            let _ = rustix::process::setpriority_process(Some(self.pid), USUAL_PRIORITY);
        }
    }

    fn signal(self, signal: Signal) {
        let Ok(handle) = rustix::process::pidfd_open(self.pid, PidfdFlags::empty()) else { return };
        // The handle is of whoever had the number when it was opened; only now is it known who that is.
        if entry(self.pid).is_some_and(|entry| entry.process == self) {
            // Whatever ended in between needs no signal.
            let _ = rustix::process::pidfd_send_signal(&handle, signal);
        }
    }
}

/// Stops and kills everything below `root`, but not `root`, until two looks find nothing. It goes on while it becomes
/// less.
///
/// A command's init ends with the last process below it, so a `root` that is gone is what is wanted. One that
/// was killed has left its processes to the guard, which the session's end sets in motion.
///
/// # Errors
/// [`ShellError::NotKilled`] if for `time` it has not become less, and where it takes longer than any kill may, see
/// [`StallDetector`]; [`ShellError::Processes`] without `/proc`.
pub(crate) fn kill_below(root: Process, time: Duration) -> Result<(), ShellError> {
    // What grows faster than it is listed is not killed by lists.
    let known = match near_below(root, FIRST_STOPPED) {
        Some(known) => known,
        None => Table::read()?.below(root),
    };
    let stopped = Stopped::at_once(root, &known.living, Instant::now() + time);
    let look = || {
        let living = Table::read()?.below(root).living;
        Ok(living.iter().map(Target::of).collect())
    };
    let killed = kill_all(time, look, |process: Process, signal| {
        if signal == Signal::KILL {
            process.hurry();
        }
        process.signal(signal);
    });
    // Members of its groups that are not below `root`, if there are any.
    for group in stopped.groups {
        let _ = rustix::process::kill_process_group(group, Signal::CONT);
    }
    killed
}

/// One that a kill looks at.
#[derive(Clone, Copy, Debug)]
struct Target<P> {
    process: P,
    is_stopped: bool,
    /// It has a processor or waits for one.
    is_running: bool,
}

impl Target<Process> {
    fn of(entry: &Entry) -> Self {
        Self { process: entry.process, is_stopped: entry.is_stopped, is_running: entry.is_running }
    }
}

/// Stops and kills all that a look finds.
fn kill_all<P: Copy + Eq + Hash>(
    time: Duration,
    mut look: impl FnMut() -> Result<Vec<Target<P>>, ShellError>,
    mut signal: impl FnMut(P, Signal),
) -> Result<(), ShellError> {
    let stopping = StallDetector::new(time);
    // Half of the time in all is for the kill.
    let last_stop = Instant::now() + LONGEST_KILL / 2;
    // Of what is left after a kill: before the first one a bomb grows, and that is no reason to give up.
    let mut killing: Option<StallDetector> = None;
    let mut empty_looks = 0;
    loop {
        let mut found = look()?;
        if found.is_empty() {
            empty_looks += 1;
            if empty_looks == 2 {
                return Ok(());
            }
            continue;
        }
        empty_looks = 0;
        if killing.as_mut().is_some_and(|patience| patience.is_over(found.len(), pace(&found))) {
            return Err(ShellError::NotKilled { left: found.len() });
        }
        // What is stopped starts nothing more; only when no new one is found are they killed. Otherwise
        // a bomb of processes could grow as fast as it is cut down. One that was told to stop and goes on is killed
        // at once: something continues it, and a kill cannot be undone.
        let mut patience = stopping.anew();
        let mut stopped = HashSet::new();
        loop {
            for target in &found {
                if stopped.insert(target.process) {
                    signal(target.process, Signal::STOP);
                } else if !target.is_stopped {
                    signal(target.process, Signal::KILL);
                }
            }
            found = look()?;
            let has_all = found.iter().all(|target| stopped.contains(&target.process));
            if has_all || patience.is_over(found.len(), Pace::Still) || Instant::now() >= last_stop {
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

/// Whether what was killed only waits for a processor.
fn pace<P>(found: &[Target<P>]) -> Pace {
    if found.iter().any(|target| target.is_running) { Pace::Waits } else { Pace::Still }
}

/// How many processes live below `root`, and whether they wait for a processor.
///
/// # Errors
/// [`ShellError::Processes`] without `/proc`.
pub(crate) fn left_below(root: Process) -> Result<(usize, Pace), ShellError> {
    let below = Table::read()?.below(root);
    let targets: Vec<Target<Process>> = below.living.iter().map(Target::of).collect();
    Ok((targets.len(), pace(&targets)))
}

/// What is below one process.
#[derive(Clone, Debug, Default)]
pub(crate) struct Below {
    /// All that lives, each after its parent.
    pub(crate) living: Vec<Entry>,
    /// How many have ended and wait to be buried: each takes a number and a place in the kernel's list.
    pub(crate) ended: usize,
}

impl Below {
    /// How many processes these are.
    pub(crate) fn count(&self) -> usize {
        self.living.len() + self.ended
    }

    /// How many threads; what has ended counts as one.
    pub(crate) fn threads(&self) -> usize {
        self.ended + self.living.iter().map(|entry| entry.threads).sum::<usize>()
    }

    fn add(&mut self, entry: Entry) {
        if entry.ended { self.ended += 1 } else { self.living.push(entry) }
    }
}

/// Everything below one process, stopped.
#[derive(Debug)]
pub(crate) struct Frozen {
    /// What was found there last.
    pub(crate) below: Below,
    /// One of them went on by itself although it was stopped, so that this is no count of what stands still.
    pub(crate) goes_on: bool,
    stopped: Stopped,
}

/// What was stopped for a while.
#[derive(Debug, Default)]
struct Stopped {
    /// Whether each of them ran before: what a command has stopped itself is not for us to continue.
    ran: HashMap<Process, bool>,
    groups: HashSet<Pid>,
    /// Seen to be stopped.
    stands: HashSet<Process>,
}

/// Stops everything below `root`, some of which is known, until a look finds nothing that was not stopped, or more than
/// `most` processes, or for `time`.
///
/// A bomb of processes starts new ones faster than all can be listed. So its process groups are stopped first, each
/// at once by the kernel; then each process that is found, before its children are looked for, which are no more
/// from then on.
///
/// What is stopped can be continued: by a timer of its own (`timer_create` with `SIGCONT`), or from beside the command.
/// One that was is stopped once more; when it goes on again, there is no use in waiting.
///
/// # Errors
/// [`ShellError::Processes`] without `/proc`.
pub(crate) fn freeze(
    root: Process,
    known: &[Entry],
    most: usize,
    time: Duration,
) -> Result<Frozen, ShellError> {
    let deadline = Instant::now() + time;
    let mut stopped = Stopped::at_once(root, known, deadline);
    let mut continued = HashSet::new();
    loop {
        let below = Table::read()?.below(root);
        let (mut is_new, mut goes_on) = (false, false);
        for entry in &below.living {
            if stopped.take(entry) {
                is_new = true;
            } else if entry.is_stopped {
                stopped.stands.insert(entry.process);
            } else if stopped.stands.remove(&entry.process) {
                goes_on |= !continued.insert(entry.process);
                is_new = true;
                entry.process.signal(Signal::STOP);
            }
        }
        if !is_new || goes_on || below.count() > most || Instant::now() >= deadline {
            return Ok(Frozen { below, goes_on, stopped });
        }
        stopped.chase_all(root, deadline);
    }
}

impl Stopped {
    /// Stops what is known to be below `root`, and what that has started meanwhile.
    fn at_once(root: Process, known: &[Entry], deadline: Instant) -> Self {
        let mut stopped = Self::default();
        let Some(above) = entry(root.pid).filter(|above| above.process == root) else { return stopped };
        for entry in known {
            // That of the session's own processes is left alone, whoever has joined it.
            if entry.group != above.group
                && let Some(group) = Pid::from_raw(entry.group)
                && stopped.groups.insert(group)
            {
                let _ = rustix::process::kill_process_group(group, Signal::STOP);
            }
        }
        for entry in known {
            // As it was before its group was stopped.
            stopped.ran.insert(entry.process, !entry.is_stopped);
            entry.process.signal(Signal::STOP);
        }
        stopped.chase_all(root, deadline);
        stopped
    }

    fn chase_all(&mut self, root: Process, deadline: Instant) {
        while let Some(above) = entry(root.pid).filter(|above| above.process == root)
            && self.chase(above)
            && Instant::now() < deadline
        {}
    }

    /// Stops a process that was not stopped before; whether it is one.
    fn take(&mut self, entry: &Entry) -> bool {
        if self.ran.contains_key(&entry.process) {
            return false;
        }
        // One that was born into a group that is stopped already never ran by itself.
        let is_in_group = Pid::from_raw(entry.group).is_some_and(|group| self.groups.contains(&group));
        self.ran.insert(entry.process, !entry.is_stopped || is_in_group);
        entry.process.signal(Signal::STOP);
        true
    }

    /// Goes down from `above` and stops each process that it finds; whether there was a new one. Finds none where
    /// the kernel keeps no lists of children.
    fn chase(&mut self, above: Entry) -> bool {
        let mut is_new = false;
        let mut seen = HashSet::new();
        let mut parents = vec![above];
        while let Some(parent) = parents.pop() {
            for pid in children(&parent).unwrap_or_default() {
                if seen.insert(pid)
                    && let Some(child) = entry(pid)
                {
                    is_new |= !child.ended && self.take(&child);
                    parents.push(child);
                }
            }
        }
        is_new
    }
}

impl Frozen {
    /// Lets go on what ran before.
    pub(crate) fn thaw(self) {
        let Stopped { ran, groups, stands: _ } = self.stopped;
        // Children before their parents, which would take them for stopped by somebody: a shell with job control goes on
        // with its script then.
        let listed = self.below.living.iter().rev().map(|entry| entry.process);
        let seen: HashSet<Process> = self.below.living.iter().map(|entry| entry.process).collect();
        let others = ran.keys().copied().filter(|process| !seen.contains(process));
        for process in listed.chain(others).filter(|process| ran.get(process) == Some(&true)) {
            process.signal(Signal::CONT);
        }
        // A group may have members that are not below the root.
        if ran.values().all(|ran| *ran) {
            for group in groups {
                let _ = rustix::process::kill_process_group(group, Signal::CONT);
            }
        }
    }
}

/// So many processes name all process groups of what has so many as no one can list, as a rule.
const FIRST_STOPPED: usize = 32;

/// Of the least weight that ordinary scheduling knows.
const LOWEST_PRIORITY: i32 = 19;

/// What a process has that nobody asked about.
const USUAL_PRIORITY: i32 = 0;

/// Between two looks, so that what was killed can end.
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
        // The same number, started at another time: what a number that changed hands looks like.
        let other = Process { started: process.started + 1, ..process };
        assert!(!other.is_alive());
        other.kill();
        kill_below(other, Duration::from_secs(1)).unwrap();
        assert!(process.is_alive() && child.try_wait().unwrap().is_none());
        process.kill();
        child.wait().unwrap();
        assert!(!process.is_alive());
    }

    /// Kills what a look finds, of which so many are left at each look.
    fn killed(left: impl IntoIterator<Item = usize>) -> Result<(), ShellError> {
        let mut left = left.into_iter();
        let look = || {
            let left = left.next().expect("looks no more");
            Ok((0..left).map(|process| Target { process, is_stopped: true, is_running: false }).collect())
        };
        kill_all(Duration::ZERO, look, |_: usize, _| {})
    }

    #[test]
    fn what_grows_until_it_is_stopped_is_killed_for_as_long_as_it_becomes_less() {
        let grows = (2..80).step_by(2);
        // Two looks each: one finds what is left, the other that nothing was started since.
        let becomes_less = (1..80).rev().flat_map(|left| [left, left]);
        assert!(killed(grows.chain(becomes_less).chain([0, 0])).is_ok());
    }

    #[test]
    fn what_the_kernel_cannot_end_is_given_up() {
        let result = killed(std::iter::repeat(3));
        assert!(matches!(result, Err(ShellError::NotKilled { left: 3 })), "{result:?}");
        // Also where it comes and goes, and where it grows for ever.
        assert!(killed([7, 9, 8].into_iter().cycle()).is_err());
        assert!(killed(1..).is_err());
    }

    /// What is stopped and goes on is killed before the rest is found.
    #[test]
    fn what_continues_itself_is_killed_at_once() {
        let killed = std::cell::RefCell::new(HashSet::new());
        let mut looks = 0;
        let look = || {
            looks += 1;
            let is_left = |process: &usize| !killed.borrow().contains(process);
            // A new one at each look, as long as the first one runs.
            let all = if is_left(&0) { 0..looks } else { 0..0 };
            Ok(all
                .filter(is_left)
                .map(|process| Target { process, is_stopped: false, is_running: true })
                .collect())
        };
        let signal = |process, signal| {
            if signal == Signal::KILL {
                killed.borrow_mut().insert(process);
            }
        };
        kill_all(Duration::from_secs(60), look, signal).unwrap();
        assert!(looks < 10, "{looks}");
    }

    #[test]
    fn what_is_below_dies_and_what_is_beside_lives() {
        let (mut beside, _) = sleeper();
        let (mut root, pid) = sleeper();
        let process = Process::child_of(rustix::process::getpid(), pid).unwrap();
        assert_eq!(left_below(process).unwrap(), (0, Pace::Still));
        kill_below(process, Duration::from_secs(1)).unwrap();
        assert!(process.is_alive(), "the root itself is not killed");
        assert!(beside.try_wait().unwrap().is_none());
        for child in [&mut root, &mut beside] {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
}
