//! The audit log: append-only, hash-chained, and written ahead of every effect, with one JSON line per row.
//!
//! ```text
//! <state>/audit.jsonl            the log; its exclusive flock orders the processes that share it
//! <state>/audit.live/<process>   held locked by a living process; holds the offset of its oldest open begin
//! <state>/audit.segments/        sealed segments and their checkpoints
//! <state>/audit.checkpoint       the newest checkpoint, which the next start compares with the log
//! <state>/audit.key              the key that signs checkpoints, unless another one is set; `audit.key.pub` verifies
//! <state>/audit.witnesses/       the newest checkpoint that each witness has signed
//! <state>/audit.torn-<time>      a torn tail that recovery moved out of the log; it is never deleted
//! <state>/policies/<digest>.*    the effective policies that rows name, as `toml`, and as the `json` that is hashed
//! <state>/questions/<sha256>.txt the questions to approvers that rows name
//! ```
//!
//! The chain proves that no row was changed, moved, inserted, or removed between two other rows, unless the
//! attacker also rewrote all following rows. It cannot detect rows that are missing at the very end, nor an
//! attacker with this user's rights who rewrote the whole file. To detect both, keep a [`SignedCheckpoint`]
//! or [`VerifyReport::head`] elsewhere, or have a witness sign the checkpoints ([`WitnessClient`]).
//!
//! This crate makes no decisions: the pipeline decides whether a call may run and when its rows are written.
#![forbid(unsafe_code)]

mod approver;
mod backwards;
mod bundle;
mod chain;
mod checkpoint;
mod compared_checkpoints;
mod connection;
mod cosignature;
mod error;
mod files;
mod follow;
mod key;
mod lines;
mod live_file;
mod lock;
mod log;
mod open_calls;
mod process;
mod read;
mod recovery;
mod request;
mod rotation;
mod row;
mod seal;
mod segments;
mod ssh_agent;
mod stored_texts;
mod sync;
mod tail;
mod text;
mod touched;
mod tree;
mod verify;
mod witness;
mod writer;

pub use approver::{ApproverKind, RecordedApprover};
pub use bundle::{
    BundleError, BundleReport, BundleRequest, WrittenBundle, check_bundle, last_disclosed, write_bundle,
};
pub use chain::{MAX_ROW_BYTES, ROW_VERSION, is_sha256};
pub use checkpoint::{Checkpoint, SignatureFault, SignedCheckpoint};
pub use compared_checkpoints::{CheckpointFinding, CheckpointReport, CheckpointSource};
pub use connection::RecordedConnection;
pub use cosignature::WitnessKey;
pub use error::AuditError;
pub use files::{LOG_NAME, log_path};
pub use follow::LogFollower;
pub use key::{CheckpointKey, KEY_CREDENTIAL, KEY_NAME, KeyError, KeySource, VERIFIER_KEY_NAME, VerifierKey};
pub use log::{AuditLog, RowRef};
pub use process::{
    CollectStartFn, LoadPolicyFn, PolicyChange, PolicyChangeCause, ProcessStart, StoredPolicy,
};
pub use read::{Row, RowLine, newest_row_lines, row_lines, rows};
pub use recovery::{Recovery, TornTail};
pub use request::RecordedRequest;
pub use row::{
    CallEnd, Confinement, Decision, ModelEnd, NewRow, NewRowEvent, Outcome, RecordedMount, RowEvent,
    RowFields, SharedText, Subject, SubjectKind, SubjectSource,
};
pub use seal::{
    CHECKPOINT_INTERVAL, CHECKPOINT_ROWS, CheckpointSink, NEWEST_CHECKPOINT, SealingOptions,
    newest_checkpoint,
};
pub use segments::SEGMENTS_DIR;
pub use ssh_agent::SshAgentError;
pub use stored_texts::{POLICIES_DIR, QUESTIONS_DIR};
pub use sync::{SYNC_INTERVAL, SyncMode};
pub use touched::TouchedMount;
pub use tree::{ConsistencyProver, Frontier, TreeHash, is_consistent, leaf_hash};
pub use verify::{
    BreakReason, ChainBreak, OpenBegin, VerifyReport, VerifyRequest, WitnessReport, verify, verify_against,
};
pub use witness::{WITNESSES_DIR, WitnessClient, WitnessError, WitnessOutcome, WitnessRequest};

#[cfg(test)]
mod tests;
