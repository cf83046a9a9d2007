//! Checkpoints of a log during writing, and the sealing of its segments. Both run on the thread that syncs
//! the log, so a call waits at most for one row to be written.

use std::{
    fmt,
    fs::File,
    path::Path,
    sync::{Arc, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{
    backwards::BackwardLines,
    chain,
    checkpoint::SignedCheckpoint,
    error::AuditError,
    files::{LogFiles, Segment},
    key::{CheckpointKey, KeyError, KeySource, VERIFIER_KEY_NAME},
    lines::{LineEnd, LogLines},
    log::SharedLog,
    process::{CheckpointRow, ProcessRow},
    rotation, stored_texts,
    tree::{Frontier, TreeHash},
};

/// The number of rows after which a checkpoint is made: 1,000.
pub const CHECKPOINT_ROWS: u64 = 1000;

/// How long rows can wait for a checkpoint: 60 s.
pub const CHECKPOINT_INTERVAL: Duration = Duration::from_mins(1);

/// The file with the newest checkpoint that a process has made in this state folder.
pub const NEWEST_CHECKPOINT: &str = "audit.checkpoint";

/// Delivers a signed checkpoint to a destination outside the log.
pub type CheckpointSink = Arc<dyn Fn(&SignedCheckpoint) + Send + Sync>;

/// How a log is sealed.
#[derive(Clone)]
pub struct SealingOptions {
    /// The size at which a segment is sealed, in bytes.
    pub segment_bytes: u64,
    /// The age of its first row at which a segment is sealed.
    pub segment_age: Duration,
    /// The age of its last row at which a sealed segment is removed. `None` keeps all segments.
    pub retention: Option<Duration>,
    /// The number of rows after which a checkpoint is made.
    pub checkpoint_rows: u64,
    /// How long rows can wait for a checkpoint.
    pub checkpoint_interval: Duration,
    /// The key. `None` uses the state folder's key, which is created if it is missing.
    pub key: Option<KeySource>,
    /// The destination of checkpoints. Without it, only sealed segments get checkpoints.
    pub sink: Option<CheckpointSink>,
}

/// Never seals automatically and never removes segments. Checkpoints use the default intervals.
impl Default for SealingOptions {
    fn default() -> Self {
        Self {
            segment_bytes: u64::MAX,
            segment_age: Duration::MAX,
            retention: None,
            checkpoint_rows: CHECKPOINT_ROWS,
            checkpoint_interval: CHECKPOINT_INTERVAL,
            key: None,
            sink: None,
        }
    }
}

impl fmt::Debug for SealingOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { segment_bytes, segment_age, retention, checkpoint_rows, checkpoint_interval, key, sink } =
            self;
        f.debug_struct("SealingOptions")
            .field("segment_bytes", segment_bytes)
            .field("segment_age", segment_age)
            .field("retention", retention)
            .field("checkpoint_rows", checkpoint_rows)
            .field("checkpoint_interval", checkpoint_interval)
            .field("key", key)
            .field("has_sink", &sink.is_some())
            .finish()
    }
}

/// The state of sealing. It has its own lock, so that sealing does not block appends.
#[derive(Debug, Default)]
pub(super) struct SealState {
    options: Option<SealingOptions>,
    key: Option<Arc<CheckpointKey>>,
    tree: Option<TreeState>,
    /// The number of the last row that is a checkpoint or covered by one.
    covered_rows: u64,
    /// When the first row without a checkpoint was seen.
    uncovered_since: Option<Instant>,
    /// When to retry after a failed attempt.
    retry_at: Option<Instant>,
}

/// Whether a checkpoint also seals the open segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sealing {
    No,
    /// If the segment is full. This is checked again under the log's lock, because another process may have
    /// sealed it meanwhile.
    IfFull,
    Always,
}

/// The tree of the log's rows up to an offset in the open segment.
#[derive(Debug)]
struct TreeState {
    frontier: Frontier,
    segment: Arc<Segment>,
    /// The offset in the segment of the first row that is not in the tree.
    offset: u64,
}

impl TreeState {
    /// Returns the tree at the newest checkpoint row before this offset of a segment, or at the start
    /// of a first segment.
    fn at_newest_checkpoint(files: &LogFiles, segment: &Arc<Segment>, end: u64) -> Result<Self, AuditError> {
        let log = segment.file.try_clone().map_err(|source| files.read_error(source))?;
        let mut lines = BackwardLines::new(log, end);
        while let Some(line) = lines.next().map_err(|source| files.read_error(source))? {
            if let Some(frontier) = frontier_of(&line.bytes) {
                // Do not verify the checkpoint's own content here: a changed row does not stop the log, and
                // the verifier reports it.
                return Ok(Self { frontier, segment: Arc::clone(segment), offset: line.offset });
            }
        }
        if segment.number != 1 {
            return Err(AuditError::Altered { path: files.path.clone(), offset: 0 });
        }
        Ok(Self { frontier: Frontier::default(), segment: Arc::clone(segment), offset: 0 })
    }

