//! How much memory the processes below one have in all.
//!
//! Private pages count once for each process that has them, in memory or swapped out; where that is too much, the
//! kernel is asked for each process's share of them, since what `fork` doubled is shared until it is written to.
//! Memory that is shared on purpose counts once, and with its whole size: it stays as long as somebody has it
//! mapped, also where no page of it is in any process's table, so that nothing that the kernel says of the process
//! shows how much of it is there.
//!
//! Files in memory that no process has mapped are found by descriptors. In sessions whose filter refuses to make
//! one there is none to be found, and descriptors are not looked at.

use std::{collections::HashMap, fs, io, os::unix::fs::MetadataExt as _, path::Path};

use portcullis_confine::process::share_memory;
use rustix::{fs::MemfdFlags, process::Pid};

use crate::tree::{self, Entry};

/// Looks at the memory of processes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Meter {
    /// The device that all shared memory without a file system of its own is on.
    shared: u64,
    descriptors: Descriptors,
}

/// Whether descriptors can hold memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Descriptors {
    Looked,
    Unneeded,
}

impl Meter {
    /// # Errors
    /// If no file in memory can be made, to see where they are.
    pub(crate) fn new(descriptors: Descriptors) -> io::Result<Self> {
        let file = rustix::fs::memfd_create("where", MemfdFlags::CLOEXEC)?;
        Ok(Self { shared: rustix::fs::fstat(&file)?.st_dev, descriptors })
    }

    /// What these processes have, in bytes. It is exact enough for a comparison with `limit`: more is said only if
    /// they have more, but for shared memory, which counts with its whole size.
    pub(crate) fn used(&self, processes: &[Entry], limit: u64) -> u64 {
        // A process has no more than its addresses, but for tables and what it holds by descriptors.
        let addresses: u64 = processes.iter().map(|entry| entry.virtual_bytes).sum();
        let all_have_addresses = !processes.iter().any(|entry| entry.is_headless);
        if addresses <= limit / 8 && all_have_addresses && self.descriptors == Descriptors::Unneeded {
            return addresses;
        }
        let own: Vec<(Entry, Own)> =
            processes.iter().filter_map(|entry| Some((*entry, Own::of(entry)?))).collect();
        let private: u64 = own.iter().map(|(_, own)| own.private).sum();
        let mut shared = SharedMemory { device: self.shared, ..SharedMemory::default() };
        if self.descriptors == Descriptors::Looked {
            for (entry, _) in &own {
                shared.add_descriptors(entry);
            }
        }
        let not_private: u64 = own.iter().map(|(_, own)| own.not_private).sum();
        if private + not_private + shared.bytes() <= limit {
            return private + own.iter().map(|(_, own)| own.in_shared).sum::<u64>().max(shared.bytes());
        }
        let own = once_each(own);
        let private: u64 = own.iter().map(|(_, own)| own.private).sum();
        let mut unseen = 0;
        for (entry, own) in &own {
            if own.not_private > SMALL && shared.add_mappings(entry).is_err() {
                // Not for us to look at: all that could be.
                unseen += own.not_private;
            }
        }
        let others = shared.bytes() + unseen;
        if private + others <= limit {
            return private + others;
        }
        others + own.iter().map(|(entry, own)| own.share(entry)).sum::<u64>()
    }
}

/// The processes without those that have no memory of their own yet, but their parent's: a program that starts another
/// by `vfork` or `posix_spawn`, as most do that have much memory, is two processes with one address space until the
/// other program is there.
fn once_each(own: Vec<(Entry, Own)>) -> Vec<(Entry, Own)> {
    let sizes: HashMap<i32, u64> =
        own.iter().map(|(entry, _)| (entry.process.pid.as_raw_pid(), entry.virtual_bytes)).collect();
    let is_parents = |entry: &Entry| {
        let Some(parent) = Pid::from_raw(entry.parent()) else { return false };
        // Most processes are not asked about: one address space has one size.
        sizes.get(&entry.parent()) == Some(&entry.virtual_bytes) && share_memory(parent, entry.process.pid)
    };
    own.into_iter().filter(|(entry, _)| !is_parents(entry)).collect()
}

/// What the kernel says of one process, in bytes.
#[derive(Clone, Copy, Debug)]
struct Own {
    /// Private pages in memory or swapped out, and the tables that lead to pages.
    private: u64,
    /// What of that cannot be another process's as well.
    alone: u64,
    /// Shared pages that are in its table.
    in_shared: u64,
    /// Addresses that may be of shared memory: all that are neither data, stack nor program.
    not_private: u64,
}

