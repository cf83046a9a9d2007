//! The log as the pipeline uses it: open, append, flush.
//!
//! An append takes this process's mutex, then the lock that orders the processes, catches up with the rows of
//! others, and writes one whole line with one `write`. From then on the row survives the death of the
//! process.

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
    error::AuditError,
    files::LogFiles,
    live::LiveFile,
    lock,
    recovery::{self, Recovery},
    row::{Phase, Record, Text},
    sync::{self, SyncMode, Syncer},
    writer::{KernelDevice, LogDevice, LogWriter},
};

/// A log that is open for writing. Threads share one through an `Arc`; each process opens its own.
///
/// Dropping it syncs the last rows to the disk.
#[derive(Debug)]
pub struct AuditLog {
    shared: Arc<SharedLog>,
    thread: Option<JoinHandle<()>>,
}

/// A written row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct RowRef {
    /// Its number in the log, from 1.
    pub seq: u64,
}

impl AuditLog {
    /// Opens the log of a state folder, which must exist, and makes the log if it does not exist. Then
    /// repairs the leftovers of a crash: the [`Recovery`] is for the operator.
    ///
    /// Takes one `flock` and one short read; after a crash, also a scan of the last calls.
    ///
    /// # Errors
    /// [`AuditError::Open`], [`AuditError::NotAFile`], [`AuditError::Busy`] if another process holds the log,
    /// [`AuditError::Corrupt`] if more is broken than a crash explains, and the errors of reading, writing
    /// and syncing.
    pub fn open(state_dir: &Path, sync: SyncMode) -> Result<(Self, Recovery), AuditError> {
        Self::open_on(state_dir, sync, Box::new(KernelDevice))
    }

    /// Like [`AuditLog::open`], with the writing system calls as an argument, so that tests can make them
    /// fail.
    pub(super) fn open_on(
        state_dir: &Path,
        mode: SyncMode,
        device: Box<dyn LogDevice>,
    ) -> Result<(Self, Recovery), AuditError> {
        let files = Arc::new(LogFiles::open(state_dir, device)?);
        let locked = lock::exclusive(&files.log, &files.path, lock::LOCK_WAIT)?;
        let (mut writer, torn) = LogWriter::start(Arc::clone(&files))?;
        let closed_begins = recovery::close_dead_calls(&files, &mut writer)?;
        drop(locked);

        let wrote = torn.is_some() || !closed_begins.is_empty();
        let state = LogState { writer, process: process_name(), live: None, open: Vec::new() };
        let shared = Arc::new(SharedLog { files, mode, state: Mutex::new(state), syncer: Syncer::default() });
        if wrote {
            shared.syncer.request();
        }
        let thread = sync::spawn(
            Arc::clone(&shared),
            |shared| &shared.syncer,
            |shared| {
                // The failure is kept; the next append reports it.
                let _ = shared.sync();
            },
        )
        .map_err(|source| AuditError::Thread { source })?;
        Ok((Self { shared, thread: Some(thread) }, Recovery { torn, closed_begins }))
    }

    /// Writes one row. When this returns, the row survives the death of this process; with
    /// [`SyncMode::Always`] it is also on the disk.
    ///
    /// Blocks: some microseconds, or up to five seconds while another process holds the log.
    ///
    /// # Errors
    /// After each of these the call must not run, or its result must not be released. Except for
    /// [`AuditError::Sync`], no part of the row is left in the log and a later append may succeed.
    /// [`AuditError::Write`]: for instance, the disk is full. [`AuditError::Truncated`],
    /// [`AuditError::Replaced`], [`AuditError::Altered`]: the log was tampered with. [`AuditError::Busy`]:
    /// another process holds it. [`AuditError::Live`], [`AuditError::Read`], [`AuditError::KeepTorn`]: the
    /// state folder is in disorder.
    pub fn append(&self, record: &Record) -> Result<RowRef, AuditError> {
        // First: after a failed sync no further row is proof of anything.
        self.shared.check_synced()?;
        let row = {
            let mut state = self.shared.state();
            let files = &self.shared.files;
            let _locked = lock::exclusive(&files.log, &files.path, lock::LOCK_WAIT)?;
            state.append(&self.shared, record)?
        };
        // After the lock is released: other processes append meanwhile.
        if self.shared.mode == SyncMode::Always {
            self.shared.sync()?;
        }
        self.shared.syncer.request();
        Ok(row)
    }

    /// Syncs all rows to the disk now.
    ///
    /// # Errors
    /// [`AuditError::Sync`], also if an earlier sync failed.
    pub fn flush(&self) -> Result<(), AuditError> {
        self.check_synced()?;
        self.shared.sync()
    }

    /// Checks that every sync so far succeeded. Reports the sync error that the next append would report,
    /// without appending.
    ///
    /// # Errors
    /// [`AuditError::Sync`].
    pub fn check_synced(&self) -> Result<(), AuditError> {
        self.shared.check_synced()
    }

