//! Writes whole lines at the current end of the log. All methods require the caller to hold the log's lock.

use std::{
    fmt,
    fs::File,
    io,
    os::{fd::BorrowedFd, unix::fs::FileExt as _},
    sync::Arc,
};

use jiff::Timestamp;
use rustix::{
    fs::{Mode, OFlags, fdatasync, fsync, ftruncate, openat},
    io::Errno,
};

use super::{
    chain::Hash,
    error::AuditError,
    files::{LogFiles, Segment},
    lock::{self, LockGuard},
    process::{CheckpointRow, ProcessRow, write_process_line},
    recovery::TornTail,
    rotation,
    row::write::{RowBody, RowHead, write_line},
    segments::SegmentName,
    tail::{self, Tail},
};

/// The system calls that change the log or make it durable. Tests replace them with failing ones.
pub(super) trait LogDevice: fmt::Debug + Send + Sync {
    /// `write(2)`, which may write fewer bytes than requested.
    fn write(&self, file: &File, bytes: &[u8]) -> Result<usize, Errno>;
    /// `ftruncate(2)`.
    fn truncate(&self, file: &File, size: u64) -> Result<(), Errno>;
    /// `fdatasync(2)`.
    fn sync(&self, file: &File) -> Result<(), Errno>;
    /// `fsync(2)` of a folder, which makes its entries durable.
    fn sync_folder(&self, folder: BorrowedFd<'_>) -> Result<(), Errno>;
}

/// The real system calls.
#[derive(Debug)]
pub(super) struct KernelDevice;

impl LogDevice for KernelDevice {
    fn write(&self, file: &File, bytes: &[u8]) -> Result<usize, Errno> {
        rustix::io::write(file, bytes)
    }
    fn truncate(&self, file: &File, size: u64) -> Result<(), Errno> {
        ftruncate(file, size)
    }
    fn sync(&self, file: &File) -> Result<(), Errno> {
        fdatasync(file)
    }
    fn sync_folder(&self, folder: BorrowedFd<'_>) -> Result<(), Errno> {
        fsync(folder)
    }
}

/// The end of the log as this process knows it, and a buffer for one line.
#[derive(Debug)]
pub(super) struct LogWriter {
    files: Arc<LogFiles>,
    segment: Arc<Segment>,
    seq: u64,
    hash: Hash,
    /// The offset of the next row in the segment.
    end: u64,
    line: Vec<u8>,
}

/// The lock of the open segment, which orders the processes.
pub(super) type LogGuard = LockGuard<Arc<Segment>>;

impl LogWriter {
    /// Finds the end of a log that was just opened, and cuts off a torn tail. The guard holds the lock.
    pub(super) fn start(files: Arc<LogFiles>) -> Result<(Self, Option<TornTail>, LogGuard), AuditError> {
        loop {
            let segment = files.segment();
            let guard = lock::lock_exclusive(Arc::clone(&segment), &files.path, lock::LOCK_TIMEOUT)?;
            // Another process may have sealed the segment, or finished sealing it, while this one waited.
            let Some(size) = files.named_size(&segment)? else {
                drop(guard);
                files.set_segment(files.open_segment()?);
                continue;
            };
            rotation::undo_unfinished(&files, &segment)?;
            let tail = tail::read(&segment.file, &files.path, size)?;
            let line = Vec::with_capacity(2048);
            let mut writer = Self { files, segment, seq: tail.seq, hash: tail.hash, end: tail.end, line };
            let torn = writer.adopt_tail(&tail)?;
            return Ok((writer, torn, guard));
        }
    }

    /// Takes the lock, and finds the end that other processes left. If they have sealed the segment,
    /// continues in the next one.
    pub(super) fn lock(&mut self) -> Result<LogGuard, AuditError> {
        loop {
            let files = Arc::clone(&self.files);
            let guard = lock::lock_exclusive(Arc::clone(&self.segment), &files.path, lock::LOCK_TIMEOUT)?;
            if let Some(size) = files.named_size(&self.segment)? {
                self.catch_up(size)?;
                return Ok(guard);
            }
            drop(guard);
            self.follow()?;
        }
    }

