//! Counts the total memory of all processes below one process.
//!
//! Private pages, in memory or swapped out, count for each process that has them. If that sum exceeds the limit, the
//! kernel is asked for each process's proportional share (PSS), because pages that `fork` copied stay shared until
//! they are written to.
//!
//! Memory that is shared on purpose counts once, see [`shared`]. It exists as long as one process has it mapped, even
//! if its pages are in no page table. The kernel's numbers about a process therefore do not show its size.
//!
//! Memory files that no process has mapped are found by their descriptors. Where a seccomp filter forbids the making of
//! such files, descriptors are not searched.

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

pub(crate) use shared::MappedExtents;

use self::shared::{SharedMemory, UnreadMappings};
use crate::{
    limits::{EXCESS_GRACE, MAX_MAPPINGS, MAX_MAPPINGS_PER_SAMPLE},
    tree::{self, ProcessEntry},
};

/// Counts the memory of processes.
#[derive(Clone, Debug)]
pub(crate) struct MemoryMeter {
    /// The devices of shared memory: the kernel's internal device, the devices of large pages, and `/dev/shm`.
    devices: Vec<u64>,
    descriptors: DescriptorSearch,
    /// Set once a program other than this one was seen in a command. Until then, a process may be unreadable because of
    /// the machine: root without `CAP_SYS_PTRACE` cannot inspect another user's namespaces.
    has_seen_foreign_program: Arc<AtomicBool>,
}

/// Whether descriptors are searched for memory files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DescriptorSearch {
    Needed,
    Unneeded,
}

/// The memory that one sample found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MemoryUse {
    pub(crate) bytes: u64,
    /// Bytes that may be counted twice, because the kernel does not report whether these processes still
    /// share their parents' address spaces, as after `vfork`. If they do, `bytes` already includes these
    /// bytes. The value is 0 if the comparison with the limit has the same result either way.
    pub(crate) doubtful: u64,
    /// Whether the mappings or descriptors of a process are unreadable (`PR_SET_DUMPABLE`). It may then have more
    /// memory.
    pub(crate) has_unreadable: bool,
    /// The part of `bytes` that is neither private pages nor page tables: shared memory, and the kernel's
    /// memory for mappings.
    pub(crate) shared_and_kernel_bytes: u64,
    /// The reason why the sample is not a valid count, if it is not.
    pub(crate) partial_sample: Option<PartialSample>,
}

/// The reason why a sample is incomplete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PartialSample {
    /// Processes ended during the sample. Their memory may now belong to other processes, and counting it could exceed
    /// the limit.
    Lost,
    /// There were more mappings and descriptors than one sample may read.
    TooMany,
}

impl PartialSample {
    /// Whether the processes that ended during the sample, with `lost_bytes` of addresses, could raise
    /// `bytes` above the limit.
    fn from_lost_bytes(lost_bytes: u64, bytes: u64, limit: u64) -> Option<Self> {
        (lost_bytes > 0 && bytes.saturating_add(lost_bytes) > limit).then_some(Self::Lost)
    }
}

/// The state of the processes during the sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SampledWhile {
    /// They run, so the sample must be short.
    Running,
    /// They are stopped, and the sample must be complete.
    Stopped,
}

impl MemoryUse {
    fn too_many() -> Self {
        Self { partial_sample: Some(PartialSample::TooMany), ..Self::default() }
    }

    /// The number of bytes to compare with `limit`. Doubtful bytes are added once the doubt has lasted for
    /// [`EXCESS_GRACE`]. They are also added if the total exceeds twice the limit, because double counting cannot
    /// explain so much.
    pub(crate) fn counted_bytes(self, limit: u64, doubt: &mut Option<Instant>, now: Instant) -> u64 {
        let total_bytes = self.bytes.saturating_add(self.doubtful);
        if self.doubtful == 0 {
            *doubt = None;
            return total_bytes;
        }
        let doubt_start = *doubt.get_or_insert(now);
        let is_settled =
            now.duration_since(doubt_start) >= EXCESS_GRACE || total_bytes > limit.saturating_mul(2);
        if is_settled { total_bytes } else { self.bytes }
    }
}