    /// Adds the rows up to an offset to the tree.
    fn advance(&mut self, files: &LogFiles, end: u64) -> Result<(), AuditError> {
        let mut lines = LogLines::new(&self.segment.file, self.offset, end);
        while let Some(line) = lines.next().map_err(|source| files.read_error(source))? {
            let hash = (line.end == LineEnd::Newline).then(|| row_hash(line.bytes)).flatten();
            let Some(hash) = hash else {
                return Err(AuditError::Altered { path: files.path.clone(), offset: line.offset });
            };
            self.frontier.push(&hash);
            self.offset = line.offset + line.length;
        }
        Ok(())
    }
}

/// Returns the hash in a line, as bytes, without comparing it with the line's content.
pub(super) fn row_hash(line: &[u8]) -> Option<TreeHash> {
    let digits = chain::hash_in(line)?;
    let mut hash = TreeHash::default();
    hex::decode_to_slice(digits, &mut hash).ok()?;
    Some(hash)
}

/// Returns the tree in a checkpoint row. `None` for any other row, or if the stated root does not
/// match the frontier.
pub(super) fn frontier_of(line: &[u8]) -> Option<Frontier> {
    #[derive(Deserialize)]
    struct Fields {
        size: u64,
        root: String,
        frontier: Vec<String>,
    }
    // The kind of a row is among its first fields, so search only these.
    let head = &line[..line.len().min(120)];
    memchr::memmem::find(head, b"\"event\":\"checkpoint\"")?;
    let fields: Fields = serde_json::from_slice(line).ok()?;
    let roots = fields.frontier.iter().map(|root| hex::decode(root).ok()?.try_into().ok());
    let frontier = Frontier::from_parts(fields.size, roots.collect::<Option<_>>()?)?;
    (hex::encode(frontier.root()) == fields.root).then_some(frontier)
}

/// The newest checkpoint, as the state folder stores it.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct StoredCheckpoint {
    /// The signed note.
    pub(super) note: String,
    /// The offset of the checkpoint row in the whole log, in bytes.
    pub(super) offset: u64,
}

impl StoredCheckpoint {
    /// Reads the file. `None` if it does not exist.
    pub(super) fn read(state_folder: &Path) -> Result<Option<(Self, SignedCheckpoint)>, AuditError> {
        let path = state_folder.join(NEWEST_CHECKPOINT);
        let bytes = match stored_texts::read_if_exists(&path) {
            Ok(Some(bytes)) => bytes,
            Ok(None) => return Ok(None),
            Err(source) => return Err(AuditError::Read { path, source }),
        };
        let stored: Option<Self> = serde_json::from_slice(&bytes).ok();
        let parsed = stored.and_then(|stored| {
            let signed = SignedCheckpoint::parse(&stored.note)?;
            Some((stored, signed))
        });
        parsed.map(Some).ok_or(AuditError::InvalidCheckpoint { path })
    }
}

/// Returns the newest checkpoint in the state folder. `None` if no process has made one.
///
/// # Errors
/// [`AuditError::Read`], [`AuditError::InvalidCheckpoint`].
pub fn newest_checkpoint(state_folder: &Path) -> Result<Option<SignedCheckpoint>, AuditError> {
    Ok(StoredCheckpoint::read(state_folder)?.map(|(_, signed)| signed))
}

/// Compares a log that was just opened with the newest checkpoint of the state folder: the rows must exist,
/// and the checkpoint's own row must be at its offset.
pub(super) fn check_newest(files: &LogFiles, segment: &Segment, seq: u64) -> Result<(), AuditError> {
    let Some((kept, signed)) = StoredCheckpoint::read(&files.state_folder)? else { return Ok(()) };
    let size = signed.checkpoint.size;
    let disagrees = |rows| AuditError::CheckpointMismatch { path: files.path.clone(), size, rows };
    if seq <= size {
        return Err(disagrees(seq));
    }
    let Some((file, offset)) = file_at(files, segment, kept.offset)? else { return Ok(()) };
    let mut lines = LogLines::new(&file, offset, u64::MAX);
    let line = lines.next().map_err(|source| files.read_error(source))?;
    let is_same = line.is_some_and(|line| {
        frontier_of(line.bytes)
            .is_some_and(|frontier| frontier.size() == size && frontier.root() == signed.checkpoint.root)
            && chain::check(line.bytes).is_ok_and(|link| link.seq == size + 1)
    });
    if is_same { Ok(()) } else { Err(disagrees(seq)) }
}

