//! [`RunError`]: why a run cannot be driven.

use std::{io, path::PathBuf};

use portcullis_store::StoreError;
use portcullis_tools::policy::InvalidFlowLabel;
use thiserror::Error;

use crate::RunId;

/// Why a run cannot be started or resumed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RunError {
    /// The text is not the id of a run.
    #[error("`{}` is not a run id: `run_` and 16 hexadecimal digits", .text.escape_debug())]
    InvalidId {
        /// The text, as it was given.
        text: String,
    },
    /// The system gives no random bytes for an id.
    #[error("the system provides no random bytes")]
    Random {
        /// The system's error.
        #[source]
        source: getrandom::Error,
    },
    /// No run uses this workspace.
    #[error("no run uses the workspace `{}`", .workspace.escape_debug())]
    NoRun {
        /// The folder that the run would work on, as the operator names it.
        workspace: String,
    },
    /// The run uses another workspace. Its messages refer to other folders.
    #[error("the run `{id}` uses the workspace `{}`, not `{}`", .other.escape_debug(), .workspace.escape_debug())]
    OtherWorkspace {
        /// The id of the run.
        id: RunId,
        /// The workspace of the run.
        other: String,
        /// The workspace of this process.
        workspace: String,
    },
    /// The run has an answer, so there is nothing to resume.
    #[error(
        "the run `{id}` has its answer; continue it with a prompt: portcullis agent PROMPT --resume {id}"
    )]
    AlreadyAnswered {
        /// The id of the run.
        id: RunId,
    },
    /// A newer version has written the state.
    #[error("the state of the run `{id}` has the format {found}, and this program reads up to {known}")]
    NewerFormat {
        /// The id of the run.
        id: RunId,
        /// The format of the state.
        found: u32,
        /// The newest format that this program reads.
        known: u32,
    },
    /// The store has a row that this program cannot parse.
    #[error("the store has a {kind} of the run `{id}` that cannot be read")]
    Malformed {
        /// The id of the run.
        id: RunId,
        /// The kind of the row.
        kind: &'static str,
        /// The parser's error.
        #[source]
        source: serde_json::Error,
    },
    /// The run has an unknown label, so its flow rules could not be enforced.
    #[error("the run `{id}` has a label that is not known")]
    UnknownLabel {
        /// The id of the run.
        id: RunId,
        /// Why the text of the label is refused.
        #[source]
        source: InvalidFlowLabel,
    },
    /// The folder of the process locks cannot be used.
    #[error("cannot read or write the folder `{}`", .folder.display())]
    LockFolder {
        /// The host path of the folder of locks.
        folder: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// The run belongs to another agent, or to a client of a server, so this agent cannot resume it.
    #[error("the run `{id}` belongs to `{}`", agent.escape_default())]
    OtherAgent {
        /// The id of the run.
        id: RunId,
        /// The agent of the run.
        agent: String,
    },
    /// A step was taken but cannot be stored. It can be taken again.
    #[error("cannot store the step of the run `{id}`: {reason}")]
    NotStored {
        /// The id of the run.
        id: RunId,
        /// The reason, for the operator.
        reason: String,
    },
    /// An operation of the store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}
