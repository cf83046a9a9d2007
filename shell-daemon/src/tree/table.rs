//! Reads the kernel's list of processes, and its lists of each process's children.

use std::{
    collections::{HashMap, HashSet},
    io,
    path::{Path, PathBuf},
};

use rustix::process::Pid;

use super::{Descendants, Process};
use crate::{ShellError, limits::THREADS_PER_PROCESS};

/// The kernel's statistics of one process, from `/proc/PID/stat`.
#[expect(clippy::struct_excessive_bools, reason = "independent flags of the state letter in /proc/PID/stat")]
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProcessEntry {
    pub(crate) process: Process,
    pub(crate) threads: usize,
    /// The first thread has ended, but other threads live.
    pub(crate) is_headless: bool,
    /// The size of the address space, backed by memory or not.
    pub(crate) virtual_bytes: u64,
    /// A living thread: the first thread, or another thread if the first has ended.
    pub(crate) thread: Pid,
    pub(super) parent: i32,
    /// The process group's number.
    pub(super) group: i32,
    /// The process is a zombie.
    pub(super) has_ended: bool,
    pub(super) is_stopped: bool,
    /// The process runs or waits for a processor.
    pub(super) is_running: bool,
    /// The process has run no other program since its fork.
    is_forked: bool,
    /// The processor time that the process has used, in the kernel's ticks.
    used_ticks: u64,
}

impl ProcessEntry {
    /// Whether the process may be a shell before its `exec`: it runs this program and has used almost no
    /// processor time.
    pub(crate) fn may_be_before_exec(&self) -> bool {
        self.is_forked && self.threads == 1 && self.used_ticks <= MAX_BEFORE_EXEC_TICKS
    }

    /// Whether the process still has an address space: it is not a zombie, has not ended and is not ending.
    pub(crate) fn has_memory(&self) -> bool {
        entry(self.process.pid).is_some_and(|now| now.process == self.process && now.virtual_bytes > 0)
    }

    /// Whether the process has run no other program since its fork.
    pub(crate) fn is_forked(&self) -> bool {
        self.is_forked
    }

    /// The number of the parent process.
    pub(crate) fn parent(&self) -> i32 {
        self.parent
    }
}

#[cfg(test)]
impl ProcessEntry {
    /// A process that was just forked.
    pub(crate) fn before_exec(number: i32, virtual_bytes: u64) -> Self {
        let pid = Pid::from_raw(number).expect("a number above 0");
        Self {
            process: Process { pid, start_time: 1 },
            threads: 1,
            is_headless: false,
            virtual_bytes,
            thread: pid,
            parent: 1,
            group: number,
            has_ended: false,
            is_stopped: false,
            is_running: true,
            is_forked: true,
            used_ticks: 0,
        }
    }
}

/// All processes that `/proc` shows, read within a short time.
#[derive(Debug)]
pub(crate) struct ProcessTable {
    entries: Vec<ProcessEntry>,
    children: HashMap<i32, Vec<usize>>,
}

impl ProcessTable {
    /// Reads the list, which takes about 10 µs for each process of the machine.
    ///
    /// # Errors
    /// [`ShellError::Processes`] without `/proc`.
    pub(crate) fn read() -> Result<Self, ShellError> {
        let entries = entries().map_err(|source| ShellError::Processes { source })?;
        let mut children: HashMap<i32, Vec<usize>> = HashMap::new();
        for (index, entry) in entries.iter().enumerate() {
            children.entry(entry.parent).or_default().push(index);
        }
        Ok(Self { entries, children })
    }

    /// The processes below `root`. Empty if `root` has ended.
    pub(crate) fn descendants_of(&self, root: Process) -> Descendants {
        let mut descendants = Descendants::default();
        if !self.entries.iter().any(|entry| entry.process == root && !entry.has_ended) {
            return descendants;
        }
        let mut seen = HashSet::from([root.pid.as_raw_pid()]);
        let mut parents = vec![root.pid.as_raw_pid()];
        while let Some(parent) = parents.pop() {
            for index in self.children.get(&parent).into_iter().flatten() {
                let child = self.entries[*index];
                let number = child.process.pid.as_raw_pid();
                // `seen` guards against a cycle: entries that were read at different times can form one.
                if seen.insert(number) {
                    parents.push(number);
                    descendants.add(child);
                }
            }
        }
        descendants
    }
}

/// The processes below `root`, found in the kernel's lists of each thread's children. The time depends only on the
/// number of these processes, and the walk ends as soon as there are more than `max_count`. `None` if the kernel keeps
/// no such lists, or the processes have very many threads.
///
/// A process that ends during the walk can hide its children, because their new parent's list may already have been
/// read. The lists are therefore read again until they show no new process, at most [`MAX_NEAR_ROUNDS`] times. If they
/// still change, the result has a gap.
pub(crate) fn nearby_descendants(root: Process, max_count: usize) -> Option<Descendants> {
    let mut descendants = Descendants::default();
    let root_entry = entry(root.pid).filter(|entry| entry.process == root && !entry.has_ended);
    let Some(root_entry) = root_entry else { return Some(descendants) };
    let mut seen = HashSet::from([root.pid]);
    let mut parents = vec![root_entry];
    // `max_count` is at least half of a command's process limit, so this is at least its thread limit.
    let max_threads = max_count.saturating_mul(2 * THREADS_PER_PROCESS).max(NEAR_THREADS);
    for _ in 0..MAX_NEAR_ROUNDS {
        let (mut is_new, mut threads, mut next_index) = (false, 0, 0);
        // `parents` grows during the loop.
        while let Some(parent) = parents.get(next_index).copied() {
            next_index += 1;
            threads += parent.threads;
            if threads > max_threads {
                return None;
            }
            for pid in children(&parent)? {
                if !seen.insert(pid) {
                    continue;
                }
                is_new = true;
                if let Some(child) = entry(pid) {
                    parents.push(child);
                    descendants.add(child);
                    if descendants.count() > max_count {
                        return Some(descendants);
                    }
                }
            }
        }
        if !is_new {
            return Some(descendants);
        }
    }
    descendants.has_gap = true;
    Some(descendants)
}

