//! Counts memory that several processes can share: shared mappings and memory files.
//!
//! Each piece counts once and is identified by its file in the kernel. If the file can be queried, its size
//! in memory counts. Otherwise the piece counts up to the furthest position that was ever seen mapped. This
//! defeats a process that slides a small mapping over a large file, or leaves each part to another process:
//! the pages written before stay in memory.

use std::{
    collections::HashMap,
    fs::{self, File},
    io::{self, BufRead as _, BufReader},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    time::Instant,
};

use portcullis_confine::process::share_descriptors;

use crate::{
    limits::{MAX_SHARED_MEMORY_PIECES, SHARED_MEMORY_KEPT},
    tree::{self, ProcessEntry},
};

/// The identity of a piece of shared memory. A System V segment and another file may have the same numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct MemoryKey {
    device: u64,
    inode: u64,
    is_segment: bool,
}

/// The furthest mapped position of each piece, kept from one sample to the next. Only pieces that the current sample
/// finds are counted, so pieces that are gone do not add up.
#[derive(Debug, Default)]
pub(crate) struct MappedExtents(HashMap<MemoryKey, MappedExtent>);

#[derive(Clone, Copy, Debug)]
struct MappedExtent {
    /// The furthest end of a mapping, as a position in the file.
    end: u64,
    seen_at: Instant,
}

/// The shared memory that one sample finds.
#[derive(Debug)]
pub(super) struct SharedMemory<'a> {
    devices: &'a [u64],
    extents: &'a mut MappedExtents,
    pieces: HashMap<MemoryKey, MappedPiece>,
    /// The number of mappings and descriptors that may still be read.
    reads_left: u64,
    /// The number of descriptors that may still be read although they are probably already known.
    repeats_left: u64,
}

/// The reason why some mappings or descriptors of a process are unknown.
#[derive(Debug)]
pub(super) enum UnreadMappings {
    /// The process was unreadable or has ended.
    Failed(io::Error),
    /// The sample's limit of mappings and descriptors is reached.
    TooMany,
}

impl From<io::Error> for UnreadMappings {
    fn from(error: io::Error) -> Self {
        Self::Failed(error)
    }
}

#[derive(Debug, Default)]
struct MappedPiece {
    end: u64,
    /// The file's size in memory, if the file was queried.
    size_in_memory: Option<u64>,
    /// A path through which the file can be queried.
    mapping: Option<PathBuf>,
}

impl<'a> SharedMemory<'a> {
    /// The shared memory of a sample that may read `reads_left` mappings and descriptors in total.
    pub(super) fn new(devices: &'a [u64], extents: &'a mut MappedExtents, reads_left: u64) -> Self {
        Self { devices, extents, pieces: HashMap::new(), reads_left, repeats_left: reads_left }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.pieces.values().map(|piece| piece.size_in_memory.unwrap_or(piece.end)).sum()
    }

    /// Adds the mappings of a process, and returns their number.
    ///
    /// # Errors
    /// [`UnreadMappings::Failed`] even for a process that has released its memory: the kernel then shows an
    /// empty list, and another process may have the memory by now.
    pub(super) fn add_mappings(&mut self, entry: &ProcessEntry) -> Result<u64, UnreadMappings> {
        let not_found = || io::Error::from(io::ErrorKind::NotFound);
        let number = if entry.is_headless {
            let living = tree::threads(entry).into_iter().find(|thread| !is_ended(thread));
            living.and_then(|thread| tree::thread_number(&thread)).ok_or_else(not_found)?
        } else {
            entry.process.pid
        };
        let number = number.as_raw_pid();
        let mut maps = BufReader::new(File::open(format!("/proc/{number}/maps"))?);
        let mut mappings = 0;
        // Read the lines as bytes, because file names need not be text.
        let mut line = Vec::new();
        while maps.read_until(b'\n', &mut line)? > 0 {
            self.count_read()?;
            mappings += 1;
            if let Some(mapping) = Mapping::parse(&line, self.devices) {
                self.add(&mapping, number);
            }
            line.clear();
        }
        if mappings == 0 {
            return Err(not_found().into());
        }
        Ok(mappings)
    }

    /// Counts one mapping or descriptor as read.
    fn count_read(&mut self) -> Result<(), UnreadMappings> {
        self.reads_left = self.reads_left.checked_sub(1).ok_or(UnreadMappings::TooMany)?;
        Ok(())
    }

