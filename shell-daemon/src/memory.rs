//! How much memory the processes below one have in all.
//!
//! Private pages count once for each process that has them, in memory or swapped out; where that is too much, the
//! kernel is asked for each process's share of them, since what `fork` doubled is shared until it is written to.
//! Memory that is shared on purpose counts once, see [`shared`]: it stays as long as somebody has it mapped, also
//! where no page of it is in any process's table, so that nothing that the kernel says of the process shows how much
//! of it is there.
//!
//! Files in memory that no process has mapped are found by descriptors. In sessions whose filter refuses to make
//! one there is none to be found, and descriptors are not looked at.

mod shared;

use std::{
    collections::HashMap,
    fs, io,
    os::{fd::OwnedFd, unix::fs::MetadataExt as _},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};

use portcullis_confine::process::share_memory;
use rustix::{fs::MemfdFlags, process::Pid, thread::CapabilitySet};

pub(crate) use shared::Marks;

use self::shared::{Shared, Unread};
use crate::{
    limits::{DOUBT_TIME, MAPPINGS_PER_LOOK, MOST_MAPPINGS},
    tree::{self, Entry},
};

/// Looks at the memory of processes.
#[derive(Clone, Debug)]
pub(crate) struct Meter {
    /// The devices that memory is on that processes share: that of all without a file system of its own, those of
    /// large pages, and the machine's folder for it.
    devices: Vec<u64>,
    descriptors: Descriptors,
    /// A program has been seen that a command runs. Before that it may be this machine that shows none: a root without
    /// `CAP_SYS_PTRACE` does not look into another user's namespaces.
    sees: Arc<AtomicBool>,
}

/// Whether descriptors can hold memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Descriptors {
    Looked,
    Unneeded,
}

/// What a look finds of memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Used {
    pub(crate) bytes: u64,
    /// Besides, what is in `bytes` already if processes still have their parents' address spaces, as after `vfork`,
    /// which the kernel does not say. Nothing where it is all the same for a comparison with the limit.
    pub(crate) doubtful: u64,
    /// A process keeps its mappings or descriptors to itself (`PR_SET_DUMPABLE`), so that it may have more.
    pub(crate) is_hidden: bool,
    /// How much more it is, or less, than the private pages and tables of each process taken together.
    pub(crate) beside_private: i64,
    /// Why it is no count.
    pub(crate) partial: Option<Partial>,
}

/// Why a look has not found everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Partial {
    /// Processes ended meanwhile that may have handed on more than the limit leaves.
    Lost,
    /// There were more mappings than one look reads.
    TooMany,
}

impl Partial {
    /// For a look that found so many bytes, and lost processes that had so many.
    fn of_lost(lost: u64, bytes: u64, limit: u64) -> Option<Self> {
        (lost > 0 && bytes.saturating_add(lost) > limit).then_some(Self::Lost)
    }
}

/// Whether what is looked at goes on meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Motion {
    /// The look is to be short.
    Runs,
    /// The look is to be whole.
    Stopped,
}

impl Used {
    /// How much memory is taken for what it has. What may be counted twice is believed where it lasts, and where one
    /// count of it would be no explanation.
    pub(crate) fn settled(self, limit: u64, doubt: &mut Option<Instant>, now: Instant) -> u64 {
        let all = self.bytes.saturating_add(self.doubtful);
        if self.doubtful == 0 {
            *doubt = None;
            return all;
        }
        let since = *doubt.get_or_insert(now);
        let is_settled = now.duration_since(since) >= DOUBT_TIME || all > limit.saturating_mul(2);
        if is_settled { all } else { self.bytes }
    }
}