/// The children of a process. Empty if the process has ended. `None` if the kernel keeps no lists of children.
pub(super) fn children(parent: &ProcessEntry) -> Option<Vec<Pid>> {
    let mut child_pids = Vec::new();
    for thread in threads(parent) {
        match std::fs::read_to_string(thread.join("children")) {
            Ok(list) => child_pids.extend(list.split_ascii_whitespace().filter_map(number)),
            Err(_) if thread.exists() => return None,
            Err(_) => {}
        }
    }
    Some(child_pids)
}

/// The folders of a process's threads.
pub(crate) fn threads(entry: &ProcessEntry) -> Vec<PathBuf> {
    let number = entry.process.pid.as_raw_pid();
    let tasks = PathBuf::from(format!("/proc/{number}/task"));
    if entry.threads == 1 && !entry.is_headless {
        return vec![tasks.join(number.to_string())];
    }
    std::fs::read_dir(tasks).into_iter().flatten().flatten().map(|thread| thread.path()).collect()
}

/// The number of the thread with this folder.
pub(crate) fn thread_number(folder: &Path) -> Option<Pid> {
    folder.file_name()?.to_str().and_then(number)
}

fn entries() -> io::Result<Vec<ProcessEntry>> {
    let mut entries = Vec::new();
    for folder in std::fs::read_dir("/proc")? {
        let name = folder?.file_name();
        entries.extend(name.to_str().and_then(number).and_then(entry));
    }
    Ok(entries)
}

/// Parses the name of a process or thread in `/proc`.
fn number(name: &str) -> Option<Pid> {
    name.parse().ok().and_then(Pid::from_raw)
}

/// The entry of one process. `None` if it has ended.
pub(super) fn entry(pid: Pid) -> Option<ProcessEntry> {
    let folder = Path::new("/proc").join(pid.as_raw_pid().to_string());
    let process_entry = stat(&folder, pid)?;
    if !process_entry.is_headless {
        return Some(process_entry);
    }
    // Read a living thread, because an ended first thread has no memory. All living threads share theirs.
    let living = threads(&process_entry)
        .into_iter()
        .find_map(|thread| stat(&thread, thread_number(&thread)?).filter(|thread| thread.virtual_bytes > 0));
    Some(match living {
        Some(ProcessEntry { virtual_bytes, thread, .. }) => {
            ProcessEntry { virtual_bytes, thread, ..process_entry }
        }
        None => process_entry,
    })
}

/// Reads the `stat` file of a process, or of one of its threads.
fn stat(folder: &Path, pid: Pid) -> Option<ProcessEntry> {
    // Read bytes instead of text: a process's name may contain any bytes, including `)`.
    let line = std::fs::read(folder.join("stat")).ok()?;
    let after_name = line.iter().rposition(|byte| *byte == b')')? + 1;
    let rest = std::str::from_utf8(line.get(after_name..)?).ok()?;
    let mut fields = rest.split_ascii_whitespace();
    let state = fields.next()?;
    let parent = fields.next()?.parse().ok()?;
    let group = fields.next()?.parse().ok()?;
    // Fields 9, 14, 15, 20, 22 and 23 of the line follow (`proc_pid_stat(5)`). The iterator starts at field 3, the
    // state.
    let flags: u64 = fields.nth(3)?.parse().ok()?;
    let user_ticks: u64 = fields.nth(4)?.parse().ok()?;
    let system_ticks: u64 = fields.next()?.parse().ok()?;
    let threads = fields.nth(4)?.parse().ok()?;
    let start_time = fields.nth(1)?.parse().ok()?;
    let virtual_bytes = fields.next()?.parse().ok()?;
    let leader_has_ended = matches!(state, "Z" | "X");
    let is_headless = leader_has_ended && threads > 1;
    Some(ProcessEntry {
        process: Process { pid, start_time },
        threads,
        is_headless,
        virtual_bytes,
        thread: pid,
        parent,
        group,
        has_ended: leader_has_ended && !is_headless,
        is_stopped: matches!(state, "T" | "t"),
        is_running: state == "R",
        is_forked: flags & PF_FORKNOEXEC != 0,
        used_ticks: user_ticks + system_ticks,
    })
}

/// The kernel's flag for a process that has not called `exec` since its fork (`include/linux/sched.h`).
const PF_FORKNOEXEC: u64 = 0x40;

/// The maximum processor time that a shell uses before its `exec`. A process that fills much memory needs more.
const MAX_BEFORE_EXEC_TICKS: u64 = 1;

/// The maximum number of reads of the lists of children.
const MAX_NEAR_ROUNDS: u32 = 4;

/// Above this number of threads, reading the list of all processes is faster. For a command that may have more threads,
/// the walk's limit is higher.
const NEAR_THREADS: usize = 1024;