    /// Continues in the segment that has the log's name, if the previous segment was sealed and the
    /// rows are consecutive.
    fn follow(&mut self) -> Result<(), AuditError> {
        let files = Arc::clone(&self.files);
        let replaced_error = || AuditError::Replaced { path: files.path.clone() };
        let next = files.open_segment()?;
        let is_later = next.number > self.segment.number;
        let was_sealed =
            files.sealed_name(&self.segment)?.is_some() || rotation::has_note(&files, self.segment.number)?;
        if !is_later || !was_sealed {
            return Err(replaced_error());
        }
        let size = self.segment.size().map_err(|source| files.read_error(source))?;
        self.check_known_row(size)?;
        let sealed_tail = tail::read(&self.segment.file, &files.path, size)?;
        let first =
            next.start().map_err(|source| files.read_error(source))?.link.ok_or_else(replaced_error)?;
        // Compare only with the direct successor. If there are several segments in between, their own
        // rows prove the order.
        let is_next = next.number == self.segment.number + 1;
        let continues = first.seq == sealed_tail.seq + 1 && first.prev == sealed_tail.hash;
        if (is_next && !continues) || first.seq <= sealed_tail.seq {
            return Err(AuditError::Altered { path: files.path.clone(), offset: 0 });
        }
        // The rows of the new segment are then read like rows of another process.
        (self.seq, self.hash, self.end) = (first.seq - 1, first.prev, 0);
        self.enter(next);
        Ok(())
    }

    /// Switches to a segment.
    fn enter(&mut self, segment: Arc<Segment>) {
        self.files.set_segment(Arc::clone(&segment));
        self.segment = segment;
    }

    /// Checks that a segment of this size still contains the last row known to this process, unchanged.
    fn check_known_row(&self, size: u64) -> Result<(), AuditError> {
        let files = &self.files;
        if size < self.end {
            return Err(AuditError::Truncated { path: files.path.clone(), expected: self.end, found: size });
        }
        // Check the last row even if the size is unchanged: a log that was truncated and refilled can have
        // the same size with different rows.
        let is_unchanged = tail::still_ends_with(&self.segment.file, self.end, &self.hash);
        if !is_unchanged.map_err(|source| files.read_error(source))? {
            return Err(AuditError::Altered { path: files.path.clone(), offset: self.end });
        }
        Ok(())
    }

    /// Finds the end that other processes left, and checks that the last row known to this
    /// process is unchanged.
    fn catch_up(&mut self, size: u64) -> Result<(), AuditError> {
        let files = Arc::clone(&self.files);
        self.check_known_row(size)?;
        if size == self.end {
            return Ok(());
        }
        let tail = tail::read(&self.segment.file, &files.path, size)?;
        // A write adds both bytes and rows, so neither can grow without the other.
        if tail.end < self.end || (tail.seq > self.seq) != (tail.end > self.end) {
            return Err(AuditError::Altered { path: files.path.clone(), offset: self.end });
        }
        if let Some(torn) = self.adopt_tail(&tail)? {
            tracing::warn!(
                bytes = torn.bytes,
                kept_in = %torn.kept_in.display(),
                "another process died while it wrote to the audit log; its torn line was cut off"
            );
        }
        Ok(())
    }

    /// Writes a row about a call of a process. After an error the log has no new row, but
    /// may have a torn line.
    pub(super) fn write(&mut self, process: &str, body: &RowBody, omitted: u64) -> Result<(), AuditError> {
        self.write_row(process, omitted, |line, head| write_line(line, head, body))
    }

    /// Writes a row that is not about a call, like [`Self::write`].
    pub(super) fn write_process_row(&mut self, process: &str, row: ProcessRow<'_>) -> Result<(), AuditError> {
        self.write_row(process, 0, |line, head| write_process_line(line, head, row))
    }

