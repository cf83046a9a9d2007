//! Reads rows for `audit log`, without checking their validity; [`super::verify()`] does that.

use std::{
    borrow::Cow,
    collections::VecDeque,
    fs::File,
    path::{Path, PathBuf},
};

use jiff::Timestamp;
use portcullis_types::SafetyTier;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{
    approver::RecordedApprover,
    backwards::BackwardLines,
    connection::RecordedConnection,
    error::AuditError,
    lines::{LineEnd, LogLines},
    request::RecordedRequest,
    row::{Confinement, Decision, Outcome, RecordedMount, RowEvent, RowFields, SharedText, Subject},
    segments::{self, LogPart},
    touched::TouchedMount,
};

/// A row of any version. A field that the row's version lacks is empty; a field of a later
/// version is ignored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// The version of the row's format. 1 if the row does not state it.
    #[serde(default = "first_version")]
    pub v: u64,
    /// The row's number, from 1.
    pub seq: u64,
    /// When the row was written.
    #[serde(serialize_with = "microseconds")]
    pub time: Timestamp,
    /// The kind of the row.
    #[serde(deserialize_with = "known_event")]
    pub event: RowEvent,
    /// As [`RowFields::call_id`]. Empty in a row that is not about a call.
    #[serde(default)]
    pub call_id: SharedText,
    /// As [`RowFields::run_id`].
    pub run_id: Option<SharedText>,
    /// As [`RowFields::agent`].
    pub agent: Option<SharedText>,
    /// As [`RowFields::operation_id`].
    pub operation_id: Option<SharedText>,
    /// As [`RowFields::tool`]. Empty in a row that is not about a call or a tool.
    #[serde(default)]
    pub tool: SharedText,
    /// As [`RowFields::tier`].
    pub tier: Option<SafetyTier>,
    /// As [`RowFields::confinement`].
    pub confinement: Option<Confinement>,
    /// As [`RowFields::profile`].
    pub profile: Option<SharedText>,
    /// As [`RowFields::mounts`].
    #[serde(default)]
    pub mounts: Vec<RecordedMount>,
    /// As [`RowFields::subjects`].
    #[serde(default)]
    pub subjects: Vec<Subject>,
    /// As [`RowFields::args_sha256`].
    pub args_sha256: Option<SharedText>,
    /// As [`RowFields::policy_digest`].
    pub policy_digest: Option<SharedText>,
    /// As [`RowFields::module_sha256`].
    pub module_sha256: Option<SharedText>,
    /// As [`RowFields::decision`].
    pub decision: Option<Decision>,
    /// As [`super::CallEnd::code`] or, without one, [`RowFields::code`].
    pub code: Option<SharedText>,
    /// As [`RowFields::rule`].
    pub rule: Option<SharedText>,
    /// As [`RowFields::approval`].
    pub approval: Option<SharedText>,
    /// As [`RowFields::approver`].
    pub approver: Option<RecordedApprover>,
    /// As [`RowFields::labels`]; empty in a row of a version without them.
    #[serde(default)]
    pub labels: Vec<SharedText>,
    /// As [`RowFields::flow_rule`].
    pub flow_rule: Option<SharedText>,
    /// As [`RowFields::secrets`]; empty in a row of a version without them.
    #[serde(default)]
    pub secrets: Vec<SharedText>,
    /// As [`super::CallEnd::outcome`]. `None` in a `begin`.
    pub outcome: Option<Outcome>,
    /// [`super::CallEnd::duration`] in microseconds.
    pub duration_us: Option<u64>,
    /// [`super::CallEnd::cpu`] in microseconds.
    pub cpu_us: Option<u64>,
    /// As [`super::CallEnd::peak_memory_bytes`].
    pub peak_memory: Option<u64>,
    /// As [`super::CallEnd::output_bytes`].
    pub bytes_out: Option<u64>,
    /// As [`super::CallEnd::truncated`].
    pub truncated: Option<bool>,
    /// As [`super::CallEnd::mounts_used`].
    #[serde(default)]
    pub mounts_used: Vec<SharedText>,
    /// As [`super::CallEnd::touched`].
    pub touched: Option<Vec<TouchedMount>>,
    /// As [`super::CallEnd::touched_paths`].
    #[serde(default)]
    pub touched_paths: Vec<SharedText>,
    /// As [`super::CallEnd::connections`]; empty in a row of a version without them.
    #[serde(default)]
    pub connections: Vec<RecordedConnection>,
    /// As [`RowFields::requests`]; empty in a row of a version without them.
    #[serde(default)]
    pub requests: Vec<RecordedRequest>,
    /// As [`RowFields::posture`].
    pub posture: Option<SharedText>,
    /// In a `model`: as [`ModelEnd::model`](super::ModelEnd::model).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<SharedText>,
    /// In a `model`: as [`ModelEnd::address`](super::ModelEnd::address).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<SharedText>,
    /// In a `model`: as [`ModelEnd::input_tokens`](super::ModelEnd::input_tokens).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input_tokens: Option<u64>,
    /// In a `model`: as [`ModelEnd::output_tokens`](super::ModelEnd::output_tokens).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_tokens: Option<u64>,
    /// In a `start`: as [`ProcessStart::version`](super::ProcessStart::version).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<SharedText>,
    /// In a `start`: as [`ProcessStart::binary_sha256`](super::ProcessStart::binary_sha256).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub binary_sha256: Option<SharedText>,
    /// In a `start` and a `policy`: the user of the process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uid: Option<u32>,
    /// In a `start`: as [`ProcessStart::host`](super::ProcessStart::host).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<SharedText>,
    /// In a `start`: as [`ProcessStart::instance`](super::ProcessStart::instance).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance: Option<SharedText>,
    /// In a `start`: as [`ProcessStart::lock_sha256`](super::ProcessStart::lock_sha256).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lock_sha256: Option<SharedText>,
    /// In a `policy`: as [`PolicyChange::old_digest`](super::PolicyChange::old_digest).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub old_digest: Option<SharedText>,
    /// In a `policy`: as [`PolicyChange::new_digest`](super::PolicyChange::new_digest).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub new_digest: Option<SharedText>,
    /// In a `policy`: as [`PolicyChange::cause`](super::PolicyChange::cause).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<SharedText>,
    /// In a `policy`: as [`PolicyChange::refused`](super::PolicyChange::refused).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<SharedText>,
    /// In a `checkpoint`: the number of rows before it, which its tree covers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// In a `checkpoint`: the root of the tree, in hexadecimal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub root: Option<SharedText>,
    /// In a `checkpoint`: the roots of the tree's largest complete subtrees, in hexadecimal,
    /// from left to right.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frontier: Option<Vec<SharedText>>,
    /// In a `checkpoint`: the number of its segment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub segment: Option<u64>,
    /// In a `checkpoint`: the length of the earlier segments, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_before: Option<u64>,
    /// The process that made the call, as `pid-time-count`: the time at which it opened the log, in
    /// nanoseconds as hexadecimal, and the number of this log among those that the process has opened.
    pub process: SharedText,
    /// The number of list entries that did not fit into the row.
    #[serde(default)]
    pub omitted: u64,
    /// The hash of the previous row.
    pub prev: SharedText,
    /// The hash of this row.
    pub hash: SharedText,
}