impl Meter {
    /// # Errors
    /// If no file in memory can be made, to see where they are.
    pub(crate) fn new(descriptors: Descriptors) -> io::Result<Self> {
        let device = |file: OwnedFd| rustix::fs::fstat(&file).map(|stat| stat.st_dev);
        let file = |flags| rustix::fs::memfd_create("where", MemfdFlags::CLOEXEC | flags);
        let mut devices = vec![device(file(MemfdFlags::empty())?)?];
        for size in [MemfdFlags::HUGE_2MB, MemfdFlags::HUGE_1GB] {
            // Not every kernel has them.
            devices.extend(file(MemfdFlags::HUGETLB | size).and_then(device).ok());
        }
        let folder = fs::metadata("/dev").ok().zip(fs::metadata("/dev/shm").ok());
        devices.extend(
            folder.filter(|(above, shared)| above.dev() != shared.dev()).map(|(_, shared)| shared.dev()),
        );
        Ok(Self { devices, descriptors, sees: Arc::default() })
    }

    /// What these processes have, in bytes. It is exact enough for a comparison with `limit`: more is said only if
    /// they have more, but for shared memory whose file cannot be asked.
    pub(crate) fn used(&self, processes: &[Entry], limit: u64, motion: Motion, marks: &mut Marks) -> Used {
        let most = if motion == Motion::Runs { MAPPINGS_PER_LOOK } else { MOST_MAPPINGS };
        let mut shared = Shared::new(&self.devices, marks, most);
        let mut used = self.look(processes, limit, &mut shared);
        if motion == Motion::Stopped && used.partial == Some(Partial::Lost) {
            // Somebody else has killed it.
            used.partial = None;
        }
        shared.end();
        used
    }

    /// What these processes have in private pages and tables alone, each by itself.
    pub(crate) fn private(processes: &[Entry], limit: u64) -> Used {
        let (own, lost) = Own::of_each(processes);
        let bytes = private(&own);
        Used { bytes, partial: Partial::of_lost(lost, bytes, limit), ..Used::default() }
    }

    fn look(&self, processes: &[Entry], limit: u64, shared: &mut Shared<'_>) -> Used {
        let (mut own, lost) = Own::of_each(processes);
        let mut doubtful = Vec::new();
        // What is too much by private pages alone is not read further: `maps` may be long, and a bomb grows meanwhile.
        if private(&own) > limit {
            (own, doubtful) = once_each(own, share_memory);
            let bytes = shares(&own);
            if bytes > limit {
                return Used { bytes, ..Used::default() };
            }
        }
        let raw = private(&own) + private(&doubtful);
        let (mut unseen, mut is_hidden) = (0, false);
        for (entry, own) in own.iter_mut().chain(&mut doubtful) {
            match shared.add_mappings(entry) {
                Ok(mappings) => {
                    if !entry.is_forked() {
                        self.sees.store(true, Ordering::Relaxed);
                    }
                    own.private += mappings * MAPPING_BYTES;
                    own.alone += mappings * MAPPING_BYTES;
                }
                Err(Unread::Failed(error)) => {
                    // Not for us to look at: all that could be.
                    unseen += own.not_private;
                    is_hidden |= is_refused(&error) && own.could_be_seen(entry);
                }
                Err(Unread::TooMany) => {
                    return Used { partial: Some(Partial::TooMany), ..Used::default() };
                }
            }
            if self.descriptors == Descriptors::Looked
                && let Err(error) = shared.add_descriptors(entry)
            {
                is_hidden |= is_refused(&error) && own.could_be_seen(entry);
            }
        }
        let is_hidden = is_hidden && self.sees.load(Ordering::Relaxed);
        let used = |bytes: u64, doubtful: u64| {
            let is_doubtful = bytes <= limit && bytes.saturating_add(doubtful) > limit;
            let (bytes, doubtful) = if is_doubtful { (bytes, doubtful) } else { (bytes + doubtful, 0) };
            Used {
                bytes,
                doubtful,
                is_hidden,
                beside_private: bytes.cast_signed() - raw.cast_signed(),
                partial: Partial::of_lost(lost, bytes, limit),
            }
        };
        let all = private(&own) + private(&doubtful) + shared.bytes() + unseen;
        if all <= limit {
            return used(all, 0);
        }
        shared.ask();
        let others = shared.bytes() + unseen;
        let (own, others_doubtful) = once_each(own, share_memory);
        doubtful.extend(others_doubtful);
        let all = private(&own) + private(&doubtful) + others;
        if all <= limit {
            return used(all, 0);
        }
        used(others + shares(&own), shares(&doubtful))
    }
}

