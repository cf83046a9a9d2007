//! The log as the pipeline uses it: open, append, flush.
//!
//! An append takes this process's mutex, then the lock that orders the processes. It reads the rows that
//! other processes have added, and writes one whole line with one `write`. After that, the row survives the
//! death of the process.

use std::{
    path::Path,
    process,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread::JoinHandle,
};

use jiff::Timestamp;
use rustix::io::Errno;

use super::{
    checkpoint::SignedCheckpoint,
    error::AuditError,
    files::LogFiles,
    live_file::LiveFile,
    process::{
        CheckpointRow, CollectStartFn, LoadPolicyFn, PendingStart, PolicyChange, PolicyChangeCause,
        ProcessRow,
    },
    recovery::{self, Recovery},
    row::{NewRow, NewRowEvent, SharedText, write::RowBody},
    seal::{self, SealState, SealingOptions},
    segments::SegmentName,
    stored_texts,
    sync::{self, SyncMode, Syncer},
    writer::{KernelDevice, LogDevice, LogWriter},
};

/// A log that is open for writing. Threads share one log through an `Arc`; each process opens its own.
///
/// Dropping the log syncs its last rows.
#[derive(Debug)]
pub struct AuditLog {
    shared_log: Arc<SharedLog>,
    thread: Option<JoinHandle<()>>,
}

/// A written row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct RowRef {
    /// The row's number in the log, from 1.
    pub seq: u64,
}

impl AuditLog {
    /// Opens the log of a state folder, which must exist. Creates the log if it does not exist, and repairs
    /// the damage of a crash; [`Recovery`] lists the repairs for the operator.
    ///
    /// Opening takes one `flock` and one short read, and after a crash also a scan of the last calls.
    ///
    /// # Errors
    /// [`AuditError::Open`], [`AuditError::NotAFile`], [`AuditError::Busy`] if another process holds the log,
    /// [`AuditError::Altered`] or [`AuditError::Corrupt`] if more is broken than a crash explains,
    /// [`AuditError::Thread`], and the errors of reading, writing and syncing.
    pub fn open(state_folder: &Path, sync: SyncMode) -> Result<(Self, Recovery), AuditError> {
        Self::open_on(state_folder, sync, Box::new(KernelDevice))
    }

    /// Does the same as [`AuditLog::open`], on the given device, so that tests can make its writes fail.
    pub(super) fn open_on(
        state_folder: &Path,
        mode: SyncMode,
        device: Box<dyn LogDevice>,
    ) -> Result<(Self, Recovery), AuditError> {
        let files = Arc::new(LogFiles::open(state_folder, device)?);
        let (mut writer, torn_tail, lock_guard) = LogWriter::start(Arc::clone(&files))?;
        // Compare before closing calls: a log that contradicts its checkpoint gets no new rows.
        seal::check_newest(&files, writer.segment_and_end().0, writer.seq())?;
        let closed_begins = recovery::close_dead_calls(&files, &mut writer)?;
        drop(lock_guard);

        let has_written = torn_tail.is_some() || !closed_begins.is_empty();
        let state = LogState {
            writer,
            process: process_name(),
            live: None,
            open_calls: Vec::new(),
            start: None,
            has_started: false,
        };
        let shared = Arc::new(SharedLog {
            files,
            mode,
            state: Mutex::new(state),
            seal_state: Mutex::default(),
            syncer: Syncer::default(),
        });
        if has_written {
            shared.syncer.request();
        }
        let thread = sync::spawn(
            Arc::clone(&shared),
            |shared| &shared.syncer,
            |shared, is_requested| {
                if is_requested {
                    // The failure is stored, and the next append reports it.
                    let _ = shared.sync();
                }
                shared.seal_if_due()
            },
        )
        .map_err(|source| AuditError::Thread { source })?;
        Ok((Self { shared_log: shared, thread: Some(thread) }, Recovery { torn_tail, closed_begins }))
    }

    /// Sets the facts for the `start` and `stop` rows of this process. The log writes `start` and stores the
    /// policy only before the first other row, so a process that only reads leaves no row. If the newest
    /// earlier `start` had a different policy, a `policy` row follows. The process's last row is `stop`.
    ///
    /// `collect` is called when the first row is written. `policy` is called then too, unless an earlier
    /// process has stored the policy.
    pub fn set_process_start(&self, collect: CollectStartFn, policy: Option<LoadPolicyFn>) {
        self.shared_log.state().start = Some(PendingStart::new(collect, policy));
    }