impl Row {
    /// Converts the row back into the call, so that recovery can write another row about it.
    pub(super) fn into_call(self) -> RowFields {
        RowFields {
            call_id: self.call_id,
            run_id: self.run_id,
            agent: self.agent,
            operation_id: self.operation_id,
            tool: self.tool,
            tier: self.tier,
            confinement: self.confinement,
            profile: self.profile,
            mounts: self.mounts,
            subjects: self.subjects,
            args_sha256: self.args_sha256,
            policy_digest: self.policy_digest,
            module_sha256: self.module_sha256,
            decision: self.decision,
            code: self.code,
            rule: self.rule,
            approval: self.approval,
            approver: self.approver,
            labels: self.labels,
            flow_rule: self.flow_rule,
            secrets: self.secrets,
            requests: self.requests,
            posture: self.posture,
        }
    }
}

/// The fields that show which calls are open. They are cheaper to parse than a whole [`Row`].
#[derive(Debug, Deserialize)]
pub(super) struct OpenCallFields<'line> {
    pub(super) seq: u64,
    #[serde(deserialize_with = "known_event")]
    pub(super) event: RowEvent,
    #[serde(borrow, default)]
    pub(super) call_id: Cow<'line, str>,
    #[serde(borrow, default)]
    pub(super) tool: Cow<'line, str>,
    #[serde(borrow)]
    pub(super) process: Cow<'line, str>,
}

/// A row with its line in the log.
#[derive(Debug, Clone)]
pub struct RowLine {
    /// The row that was parsed from the line.
    pub row: Row,
    /// The line without its newline. It can have fields of a later version that the row lacks.
    pub line: Vec<u8>,
}