    fn add(&mut self, mapping: &Mapping, number: i32) {
        let now = Instant::now();
        let extent = self.extents.0.entry(mapping.key).or_insert(MappedExtent { end: 0, seen_at: now });
        *extent = MappedExtent { end: extent.end.max(mapping.end), seen_at: now };
        let piece = self.pieces.entry(mapping.key).or_default();
        piece.end = extent.end;
        let (start, end) = mapping.addresses;
        piece.mapping.get_or_insert_with(|| format!("/proc/{number}/map_files/{start:x}-{end:x}").into());
    }

    /// Adds the memory files among a process's descriptors, with their size in memory. Each thread may have its own
    /// table of descriptors.
    pub(super) fn add_descriptors(&mut self, entry: &ProcessEntry) -> Result<(), UnreadMappings> {
        let leader = entry.process.pid;
        // The flag is true if the table is known to be the thread's own. Otherwise the table is probably
        // shared, so its limit only stops the reading.
        let mut folders = Vec::new();
        if !entry.is_headless {
            folders.push((PathBuf::from(format!("/proc/{}", leader.as_raw_pid())), true));
        }
        if entry.threads > 1 || entry.is_headless {
            folders.extend(tree::threads(entry).into_iter().filter_map(|thread| {
                // The first thread's table was read above. If that thread has ended, its table cannot be
                // read.
                let thread_pid = tree::thread_number(&thread).filter(|thread_pid| *thread_pid != leader)?;
                match share_descriptors(leader, thread_pid) {
                    Some(true) => None,
                    answer => Some((thread, answer == Some(false))),
                }
            }));
        }
        let mut denied = None;
        for (folder, is_separate) in folders {
            let descriptors = match fs::read_dir(folder.join("fd")) {
                Ok(descriptors) => descriptors,
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                    denied = Some(error);
                    continue;
                }
                // The thread has ended.
                Err(_) => continue,
            };
            for descriptor in descriptors.flatten() {
                if is_separate {
                    self.count_read()?;
                } else if let Some(remaining) = self.repeats_left.checked_sub(1) {
                    self.repeats_left = remaining;
                } else {
                    break;
                }
                match fs::metadata(descriptor.path()) {
                    Ok(file) if self.devices.contains(&file.dev()) => {
                        let key = MemoryKey { device: file.dev(), inode: file.ino(), is_segment: false };
                        self.pieces.entry(key).or_default().size_in_memory =
                            Some(file.blocks() * BLOCK_BYTES);
                    }
                    Err(error) if error.kind() == io::ErrorKind::PermissionDenied => denied = Some(error),
                    // The file is not shared memory, or the descriptor was closed in the meantime.
                    Ok(_) | Err(_) => {}
                }
            }
        }
        denied.map_or(Ok(()), |error| Err(error.into()))
    }

    /// Asks the files for their sizes, if the kernel allows that (`CAP_CHECKPOINT_RESTORE` or
    /// `CAP_SYS_ADMIN`).
    pub(super) fn ask_file_sizes(&mut self) {
        for (key, piece) in &mut self.pieces {
            if piece.size_in_memory.is_none()
                && let Some(file) = piece.mapping.as_ref().and_then(|mapping| fs::metadata(mapping).ok())
                && (file.dev(), file.ino()) == (key.device, key.inode)
            {
                piece.size_in_memory = Some(file.blocks() * BLOCK_BYTES);
            }
        }
    }

    /// Keeps the positions for a while, because one sample may miss a piece that the next sample finds.
    pub(super) fn end(self) {
        let Self { extents, pieces, .. } = self;
        extents
            .0
            .retain(|key, extent| pieces.contains_key(key) || extent.seen_at.elapsed() < SHARED_MEMORY_KEPT);
        if extents.0.len() > MAX_SHARED_MEMORY_PIECES {
            extents.0.retain(|key, _| pieces.contains_key(key));
        }
    }
}

fn is_ended(thread: &Path) -> bool {
    fs::read_to_string(thread.join("status")).is_ok_and(|text| !text.contains("VmRSS:"))
}

/// A mapping of memory on one of the given devices.
#[derive(Debug, PartialEq, Eq)]
struct Mapping {
    key: MemoryKey,
    /// The mapping's end, as a position in the file.
    end: u64,
    addresses: (u64, u64),
}