    /// The log's path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.shared.files.path
    }
}

impl Drop for AuditLog {
    fn drop(&mut self) {
        // Before the state is locked: the thread's last sync locks it too.
        self.shared.syncer.stop();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was printed already.
            let _ = thread.join();
        }
        let mut state = self.shared.state();
        // With a call still open the file stays, unlocked: the next start then writes that call's `end`.
        if state.open.is_empty()
            && let Some(live) = state.live.take()
            && let Err(error) = live.remove()
        {
            tracing::warn!(%error, "the audit log's process file stays behind");
        }
    }
}

/// The state shared by threads.
#[derive(Debug)]
struct SharedLog {
    files: Arc<LogFiles>,
    mode: SyncMode,
    state: Mutex<LogState>,
    syncer: Syncer,
}

/// The state behind the mutex.
#[derive(Debug)]
struct LogState {
    writer: LogWriter,
    process: String,
    /// None before the first `begin`: a process that only reads makes no live file.
    live: Option<LiveFile>,
    /// The calls of this process that are open, oldest first.
    open: Vec<OpenCall>,
}

#[derive(Debug)]
struct OpenCall {
    offset: u64,
    call_id: Text,
}

impl SharedLog {
    fn state(&self) -> MutexGuard<'_, LogState> {
        // A poisoned state is usable: the writer reads the file's real end before each row.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn check_synced(&self) -> Result<(), AuditError> {
        self.syncer.failure().map_or(Ok(()), |errno| Err(self.sync_error(errno)))
    }

    /// Syncs the written rows, without blocking appends in the meantime.
    fn sync(&self) -> Result<(), AuditError> {
        let (unsynced, end, first_open) = {
            let mut state = self.state();
            // All three before the sync: rows appended during it may not be on the disk.
            let unsynced = state.live.as_mut().and_then(LiveFile::take_unsynced);
            (unsynced, state.writer.end(), state.first_open())
        };
        // The live file before the log: after a power loss no row may be on the disk without its mark.
        let synced = unsynced.map_or(Ok(()), |handles| handles.sync()).and_then(|()| self.files.sync());
        if let Err(errno) = synced {
            self.syncer.fail(errno);
            return Err(self.sync_error(errno));
        }
        let mut state = self.state();
        let still_idle = first_open.is_none() && state.writer.end() == end;
        if let Some(live) = &mut state.live {
            // All rows before `end` are on the disk; later ones may not be.
            live.advance_mark(if still_idle { None } else { Some(first_open.unwrap_or(end)) });
        }
        Ok(())
    }

    fn sync_error(&self, errno: Errno) -> AuditError {
        AuditError::Sync { path: self.files.path.clone(), source: errno.into() }
    }
}

impl LogState {
    /// Appends, with the log's lock held.
    fn append(&mut self, shared: &SharedLog, record: &Record) -> Result<RowRef, AuditError> {
        self.writer.catch_up()?;
        match &record.phase {
            Phase::Begin => {
                // Before the row: a mark after it would be too late if the process dies in between.
                self.ensure_marked(shared)?;
                let offset = self.writer.end();
                self.writer.write(&self.process, &record.call, &record.phase, 0)?;
                self.open.push(OpenCall { offset, call_id: Arc::clone(&record.call.call_id) });
            }
            Phase::End(_) => {
                self.writer.write(&self.process, &record.call, &record.phase, 0)?;
                let begun = |open: &OpenCall| open.call_id == record.call.call_id;
                if let Some(at) = self.open.iter().position(begun) {
                    self.open.remove(at);
                }
            }
            Phase::Approve | Phase::Revoke => {
                self.writer.write(&self.process, &record.call, &record.phase, 0)?;
            }
        }
        Ok(RowRef { seq: self.writer.seq() })
    }

    /// Makes sure that recovery would find the next `begin`.
    fn ensure_marked(&mut self, shared: &SharedLog) -> Result<(), AuditError> {
        let live = match &mut self.live {
            Some(live) => live,
            none => none.insert(LiveFile::create(&shared.files, &self.process)?),
        };
        live.ensure_marked(self.writer.end())?;
        if shared.mode == SyncMode::Always
            && let Some(handles) = live.take_unsynced()
            && let Err(errno) = handles.sync()
        {
            shared.syncer.fail(errno);
            return Err(shared.sync_error(errno));
        }
        Ok(())
    }

    fn first_open(&self) -> Option<u64> {
        self.open.first().map(|open| open.offset)
    }
}

/// The name of an open log, unique: process ids are reused, and differ between containers that share a state
/// folder, so the name includes the time.
fn process_name() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let nanoseconds = Timestamp::now().as_nanosecond();
    format!("{}-{nanoseconds:x}-{count}", process::id())
}