    /// Sets how the log is sealed. Without this call, the process makes no checkpoints and seals no segments,
    /// but continues in the segments that others start.
    pub fn set_sealing_options(&self, options: SealingOptions) {
        self.shared_log.set_sealing_options(options);
        self.shared_log.syncer.request();
    }

    /// Makes a checkpoint of all rows.
    ///
    /// # Errors
    /// As [`Self::append`], and [`AuditError::Key`].
    pub fn checkpoint(&self) -> Result<SignedCheckpoint, AuditError> {
        self.shared_log.checkpoint_now(false)
    }

    /// Seals the open segment regardless of its size, and returns the checkpoint of its rows.
    ///
    /// # Errors
    /// As [`Self::append`], and [`AuditError::Key`].
    pub fn seal(&self) -> Result<SignedCheckpoint, AuditError> {
        self.shared_log.checkpoint_now(true)
    }

    /// Writes a row about a change of the policy.
    ///
    /// # Errors
    /// As [`Self::append`].
    pub fn record_policy_change(&self, change: &PolicyChange) -> Result<RowRef, AuditError> {
        self.append_with(|state, shared| {
            state.write_start(shared, Some(change))?;
            state.write_process_row(ProcessRow::Policy(change))
        })
    }

    /// Stores the text of a question to an approver beside the log, under its SHA-256.
    ///
    /// # Errors
    /// [`AuditError::StoreText`]. The call must then not run.
    pub fn store_question(&self, sha256: &str, question: &str) -> Result<(), AuditError> {
        let _state = self.shared_log.state();
        stored_texts::store_question(&self.shared_log.files, sha256, question)
    }

    /// Writes one row. Once this method returns, the row survives the death of this process; with
    /// [`SyncMode::Always`] it is also on disk.
    ///
    /// Blocks for a few microseconds, or for up to five seconds while another process holds the log's lock.
    ///
    /// # Errors
    /// After any error, the call must not run, or its result must not be released. Except after
    /// [`AuditError::Sync`], the log does not contain the row, and a later append may succeed.
    ///
    /// - [`AuditError::Write`]: the row cannot be written, for example because the disk is full.
    /// - [`AuditError::Truncated`], [`AuditError::Replaced`], [`AuditError::Altered`]: the log was tampered with.
    /// - [`AuditError::Busy`]: another process holds the log's lock.
    /// - [`AuditError::Live`], [`AuditError::Read`], [`AuditError::SaveTornTail`], [`AuditError::StoreText`]: the state
    ///   folder is damaged, or the disk is full.
    pub fn append(&self, row: &NewRow) -> Result<RowRef, AuditError> {
        let body = RowBody::new(&row.fields, &row.event);
        self.append_with(|state, shared| {
            state.write_start(shared, None)?;
            state.append(shared, row, &body)
        })
    }

    fn append_with(
        &self,
        write: impl FnOnce(&mut LogState, &SharedLog) -> Result<RowRef, AuditError>,
    ) -> Result<RowRef, AuditError> {
        // Check this first: after a failed sync, no later row proves anything.
        self.shared_log.check_synced()?;
        let row = {
            let mut state = self.shared_log.state();
            // Before taking the lock, because computing the hash of the program may take a while.
            if let Some(pending) = &mut state.start {
                pending.start();
            }
            let _locked = state.writer.lock()?;
            write(&mut state, &self.shared_log)?
        };
        // Sync after releasing the lock, so that other processes can append meanwhile.
        if self.shared_log.mode == SyncMode::Always {
            self.shared_log.sync()?;
        }
        self.shared_log.syncer.request();
        Ok(row)
    }

    /// Syncs all rows.
    ///
    /// # Errors
    /// [`AuditError::Sync`], also if only an earlier sync failed.
    pub fn flush(&self) -> Result<(), AuditError> {
        self.check_synced()?;
        self.shared_log.sync()
    }

    /// Checks that every sync so far has succeeded. Returns the error that the next append would return.
    ///
    /// # Errors
    /// [`AuditError::Sync`] if a sync has failed.
    pub fn check_synced(&self) -> Result<(), AuditError> {
        self.shared_log.check_synced()
    }

