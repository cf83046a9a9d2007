//! The fields of a row, and its serialisation to a line.
//!
//! Every row has every field, in a fixed order. An unknown field is `null`, and an unknown list is `[]`. Models and
//! tools choose strings, so each string has a limit. The limits add up to less than [`MAX_ROW_BYTES`].

use std::{fmt, io::Write as _, sync::Arc, time::Duration};

use jiff::Timestamp;
use portcullis_types::{Access, SafetyTier, ToolErrorKind};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::{
    chain::{self, Hash, MAX_ROW_BYTES},
    connection::{MAX_CONNECTIONS_BYTES, RecordedConnection, push_connection},
    request::{RecordedRequest, push_request},
    text::{push_number, push_string},
};

/// A text that rows share. It is cheap to clone, and made with `.into()`.
pub type SharedText = Arc<str>;

/// The longest id, name, code or digest in a row, in escaped bytes: 512. Even a call id needs the limit, because a
/// provider, and therefore a model, can choose it.
pub(super) const MAX_NAME_BYTES: usize = 512;

/// The longest subject (path, URL, command) in a row, in escaped bytes: 4 KiB, the length of the longest guest path.
pub(super) const MAX_VALUE_BYTES: usize = 4096;

/// The most bytes of all subjects of a row: 32 KiB. Further subjects are only counted, in `omitted`; the digest of the
/// arguments still covers them.
const MAX_SUBJECTS_BYTES: usize = 32 * 1024;

/// The most bytes of each of a row's lists of mounts, used mounts and labels: 4 KiB.
const MAX_NAME_LIST_BYTES: usize = 4 * 1024;

/// The most bytes of a row's secrets: 1 KiB.
const MAX_SECRETS_BYTES: usize = 1024;

/// The description of a call. `begin` and `end` of one call have equal descriptions, except for fields that become
/// known while it runs. Only the call's id and the tool's name are always known; a call of an unknown tool, for
/// example, has no tier.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CallRecord {
    /// The call's id.
    pub call_id: SharedText,
    /// The run that the call belongs to.
    pub run_id: Option<SharedText>,
    /// The agent that makes the call.
    pub agent: Option<SharedText>,
    /// An id that the calls of one operation share, such as the two steps of `vault_copyto`.
    pub operation_id: Option<SharedText>,
    /// The tool's canonical name. For an unknown tool, the name that the caller wrote.
    pub tool: SharedText,
    /// The tool's tier.
    pub tier: Option<SafetyTier>,
    /// The confinement of the tool.
    pub confinement: Option<Confinement>,
    /// The profile that the call runs with.
    pub profile: Option<SharedText>,
    /// The mounts that the call was granted.
    pub mounts: Vec<RecordedMount>,
    /// The subjects of the call's arguments. They never contain file contents.
    pub subjects: Vec<Subject>,
    /// SHA-256 of the arguments' text that was judged last, in hexadecimal. In an `approve` or `revoke`: SHA-256 of the
    /// tool's declarations.
    pub args_sha256: Option<SharedText>,
    /// Digest of the effective policy.
    pub policy_digest: Option<SharedText>,
    /// SHA-256 of the module.
    pub module_sha256: Option<SharedText>,
    /// The policy's decision.
    pub decision: Option<Verdict>,
    /// The stable code of a denial or an error. [`CallEnding::code`] takes precedence.
    pub code: Option<SharedText>,
    /// The rule that decided.
    pub rule: Option<SharedText>,
    /// The result of the approval: `not_required`, `approved`, `refused`, ….
    pub approval: Option<SharedText>,
    /// The labels of the run when the call was decided. They say what the run's earlier calls have read.
    pub labels: Vec<SharedText>,
    /// The flow rule that required an approval of the call, or denied it.
    pub flow_rule: Option<SharedText>,
    /// The names of the secrets that the host attached to the call's requests, never their values. In a `begin`, the
    /// secrets for the URLs in the call's arguments.
    pub secrets: Vec<SharedText>,
    /// The requests that the host's HTTP client made for the call, the last one first: it has the final URL, which must
    /// be in the row even if earlier requests do not fit.
    pub requests: Vec<RecordedRequest>,
    /// The confinement layers of the call, named as in `doctor`.
    pub posture: Option<SharedText>,
}

/// One row to write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// The call that the row is about.
    pub call: Arc<CallRecord>,
    /// The phase of the call.
    pub phase: Phase,
}

