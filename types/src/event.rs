//! Events of a call, for observers. Other event formats derive from them.

use std::{sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{ToolErrorKind, ToolOutput};

/// Receives the events of calls. The pipeline calls it synchronously, so it must not block.
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
            | Self::Pending { call_id, .. }
            | Self::Finished { call_id, .. } => call_id,
        }
    }
}

/// One event of a call. Events are only informative; the audit log is the record.
///
/// Exhaustive on purpose: an event format that misses a new event must not compile.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ToolEvent {
    /// The caller requested the call, which has not been decided.
    Requested {
        /// The call's id.
        call_id: String,
        /// The tool's name, as requested.
        tool: String,
        /// The arguments, as given.
        arguments: String,
    },
    /// A streaming model sent another part of the arguments' text.
    ArgumentsDelta {
        /// The call's id.
        call_id: String,
        /// The part of the tool's name received so far.
        tool: String,
        /// The new part of the text.
        delta: String,
    },
    /// A person or a program is being asked for approval.
    ApprovalRequested {
        /// The call's id.
        call_id: String,
    },
    /// The approval was given or refused.
    ApprovalResolved {
        /// The call's id.
        call_id: String,
        /// Whether the approval was given.
        approved: bool,
    },
    /// All checks have passed, and the tool is starting.
    Started {
        /// The call's id.
        call_id: String,
        /// The tool's name.
        tool: String,
    },
    /// The tool is running and has not reported anything for a while. The registry sends this event on
    /// the tool's behalf.
    Heartbeat {
        /// The call's id.
        call_id: String,
        /// The time since the call started. Serialized as whole microseconds.
        #[serde(rename = "elapsed_us", with = "crate::micros")]
        elapsed: Duration,
    },
    /// The tool reports progress.
    Progress {
        /// The call's id.
        call_id: String,
        /// The tool's text.
        text: String,
    },
    /// The tool reports a partial result.
    Update {
        /// The call's id.
        call_id: String,
        /// The partial result.
        partial: ToolOutput,
    },
    /// The call is waiting for a result from outside the registry. If the result arrives in time, the
    /// call ends with it.
    Pending {
        /// The call's id.
        call_id: String,
        /// The id under which the result is submitted.
        id: String,
        /// When the call expires, in milliseconds since the Unix epoch.
        expires: i64,
    },
    /// The call has ended, and its audit row has been written.
    Finished {
        /// The call's id.
        call_id: String,
        /// The tool's name.
        tool: String,
        /// The error's kind; `None` for a result, and for a call whose result is submitted later.
        error: Option<ToolErrorKind>,
        /// Whether the outcome is pending, so that the result is submitted later.
        #[serde(default, skip_serializing_if = "is_false")]
        is_pending: bool,
        /// The time from the request to the audit row, without the wait for an approver. Serialized as whole
        /// microseconds.
        #[serde(rename = "duration_us", with = "crate::micros")]
        duration: Duration,
        /// The size of the whole result before truncation, in bytes.
        bytes: u64,
        /// Whether a part of the result was truncated or omitted.
        truncated: bool,
    },
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde requires")]
fn is_false(value: &bool) -> bool {
    !value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_event_is_written_and_read_again() {
        let call_id = || "c".to_owned();
        for (event, kind) in [
            (
                ToolEvent::Requested { call_id: call_id(), tool: "t".into(), arguments: "{}".into() },
                "requested",
            ),
            (
                ToolEvent::ArgumentsDelta { call_id: call_id(), tool: "t".into(), delta: "{".into() },
                "arguments_delta",
            ),
            (ToolEvent::ApprovalRequested { call_id: call_id() }, "approval_requested"),
            (ToolEvent::ApprovalResolved { call_id: call_id(), approved: true }, "approval_resolved"),
            (ToolEvent::Started { call_id: call_id(), tool: "t".into() }, "started"),
            (ToolEvent::Heartbeat { call_id: call_id(), elapsed: Duration::from_millis(5) }, "heartbeat"),
            (ToolEvent::Progress { call_id: call_id(), text: "half".into() }, "progress"),
            (ToolEvent::Update { call_id: call_id(), partial: ToolOutput::text("x") }, "update"),
            (ToolEvent::Pending { call_id: call_id(), id: "call_1".into(), expires: 7 }, "pending"),
            (
                ToolEvent::Finished {
                    call_id: call_id(),
                    tool: "t".into(),
                    error: Some(ToolErrorKind::Denied),
                    is_pending: false,
                    duration: Duration::from_micros(42),
                    bytes: 1,
                    truncated: false,
                },
                "finished",
            ),
        ] {
            let json = serde_json::to_value(&event).expect("encodes");
            assert_eq!((json["type"].as_str(), json["call_id"].as_str()), (Some(kind), Some("c")));
            assert_eq!(serde_json::from_value::<ToolEvent>(json).expect("decodes"), event);
        }
    }
}