/// Returns the rows of a log, oldest first, up to the log's end at the time of the call.
///
/// An invalid line yields an error in its place, and reading continues after it. A torn last line is
/// skipped; the next writer that opens the log reports it. If the log cannot be opened or read, the
/// error is the last item.
pub fn rows(path: &Path) -> impl Iterator<Item = Result<Row, AuditError>> + use<> {
    row_lines(path).map(|line| line.map(|line| line.row))
}

/// Does the same as [`rows()`], with the lines.
pub fn row_lines(path: &Path) -> impl Iterator<Item = Result<RowLine, AuditError>> + use<> {
    RowReader {
        parts: oldest_first(path),
        open_segment: None,
        open_lines: |file, end| LogLines::new(file, 0, end),
        next_line: |lines, path| {
            let line = lines.next().map_err(|source| AuditError::Read { path: path.to_owned(), source })?;
            Ok(line.map(|line| parse(path, line.offset, line.bytes, line.end)))
        },
    }
}

/// Does the same as [`row_lines()`], newest first. The time to the first row does not depend on the
/// length of the log.
pub fn newest_row_lines(path: &Path) -> impl Iterator<Item = Result<RowLine, AuditError>> + use<> {
    let mut parts = oldest_first(path);
    parts.make_contiguous().reverse();
    RowReader {
        parts,
        open_segment: None,
        open_lines: BackwardLines::new,
        next_line: |lines, path| {
            let line = lines.next().map_err(|source| AuditError::Read { path: path.to_owned(), source })?;
            Ok(line.map(|line| parse(path, line.offset, &line.bytes, line.end)))
        },
    }
}

/// Returns the parts of a log, oldest first, or an error instead.
fn oldest_first(path: &Path) -> VecDeque<Result<LogPart, AuditError>> {
    match segments::log_parts(path) {
        Ok(parts) => parts.into_iter().map(Ok).collect(),
        Err(error) => VecDeque::from([Err(error)]),
    }
}

/// The outcome of a line: a row, no row, or an error after which reading continues.
type ParsedLine = Result<Option<RowLine>, AuditError>;

/// Reads the rows of one part after another.
struct RowReader<L> {
    parts: VecDeque<Result<LogPart, AuditError>>,
    open_segment: Option<(PathBuf, L)>,
    open_lines: fn(File, u64) -> L,
    /// Returns the next line of the open part. A read error ends the part, because it would repeat forever.
    next_line: fn(&mut L, &Path) -> Result<Option<ParsedLine>, AuditError>,
}

impl<L> Iterator for RowReader<L> {
    type Item = Result<RowLine, AuditError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let Some((path, lines)) = &mut self.open_segment else {
                match self.parts.pop_front()?.and_then(LogPart::open) {
                    Ok((path, file, end)) => self.open_segment = Some((path, (self.open_lines)(file, end))),
                    Err(error) => return Some(Err(error)),
                }
                continue;
            };
            match (self.next_line)(lines, path) {
                Err(error) => {
                    self.open_segment = None;
                    self.parts.clear();
                    return Some(Err(error));
                }
                Ok(None) => self.open_segment = None,
                Ok(Some(Ok(None))) => {}
                Ok(Some(Ok(Some(row)))) => return Some(Ok(row)),
                Ok(Some(Err(error))) => return Some(Err(error)),
            }
        }
    }
}

/// Parses a line. A torn last line is neither a row nor an error.
pub(super) fn parse(path: &Path, offset: u64, bytes: &[u8], end: LineEnd) -> ParsedLine {
    let path = || path.to_owned();
    match end {
        LineEnd::File => Ok(None),
        LineEnd::TooLong => Err(AuditError::Overlong { path: path(), offset }),
        LineEnd::Newline => match serde_json::from_slice(bytes) {
            Ok(row) => {
                let line = bytes.strip_suffix(b"\n").unwrap_or(bytes).to_vec();
                Ok(Some(RowLine { row, line }))
            }
            Err(source) => Err(AuditError::Malformed { path: path(), offset, source }),
        },
    }
}

fn first_version() -> u64 {
    1
}

/// Parses the kind of a row. A kind of a later version becomes [`RowEvent::Other`], so that its row
/// is still readable.
fn known_event<'de, D: Deserializer<'de>>(deserializer: D) -> Result<RowEvent, D::Error> {
    let word = Cow::<'de, str>::deserialize(deserializer)?;
    Ok(RowEvent::ALL.into_iter().find(|kind| kind.as_str() == word).unwrap_or(RowEvent::Other))
}

fn microseconds<S: Serializer>(time: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{time:.6}"))
}