impl Record {
    /// The row before a call with effects runs.
    #[must_use]
    pub fn begin(call: &Arc<CallRecord>) -> Self {
        Self { call: Arc::clone(call), phase: Phase::Begin }
    }

    /// The row after a call, or the only row of a call without effects or of a refused call.
    #[must_use]
    pub fn end(call: &Arc<CallRecord>, ending: CallEnding) -> Self {
        Self { call: Arc::clone(call), phase: Phase::End(ending) }
    }

    /// The row before a tool of a module is pinned.
    #[must_use]
    pub fn approve(pin: &Arc<CallRecord>) -> Self {
        Self { call: Arc::clone(pin), phase: Phase::Approve }
    }

    /// The row before a pin is withdrawn.
    #[must_use]
    pub fn revoke(pin: &Arc<CallRecord>) -> Self {
        Self { call: Arc::clone(pin), phase: Phase::Revoke }
    }
}

/// The phase of a call. The log also records approvals of modules, whose phase is the change of a pin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Phase {
    /// The call is about to run.
    Begin,
    /// The call is over.
    End(CallEnding),
    /// Not a call: a tool of a module is about to be pinned.
    Approve,
    /// Not a call: a pin is about to be withdrawn.
    Revoke,
}

/// The result of a call, with its measurements. [`CallEnding::new`] leaves the measurements out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallEnding {
    /// Success, or the kind of the error.
    pub outcome: Outcome,
    /// The error's code, if it is more precise than [`CallRecord::code`].
    pub code: Option<SharedText>,
    /// The time from the call's arrival to its result, without waits for an approver.
    pub duration: Option<Duration>,
    /// The processor time of the call.
    pub cpu: Option<Duration>,
    /// The peak memory of the guest, in bytes.
    pub peak_memory_bytes: Option<u64>,
    /// The size of the result before it was cut, in bytes.
    pub output_bytes: Option<u64>,
    /// Whether the result was cut.
    pub truncated: Option<bool>,
    /// The names of the mounts that the call touched.
    pub mounts_used: Vec<SharedText>,
    /// The connections of a command and of the jobs of its session. Equal connections are counted together.
    pub connections: Vec<RecordedConnection>,
    /// The number of connections that are missing from the list.
    pub connections_omitted: u64,
}

impl CallEnding {
    /// An ending that has only an outcome.
    #[must_use]
    pub fn new(outcome: Outcome) -> Self {
        Self {
            outcome,
            code: None,
            duration: None,
            cpu: None,
            peak_memory_bytes: None,
            output_bytes: None,
            truncated: None,
            mounts_used: Vec::new(),
            connections: Vec::new(),
            connections_omitted: 0,
        }
    }
}

/// The outcome of a call, one word in the row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The call ended with a result.
    Ok,
    /// Unknown, because the call's process died. Only recovery writes this outcome.
    Unknown,
    /// The call ended with an error of this kind.
    Error(ToolErrorKind),
}

impl Outcome {
    /// The word in the row: `ok`, `unknown`, or the error kind's name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Unknown => "unknown",
            Self::Error(kind) => kind.as_str(),
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl Serialize for Outcome {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for Outcome {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let word = String::deserialize(deserializer)?;
        let kinds = ToolErrorKind::ALL.into_iter().map(Self::Error);
        [Self::Ok, Self::Unknown]
            .into_iter()
            .chain(kinds)
            .find(|outcome| outcome.as_str() == word)
            .ok_or_else(|| de::Error::custom(format_args!("unknown outcome `{word}`")))
    }
}

portcullis_types::words! {
    /// The kind of a row.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
    pub enum RowKind {
        /// Written before the call runs.
        Begin = "begin",
        /// Written after the call, or instead of its run.
        End = "end",
        /// Not a call: written before a tool of a module is pinned.
        Approve = "approve",
        /// Not a call: written before a pin is withdrawn.
        Revoke = "revoke",
    }
}

portcullis_types::words! {
    /// The confinement of a tool.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
    pub enum Confinement {
        /// The WASM sandbox, with the kernel behind it.
        Wasm = "wasm",
        /// The threads of the host's HTTP client, which reach only the granted ports.
        Egress = "egress",
        /// The sessions of a shell sidecar. The row's posture lists the layers.
        Shell = "shell",
        /// No confinement: the tool is host code.
        Native = "native, unconfined",
    }
}

portcullis_types::words! {
    /// The policy's decision.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
    pub enum Verdict {
        /// The call may run.
        Allow = "allow",
        /// The call may not run.
        Deny = "deny",
    }
}

/// A mount that a call was granted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedMount {
    /// The mount's name.
    pub name: SharedText,
    /// Read or write access.
    pub access: Access,
}