/// Processes, each with what the kernel says of it.
type Processes = Vec<(Entry, Own)>;

fn private(own: &[(Entry, Own)]) -> u64 {
    own.iter().map(|(_, own)| own.private).sum()
}

fn shares(own: &[(Entry, Own)]) -> u64 {
    own.iter().map(|(entry, own)| own.share(entry)).sum()
}

/// What all of the machine's processes share, hold in files in memory or have swapped out, in bytes; nothing where the
/// kernel does not say.
pub(crate) fn shared_by_all() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let value = |name: &str| -> u64 {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.and_then(|line| line.split_ascii_whitespace().next()?.parse().ok()).unwrap_or_default()
    };
    let large = value("HugePages_Total").saturating_sub(value("HugePages_Free")) * value("Hugepagesize");
    (value("Shmem") + large + value("SwapTotal").saturating_sub(value("SwapFree"))) << 10
}

fn is_refused(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::PermissionDenied
}

/// The processes without those that have no memory of their own yet, but their parent's: a program that starts another
/// by `vfork` or `posix_spawn`, as most do that have much memory, is two processes with one address space until the
/// other program is there. Apart those of which the kernel does not say it.
fn once_each(own: Processes, share_memory: impl Fn(Pid, Pid) -> Option<bool>) -> (Processes, Processes) {
    // By threads that live: two that have ended have the same memory, which is none.
    let parents: HashMap<i32, (u64, Pid)> = own
        .iter()
        .map(|(entry, _)| (entry.process.pid.as_raw_pid(), (entry.virtual_bytes, entry.thread)))
        .collect();
    let (mut kept, mut doubtful) = (Vec::new(), Vec::new());
    for (entry, own) in own {
        // Most processes are not asked about: one address space has one size.
        let parent = parents.get(&entry.parent()).filter(|(size, _)| *size == entry.virtual_bytes);
        match parent.map_or(Some(false), |(_, parent)| share_memory(*parent, entry.thread)) {
            Some(true) => {}
            Some(false) => kept.push((entry, own)),
            None => doubtful.push((entry, own)),
        }
    }
    (kept, doubtful)
}

/// What the kernel says of one process, in bytes.
#[derive(Clone, Copy, Debug)]
struct Own {
    /// Private pages in memory or swapped out, and the tables that lead to pages.
    private: u64,
    /// What of that cannot be another process's as well.
    alone: u64,
    /// Addresses that may be of shared memory: all that are neither data nor stack.
    not_private: u64,
    rights: Option<Rights>,
}

/// Whose a process is.
#[derive(Clone, Copy, Debug)]
struct Rights {
    /// Real, effective, saved, and of files.
    users: [u32; 4],
    groups: [u32; 4],
    capabilities: u64,
    /// No program that it runs brings rights with it.
    no_new_privs: bool,
}

impl Rights {
    fn of(status: &str) -> Option<Self> {
        let line = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
        let four = |name: &str| -> Option<[u32; 4]> {
            let numbers: Option<Vec<u32>> =
                line(name)?.split_ascii_whitespace().map(|number| number.parse().ok()).collect();
            numbers?.try_into().ok()
        };
        let capabilities = u64::from_str_radix(line("CapPrm:")?.trim(), 16).ok()?;
        let no_new_privs = line("NoNewPrivs:").is_some_and(|value| value.trim() == "1");
        Some(Self { users: four("Uid:")?, groups: four("Gid:")?, capabilities, no_new_privs })
    }
}

