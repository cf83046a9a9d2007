//! `fd_readdir` with a cursor: each directory is read once, however many calls the guest needs.
//!
//! The guest's cookies are the kernel's directory offsets, so a guest can return to any entry that it has
//! seen. Most guests read straight through, and are served from the last batch.

use std::{mem::MaybeUninit, os::fd::OwnedFd, sync::Arc};

use portcullis_policy::HiddenNames;

use rustix::{
    fs::{FileType, Mode, OFlags, RawDir, SeekFrom},
    io::Errno as Os,
};

/// The size of the buffer for one `getdents64`: 32 KiB.
const BATCH_BYTES: usize = 32 << 10;

/// The size of the fixed part of an entry (`wasi_snapshot_preview1.witx`, `$dirent`).
const HEADER_BYTES: usize = 24;

/// The position in a directory, with the last batch of entries.
pub(super) struct DirectoryCursor {
    directory: OwnedFd,
    batch: Vec<DirectoryEntry>,
    /// The cookie before the first entry of `batch`.
    batch_start: u64,
    /// The kernel's offset, which is after the last entry of `batch`.
    batch_end: u64,
    buffer: Box<[MaybeUninit<u8>]>,
    /// The names that are skipped.
    hidden: Option<Arc<HiddenNames>>,
}

struct DirectoryEntry {
    cookie: u64,
    inode: u64,
    kind: u8,
    name: Box<[u8]>,
}

impl std::fmt::Debug for DirectoryCursor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DirectoryCursor").field("batch", &self.batch.len()).finish_non_exhaustive()
    }
}

impl DirectoryCursor {
    /// Opens the directory behind a handle for reading. Entries with hidden names are skipped.
    pub(super) fn open(handle: &OwnedFd, hidden: Option<Arc<HiddenNames>>) -> Result<Self, Os> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::openat(handle, ".", flags, Mode::empty())?;
        let buffer = Box::new_uninit_slice(BATCH_BYTES);
        Ok(Self { directory, batch: Vec::new(), batch_start: 0, batch_end: 0, buffer, hidden })
    }

    /// Fills `out` with the entries after `cookie`, and cuts the last entry if it does not fit. Returns the number of
    /// bytes written, which is less than the size of `out` only at the end of the directory.
    pub(super) fn read(&mut self, cookie: u64, out: &mut [u8]) -> Result<usize, Os> {
        let mut next = self.seek(cookie)?;
        let mut written = 0;
        while written < out.len() {
            if next == self.batch.len() {
                self.fill()?;
                next = 0;
                if self.batch.is_empty() {
                    break;
                }
            }
            written += self.batch[next].write(&mut out[written..]);
            next += 1;
        }
        Ok(written)
    }

    /// Returns the index in the batch after the entry with this cookie. If the batch has no such entry, a new batch is
    /// read.
    fn seek(&mut self, cookie: u64) -> Result<usize, Os> {
        // The batch that follows this cookie is already loaded.
        if cookie != 0 && cookie == self.batch_start {
            return Ok(0);
        }
        if cookie != 0
            && let Some(position) = self.batch.iter().position(|entry| entry.cookie == cookie)
        {
            return Ok(position + 1);
        }
        rustix::fs::seek(&self.directory, SeekFrom::Start(cookie))?;
        self.batch.clear();
        self.batch_start = cookie;
        self.batch_end = cookie;
        Ok(0)
    }

    /// Reads the next batch that has a visible entry. If the batch stays empty, the directory has ended.
    fn fill(&mut self) -> Result<(), Os> {
        self.batch.clear();
        self.batch_start = self.batch_end;
        while self.read_batch()? && self.batch.is_empty() {}
        Ok(())
    }

    /// Reads one batch from the kernel, and leaves out hidden entries. Returns whether the kernel returned
    /// any entries.
    fn read_batch(&mut self) -> Result<bool, Os> {
        let mut has_entries = false;
        let mut entries = RawDir::new(&self.directory, &mut self.buffer);
        while let Some(entry) = entries.next() {
            let entry = entry?;
            has_entries = true;
            self.batch_end = entry.next_entry_cookie();
            let name = entry.file_name().to_bytes();
            let is_hidden = self
                .hidden
                .as_ref()
                .is_some_and(|hidden| hidden.hides(&String::from_utf8_lossy(name)).is_some());
            if is_hidden {
                if entries.is_buffer_empty() {
                    break;
                }
                continue;
            }
            self.batch.push(DirectoryEntry {
                cookie: entry.next_entry_cookie(),
                inode: entry.ino(),
                kind: wasi_kind(entry.file_type()),
                name: name.into(),
            });
            // A batch is one `getdents64`, so it ends before the buffer is filled again.
            if entries.is_buffer_empty() {
                break;
            }
        }
        Ok(has_entries)
    }
}