/// The subject of one argument.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subject {
    /// The argument's name.
    pub argument: SharedText,
    /// The kind of subject.
    pub kind: SubjectKind,
    /// The path, URL or command itself.
    pub value: SharedText,
}

portcullis_types::words! {
    /// The kind of a subject.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
    pub enum SubjectKind {
        /// A guest path.
        Path = "path",
        /// A URL.
        Url = "url",
        /// A shell command.
        Command = "command",
    }
}

/// The fields that the log adds to a record.
#[derive(Debug, Clone, Copy)]
pub(super) struct RowHead<'a> {
    /// The row's number.
    pub(super) seq: u64,
    /// The time of writing.
    pub(super) time: Timestamp,
    /// The process that the call belongs to.
    pub(super) process: &'a str,
    /// The number of list entries that recovery's copy of the row already omits.
    pub(super) omitted: u64,
    /// The hash of the previous row.
    pub(super) prev: &'a Hash,
}

/// Replaces the content of `out` by a whole line, and returns its hash.
///
/// The line is written by hand for speed, because native calls wait for it. A derived [`super::Row`] of bounded
/// strings, with a `serde_json` formatter for the escapes, writes the same bytes but takes 2.5 times as long.
pub(super) fn write_line(out: &mut Vec<u8>, head: &RowHead<'_>, call: &CallRecord, phase: &Phase) -> Hash {
    let (event, ending) = match phase {
        Phase::Begin => (RowKind::Begin, None),
        Phase::End(ending) => (RowKind::End, Some(ending)),
        Phase::Approve => (RowKind::Approve, None),
        Phase::Revoke => (RowKind::Revoke, None),
    };
    let code = ending.and_then(|ending| ending.code.as_ref()).or(call.code.as_ref());
    let mut omitted = head.omitted;

    out.clear();
    out.extend_from_slice(chain::SEQ_KEY);
    push_number(out, head.seq);
    // Writing to a `Vec` cannot fail.
    let _ = write!(out, ",\"time\":\"{:.6}\"", head.time);
    field_word(out, "event", Some(event.as_str()));
    field_text(out, "call_id", Some(&call.call_id));
    field_text(out, "run_id", call.run_id.as_deref());
    field_text(out, "agent", call.agent.as_deref());
    field_text(out, "operation_id", call.operation_id.as_deref());
    field_text(out, "tool", Some(&call.tool));
    field_word(out, "tier", call.tier.map(SafetyTier::as_str));
    field_word(out, "confinement", call.confinement.map(Confinement::as_str));
    field_text(out, "profile", call.profile.as_deref());
    omitted += field_list(out, "mounts", &call.mounts, MAX_NAME_LIST_BYTES, push_mount);
    omitted += field_list(out, "subjects", &call.subjects, MAX_SUBJECTS_BYTES, push_subject);
    field_text(out, "args_sha256", call.args_sha256.as_deref());
    field_text(out, "policy_digest", call.policy_digest.as_deref());
    field_text(out, "module_sha256", call.module_sha256.as_deref());
    field_word(out, "decision", call.decision.map(Verdict::as_str));
    field_text(out, "code", code.map(AsRef::as_ref));
    field_text(out, "rule", call.rule.as_deref());
    field_text(out, "approval", call.approval.as_deref());
    omitted += field_list(out, "labels", &call.labels, MAX_NAME_LIST_BYTES, |out, label| {
        push_string(out, label, MAX_NAME_BYTES);
    });
    field_text(out, "flow_rule", call.flow_rule.as_deref());
    omitted += field_list(out, "secrets", &call.secrets, MAX_SECRETS_BYTES, |out, name| {
        push_string(out, name, MAX_NAME_BYTES);
    });
    field_word(out, "outcome", ending.map(|ending| ending.outcome.as_str()));
    field_number(out, "duration_us", ending.and_then(|ending| ending.duration).map(whole_micros));
    field_number(out, "cpu_us", ending.and_then(|ending| ending.cpu).map(whole_micros));
    field_number(out, "peak_memory", ending.and_then(|ending| ending.peak_memory_bytes));
    field_number(out, "bytes_out", ending.and_then(|ending| ending.output_bytes));
    field_raw(
        out,
        "truncated",
        match ending.and_then(|ending| ending.truncated) {
            None => "null",
            Some(true) => "true",
            Some(false) => "false",
        },
    );
    let mounts_used = ending.map_or(&[][..], |ending| ending.mounts_used.as_slice());
    omitted += field_list(out, "mounts_used", mounts_used, MAX_NAME_LIST_BYTES, |out, name| {
        push_string(out, name, MAX_NAME_BYTES);
    });
    let start = out.len();
    let connections = ending.map_or(&[][..], |ending| ending.connections.as_slice());
    omitted += field_list(out, "connections", connections, MAX_CONNECTIONS_BYTES, push_connection);
    omitted += ending.map_or(0, |ending| ending.connections_omitted);
    // The two lists share one limit, because no call fills both: a command has connections, any other call has
    // requests.
    let requests_limit = MAX_CONNECTIONS_BYTES.saturating_sub(out.len() - start);
    omitted += field_list(out, "requests", &call.requests, requests_limit, push_request);
    field_text(out, "posture", call.posture.as_deref());
    field_text(out, "process", Some(head.process));
    field_number(out, "omitted", Some(omitted));
    let hash = chain::seal(out, head.prev);
    debug_assert!(out.len() <= MAX_ROW_BYTES, "the limits of the fields add up to less than a row's");
    hash
}

