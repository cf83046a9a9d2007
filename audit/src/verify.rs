//! Verifies a whole log. The verifier only reads, and compares raw bytes.

use std::{
    fmt,
    path::{Path, PathBuf},
};

use jiff::Timestamp;

use super::{
    chain::{self, ChainLink, GENESIS, Hash, LineFault},
    checkpoint::SignedCheckpoint,
    compared_checkpoints::{CheckpointReport, ComparedCheckpoints},
    cosignature::WitnessKey,
    error::AuditError,
    files::LOG_NAME,
    key::VerifierKey,
    lines::{LineEnd, LogLines, NumberedLine},
    open_calls::OpenCalls,
    read::OpenCallFields,
    row::RowEvent,
    seal, segments,
    tree::Frontier,
};

/// The maximum number of bytes of open calls that the verifier keeps: 16 MiB.
const MAX_OPEN_BYTES: usize = 16 << 20;

/// The result of a verification. `Default` is the report about an empty log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VerifyReport {
    /// The number of whole lines.
    pub rows: u64,
    /// The number of the first row. 1 unless retention has removed rows, or a single segment was verified.
    pub first_seq: u64,
    /// The number of the last row before the break, or of the last row of an intact log. 0 for an empty log.
    pub last_seq: u64,
    /// The hash of the row [`Self::last_seq`]; 64 zeros for an empty log. A copy that is kept elsewhere can
    /// prove later that all rows up to this one are unchanged and that none of them is missing at the end.
    pub head: String,
    /// The root of the tree of the rows up to [`Self::last_seq`], in hexadecimal.
    pub root: String,
    /// The number of files that contain the rows.
    pub segments: u64,
    /// The number of checkpoint rows whose tree was compared.
    pub checkpoint_rows: u64,
    /// The first break of the chain. Nothing after the break is proven.
    pub first_break: Option<ChainBreak>,
    /// The results for the checkpoints of the state folder and of the request, sorted by their number of rows.
    pub anchors: Vec<CheckpointReport>,
    /// The report about each requested witness, in the order of the request.
    pub witnesses: Vec<WitnessReport>,
    /// Whether the request contained a hash that a row must have.
    pub has_head: bool,
    /// The number of the row with that hash. `None` if there is no such row before a break.
    pub head_seq: Option<u64>,
    /// Calls that have a `begin` but no `end`. Such a call is still running, or its process died and no
    /// process has started since.
    pub open_begins: Vec<OpenBegin>,
    /// The number of such calls that were only counted, because they would take more than 16 MiB.
    pub open_begins_omitted: u64,
}

impl VerifyReport {
    /// Whether a row has the requested hash. `None` if no hash was requested.
    #[must_use]
    pub fn head_found(&self) -> Option<bool> {
        self.has_head.then_some(self.head_seq.is_some())
    }

    /// Whether the chain is unbroken from the first byte to the last, and no checkpoint and no
    /// hash contradicts it.
    #[must_use]
    pub fn is_intact(&self) -> bool {
        self.first_break.is_none()
            && self.head_found() != Some(false)
            && self.anchors.iter().all(|anchor| anchor.finding.is_good())
            && self.witnesses.iter().all(|witness| witness.newest.is_some())
    }
}

/// The part of a log that a witness has signed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WitnessReport {
    /// The name of the witness.
    pub name: String,
    /// The largest valid checkpoint that the witness has signed: its number of rows, and the time by the
    /// witness's clock. `None` if there is none.
    pub newest: Option<(u64, Timestamp)>,
}

/// The row at which the chain breaks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChainBreak {
    /// The path of the log file that has the faulty line.
    pub path: PathBuf,
    /// The line's number, from 1.
    pub line: u64,
    /// The byte offset of the line.
    pub offset: u64,
    /// Why the line does not continue the chain.
    pub why: BreakReason,
}

/// Why a line is not the next link of the chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum BreakReason {
    /// The line is not a row.
    Malformed,
    /// The line's bytes do not match its hash.
    HashMismatch,
    /// The row's number does not follow the previous one: rows were removed, duplicated or moved.
    SequenceGap {
        /// The expected number.
        expected: u64,
        /// The number in the row.
        found: u64,
    },
    /// The row has the right number, but its `prev` is not the hash of the previous row.
    ChainBroken,
    /// The row is a checkpoint whose tree does not match the rows before it.
    OtherTree,
    /// The first row is neither row 1 nor a checkpoint row, or the checkpoint of the rows before it is missing.
    UnprovenStart,
    /// The last line is incomplete. A crash leaves such a line, and the next writer that opens the log moves
    /// it to another file.
    TornTail,
}

