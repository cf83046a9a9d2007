//! Events of a call, for observers. The event formats of other systems derive from these.

use std::{sync::Arc, time::Duration};

use crate::{ToolErrorKind, ToolOutput};

/// Receives the events of calls. Called synchronously by the pipeline; it must not block.
pub type EventFn = Arc<dyn Fn(&ToolEvent) + Send + Sync>;

impl ToolEvent {
    /// The id of the event's call.
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

/// One event of a call. Events only inform; the record is the audit log.
///
/// Exhaustive on purpose: a format that forgets a new event must not compile.
#[derive(Debug, Clone, PartialEq)]
pub enum ToolEvent {
    /// The caller requested the call; there is no decision yet.
    Requested {
        /// The call.
        call_id: String,
        /// The tool's name, as requested.
        tool: String,
        /// The arguments, as given.
        arguments: String,
    },
    /// A streaming model sent another part of the arguments' text.
    ArgumentsDelta {
        /// The call.
        call_id: String,
        /// The part of the tool's name received so far.
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
    /// All checks passed; the tool starts now.
    Started {
        /// The call.
        call_id: String,
        /// The tool's name.
        tool: String,
    },
    /// The tool is running and has reported nothing for a while. The registry sends this, not the tool.
    Heartbeat {
        /// The call.
        call_id: String,
        /// The time since it started.
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
    /// The result will come later, from outside.
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
        /// The time from the request to the row, without the wait for an approver.
        duration: Duration,
        /// The size of the whole result before anything was cut, in bytes.
        bytes: u64,
        /// Whether something of the result was cut or left out.
        truncated: bool,
    },
}
