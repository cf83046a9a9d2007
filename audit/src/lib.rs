//! The audit log: append-only, hash-chained, written ahead of whatever has effects; one JSON line a row.
//!
//! ```text
//! <state>/audit.jsonl            the log; its exclusive flock orders the processes that share it
//! <state>/audit.live/<process>   held locked by a living process; says where its oldest open begin is
//! <state>/audit.torn-<time>      what recovery cut off the end of the log; nothing is thrown away
//! ```
//!
//! What it proves: no row was changed, removed from between two others, moved or slipped in by anybody who
//! did not also rewrite all that follows. What it can't prove: that rows are missing at the very end, or
//! that the whole file was not written anew by somebody with this user's rights. For both, note
//! [`VerifyReport::head`] in another place.
//!
//! This module decides nothing: what a call may do, and whether it waits for its row, is the pipeline's.
#![forbid(unsafe_code)]

mod chain;
mod error;
mod files;
mod lines;
mod live;
mod lock;
mod log;
mod read;
mod recovery;
mod row;
mod sync;
mod tail;
mod text;
mod verify;
mod writer;

pub use chain::MAX_ROW_BYTES;
pub use error::AuditError;
pub use files::{LOG_NAME, log_path};
pub use log::{AuditLog, RowRef};
pub use read::{Row, rows};
pub use recovery::{Recovery, TornTail};
pub use row::{
    CallRecord, Confinement, Ending, Event, MountAccess, Outcome, Phase, Record, Subject, SubjectKind, Text,
    Verdict,
};
pub use sync::{SYNC_INTERVAL, SyncMode};
pub use verify::{BreakReason, Broken, OpenBegin, VerifyReport, verify};

#[cfg(test)]
mod tests;