impl fmt::Display for BreakReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed => f.write_str("the line is not a row"),
            Self::HashMismatch => f.write_str("the row does not have the hash that it claims"),
            Self::SequenceGap { expected, found } => {
                write!(f, "expected row {expected}, found row {found}")
            }
            Self::ChainBroken => f.write_str("the row does not follow the row before it"),
            Self::OtherTree => {
                f.write_str("the checkpoint row does not state the tree of the rows before it")
            }
            Self::UnprovenStart => f.write_str(
                "the rows before this one are missing, and no checkpoint of their segment is kept",
            ),
            Self::TornTail => f.write_str("the last line is torn"),
        }
    }
}

/// A call that has a `begin` but no `end`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenBegin {
    /// The number of the `begin` row.
    pub seq: u64,
    /// The call's id.
    pub call_id: String,
    /// The tool's name.
    pub tool: String,
    /// The process that made the call.
    pub process: String,
}

/// The evidence to compare a log with.
#[derive(Debug, Clone, Default)]
pub struct VerifyRequest {
    /// Checkpoints that were kept elsewhere.
    pub anchors: Vec<SignedCheckpoint>,
    /// The hash of a row that the log must contain, in hexadecimal: the head of an earlier verification.
    pub head: Option<String>,
    /// The key of the log. `None` uses the state folder's key.
    pub key: Option<VerifierKey>,
    /// Witnesses, each of which must have signed a valid checkpoint.
    pub witnesses: Vec<WitnessKey>,
}

/// Verifies a log with its sealed segments and the checkpoints of its state folder, up to its end at the
/// time of the call. Other processes may continue to write. If the file has another name, only the file
/// itself is verified.
///
/// # Errors
/// [`AuditError::Open`], [`AuditError::NotAFile`], [`AuditError::Busy`], [`AuditError::Read`],
/// [`AuditError::Key`]. A broken chain is not an error: the report describes it. A missing log is not an
/// error either if there are checkpoints of it.
pub fn verify(path: &Path) -> Result<VerifyReport, AuditError> {
    verify_against(path, &VerifyRequest::default())
}

/// Does the same as [`verify`], and also compares the log with checkpoints, a hash or a key from elsewhere.
///
/// # Errors
/// As [`verify`].
pub fn verify_against(path: &Path, request: &VerifyRequest) -> Result<VerifyReport, AuditError> {
    let state_folder = path.parent().filter(|_| path.file_name().is_some_and(|name| name == LOG_NAME));
    let mut anchors = ComparedCheckpoints::new(state_folder, request)?;
    let is_single_file = state_folder.is_none();
    let mut walk = ChainWalk {
        rows: 0,
        first_seq: None,
        last_seq: 0,
        head: GENESIS,
        tree: Frontier::default(),
        checkpoint_rows: 0,
        first_break: None,
        open_calls: OpenCalls::new(MAX_OPEN_BYTES),
        head_seq: None,
        wanted_head: request.head.as_deref().map(str::to_ascii_lowercase),
        is_single_file,
    };
    anchors.compare(0, &walk.tree);
    let mut segments = 0;
    let parts = match segments::log_parts(path) {
        // There are checkpoints but no log, so every row is missing.
        Err(error) if error.is_missing() && anchors.has_any() => Vec::new(),
        parts => parts?,
    };
    let last = parts.len().saturating_sub(1);
    for (index, part) in parts.into_iter().enumerate() {
        let (path, file, end) = part.open()?;
        segments += 1;
        let mut lines = LogLines::new(file, 0, end);
        while let Some(line) =
            lines.next().map_err(|source| AuditError::Read { path: path.clone(), source })?
        {
            walk.check_line(&path, &line, index == last, &mut anchors);
        }
    }
    Ok(walk.report(segments, anchors))
}

struct ChainWalk {
    rows: u64,
    first_seq: Option<u64>,
    last_seq: u64,
    head: Hash,
    tree: Frontier,
    checkpoint_rows: u64,
    first_break: Option<ChainBreak>,
    open_calls: OpenCalls<OpenBegin>,
    head_seq: Option<u64>,
    wanted_head: Option<String>,
    is_single_file: bool,
}