impl Mapping {
    /// Parses a line `begin-end perms offset major:minor inode path`.
    fn parse(line: &[u8], devices: &[u64]) -> Option<Self> {
        let fields: Vec<&[u8]> = line.splitn(6, |byte| *byte == b' ').collect();
        let text = |index: usize| std::str::from_utf8(fields.get(index)?).ok();
        let (major, minor) = text(3)?.split_once(':')?;
        let number = |text: &str| u64::from_str_radix(text, 16).ok();
        let device =
            rustix::fs::makedev(u32::from_str_radix(major, 16).ok()?, u32::from_str_radix(minor, 16).ok()?);
        if !devices.contains(&device) {
            return None;
        }
        let inode = text(4)?.parse().ok().filter(|inode| *inode > 0)?;
        let (begin, end) = text(0)?.split_once('-')?;
        let addresses = (number(begin)?, number(end)?);
        let length = addresses.1.checked_sub(addresses.0)?;
        let is_segment = fields.get(5).is_some_and(|path| path.trim_ascii_start().starts_with(SEGMENT));
        let key = MemoryKey { device, inode, is_segment };
        Some(Self { key, end: number(text(2)?)?.saturating_add(length), addresses })
    }
}

/// The kernel shows this instead of a path for a System V segment. For a file with this name it would show the whole
/// path.
const SEGMENT: &[u8] = b"/SYSV";

/// The unit of `st_blocks`.
const BLOCK_BYTES: u64 = 512;

#[cfg(test)]
mod tests {
    use super::*;

    /// Device `00:01`.
    const DEVICE: u64 = 1;

    fn parse(line: &[u8]) -> Option<(u64, u64)> {
        Mapping::parse(line, &[DEVICE]).map(|mapping| (mapping.key.inode, mapping.end))
    }

    #[test]
    fn a_mapping_counts_by_its_device_and_up_to_its_end_in_the_file() {
        let line =
            b"7f0000000000-7f0000200000 rw-s 00000000 00:01 1234                       /dev/zero (deleted)";
        assert_eq!(parse(line), Some((1234, 2 << 20)));
        let later = b"7f0000000000-7f0000200000 rw-s 40000000 00:01 1234      /dev/zero (deleted)";
        assert_eq!(parse(later), Some((1234, (1 << 30) + (2 << 20))));
        let renamed = b"7f0000000000-7f0000001000 rw-s 00000000 00:01 7 [anon_shmem:\xff x]";
        assert_eq!(parse(renamed), Some((7, 4096)));
        for unrelated in [
            &b"7f0000000000-7f0000200000 rw-p 00000000 00:00 0 "[..],
            b"7f0000000000-7f0000200000 r--p 00000000 08:01 1234 /memfd:x (deleted)",
            b"",
            b"x",
        ] {
            assert_eq!(parse(unrelated), None);
        }
    }

    fn line(inode: u64, offset: u64, length: u64) -> Mapping {
        let text = format!("1000-{:x} rw-s {offset:08x} 00:01 {inode} /dev/zero (deleted)", 0x1000 + length);
        Mapping::parse(text.as_bytes(), &[DEVICE]).unwrap()
    }

    /// The bytes of a sample that finds these mappings.
    fn sample(extents: &mut MappedExtents, found: &[Mapping]) -> u64 {
        let mut shared = SharedMemory::new(&[DEVICE], extents, u64::MAX);
        found.iter().for_each(|mapping| shared.add(mapping, 0));
        let bytes = shared.bytes();
        shared.end();
        bytes
    }

    #[test]
    fn a_sliding_mapping_counts_all_pages_it_covered() {
        let mut extents = MappedExtents::default();
        for step in 0..10 {
            assert_eq!(sample(&mut extents, &[line(5, step << 20, 1 << 20)]), (step + 1) << 20);
        }
        // The position stays when the mapping is back at the start of the file, and after a sample that found nothing.
        assert_eq!(sample(&mut extents, &[line(5, 0, 1 << 20)]), 10 << 20);
        assert_eq!(sample(&mut extents, &[]), 0);
        assert_eq!(sample(&mut extents, &[line(5, 0, 1 << 20)]), 10 << 20);
        // Slices of several processes are one piece. Another file is another piece.
        let slices = [line(6, 0, 1 << 20), line(6, 3 << 20, 1 << 20), line(7, 0, 1 << 20)];
        assert_eq!(sample(&mut extents, &slices), 5 << 20);
    }

    #[test]
    fn short_lived_segments_are_not_summed() {
        let mut extents = MappedExtents::default();
        for inode in 1..1000 {
            assert_eq!(sample(&mut extents, &[line(inode, 0, 1 << 20)]), 1 << 20);
        }
    }

    #[test]
    fn a_segment_is_not_a_file_of_the_same_number() {
        let mapping_of = |path: &str| {
            let text = format!("1000-2000 rw-s 00000000 00:01 9                          {path} (deleted)");
            Mapping::parse(text.as_bytes(), &[DEVICE]).unwrap()
        };
        assert_eq!(
            sample(&mut MappedExtents::default(), &[mapping_of("/SYSV00000000"), mapping_of("/memfd:SYSV")]),
            8192
        );
    }
}