    /// Seals or makes a checkpoint if that is due, and returns how long the thread waits
    /// before it checks again.
    #[cfg(test)]
    pub(super) fn seal_if_due(&self) -> Option<std::time::Duration> {
        self.shared_log.seal_if_due()
    }

    pub(super) fn files(&self) -> Arc<LogFiles> {
        Arc::clone(&self.shared_log.files)
    }

    /// The log's path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.shared_log.files.path
    }
}

impl Drop for AuditLog {
    fn drop(&mut self) {
        // Stop the thread before locking the state, because its last sync takes the same lock.
        self.shared_log.syncer.stop();
        if let Some(thread) = self.thread.take() {
            // A panic in the thread has already been printed.
            let _ = thread.join();
        }
        let mut state = self.shared_log.state();
        if state.has_started
            && let Err(error) = state.write_stop(&self.shared_log)
        {
            tracing::warn!(%error, "cannot write this process's last row to the audit log");
        }
        drop(state);
        self.shared_log.checkpoint_at_exit();
        let mut state = self.shared_log.state();
        // If a call is still open, keep the live file: it is unlocked, so the next start writes
        // the missing `end`.
        if state.open_calls.is_empty()
            && let Some(live) = state.live.take()
            && let Err(error) = live.remove()
        {
            tracing::warn!(%error, "the audit log's live file stays behind");
        }
    }
}

/// The state that threads share.
#[derive(Debug)]
pub(super) struct SharedLog {
    pub(super) files: Arc<LogFiles>,
    mode: SyncMode,
    /// A mutex of the standard library, because it is held while a row is written. A waiter of `parking_lot` calls
    /// `sched_yield` first, and then loses its processor for much longer than a row takes.
    state: Mutex<LogState>,
    /// Lock order: acquired before the state, never after it.
    pub(super) seal_state: Mutex<SealState>,
    pub(super) syncer: Syncer,
}

/// The state behind the mutex.
#[derive(Debug)]
pub(super) struct LogState {
    pub(super) writer: LogWriter,
    process: String,
    /// `None` before the first `begin`, so that a process that only reads creates no live file.
    live: Option<LiveFile>,
    /// The open calls of this process, oldest first.
    open_calls: Vec<OpenCall>,
    /// The facts for the `start` row, until it is written.
    start: Option<PendingStart>,
    has_started: bool,
}

#[derive(Debug)]
struct OpenCall {
    offset: u64,
    call_id: SharedText,
}

impl SharedLog {
    pub(super) fn state(&self) -> MutexGuard<'_, LogState> {
        // The state is usable after a panic: the writer reads the real end of the file before each row.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn check_synced(&self) -> Result<(), AuditError> {
        self.syncer.failure().map_or(Ok(()), |errno| Err(self.sync_error(errno)))
    }

    /// Syncs the written rows, without blocking concurrent appends.
    pub(super) fn sync(&self) -> Result<(), AuditError> {
        let (unsynced_handles, end, first_open) = {
            let mut state = self.state();
            // Read all three before the sync, because rows that are appended during the sync
            // may not be on disk.
            let unsynced_handles = state.live.as_mut().and_then(LiveFile::take_unsynced);
            (unsynced_handles, state.writer.end(), state.first_open())
        };
        // Sync the live file first, so that after a power loss no row is on disk without its mark.
        let sync_result =
            unsynced_handles.map_or(Ok(()), |handles| handles.sync()).and_then(|()| self.files.sync());
        if let Err(errno) = sync_result {
            self.syncer.record_failure(errno);
            return Err(self.sync_error(errno));
        }
        let mut state = self.state();
        let still_idle = first_open.is_none() && state.writer.end() == end;
        if let Some(live) = &mut state.live {
            // All rows before `end` are on disk. Later rows may not be.
            live.advance_mark(if still_idle { None } else { Some(first_open.unwrap_or(end)) });
        }
        Ok(())
    }

    pub(super) fn sync_error(&self, errno: Errno) -> AuditError {
        AuditError::Sync { path: self.files.path.clone(), source: errno.into() }
    }
}