/// Returns the file that contains this offset of the whole log, and the offset in that file. `None` if its
/// segment was removed.
fn file_at(files: &LogFiles, segment: &Segment, offset: u64) -> Result<Option<(File, u64)>, AuditError> {
    if offset >= segment.start_offset {
        let file = segment.file.try_clone().map_err(|source| files.read_error(source))?;
        return Ok(Some((file, offset - segment.start_offset)));
    }
    let mut start_offset = segment.start_offset;
    for part in rotation::sealed_before(files, segment)?.into_iter().rev() {
        let (_, file, length) = part.open()?;
        start_offset = start_offset.saturating_sub(length);
        if offset >= start_offset {
            return Ok(Some((file, offset - start_offset)));
        }
    }
    Ok(None)
}

impl SharedLog {
    /// Sets how the log is sealed.
    pub(super) fn set_sealing_options(&self, options: SealingOptions) {
        let seq = self.state().writer.seq();
        let mut seal_state = self.seal_state();
        if seal_state.options.is_none() {
            seal_state.covered_rows = seq;
        }
        seal_state.key = None;
        seal_state.options = Some(options);
    }

    fn seal_state(&self) -> MutexGuard<'_, SealState> {
        // The state is usable after a panic: the tree advances only by whole rows.
        self.seal_state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a checkpoint or seals the segment if that is due. Returns the time until the next check.
    pub(super) fn seal_if_due(&self) -> Option<Duration> {
        let mut seal_state = self.seal_state();
        let options = seal_state.options.clone()?;
        let now = Instant::now();
        if let Some(retry_at) = seal_state.retry_at.filter(|retry_at| now < *retry_at) {
            return Some(retry_at - now);
        }
        let (seq, has_full_segment) = {
            let state = self.state();
            let (segment, end) = state.writer.segment_and_end();
            (state.writer.seq(), is_full(segment, end, &options))
        };
        let rows = seq.saturating_sub(seal_state.covered_rows);
        if rows == 0 {
            seal_state.uncovered_since = None;
            return None;
        }
        let uncovered_since = *seal_state.uncovered_since.get_or_insert(now);
        let waited = now.duration_since(uncovered_since);
        let is_due = options.sink.is_some()
            && (rows >= options.checkpoint_rows || waited >= options.checkpoint_interval);
        if has_full_segment || is_due {
            let sealing = if has_full_segment { Sealing::IfFull } else { Sealing::No };
            if let Err(error) = self.checkpoint(&mut seal_state, &options, sealing) {
                tracing::warn!(%error, "the audit log has no new checkpoint");
                seal_state.retry_at = Some(now + options.checkpoint_interval);
            }
            return Some(options.checkpoint_interval);
        }
        // Without a sink, only the segment's age matters, however long rows have had no checkpoint.
        let waited = if options.sink.is_some() { waited } else { Duration::ZERO };
        Some(options.checkpoint_interval.saturating_sub(waited))
    }

    /// Makes the last checkpoint of a process, if there is a sink and rows lack a checkpoint.
    pub(super) fn checkpoint_at_exit(&self) {
        let mut seal_state = self.seal_state();
        let Some(options) = seal_state.options.clone().filter(|options| options.sink.is_some()) else {
            return;
        };
        if self.state().writer.seq() > seal_state.covered_rows
            && let Err(error) = self.checkpoint(&mut seal_state, &options, Sealing::No)
        {
            tracing::warn!(%error, "cannot write a checkpoint of the last rows of the audit log");
        }
    }

    /// Makes a checkpoint immediately, and seals the open segment if required.
    pub(super) fn checkpoint_now(&self, must_seal: bool) -> Result<SignedCheckpoint, AuditError> {
        let mut seal_state = self.seal_state();
        let options = seal_state.options.clone().unwrap_or_default();
        let sealing = if must_seal { Sealing::Always } else { Sealing::No };
        self.checkpoint(&mut seal_state, &options, sealing)
    }

