//! Writes the line of a row.
//!
//! Every row about a call has every field, in a fixed order. An unknown field is `null`, and an unknown list
//! is `[]`. Models and tools choose strings, so each string is truncated to a limit. The limits add up to
//! less than [`MAX_ROW_BYTES`].

use std::{cell::Cell, io::Write as _, mem, time::Duration};

use jiff::Timestamp;
use portcullis_types::SafetyTier;

use super::{
    CallEnd, Confinement, Decision, ModelEnd, NewRowEvent, RecordedMount, RowEvent, RowFields, Subject,
};
use crate::{
    approver::push_approver,
    chain::{self, Hash, MAX_ROW_BYTES},
    connection::{MAX_CONNECTIONS_BYTES, push_connection},
    request::push_request,
    text::{push_number, push_string},
    touched::push_touched,
};

/// The maximum length of an id, name, code or digest in a row, in escaped bytes: 512. Call ids need the limit
/// too, because a provider, and therefore a model, can choose them.
pub(crate) const MAX_NAME_BYTES: usize = 512;

/// The maximum length of a subject (path, URL, command) in a row, in escaped bytes: 4 KiB, the length of the longest
/// guest path.
pub(crate) const MAX_VALUE_BYTES: usize = 4096;

/// The maximum size of all subjects of a row: 20 KiB. Further subjects are only counted, in `omitted`; the
/// digest of the arguments still covers them.
const MAX_SUBJECTS_BYTES: usize = 20 * 1024;

/// The maximum size of each of a row's lists of mounts, used mounts and labels: 4 KiB.
const MAX_NAME_LIST_BYTES: usize = 4 * 1024;

/// The maximum size of a row's secrets: 1 KiB.
const MAX_SECRETS_BYTES: usize = 1024;

/// The maximum size of a row's accessed mounts: 2 KiB.
const MAX_TOUCHED_BYTES: usize = 2 * 1024;

/// The maximum size of a row's accessed paths: 6 KiB.
const MAX_TOUCHED_PATHS_BYTES: usize = 6 * 1024;

/// The fields that the log adds to a record.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RowHead<'a> {
    /// The row's number.
    pub(crate) seq: u64,
    /// When the row is written.
    pub(crate) time: Timestamp,
    /// The process that the call belongs to.
    pub(crate) process: &'a str,
    /// The number of list entries that recovery's copy of the row already omits.
    pub(crate) omitted: u64,
    /// The hash of the previous row.
    pub(crate) prev: &'a Hash,
}

/// The fields of a row that do not depend on the log. They are written before the log is locked, because all threads
/// wait for that lock.
#[derive(Debug)]
pub(crate) struct RowBody {
    event: RowEvent,
    /// The fields between the head and `process`.
    text: Vec<u8>,
    /// The number of list entries that did not fit.
    omitted: u64,
}

impl RowBody {
    /// Writes the fields of a row about a call.
    ///
    /// They are written by hand for speed, because native calls wait for them. A derived `Serialize` of
    /// [`super::Row`] with bounded strings, and a `serde_json` formatter for the escapes, writes the same bytes
    /// but takes 2.5 times as long.
    pub(crate) fn new(fields: &RowFields, event: &NewRowEvent) -> Self {
        let (kind, ending) = match event {
            NewRowEvent::Begin => (RowEvent::Begin, None),
            NewRowEvent::End(ending) => (RowEvent::End, Some(ending)),
            NewRowEvent::Result(ending) => (RowEvent::Result, Some(ending)),
            NewRowEvent::Model(ending) => (RowEvent::Model, Some(&model_call_end(ending))),
            NewRowEvent::Approve => (RowEvent::Approve, None),
            NewRowEvent::Revoke => (RowEvent::Revoke, None),
        };
        let code = ending.and_then(|ending| ending.code.as_ref()).or(fields.code.as_ref());

        let mut text = SPARE_BUFFER.take();
        text.clear();
        let mut omitted = push_call(&mut text, fields, code.map(AsRef::as_ref));
        omitted += push_ending(&mut text, ending);
        omitted += push_requests(&mut text, fields, ending);
        field_text(&mut text, "posture", fields.posture.as_deref());
        if let NewRowEvent::Model(ending) = event {
            field_text(&mut text, "model", Some(&ending.model));
            field_text(&mut text, "address", ending.address.as_deref());
            field_number(&mut text, "input_tokens", ending.input_tokens);
            field_number(&mut text, "output_tokens", ending.output_tokens);
        }
        Self { event: kind, text, omitted }
    }
}

impl Drop for RowBody {
    fn drop(&mut self) {
        SPARE_BUFFER.set(mem::take(&mut self.text));
    }
}