impl ChainWalk {
    fn check_line(
        &mut self,
        path: &Path,
        line: &NumberedLine<'_>,
        is_last_file: bool,
        anchors: &mut ComparedCheckpoints,
    ) {
        // A torn last line is not a row.
        if line.end != LineEnd::File {
            self.rows += 1;
        }
        let fields = serde_json::from_slice::<OpenCallFields<'_>>(line.bytes).ok();
        if self.first_break.is_none() {
            match self.check_link(line, fields.as_ref(), is_last_file, anchors) {
                Ok(link) => {
                    (self.last_seq, self.head) = (link.seq, link.hash);
                    if let Some(hash) = seal::row_hash(line.bytes) {
                        self.tree.push(&hash);
                    }
                    if self.wanted_head.as_ref().is_some_and(|head| head.as_bytes() == link.hash) {
                        self.head_seq = Some(link.seq);
                    }
                    anchors.compare(self.tree.size(), &self.tree);
                }
                Err(why) => {
                    let (line, offset) = (line.number, line.offset);
                    self.first_break = Some(ChainBreak { path: path.to_owned(), line, offset, why });
                }
            }
        }
        // Track calls even after a break, because the auditor needs to know the open ones.
        if let Some(fields) = fields
            && line.end == LineEnd::Newline
        {
            self.track_open_call(&fields);
        }
    }

    fn check_link(
        &mut self,
        line: &NumberedLine<'_>,
        fields: Option<&OpenCallFields<'_>>,
        is_last_file: bool,
        anchors: &mut ComparedCheckpoints,
    ) -> Result<ChainLink, BreakReason> {
        match line.end {
            LineEnd::Newline => {}
            // Only the open segment can end in a torn line: a sealed segment was complete.
            LineEnd::File if is_last_file => return Err(BreakReason::TornTail),
            LineEnd::File | LineEnd::TooLong => return Err(BreakReason::Malformed),
        }
        let link = chain::check(line.bytes).map_err(|fault| match fault {
            LineFault::Malformed => BreakReason::Malformed,
            LineFault::HashMismatch => BreakReason::HashMismatch,
        })?;
        let Some(fields) = fields else { return Err(BreakReason::Malformed) };
        let checkpoint = (fields.event == RowEvent::Checkpoint).then(|| seal::frontier_of(line.bytes));
        if self.first_seq.is_none() && link.seq != 1 {
            self.begin_later(&link, checkpoint.as_ref().and_then(Option::as_ref), anchors)?;
        }
        self.first_seq.get_or_insert(link.seq);
        let expected = self.last_seq + 1;
        if link.seq != expected {
            Err(BreakReason::SequenceGap { expected, found: link.seq })
        } else if link.prev != self.head {
            Err(BreakReason::ChainBroken)
        } else if let Some(checkpoint) = checkpoint {
            self.checkpoint_rows += 1;
            let is_same = checkpoint.is_some_and(|checkpoint| checkpoint == self.tree);
            if is_same { Ok(link) } else { Err(BreakReason::OtherTree) }
        } else {
            Ok(link)
        }
    }

    /// Starts at a row after the first one: retention has removed the rows before it, or only one segment is
    /// verified. A checkpoint row states the tree of the rows before it, and the stored checkpoint of the
    /// removed segment proves it.
    fn begin_later(
        &mut self,
        link: &ChainLink,
        checkpoint: Option<&Frontier>,
        anchors: &mut ComparedCheckpoints,
    ) -> Result<(), BreakReason> {
        let Some(frontier) = checkpoint.filter(|frontier| frontier.size() + 1 == link.seq) else {
            return Err(if self.is_single_file {
                BreakReason::UnprovenStart
            } else {
                BreakReason::SequenceGap { expected: 1, found: link.seq }
            });
        };
        if !self.is_single_file && !anchors.prove(frontier) {
            return Err(BreakReason::UnprovenStart);
        }
        (self.last_seq, self.head, self.tree) = (frontier.size(), link.prev, frontier.clone());
        anchors.compare(frontier.size(), frontier);
        Ok(())
    }

    fn track_open_call(&mut self, fields: &OpenCallFields<'_>) {
        let begin = || OpenBegin {
            seq: fields.seq,
            call_id: fields.call_id.to_string(),
            tool: fields.tool.to_string(),
            process: fields.process.to_string(),
        };
        let size_of = |begin: &OpenBegin| begin.call_id.len() + begin.tool.len() + begin.process.len();
        self.open_calls.track(fields, begin, size_of);
    }

    fn report(self, segments: u64, anchors: ComparedCheckpoints) -> VerifyReport {
        let (mut open_begins, open_begins_omitted) = self.open_calls.into_open();
        open_begins.sort_by_key(|begin| begin.seq);
        let first_seq = self.first_seq.unwrap_or(1);
        let (anchors, witnesses) = anchors.into_reports(first_seq, self.last_seq, self.first_break.is_some());
        VerifyReport {
            rows: self.rows,
            first_seq,
            last_seq: self.last_seq,
            head: self.head.iter().copied().map(char::from).collect(),
            root: hex::encode(self.tree.root()),
            segments,
            checkpoint_rows: self.checkpoint_rows,
            anchors,
            witnesses,
            first_break: self.first_break,
            has_head: self.wanted_head.is_some(),
            head_seq: self.head_seq,
            open_begins,
            open_begins_omitted,
        }
    }
}
