//! Verifies a whole log. The verifier only reads, and compares raw bytes.

use std::{fmt, path::Path};

use super::{
    chain::{self, ChainLink, GENESIS, Hash, LineFault},
    error::AuditError,
    lines::{LineEnd, LogLines, NumberedLine},
    open_calls::OpenCalls,
    read::{self, OpenCallFields},
};

/// The most bytes of open calls that a verification keeps: 16 MiB.
const MAX_OPEN_BYTES: usize = 16 << 20;

/// The result of a verification.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerifyReport {
    /// The number of whole lines.
    pub rows: u64,
    /// The number of the last row before the break, or of the last row of an intact log. 0 for an empty log.
    pub last_seq: u64,
    /// The hash of the row [`Self::last_seq`]; 64 zeros for an empty log. A copy kept elsewhere proves later that all
    /// rows up to this one are unchanged, and that none of them was cut off the end.
    pub head: String,
    /// The first break of the chain. Nothing after the break is proven.
    pub broken: Option<ChainBreak>,
    /// Calls that have a `begin` but no `end`. Each is still running, or its process died and no other process has
    /// started since.
    pub open_begins: Vec<OpenBegin>,
    /// The number of further such calls, if they take more than 16 MiB.
    pub open_begins_left_out: u64,
}

impl VerifyReport {
    /// Whether the chain holds from the first byte to the last.
    #[must_use]
    pub fn is_intact(&self) -> bool {
        self.broken.is_none()
    }
}

/// A place where the chain breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChainBreak {
    /// The line's number, from 1.
    pub line: u64,
    /// The byte offset of the line.
    pub offset: u64,
    /// The reason why the line does not continue the chain.
    pub why: BreakReason,
}

/// The reason why a line is not the next link of the chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum BreakReason {
    /// The line is not a row.
    Malformed,
    /// The line's bytes do not match its hash.
    HashMismatch,
    /// The row's number does not follow the previous one: rows were removed, doubled or moved.
    SequenceGap {
        /// The expected number.
        expected: u64,
        /// The number in the row.
        found: u64,
    },
    /// The row has the right number, but its `prev` is not the hash of the previous row.
    ChainBroken,
    /// The last line is incomplete. A crash leaves such lines, and the next start of a writer moves them to another
    /// file.
    TornTail,
}

impl fmt::Display for BreakReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed => f.write_str("the line is not a row"),
            Self::HashMismatch => f.write_str("the row does not have the hash that it claims"),
            Self::SequenceGap { expected, found } => {
                write!(f, "row {found} stands where row {expected} should be")
            }
            Self::ChainBroken => f.write_str("the row does not follow the row before it"),
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

/// Verifies a log, up to its end at the time of the call. Other processes can continue to write.
///
/// # Errors
/// [`AuditError::Open`], [`AuditError::NotAFile`], [`AuditError::Busy`], [`AuditError::Read`]. A broken chain is not an
/// error: the report describes it.
pub fn verify(path: &Path) -> Result<VerifyReport, AuditError> {
    let (file, end) = read::open(path)?;
    let mut lines = LogLines::new(file, 0, end);
    let mut chain_walk =
        ChainWalk { rows: 0, last_seq: 0, head: GENESIS, broken: None, open: OpenCalls::new(MAX_OPEN_BYTES) };
    while let Some(line) =
        lines.next().map_err(|source| AuditError::Read { path: path.to_owned(), source })?
    {
        chain_walk.check_line(&line);
    }
    Ok(chain_walk.report())
}

struct ChainWalk {
    rows: u64,
    last_seq: u64,
    head: Hash,
    broken: Option<ChainBreak>,
    open: OpenCalls<OpenBegin>,
}

impl ChainWalk {
    fn check_line(&mut self, line: &NumberedLine<'_>) {
        // A torn last line is not a row, so do not count it.
        if line.end != LineEnd::File {
            self.rows += 1;
        }
        let fields = serde_json::from_slice::<OpenCallFields<'_>>(line.bytes).ok();
        if self.broken.is_none() {
            match self.check_link(line, fields.is_some()) {
                Ok(link) => (self.last_seq, self.head) = (link.seq, link.hash),
                Err(why) => {
                    let (line, offset) = (line.number, line.offset);
                    self.broken = Some(ChainBreak { line, offset, why });
                }
            }
        }
        // Track calls even after a break, because the auditor wants to know them too.
        if let Some(fields) = fields
            && line.end == LineEnd::Newline
        {
            self.track_open_call(&fields);
        }
    }

    fn check_link(&self, line: &NumberedLine<'_>, is_row: bool) -> Result<ChainLink, BreakReason> {
        match line.end {
            LineEnd::Newline => {}
            LineEnd::File => return Err(BreakReason::TornTail),
            LineEnd::TooLong => return Err(BreakReason::Malformed),
        }
        let link = chain::check(line.bytes).map_err(|fault| match fault {
            LineFault::Malformed => BreakReason::Malformed,
            LineFault::HashMismatch => BreakReason::HashMismatch,
        })?;
        let expected = self.last_seq + 1;
        if !is_row {
            Err(BreakReason::Malformed)
        } else if link.seq != expected {
            Err(BreakReason::SequenceGap { expected, found: link.seq })
        } else if link.prev != self.head {
            Err(BreakReason::ChainBroken)
        } else {
            Ok(link)
        }
    }

    fn track_open_call(&mut self, fields: &OpenCallFields<'_>) {
        let begin = || OpenBegin {
            seq: fields.seq,
            call_id: fields.call_id.to_string(),
            tool: fields.tool.to_string(),
            process: fields.process.to_string(),
        };
        let size_of = |begin: &OpenBegin| begin.call_id.len() + begin.tool.len() + begin.process.len();
        self.open.track(fields, begin, size_of);
    }

    fn report(self) -> VerifyReport {
        let (mut open_begins, open_begins_left_out) = self.open.into_open();
        open_begins.sort_by_key(|begin| begin.seq);
        VerifyReport {
            rows: self.rows,
            last_seq: self.last_seq,
            head: self.head.iter().copied().map(char::from).collect(),
            broken: self.broken,
            open_begins,
            open_begins_left_out,
        }
    }
}