impl MemoryMeter {
    /// Makes a meter, and finds the devices of shared memory.
    ///
    /// # Errors
    /// The system's error if no memory file can be made. Such a file shows the device of the kernel's shared memory.
    pub(crate) fn new(descriptors: DescriptorSearch) -> io::Result<Self> {
        let device = |file: OwnedFd| rustix::fs::fstat(&file).map(|stat| stat.st_dev);
        let file = |flags| rustix::fs::memfd_create("where", MemfdFlags::CLOEXEC | flags);
        let mut devices = vec![device(file(MemfdFlags::empty())?)?];
        for size in [MemfdFlags::HUGE_2MB, MemfdFlags::HUGE_1GB] {
            // Some kernels have no large pages.
            devices.extend(file(MemfdFlags::HUGETLB | size).and_then(device).ok());
        }
        // `/dev/shm` has a separate device only if it is a mount.
        let folder = fs::metadata("/dev").ok().zip(fs::metadata("/dev/shm").ok());
        devices.extend(folder.filter(|(parent, shm)| parent.dev() != shm.dev()).map(|(_, shm)| shm.dev()));
        Ok(Self { devices, descriptors, has_seen_foreign_program: Arc::default() })
    }

    /// The memory of these processes in bytes, exact enough to compare with `limit`. The result exceeds the limit only
    /// if the processes exceed it, except for shared memory whose file size is unknown.
    pub(crate) fn measure_used(
        &self,
        processes: &[ProcessEntry],
        limit: u64,
        sampled_while: SampledWhile,
        extents: &mut MappedExtents,
    ) -> MemoryUse {
        let max_mappings =
            if sampled_while == SampledWhile::Running { MAX_MAPPINGS_PER_SAMPLE } else { MAX_MAPPINGS };
        let mut shared = SharedMemory::new(&self.devices, extents, max_mappings);
        let mut used = self.sample(processes, limit, sampled_while, &mut shared);
        if sampled_while == SampledWhile::Stopped && used.partial_sample == Some(PartialSample::Lost) {
            // The other processes are stopped, so the lost one was killed from outside and gave them nothing.
            used.partial_sample = None;
        }
        shared.end();
        used
    }

    /// The private pages and page tables of these processes. Pages that several of them share count for each,
    /// unless the sum exceeds `limit`.
    pub(crate) fn private(processes: &[ProcessEntry], limit: u64) -> MemoryUse {
        let (memories, lost_bytes) = ProcessMemory::read_all(processes);
        let mut bytes = total_private(&memories);
        if bytes > limit {
            // Two processes that may share an address space both count.
            let (separate, doubtful) = split_shared_address_spaces(memories, share_memory);
            bytes = total_proportional(&separate) + total_proportional(&doubtful);
        }
        MemoryUse {
            bytes,
            partial_sample: PartialSample::from_lost_bytes(lost_bytes, bytes, limit),
            ..MemoryUse::default()
        }
    }

    fn sample(
        &self,
        processes: &[ProcessEntry],
        limit: u64,
        sampled_while: SampledWhile,
        shared: &mut SharedMemory<'_>,
    ) -> MemoryUse {
        let (mut memories, lost_bytes) = ProcessMemory::read_all(processes);
        let mut doubtful = Vec::new();
        // If private pages alone exceed the limit, `maps` is not read: it may be long, and a memory bomb grows
        // meanwhile.
        if total_private(&memories) > limit {
            (memories, doubtful) = split_shared_address_spaces(memories, share_memory);
            let bytes = total_proportional(&memories);
            if bytes > limit {
                return MemoryUse { bytes, ..MemoryUse::default() };
            }
        }
        let processes = memories.iter_mut().chain(&mut doubtful);
        let Some(MappingTotals { unreadable, mapping_bytes, has_unreadable }) =
            self.add_shared(processes, sampled_while, shared)
        else {
            return MemoryUse::too_many();
        };
        let used = |bytes: u64, doubtful: u64, other_bytes: u64| {
            let is_doubtful = bytes <= limit && bytes.saturating_add(doubtful) > limit;
            let (bytes, doubtful) = if is_doubtful { (bytes, doubtful) } else { (bytes + doubtful, 0) };
            MemoryUse {
                bytes,
                doubtful,
                has_unreadable,
                shared_and_kernel_bytes: other_bytes + mapping_bytes,
                partial_sample: PartialSample::from_lost_bytes(lost_bytes, bytes, limit),
            }
        };
        let other_bytes = shared.bytes() + unreadable;
        let total_bytes = total_private(&memories) + total_private(&doubtful) + other_bytes;
        if total_bytes <= limit {
            return used(total_bytes, 0, other_bytes);
        }
        // The estimate exceeds the limit, so the slower, more exact questions follow.
        shared.ask_file_sizes();
        let other_bytes = shared.bytes() + unreadable;
        let (memories, others_doubtful) = split_shared_address_spaces(memories, share_memory);
        doubtful.extend(others_doubtful);
        let total_bytes = total_private(&memories) + total_private(&doubtful) + other_bytes;
        if total_bytes <= limit {
            return used(total_bytes, 0, other_bytes);
        }
        used(other_bytes + total_proportional(&memories), total_proportional(&doubtful), other_bytes)
    }

