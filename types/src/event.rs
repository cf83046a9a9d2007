//! What happens to a call, for whoever watches. Serialisations of other systems derive from these.

use std::{sync::Arc, time::Duration};

use crate::{ToolErrorKind, ToolOutput};

/// Receives the events of calls. Called synchronously from the pipeline; it must not block.
pub type EventFn = Arc<dyn Fn(&ToolEvent) + Send + Sync>;

impl ToolEvent {
    /// The call that it is an event of.
    #[must_use]
    pub fn call_id(&self) -> &str {
        match self {
            Self::Requested { call_id, .. }
            | Self::ArgumentsDelta { call_id, .. }
            | Self::ApprovalRequested { call_id }
            | Self::ApprovalResolved { call_id, .. }
            | Self::Started { call_id, .. }
            | Self::Heartbeat { call_id, .. }
            | Self::Progress { call_id, .. }
            | Self::Update { call_id, .. }
            | Self::Pending { call_id }
            | Self::Finished { call_id, .. } => call_id,
        }
    }
}

/// One event in the life of a call. Events inform; the audit log, not they, is the record.
///
/// Exhaustive on purpose: a serialisation that forgets a new event should not compile.
#[derive(Debug, Clone, PartialEq)]
pub enum ToolEvent {
    /// The caller asked for the call; nothing is decided yet.
    Requested {
        /// The call.
        call_id: String,
        /// The tool's name, as asked for.
        tool: String,
        /// The arguments, as given.
        arguments: String,
    },
    /// A streaming model sent more of the arguments' text.
    ArgumentsDelta {
        /// The call.
        call_id: String,
        /// The tool's name, as far as it has come.
        tool: String,
        /// The text.
        delta: String,
    },
    /// A person or a program is asked to approve.
    ApprovalRequested {
        /// The call.
        call_id: String,
    },
    /// The approval was given or refused.
    ApprovalResolved {
        /// The call.
        call_id: String,
        /// Whether it was given.
        approved: bool,
    },
    /// Every check passed; the tool starts now.
    Started {
        /// The call.
        call_id: String,
        /// The tool's name.
        tool: String,
    },
    /// The tool runs, and has reported nothing for a while. The registry says so, not the tool.
    Heartbeat {
        /// The call.
        call_id: String,
        /// For how long it has run.
        elapsed: Duration,
    },
    /// The tool reports progress.
    Progress {
        /// The call.
        call_id: String,
        /// The tool's text.
        text: String,
    },
    /// The tool reports a partial result.
    Update {
        /// The call.
        call_id: String,
        /// The partial result.
        partial: ToolOutput,
    },
    /// The result will come later, from elsewhere.
    Pending {
        /// The call.
        call_id: String,
    },
    /// The call is over; its audit row is written.
    Finished {
        /// The call.
        call_id: String,
        /// The tool's name.
        tool: String,
        /// The error's kind; none for a result.
        error: Option<ToolErrorKind>,
        /// From the request to the row, without the wait for an approver.
        duration: Duration,
        /// Bytes of the whole result before anything was cut.
        bytes: u64,
        /// Whether something of the result was cut or left out.
        truncated: bool,
    },
}