impl DirectoryEntry {
    /// Writes as much of the entry as fits, and returns the number of bytes written.
    fn write(&self, out: &mut [u8]) -> usize {
        let mut header = [0; HEADER_BYTES];
        let name_bytes = u32::try_from(self.name.len()).unwrap_or(u32::MAX);
        header[0..8].copy_from_slice(&self.cookie.to_le_bytes());
        header[8..16].copy_from_slice(&self.inode.to_le_bytes());
        header[16..20].copy_from_slice(&name_bytes.to_le_bytes());
        header[20] = self.kind;
        let mut written = 0;
        for part in [&header[..], &self.name] {
            let fits = part.len().min(out.len() - written);
            out[written..written + fits].copy_from_slice(&part[..fits]);
            written += fits;
        }
        written
    }
}

/// Returns WASI's number for a file type (`$filetype`).
fn wasi_kind(kind: FileType) -> u8 {
    match kind {
        FileType::BlockDevice => 1,
        FileType::CharacterDevice => 2,
        FileType::Directory => 3,
        FileType::RegularFile => 4,
        FileType::Socket => 6,
        FileType::Symlink => 7,
        FileType::Fifo | FileType::Unknown => 0,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Lists a directory as wasi-libc does: with a buffer of fixed size, and each call continues after the last whole
    /// entry.
    fn list(cursor: &mut DirectoryCursor, buffer_bytes: usize) -> Vec<String> {
        let mut names = Vec::new();
        let mut cookie = 0;
        let mut buffer = vec![0; buffer_bytes];
        loop {
            let filled = cursor.read(cookie, &mut buffer).expect("reads");
            let mut offset = 0;
            while filled - offset >= HEADER_BYTES {
                let header = &buffer[offset..offset + HEADER_BYTES];
                let bytes = u32::from_le_bytes(header[16..20].try_into().expect("4 bytes")) as usize;
                let Some(name) = buffer[..filled].get(offset + HEADER_BYTES..offset + HEADER_BYTES + bytes)
                else {
                    break;
                };
                names.push(String::from_utf8(name.to_vec()).expect("UTF-8"));
                cookie = u64::from_le_bytes(header[0..8].try_into().expect("8 bytes"));
                offset += HEADER_BYTES + bytes;
            }
            if filled < buffer.len() {
                return names;
            }
        }
    }

    #[test]
    fn every_entry_comes_once_with_any_buffer_and_on_rereading() {
        let dir = tempfile::tempdir().expect("a folder");
        let mut expected = BTreeSet::from([".".to_owned(), "..".to_owned()]);
        for number in 0..3000 {
            let name = format!("{number:0width$}", width = number % 40 + 1);
            std::fs::write(dir.path().join(&name), "").expect("written");
            expected.insert(name);
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        let handle = rustix::fs::open(dir.path(), flags, Mode::empty()).expect("opens");
        let mut cursor = DirectoryCursor::open(&handle, None).expect("opens");
        for buffer_bytes in [100, 128, 4096, 1 << 20] {
            let names = list(&mut cursor, buffer_bytes);
            assert_eq!(names.len(), expected.len(), "with {buffer_bytes} bytes");
            assert_eq!(names.into_iter().collect::<BTreeSet<_>>(), expected);
        }
    }
}