    fn checkpoint(
        &self,
        seal_state: &mut SealState,
        options: &SealingOptions,
        sealing: Sealing,
    ) -> Result<SignedCheckpoint, AuditError> {
        self.check_synced()?;
        let files = &self.files;
        // Get the key first: without a key, no row may be written.
        let key = seal_state.key(files, options)?;
        // Add most rows before taking the lock.
        let (segment, end) = {
            let state = self.state();
            let (segment, end) = state.writer.segment_and_end();
            (Arc::clone(segment), end)
        };
        let mut tree = seal_state.tree_of(files, &segment, end)?;
        tree.advance(files, end)?;
        if sealing != Sealing::No {
            self.sync()?;
        }
        let (size, root, offset, sealed) = {
            let mut state = self.state();
            let _locked = state.writer.lock()?;
            let (segment, end) = state.writer.segment_and_end();
            if segment.number != tree.segment.number {
                // Another process has sealed the segment meanwhile.
                tree = TreeState::at_newest_checkpoint(files, segment, end)?;
            }
            tree.advance(files, end)?;
            let frontier = tree.frontier.clone();
            let (size, root, offset) = (frontier.size(), frontier.root(), state.writer.end());
            if size != state.writer.seq() {
                return Err(AuditError::Altered { path: files.path.clone(), offset: end });
            }
            let (segment_number, start_offset) = (tree.segment.number, tree.segment.start_offset);
            let must_seal = match sealing {
                Sealing::No => false,
                Sealing::IfFull => is_full(&tree.segment, tree.offset, options),
                // A file without rows is not worth sealing.
                Sealing::Always => tree.offset > 0,
            };
            let sealed = if must_seal {
                let synced = files.device.sync(&tree.segment.file);
                synced.map_err(|errno| self.sync_error(errno))?;
                let row = CheckpointRow { frontier, segment: segment_number + 1, bytes_before: offset };
                Some(state.begin_segment(&row)?)
            } else {
                let row = CheckpointRow { frontier, segment: segment_number, bytes_before: start_offset };
                state.write_process_row(ProcessRow::Checkpoint(&row))?;
                None
            };
            seal_state.covered_rows = state.writer.seq();
            (size, root, offset, sealed)
        };
        seal_state.tree = sealed.is_none().then_some(tree);
        (seal_state.uncovered_since, seal_state.retry_at) = (None, None);
        self.syncer.request();

        let signed = SignedCheckpoint::sign(&key, size, root).map_err(|source| AuditError::Key { source })?;
        keep_newest(files, &signed, offset)?;
        if let Some(name) = sealed {
            rotation::store_note(files, &name, &signed)?;
            rotation::keep_missing_notes(files, &key)?;
            if let Some(retention) = options.retention {
                rotation::remove_old_segments(files, retention)?;
            }
        }
        if let Some(sink) = &options.sink {
            sink(&signed);
        }
        Ok(signed)
    }
}

impl SealState {
    fn key(&mut self, files: &LogFiles, options: &SealingOptions) -> Result<Arc<CheckpointKey>, AuditError> {
        if let Some(key) = &self.key {
            return Ok(Arc::clone(key));
        }
        let key_error = |source: KeyError| AuditError::Key { source };
        let key = match &options.key {
            Some(source) => CheckpointKey::from_source(source),
            None => CheckpointKey::read_or_make(&files.state_folder),
        };
        let key = Arc::new(key.map_err(key_error)?);
        let text = format!("{}\n", key.verifier().as_str());
        // Store the verifying key, so that checkpoints can be verified without the private key.
        stored_texts::write_state_file(files, VERIFIER_KEY_NAME, text.as_bytes())?;
        self.key = Some(Arc::clone(&key));
        Ok(key)
    }

    fn tree_of(
        &mut self,
        files: &LogFiles,
        segment: &Arc<Segment>,
        end: u64,
    ) -> Result<TreeState, AuditError> {
        match self.tree.take() {
            Some(tree) if tree.segment.number == segment.number => Ok(tree),
            // No tree is cached, or it belongs to an earlier segment.
            _ => TreeState::at_newest_checkpoint(files, segment, end),
        }
    }
}

/// Whether a segment has reached the size or the age at which it is sealed.
fn is_full(segment: &Segment, end: u64, options: &SealingOptions) -> bool {
    if end == 0 {
        return false;
    }
    let started_at = segment.started_at.or_else(|| segment.start().ok()?.started_at);
    // If the clock was set back, the age counts as zero, so nothing is sealed or removed too early.
    let age = started_at.map_or(Duration::ZERO, |started_at| {
        Duration::try_from(Timestamp::now().duration_since(started_at)).unwrap_or_default()
    });
    end >= options.segment_bytes || age >= options.segment_age
}

/// Stores the newest checkpoint in the state folder, unless another process has stored a newer one.
fn keep_newest(files: &LogFiles, signed: &SignedCheckpoint, offset: u64) -> Result<(), AuditError> {
    if let Ok(Some((_, newest))) = StoredCheckpoint::read(&files.state_folder)
        && newest.checkpoint.size > signed.checkpoint.size
    {
        return Ok(());
    }
    let stored = StoredCheckpoint { note: signed.note().to_owned(), offset };
    // A string and a number can always be serialized.
    let json = serde_json::to_vec(&stored).unwrap_or_default();
    stored_texts::write_state_file(files, NEWEST_CHECKPOINT, &json)
}