    /// Adds the files that these processes have mapped or opened to `shared`, and the kernel's memory for
    /// their mappings to their private memory. `None` if there are more than one sample may read.
    fn add_shared<'own>(
        &self,
        processes: impl Iterator<Item = &'own mut (ProcessEntry, ProcessMemory)>,
        sampled_while: SampledWhile,
        shared: &mut SharedMemory<'_>,
    ) -> Option<MappingTotals> {
        let mut totals = MappingTotals::default();
        for (entry, memory) in processes {
            match shared.add_mappings(entry) {
                Ok(mappings) => {
                    if !entry.is_forked() {
                        self.has_seen_foreign_program.store(true, Ordering::Relaxed);
                    }
                    let bytes = mappings * MAPPING_BYTES;
                    memory.private_bytes += bytes;
                    memory.exclusive_bytes += bytes;
                    totals.mapping_bytes += bytes;
                }
                Err(UnreadMappings::Failed(error)) => {
                    // The mappings are unreadable, so all addresses that could be shared memory count. If the other
                    // processes are stopped, a process without memory has given them none.
                    if sampled_while == SampledWhile::Running || entry.has_memory() {
                        totals.unreadable += memory.not_private;
                    }
                    totals.has_unreadable |= is_refused(&error) && memory.is_normally_readable(entry);
                }
                Err(UnreadMappings::TooMany) => return None,
            }
            if self.descriptors == DescriptorSearch::Needed {
                match shared.add_descriptors(entry) {
                    Ok(()) => {}
                    Err(UnreadMappings::Failed(error)) => {
                        totals.has_unreadable |= is_refused(&error) && memory.is_normally_readable(entry);
                    }
                    Err(UnreadMappings::TooMany) => return None,
                }
            }
        }
        totals.has_unreadable &= self.has_seen_foreign_program.load(Ordering::Relaxed);
        Some(totals)
    }
}

/// The results of one pass over mappings and descriptors.
#[derive(Default)]
struct MappingTotals {
    /// Addresses that could be shared memory, of processes whose mappings cannot be read.
    unreadable: u64,
    /// The kernel's memory for mappings.
    mapping_bytes: u64,
    /// See [`MemoryUse::has_unreadable`].
    has_unreadable: bool,
}

/// Processes, each with the kernel's memory counters.
type Processes = Vec<(ProcessEntry, ProcessMemory)>;

fn total_private(processes: &[(ProcessEntry, ProcessMemory)]) -> u64 {
    processes.iter().map(|(_, memory)| memory.private_bytes).sum()
}

fn total_proportional(processes: &[(ProcessEntry, ProcessMemory)]) -> u64 {
    processes.iter().map(|(entry, memory)| memory.proportional_share(entry)).sum()
}

/// Returns the bytes that all processes of the machine share, hold in memory files or have swapped out. 0 if
/// this `/proc` has no such file (`subset=pid`). `None` if the file cannot be read now, for example because
/// no descriptor is left. A command may have caused that, so an older number must not be used.
pub(crate) fn system_shared_bytes() -> Option<u64> {
    parse_shared_bytes(fs::read_to_string("/proc/meminfo"))
}

fn parse_shared_bytes(meminfo: io::Result<String>) -> Option<u64> {
    let text = match meminfo {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        Err(_) => return None,
    };
    let value = |name: &str| -> u64 {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.and_then(|line| line.split_ascii_whitespace().next()?.parse().ok()).unwrap_or_default()
    };
    let large = value("HugePages_Total").saturating_sub(value("HugePages_Free")) * value("Hugepagesize");
    Some((value("Shmem") + large + value("SwapTotal").saturating_sub(value("SwapFree"))) << 10)
}

fn is_refused(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::PermissionDenied
}

/// Leaves out processes that still use their parent's address space. After `vfork` or `posix_spawn`, which most large
/// programs use, two processes have one address space until the new program runs. A process for which the
/// kernel does not report this is returned separately.
fn split_shared_address_spaces(
    memories: Processes,
    share_memory: impl Fn(Pid, Pid) -> Option<bool>,
) -> (Processes, Processes) {
    // Compare living threads: two ended threads would seem to share memory, because neither has any.
    let parents: HashMap<i32, (u64, Pid)> = memories
        .iter()
        .map(|(entry, _)| (entry.process.pid.as_raw_pid(), (entry.virtual_bytes, entry.thread)))
        .collect();
    let (mut separate, mut doubtful) = (Vec::new(), Vec::new());
    for (entry, memory) in memories {
        // The kernel is not queried for most processes, because their address space differs in size from
        // their parent's.
        let parent = parents.get(&entry.parent()).filter(|(size, _)| *size == entry.virtual_bytes);
        match parent.map_or(Some(false), |(_, parent)| share_memory(*parent, entry.thread)) {
            Some(true) => {}
            Some(false) => separate.push((entry, memory)),
            None => doubtful.push((entry, memory)),
        }
    }
    (separate, doubtful)
}