    fn write_row(
        &mut self,
        process: &str,
        omitted: u64,
        fill: impl FnOnce(&mut Vec<u8>, &RowHead<'_>) -> Hash,
    ) -> Result<(), AuditError> {
        let head = RowHead { seq: self.seq + 1, time: Timestamp::now(), process, omitted, prev: &self.hash };
        let hash = fill(&mut self.line, &head);
        if let Err(source) = self.write_out() {
            // A part of the line may have been written. If the truncation fails too, the next append finds
            // the torn part and moves it to another file.
            let _ = self.files.device.truncate(&self.segment.file, self.end);
            return Err(self.files.write_error(source));
        }
        // Update the state only here, because after a failed write the log has no new row.
        self.seq += 1;
        self.hash = hash;
        self.end += self.line.len() as u64;
        Ok(())
    }

    /// The number of the last row.
    pub(super) fn seq(&self) -> u64 {
        self.seq
    }

    /// The offset of the next row in the whole log, with all sealed segments.
    pub(super) fn end(&self) -> u64 {
        self.segment.start_offset + self.end
    }

    /// The open segment, and the offset of the next row in it.
    pub(super) fn segment_and_end(&self) -> (&Arc<Segment>, u64) {
        (&self.segment, self.end)
    }

    /// Seals the segment: writes the row as the first row of a new file, gives the old file the name of a
    /// sealed segment, and gives the new file the log's name. The caller has synced the old file.
    pub(super) fn begin_segment(
        &mut self,
        process: &str,
        row: &CheckpointRow,
    ) -> Result<SegmentName, AuditError> {
        let files = Arc::clone(&self.files);
        let head =
            RowHead { seq: self.seq + 1, time: Timestamp::now(), process, omitted: 0, prev: &self.hash };
        let hash = write_process_line(&mut self.line, &head, ProcessRow::Checkpoint(row));
        let name = SegmentName { number: self.segment.number, first: self.segment.first_seq, last: self.seq };
        let segment = rotation::rotate_files(&files, &name, &self.line)?;
        (self.seq, self.hash, self.end) = (self.seq + 1, hash, self.line.len() as u64);
        self.enter(Arc::new(segment));
        Ok(name)
    }

    /// Writes the line with one `write`, so that a killed process leaves either the whole line or a part
    /// without a newline. A short write means that the disk is full, so it is not continued.
    fn write_out(&self) -> io::Result<()> {
        loop {
            match self.files.device.write(&self.segment.file, &self.line) {
                Ok(written) if written == self.line.len() => return Ok(()),
                Ok(_) => return Err(io::ErrorKind::WriteZero.into()),
                // Interrupted before a byte was written. Later, the call would return the
                // number of bytes written.
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    fn adopt_tail(&mut self, tail: &Tail) -> Result<Option<TornTail>, AuditError> {
        let torn_tail = if tail.torn_bytes > 0 { Some(self.save_torn_tail(tail)?) } else { None };
        (self.seq, self.hash, self.end) = (tail.seq, tail.hash, tail.end);
        Ok(torn_tail)
    }

    /// Copies the torn tail to a separate file, then cuts it off.
    fn save_torn_tail(&self, tail: &Tail) -> Result<TornTail, AuditError> {
        let files = &self.files;
        // Below 5 MiB, because `tail::read` does not look further back.
        let mut bytes = vec![0; usize::try_from(tail.torn_bytes).unwrap_or(usize::MAX)];
        self.segment.file.read_exact_at(&mut bytes, tail.end).map_err(|source| files.read_error(source))?;

        let name = format!("audit.torn-{}", Timestamp::now().strftime("%Y%m%dT%H%M%S%.9fZ"));
        let kept_in = files.state_folder.join(&name);
        let keep_torn_error = |source| AuditError::SaveTornTail { path: kept_in.clone(), source };
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(&files.folder, name.as_str(), flags, Mode::RUSR | Mode::WUSR)
            .map_err(|errno| keep_torn_error(errno.into()))?;
        let file = File::from(file);
        file.write_all_at(&bytes, 0).and_then(|()| file.sync_data()).map_err(keep_torn_error)?;

        // Truncate only after the copy is on disk.
        files
            .device
            .truncate(&self.segment.file, tail.end)
            .map_err(|errno| files.write_error(errno.into()))?;
        Ok(TornTail { bytes: tail.torn_bytes, kept_in })
    }
}
