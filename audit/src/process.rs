//! Rows that are not about a call: the start and end of a process, and changes of the policy.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{
    chain::Hash,
    row::{
        RowEvent, SharedText,
        write::{RowHead, begin_line, end_line, field_list, field_number, field_text, field_word},
    },
    tree::Frontier,
};

/// The facts of a process that opens the log. They become its `start` row, which precedes its other rows.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ProcessStart {
    /// The version of Portcullis.
    pub version: SharedText,
    /// SHA-256 of the program's file. `None` if it cannot be read.
    pub binary_sha256: Option<SharedText>,
    /// The user of the process.
    pub uid: u32,
    /// The host name of the machine, or of the container.
    pub host: Option<SharedText>,
    /// The name of this instance among several that share a policy. `None` if it has none.
    pub instance: Option<SharedText>,
    /// Digest of the effective policy.
    pub policy_digest: Option<SharedText>,
    /// SHA-256 of the lock file of approved modules. `None` if there is no lock file.
    pub lock_sha256: Option<SharedText>,
}

portcullis_types::word_enum! {
    /// Why a process read its policy.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
    pub enum PolicyChangeCause {
        /// The start of the process.
        Start = "start",
        /// A hangup (SIGHUP) of a server.
        Hangup = "hangup",
    }
}

/// A change of the policy in force, or a policy that was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyChange {
    /// The digest of the old policy. `None` if it is unknown.
    pub old_digest: Option<SharedText>,
    /// The digest of the new policy. `None` if it was refused.
    pub new_digest: Option<SharedText>,
    /// Why the process read the policy.
    pub cause: PolicyChangeCause,
    /// The user of the process.
    pub uid: u32,
    /// Why the new policy was refused. The old policy stays in force, or the process does not start.
    pub refused: Option<SharedText>,
}

/// A checkpoint as a row of the log: the tree of all rows before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CheckpointRow {
    /// The tree's right edge, from which the tree can be extended.
    pub(super) frontier: Frontier,
    /// The number of the segment that contains the row.
    pub(super) segment: u64,
    /// The length of the segments before it.
    pub(super) bytes_before: u64,
}

/// A row that is not about a call.
#[derive(Debug, Clone, Copy)]
pub(super) enum ProcessRow<'a> {
    Start(&'a ProcessStart),
    Policy(&'a PolicyChange),
    Checkpoint(&'a CheckpointRow),
    Stop,
}

/// Replaces the content of `out` with a whole line, and returns the line's hash.
pub(super) fn write_process_line(out: &mut Vec<u8>, head: &RowHead<'_>, row: ProcessRow<'_>) -> Hash {
    let event = match row {
        ProcessRow::Start(_) => RowEvent::Start,
        ProcessRow::Policy(_) => RowEvent::Policy,
        ProcessRow::Checkpoint(_) => RowEvent::Checkpoint,
        ProcessRow::Stop => RowEvent::Stop,
    };
    begin_line(out, head, event);
    match row {
        ProcessRow::Start(start) => {
            field_text(out, "version", Some(&start.version));
            field_text(out, "binary_sha256", start.binary_sha256.as_deref());
            field_number(out, "uid", Some(u64::from(start.uid)));
            field_text(out, "host", start.host.as_deref());
            field_text(out, "instance", start.instance.as_deref());
            field_text(out, "policy_digest", start.policy_digest.as_deref());
            field_text(out, "lock_sha256", start.lock_sha256.as_deref());
        }
        ProcessRow::Policy(change) => {
            field_text(out, "old_digest", change.old_digest.as_deref());
            field_text(out, "new_digest", change.new_digest.as_deref());
            field_word(out, "cause", Some(change.cause.as_str()));
            field_number(out, "uid", Some(u64::from(change.uid)));
            field_text(out, "refused", change.refused.as_deref());
        }
        ProcessRow::Checkpoint(checkpoint) => {
            let CheckpointRow { frontier, segment, bytes_before } = checkpoint;
            field_number(out, "size", Some(frontier.size()));
            field_text(out, "root", Some(&hex::encode(frontier.root())));
            // One hash per bit that is set in the size, so at most 64.
            field_list(out, "frontier", frontier.roots(), usize::MAX, |out, root| {
                out.push(b'"');
                out.extend_from_slice(hex::encode(root).as_bytes());
                out.push(b'"');
            });
            field_number(out, "segment", Some(*segment));
            field_number(out, "bytes_before", Some(*bytes_before));
        }
        ProcessRow::Stop => {}
    }
    field_text(out, "process", Some(head.process));
    end_line(out, head)
}

/// Returns the text of a policy. Called only if no earlier process has stored the policy.
pub type LoadPolicyFn = Box<dyn Fn() -> StoredPolicy + Send>;

/// The forms in which a policy is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredPolicy {
    /// The effective policy as a policy file.
    pub toml: String,
    /// The canonical JSON of the effective policy. Its SHA-256 is the policy's digest, so the
    /// file verifies itself.
    pub json: Vec<u8>,
}

/// Collects the facts of a process. Called at most once, when the first row is written.
pub type CollectStartFn = Box<dyn FnOnce() -> ProcessStart + Send>;

/// The start of a process whose row has not been written.
pub(super) struct PendingStart {
    start: LazyStart,
    pub(super) policy: Option<LoadPolicyFn>,
}

enum LazyStart {
    Collected(Box<ProcessStart>),
    /// `None` only while the facts are being collected.
    NotCollected(Option<CollectStartFn>),
}

impl PendingStart {
    pub(super) fn new(collect: CollectStartFn, policy: Option<LoadPolicyFn>) -> Self {
        Self { start: LazyStart::NotCollected(Some(collect)), policy }
    }

    /// Returns the facts. They are collected on first use and kept, because a failed write of
    /// the row is retried.
    pub(super) fn start(&mut self) -> &ProcessStart {
        if let LazyStart::NotCollected(collect) = &mut self.start {
            let start = collect.take().map(|collect| collect()).unwrap_or_default();
            self.start = LazyStart::Collected(Box::new(start));
        }
        match &self.start {
            LazyStart::Collected(start) => start,
            LazyStart::NotCollected(_) => unreachable!("they were collected above"),
        }
    }
}

impl fmt::Debug for PendingStart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PendingStart").finish_non_exhaustive()
    }
}
