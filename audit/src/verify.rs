//! Verifies a whole log. Reads raw bytes and changes nothing.

use std::{collections::HashMap, fmt, path::Path};

use super::{
    chain::{self, BadLine, ChainLink, GENESIS, Hash},
    error::AuditError,
    lines::{LineEnd, LogLines, NumberedLine},
    read::{self, OpenCallFields},
    row::Event,
};

/// The result of a verification.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerifyReport {
    /// The number of whole lines.
    pub rows: u64,
    /// The number of the last row before the break, or of the last row; 0 for an empty log.
    pub last_seq: u64,
    /// That row's hash; 64 zeros for an empty log. Kept elsewhere, it later proves that all rows up to it are
    /// unchanged and that none was cut off the end.
    pub head: String,
    /// The first break of the chain. Nothing after it is proven.
    pub broken: Option<ChainBreak>,
    /// Calls that began and did not end: they are running, or their process died and no other has started
    /// since.
    pub open_begins: Vec<OpenBegin>,
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
    /// Why the line does not continue the chain.
    pub why: BreakReason,
}

/// The reason why a line is not the next link of the chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum BreakReason {
    /// It is not a row.
    Malformed,
    /// Its bytes do not match its hash.
    HashMismatch,
    /// Its number does not follow: rows were removed, doubled or moved.
    SequenceGap {
        /// The number that should be here.
        expected: u64,
        /// The number found.
        found: u64,
    },
    /// It has the right number but follows another row.
    ChainBroken,
    /// It is the last line and incomplete. A crash leaves such lines; the next start of a writer saves them
    /// elsewhere.
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

/// A call that began and did not end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenBegin {
    /// The number of its `begin`.
    pub seq: u64,
    /// The call's id.
    pub call_id: String,
    /// The tool's name.
    pub tool: String,
    /// The process that made it.
    pub process: String,
}

/// Verifies a log, up to its end at the time of the call. Other processes may continue to write.
///
/// # Errors
/// [`AuditError::Open`], [`AuditError::NotAFile`], [`AuditError::Busy`], [`AuditError::Read`]. A broken
/// log is not an error but a report.
pub fn verify(path: &Path) -> Result<VerifyReport, AuditError> {
    let (file, end) = read::open(path)?;
    let mut lines = LogLines::new(file, 0, end);
    let mut walk = ChainWalk { rows: 0, last_seq: 0, head: GENESIS, broken: None, open: HashMap::new() };
    while let Some(line) =
        lines.next().map_err(|source| AuditError::Read { path: path.to_owned(), source })?
    {
        walk.step(&line);
    }
    Ok(walk.report())
}

struct ChainWalk {
    rows: u64,
    last_seq: u64,
    head: Hash,
    broken: Option<ChainBreak>,
    open: HashMap<(String, String), Vec<OpenBegin>>,
}

impl ChainWalk {
    fn step(&mut self, line: &NumberedLine<'_>) {
        // A torn last line is no row.
        if line.end != LineEnd::File {
            self.rows += 1;
        }
        let fields = serde_json::from_slice::<OpenCallFields<'_>>(line.bytes).ok();
        if self.broken.is_none() {
            match self.follow(line, fields.is_some()) {
                Ok(link) => (self.last_seq, self.head) = (link.seq, link.hash),
                Err(why) => {
                    let (line, offset) = (line.number, line.offset);
                    self.broken = Some(ChainBreak { line, offset, why });
                }
            }
        }
        // Also after a break: the auditor wants to know these calls too.
        if let Some(fields) = fields
            && line.end == LineEnd::Newline
        {
            self.note(fields);
        }
    }

    fn follow(&self, line: &NumberedLine<'_>, is_row: bool) -> Result<ChainLink, BreakReason> {
        match line.end {
            LineEnd::Newline => {}
            LineEnd::File => return Err(BreakReason::TornTail),
            LineEnd::TooLong => return Err(BreakReason::Malformed),
        }
        let link = chain::check(line.bytes).map_err(|bad| match bad {
            BadLine::Form => BreakReason::Malformed,
            BadLine::Hash => BreakReason::HashMismatch,
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

    fn note(&mut self, fields: OpenCallFields<'_>) {
        let call = (fields.process.into_owned(), fields.call_id.into_owned());
        match fields.event {
            Event::Begin => {
                let begin = OpenBegin {
                    seq: fields.seq,
                    call_id: call.1.clone(),
                    tool: fields.tool.into_owned(),
                    process: call.0.clone(),
                };
                self.open.entry(call).or_default().push(begin);
            }
            Event::End => {
                if let Some(begins) = self.open.get_mut(&call) {
                    begins.pop();
                    if begins.is_empty() {
                        self.open.remove(&call);
                    }
                }
            }
            // Not rows of calls.
            Event::Approve | Event::Revoke => {}
        }
    }

    fn report(self) -> VerifyReport {
        let mut open_begins: Vec<_> = self.open.into_values().flatten().collect();
        open_begins.sort_by_key(|begin| begin.seq);
        VerifyReport {
            rows: self.rows,
            last_seq: self.last_seq,
            head: self.head.iter().copied().map(char::from).collect(),
            broken: self.broken,
            open_begins,
        }
    }
}