fn push_mount(out: &mut Vec<u8>, mount: &RecordedMount) {
    out.extend_from_slice(b"{\"name\":");
    push_string(out, &mount.name, MAX_NAME_BYTES);
    field_word(out, "access", Some(mount.access.as_str()));
    out.push(b'}');
}

fn push_subject(out: &mut Vec<u8>, subject: &Subject) {
    out.extend_from_slice(b"{\"argument\":");
    push_string(out, &subject.argument, MAX_NAME_BYTES);
    field_word(out, "kind", Some(subject.kind.as_str()));
    out.extend_from_slice(b",\"value\":");
    push_string(out, &subject.value, MAX_VALUE_BYTES);
    out.push(b'}');
}

/// Writes as many entries as fit, and returns the number of omitted entries.
fn field_list<T>(
    out: &mut Vec<u8>,
    key: &str,
    entries: &[T],
    limit: usize,
    push: impl Fn(&mut Vec<u8>, &T),
) -> u64 {
    push_key(out, key);
    out.push(b'[');
    let list_start = out.len();
    let mut omitted = 0;
    for (index, entry) in entries.iter().enumerate() {
        let entry_start = out.len();
        if entry_start > list_start {
            out.push(b',');
        }
        push(out, entry);
        if out.len() - list_start > limit {
            // Also removes the comma before the entry.
            out.truncate(entry_start);
            omitted = (entries.len() - index) as u64;
            break;
        }
    }
    out.push(b']');
    omitted
}

fn field_text(out: &mut Vec<u8>, key: &str, text: Option<&str>) {
    push_key(out, key);
    match text {
        Some(text) => push_string(out, text, MAX_NAME_BYTES),
        None => out.extend_from_slice(b"null"),
    }
}

/// Writes a word of the fixed vocabulary, which needs neither a limit nor escapes.
fn field_word(out: &mut Vec<u8>, key: &str, word: Option<&'static str>) {
    push_key(out, key);
    match word {
        Some(word) => {
            out.push(b'"');
            out.extend_from_slice(word.as_bytes());
            out.push(b'"');
        }
        None => out.extend_from_slice(b"null"),
    }
}

pub(super) fn field_number(out: &mut Vec<u8>, key: &str, number: Option<u64>) {
    push_key(out, key);
    match number {
        Some(number) => push_number(out, number),
        None => out.extend_from_slice(b"null"),
    }
}

fn field_raw(out: &mut Vec<u8>, key: &str, json: &str) {
    push_key(out, key);
    out.extend_from_slice(json.as_bytes());
}

pub(super) fn push_key(out: &mut Vec<u8>, key: &str) {
    out.extend_from_slice(b",\"");
    out.extend_from_slice(key.as_bytes());
    out.extend_from_slice(b"\":");
}

fn whole_micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