impl Own {
    /// What each of these processes has; and what those had that ended after they were listed, and so may have handed on
    /// to others that were not listed.
    fn of_each(processes: &[Entry]) -> (Processes, u64) {
        let (mut own, mut lost) = (Vec::new(), 0);
        for entry in processes {
            match Self::of(entry) {
                Some(found) => own.push((*entry, found)),
                None => lost += entry.resident_bytes,
            }
        }
        (own, lost)
    }

    /// Nothing of a process that is gone, or that has let go of its memory to end.
    fn of(entry: &Entry) -> Option<Self> {
        let read = |folder: &Path| fs::read_to_string(folder.join("status")).ok();
        let number = entry.process.pid.as_raw_pid();
        let text = if entry.is_headless {
            // The first thread has no memory any more.
            tree::threads(entry)
                .iter()
                .find_map(|thread| read(thread).filter(|text| text.contains("VmRSS:")))?
        } else {
            read(Path::new(&format!("/proc/{number}")))?
        };
        let values: HashMap<&str, u64> = text
            .lines()
            .filter_map(|line| {
                let (name, value) = line.split_once(':')?;
                Some((name, value.trim().strip_suffix(" kB")?.parse::<u64>().ok()? << 10))
            })
            .collect();
        values.get("VmSize")?;
        let value = |name: &str| values.get(name).copied().unwrap_or_default();
        let alone = value("VmPTE") + value("HugetlbPages");
        // Not what is executable: shared memory is that as soon as its owner says so.
        let known = value("VmData") + value("VmStk");
        Some(Self {
            private: value("RssAnon") + value("VmSwap") + alone,
            alone,
            not_private: value("VmSize").saturating_sub(known).max(value("RssShmem")),
            rights: Rights::of(&text),
        })
    }

    /// Whether the kernel shows a process like this to the calling thread, unless the process does not want that. One
    /// of other rights, such as a setuid program, is not shown to an ordinary user anyway; and a thread that may look
    /// at all processes (`CAP_SYS_PTRACE`) is refused by the machine alone, whatever a process wants.
    fn could_be_seen(&self, entry: &Entry) -> bool {
        let Some(mine) = fs::read_to_string("/proc/thread-self/status").ok().as_deref().and_then(Rights::of)
        else {
            return false;
        };
        let capabilities = rustix::thread::capabilities(None).map_or(0, |sets| sets.effective.bits());
        let Some(theirs) = self.rights else { return false };
        let is_alike = theirs.users[..3].iter().all(|user| *user == mine.users[3])
            && theirs.groups[..3].iter().all(|group| *group == mine.groups[3])
            // With that, capabilities can come only from a namespace of its own.
            && (theirs.no_new_privs || theirs.capabilities & !capabilities == 0);
        let sees_all = capabilities & CapabilitySet::SYS_PTRACE.bits() != 0;
        // One that has ended meanwhile has nothing to show.
        is_alike && !sees_all && entry.process.is_alive()
    }

    /// The private pages, those that it has together with others in parts. All of them where that cannot be asked.
    fn share(&self, entry: &Entry) -> u64 {
        if self.private < SMALL {
            return self.private;
        }
        let path = format!("/proc/{}/smaps_rollup", entry.process.pid.as_raw_pid());
        let Ok(text) = fs::read_to_string(path) else { return self.private };
        let value = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name))?;
            Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? << 10)
        };
        match (value("Pss_Anon:"), value("SwapPss:")) {
            (Some(memory), Some(swapped)) => (self.alone + memory + swapped).min(self.private),
            _ => self.private,
        }
    }
}

/// Less than this is not worth another look: every process has some.
const SMALL: u64 = 1 << 20;

/// What the kernel notes down for one mapping, about. It is nobody's page, and a process can have many.
const MAPPING_BYTES: u64 = 256;

#[cfg(test)]
mod tests;