thread_local! {
    /// The buffer of this thread's last row. A new one for each row would grow several times.
    static SPARE_BUFFER: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Replaces the content of `out` with a whole line, and returns the line's hash.
pub(crate) fn write_line(out: &mut Vec<u8>, head: &RowHead<'_>, body: &RowBody) -> Hash {
    begin_line(out, head, body.event);
    out.extend_from_slice(&body.text);
    field_text(out, "process", Some(head.process));
    field_number(out, "omitted", Some(head.omitted + body.omitted));
    end_line(out, head)
}

/// Writes the fields that are known before the call runs. Returns the number of omitted list entries.
fn push_call(out: &mut Vec<u8>, fields: &RowFields, code: Option<&str>) -> u64 {
    let mut omitted = 0;
    field_text(out, "call_id", Some(&fields.call_id));
    field_text(out, "run_id", fields.run_id.as_deref());
    field_text(out, "agent", fields.agent.as_deref());
    field_text(out, "operation_id", fields.operation_id.as_deref());
    field_text(out, "tool", Some(&fields.tool));
    field_word(out, "tier", fields.tier.map(SafetyTier::as_str));
    field_word(out, "confinement", fields.confinement.map(Confinement::as_str));
    field_text(out, "profile", fields.profile.as_deref());
    omitted += field_list(out, "mounts", &fields.mounts, MAX_NAME_LIST_BYTES, push_mount);
    omitted += field_list(out, "subjects", &fields.subjects, MAX_SUBJECTS_BYTES, push_subject);
    field_text(out, "args_sha256", fields.args_sha256.as_deref());
    field_text(out, "policy_digest", fields.policy_digest.as_deref());
    field_text(out, "module_sha256", fields.module_sha256.as_deref());
    field_word(out, "decision", fields.decision.map(Decision::as_str));
    field_text(out, "code", code);
    field_text(out, "rule", fields.rule.as_deref());
    field_text(out, "approval", fields.approval.as_deref());
    push_key(out, "approver");
    match &fields.approver {
        Some(approver) => push_approver(out, approver),
        None => out.extend_from_slice(b"null"),
    }
    omitted += field_list(out, "labels", &fields.labels, MAX_NAME_LIST_BYTES, |out, label| {
        push_string(out, label, MAX_NAME_BYTES);
    });
    field_text(out, "flow_rule", fields.flow_rule.as_deref());
    omitted += field_list(out, "secrets", &fields.secrets, MAX_SECRETS_BYTES, |out, name| {
        push_string(out, name, MAX_NAME_BYTES);
    });
    omitted
}

/// Writes the fields that are known after the call, which are `null` in other rows. Returns the number of omitted list
/// entries.
fn push_ending(out: &mut Vec<u8>, ending: Option<&CallEnd>) -> u64 {
    let mut omitted = 0;
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
    match ending.and_then(|ending| ending.touched.as_deref()) {
        Some(touched) => omitted += field_list(out, "touched", touched, MAX_TOUCHED_BYTES, push_touched),
        None => field_raw(out, "touched", "null"),
    }
    let touched_paths = ending.map_or(&[][..], |ending| ending.touched_paths.as_slice());
    omitted += field_list(out, "touched_paths", touched_paths, MAX_TOUCHED_PATHS_BYTES, |out, path| {
        push_string(out, path, MAX_VALUE_BYTES);
    });
    omitted
}

/// Writes the connections of a command and the requests of a call. Returns the number of omitted ones.
fn push_requests(out: &mut Vec<u8>, fields: &RowFields, ending: Option<&CallEnd>) -> u64 {
    let mut omitted = 0;
    let start = out.len();
    let connections = ending.map_or(&[][..], |ending| ending.connections.as_slice());
    omitted += field_list(out, "connections", connections, MAX_CONNECTIONS_BYTES, push_connection);
    omitted += ending.map_or(0, |ending| ending.connections_omitted);
    // The two lists share one limit, because no call fills both: a command has connections, any other
    // call has requests.
    let requests_limit = MAX_CONNECTIONS_BYTES.saturating_sub(out.len() - start);
    omitted += field_list(out, "requests", &fields.requests, requests_limit, push_request);
    omitted
}

/// Returns the fields that the end of a request to a model shares with the end of a call.
fn model_call_end(ending: &ModelEnd) -> CallEnd {
    let ModelEnd { outcome, code, duration, .. } = ending;
    CallEnd { code: code.clone(), duration: Some(*duration), ..CallEnd::new(*outcome) }
}

/// Replaces the content of `out` with the fields that start every row.
pub(crate) fn begin_line(out: &mut Vec<u8>, head: &RowHead<'_>, event: RowEvent) {
    out.clear();
    chain::push_head(out, head.seq);
    // Writing to a `Vec` cannot fail.
    let _ = write!(out, ",\"time\":\"{:.6}\"", head.time);
    field_word(out, "event", Some(event.as_str()));
}

/// Appends the fields that end every row, and returns the row's hash.
pub(crate) fn end_line(out: &mut Vec<u8>, head: &RowHead<'_>) -> Hash {
    let hash = chain::append_hash(out, head.prev);
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
    push_string(out, subject.source.as_str(), MAX_NAME_BYTES);
    field_word(out, "kind", Some(subject.kind.as_str()));
    out.extend_from_slice(b",\"value\":");
    push_string(out, &subject.value, MAX_VALUE_BYTES);
    out.push(b'}');
}

/// Writes as many entries as fit, and returns the number of omitted entries.
pub(crate) fn field_list<T>(
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
            // This also removes the comma before the entry.
            out.truncate(entry_start);
            omitted = (entries.len() - index) as u64;
            break;
        }
    }
    out.push(b']');
    omitted
}

pub(crate) fn field_text(out: &mut Vec<u8>, key: &str, text: Option<&str>) {
    push_key(out, key);
    match text {
        Some(text) => push_string(out, text, MAX_NAME_BYTES),
        None => out.extend_from_slice(b"null"),
    }
}

/// Writes a word of a fixed vocabulary, which needs neither a limit nor escaping.
pub(crate) fn field_word(out: &mut Vec<u8>, key: &str, word: Option<&'static str>) {
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

pub(crate) fn field_number(out: &mut Vec<u8>, key: &str, number: Option<u64>) {
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

pub(crate) fn push_key(out: &mut Vec<u8>, key: &str) {
    out.extend_from_slice(b",\"");
    out.extend_from_slice(key.as_bytes());
    out.extend_from_slice(b"\":");
}

fn whole_micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