impl Own {
    /// Nothing of a process that is gone.
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
        let value = |name: &str| values.get(name).copied().unwrap_or_default();
        let alone = value("VmPTE") + value("HugetlbPages");
        let known = value("VmData") + value("VmStk") + value("VmExe") + value("VmLib");
        Some(Self {
            private: value("RssAnon") + value("VmSwap") + alone,
            alone,
            in_shared: value("RssShmem"),
            not_private: value("VmSize").saturating_sub(known).max(value("RssShmem")),
        })
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

/// Memory that more than one process can have, each piece once.
#[derive(Debug, Default)]
struct SharedMemory {
    device: u64,
    sizes: HashMap<u64, u64>,
}

impl SharedMemory {
    fn bytes(&self) -> u64 {
        self.sizes.values().sum()
    }

    fn add(&mut self, inode: u64, bytes: u64) {
        let size = self.sizes.entry(inode).or_default();
        *size = (*size).max(bytes);
    }

    /// By the addresses that they are mapped to: no more of them can be there.
    fn add_mappings(&mut self, entry: &Entry) -> io::Result<()> {
        let number = entry.process.pid.as_raw_pid();
        let folder = if entry.is_headless {
            tree::threads(entry)
                .into_iter()
                .find(|thread| !is_ended(thread))
                .ok_or(io::ErrorKind::NotFound)?
        } else {
            format!("/proc/{number}").into()
        };
        // Bytes, since names of files are in it.
        let text = fs::read(folder.join("maps"))?;
        let mut mapped: HashMap<u64, u64> = HashMap::new();
        for line in text.split(|byte| *byte == b'\n') {
            if let Some((inode, bytes)) = mapping(line, self.device) {
                *mapped.entry(inode).or_default() += bytes;
            }
        }
        for (inode, bytes) in mapped {
            self.add(inode, bytes);
        }
        Ok(())
    }

    /// By descriptors: what is there of a file in memory is what it takes.
    fn add_descriptors(&mut self, entry: &Entry) {
        let folder = format!("/proc/{}/fd", entry.process.pid.as_raw_pid());
        for descriptor in fs::read_dir(folder).into_iter().flatten().flatten() {
            if let Ok(file) = fs::metadata(descriptor.path())
                && file.dev() == self.device
            {
                self.add(file.ino(), file.blocks() * 512);
            }
        }
    }
}

fn is_ended(thread: &Path) -> bool {
    fs::read_to_string(thread.join("status")).is_ok_and(|text| !text.contains("VmRSS:"))
}

/// The inode and the size of a mapping of memory on that device: `begin-end perms offset major:minor inode path`.
fn mapping(line: &[u8], device: u64) -> Option<(u64, u64)> {
    let fields: Vec<&[u8]> = line.splitn(6, |byte| *byte == b' ').collect();
    let text = |index: usize| std::str::from_utf8(fields.get(index)?).ok();
    let (major, minor) = text(3)?.split_once(':')?;
    let number = |text: &str| u64::from_str_radix(text, 16).ok();
    let on = rustix::fs::makedev(u32::from_str_radix(major, 16).ok()?, u32::from_str_radix(minor, 16).ok()?);
    if on != device {
        return None;
    }
    let inode = text(4)?.parse().ok().filter(|inode| *inode > 0)?;
    let (begin, end) = text(0)?.split_once('-')?;
    Some((inode, number(end)?.checked_sub(number(begin)?)?))
}

/// Less than this is not worth another look: every process has some.
const SMALL: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mapping_counts_by_its_device_and_with_its_whole_size() {
        let device = rustix::fs::makedev(0, 1);
        let line =
            b"7f0000000000-7f0000200000 rw-s 00000000 00:01 1234                       /dev/zero (deleted)";
        assert_eq!(mapping(line, device), Some((1234, 2 << 20)));
        let renamed = b"7f0000000000-7f0000001000 rw-s 00000000 00:01 7 [anon_shmem:\xff x]";
        assert_eq!(mapping(renamed, device), Some((7, 4096)));
        for other in [
            &b"7f0000000000-7f0000200000 rw-p 00000000 00:00 0 "[..],
            b"7f0000000000-7f0000200000 r--p 00000000 08:01 1234 /memfd:x (deleted)",
            b"",
            b"x",
        ] {
            assert_eq!(mapping(other, device), None);
        }
    }
}