/// The kernel's memory counters of one process, in bytes.
#[derive(Clone, Copy, Debug)]
struct ProcessMemory {
    /// Private pages, in memory or swapped out, and page tables.
    private_bytes: u64,
    /// The part of `private_bytes` that no other process can share.
    exclusive_bytes: u64,
    /// Bytes of addresses that may be shared memory: all except data and stack.
    not_private: u64,
    rights: Option<Rights>,
}

/// The users, groups and rights of a process.
#[derive(Clone, Copy, Debug)]
struct Rights {
    /// Real, effective, saved and file-system user.
    users: [u32; 4],
    groups: [u32; 4],
    capabilities: u64,
    /// Whether `exec` cannot raise the process's rights.
    no_new_privs: bool,
}

impl Rights {
    fn parse(status: &str) -> Option<Self> {
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

impl ProcessMemory {
    /// Returns the counters of each of these processes, and the address space of those that have ended since
    /// they were listed. An ended process may have given memory to a process that was not listed, such as
    /// shared memory without a page in its tables.
    fn read_all(processes: &[ProcessEntry]) -> (Processes, u64) {
        let (mut memories, mut lost_bytes) = (Vec::new(), 0);
        for entry in processes {
            match Self::read(entry) {
                Some(process_memory) => memories.push((*entry, process_memory)),
                None => lost_bytes += entry.virtual_bytes,
            }
        }
        (memories, lost_bytes)
    }

    /// `None` for a process that has ended, or has released its memory to end.
    fn read(entry: &ProcessEntry) -> Option<Self> {
        let read = |folder: &Path| fs::read_to_string(folder.join("status")).ok();
        let number = entry.process.pid.as_raw_pid();
        let text = if entry.is_headless {
            // Read a living thread: the first thread has ended, and so has no memory.
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
        // Executable memory is not subtracted, because a process can make shared memory executable.
        let unshared_bytes = value("VmData") + value("VmStk");
        Some(Self {
            private_bytes: value("RssAnon") + value("VmSwap") + alone,
            exclusive_bytes: alone,
            not_private: value("VmSize").saturating_sub(unshared_bytes).max(value("RssShmem")),
            rights: Rights::parse(&text),
        })
    }

    /// Whether a refusal means that the process hides itself. The kernel always refuses to show an ordinary user a
    /// process with other rights, such as a setuid program. If this thread may read all processes (`CAP_SYS_PTRACE`), a
    /// refusal comes from the machine, never from the process.
    fn is_normally_readable(&self, entry: &ProcessEntry) -> bool {
        let Some(own_rights) =
            fs::read_to_string("/proc/thread-self/status").ok().as_deref().and_then(Rights::parse)
        else {
            return false;
        };
        let capabilities = rustix::thread::capabilities(None).map_or(0, |sets| sets.effective.bits());
        let Some(rights) = self.rights else { return false };
        let has_same_rights = rights.users[..3].iter().all(|user| *user == own_rights.users[3])
            && rights.groups[..3].iter().all(|group| *group == own_rights.groups[3])
            // With `no_new_privs`, capabilities come only from the process's own user namespace.
            && (rights.no_new_privs || rights.capabilities & !capabilities == 0);
        let sees_all = capabilities & CapabilitySet::SYS_PTRACE.bits() != 0;
        // A process that has ended does not hide itself.
        has_same_rights && !sees_all && entry.process.is_alive()
    }

    /// The private pages. Pages that several processes share are divided among them. If the kernel cannot be
    /// asked, all pages count.
    fn proportional_share(&self, entry: &ProcessEntry) -> u64 {
        if self.private_bytes < SMALL_PROCESS_BYTES {
            return self.private_bytes;
        }
        let path = format!("/proc/{}/smaps_rollup", entry.thread.as_raw_pid());
        let Ok(text) = fs::read_to_string(path) else { return self.private_bytes };
        let value = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name))?;
            Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? << 10)
        };
        match (value("Pss_Anon:"), value("SwapPss:")) {
            (Some(memory), Some(swapped)) => {
                (self.exclusive_bytes + memory + swapped).min(self.private_bytes)
            }
            _ => self.private_bytes,
        }
    }
}

/// Below this number of bytes, a second read is not worth its cost: every process has some private memory.
const SMALL_PROCESS_BYTES: u64 = 1 << 20;

/// The approximate kernel memory of one mapping, in bytes. It is not part of a process's pages, and a process can have
/// many mappings.
const MAPPING_BYTES: u64 = 256;

#[cfg(test)]
mod tests;