impl LogState {
    /// Writes the first rows of this process, with the log's lock held, unless they have been written.
    /// `change` is the `policy` row that the caller writes next. Without it, this function writes a row if
    /// the policy differs from that of the newest earlier `start`.
    fn write_start(&mut self, shared: &SharedLog, change: Option<&PolicyChange>) -> Result<(), AuditError> {
        let Some(pending) = &mut self.start else { return Ok(()) };
        let start = pending.start();
        let (digest, uid) = (start.policy_digest.clone(), start.uid);
        if let (Some(digest), Some(text)) = (&digest, &pending.policy) {
            stored_texts::store_policy(&shared.files, digest, text)?;
        }
        self.writer.write_process_row(&self.process, ProcessRow::Start(pending.start()))?;
        self.start = None;
        self.has_started = true;
        let Some(digest) = digest else { return Ok(()) };
        let newest = stored_texts::newest_policy(&shared.files);
        if newest.as_deref() != Some(&*digest) {
            if let Some(old_digest) = newest
                && change.is_none()
            {
                let change = PolicyChange {
                    old_digest: Some(old_digest.into()),
                    new_digest: Some(Arc::clone(&digest)),
                    cause: PolicyChangeCause::Start,
                    uid,
                    refused: None,
                };
                self.writer.write_process_row(&self.process, ProcessRow::Policy(&change))?;
            }
            stored_texts::remember_policy(&shared.files, &digest)?;
        }
        Ok(())
    }

    /// Writes the last row of this process. Other processes can take the log's lock meanwhile.
    fn write_stop(&mut self, shared: &SharedLog) -> Result<(), AuditError> {
        {
            let _locked = self.writer.lock()?;
            self.write_process_row(ProcessRow::Stop)?;
        }
        let synced = shared.files.sync();
        synced.map_err(|errno| shared.sync_error(errno))
    }

    pub(super) fn write_process_row(&mut self, row: ProcessRow<'_>) -> Result<RowRef, AuditError> {
        self.writer.write_process_row(&self.process, row)?;
        Ok(RowRef { seq: self.writer.seq() })
    }

    /// Seals the open segment, with the log's lock held. The row becomes the first row of the next segment.
    pub(super) fn begin_segment(&mut self, row: &CheckpointRow) -> Result<SegmentName, AuditError> {
        self.writer.begin_segment(&self.process, row)
    }

    /// Appends, with the log's lock held. `body` has the fields of the row.
    fn append(&mut self, shared: &SharedLog, row: &NewRow, body: &RowBody) -> Result<RowRef, AuditError> {
        match &row.event {
            NewRowEvent::Begin => {
                // Set the mark before writing the row: if the process dies in between, a mark after the row
                // would hide it from recovery.
                self.ensure_marked(shared)?;
                let offset = self.writer.end();
                self.writer.write(&self.process, body, 0)?;
                self.open_calls.push(OpenCall { offset, call_id: Arc::clone(&row.fields.call_id) });
            }
            NewRowEvent::End(_) => {
                self.writer.write(&self.process, body, 0)?;
                let is_same_call = |open: &OpenCall| open.call_id == row.fields.call_id;
                if let Some(index) = self.open_calls.iter().position(is_same_call) {
                    self.open_calls.remove(index);
                }
            }
            NewRowEvent::Result(_) | NewRowEvent::Model(_) | NewRowEvent::Approve | NewRowEvent::Revoke => {
                self.writer.write(&self.process, body, 0)?;
            }
        }
        Ok(RowRef { seq: self.writer.seq() })
    }

    /// Creates and marks the live file, so that recovery finds the next `begin`.
    fn ensure_marked(&mut self, shared: &SharedLog) -> Result<(), AuditError> {
        let live = match &mut self.live {
            Some(live) => live,
            empty => empty.insert(LiveFile::create(&shared.files, &self.process)?),
        };
        live.ensure_marked(self.writer.end())?;
        // With `Always`, the mark must be on disk before the row.
        if shared.mode == SyncMode::Always
            && let Some(handles) = live.take_unsynced()
            && let Err(errno) = handles.sync()
        {
            shared.syncer.record_failure(errno);
            return Err(shared.sync_error(errno));
        }
        Ok(())
    }

    fn first_open(&self) -> Option<u64> {
        self.open_calls.first().map(|open| open.offset)
    }
}

/// Returns a unique name for an open log. It includes the time, because process ids are reused, and
/// containers that share a state folder can have equal process ids.
fn process_name() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let nanoseconds = Timestamp::now().as_nanosecond();
    format!("{}-{nanoseconds:x}-{count}", process::id())
}
