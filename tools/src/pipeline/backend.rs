//! Backends, which run tools. Each kind of tool has one file that implements one trait. A new kind needs a
//! new file here and a new [`ToolOrigin`](portcullis_policy::ToolOrigin).
//!
//! | file | runs |
//! |---|---|
//! | `native.rs` | a tool of this process, on a thread that may block |
//! | `guest.rs` | a module's tool, on a confined thread |
//! | `guest_requests.rs` | the requests of a module's tool, while it runs |
//! | `external.rs` | a tool whose result is submitted from outside |
//! | `internal.rs` | a tool that returns its arguments |
//! | `http.rs` | a tool whose calls are requests to one URL |
//! | `mcp.rs`, `mcp_response.rs` | a tool of an MCP server |
//! | `egress.rs` | a request, on a thread of the host's HTTP client |
//! | `shell.rs` | a command, in the sidecar |
//! | `notification.rs` | a notification, and its step that speaks to a mail server |
//! | `operation.rs` | the steps of an operation |
//! | `change_recording.rs` | records a guest's changes in mounts with `undo` |
//! | `reports.rs` | forwards progress and partial results to the caller |

mod change_recording;
mod egress;
mod external;
mod guest;
mod guest_requests;
mod http;
mod internal;
mod mcp;
mod mcp_response;
mod native;
mod notification;
mod operation;
mod reports;
mod shell;

use std::{
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};

use portcullis_policy::{Grant, ProtectedKinds, RequestedSubject};
use portcullis_types::{ToolArgs, ToolError, ToolOutput, async_trait};

use super::{Host, PendingRecord, check::Checked};
use crate::{
    approval::StepGrant,
    audit::{Confinement, RecordedConnection, SharedText, TouchedMount},
    call::Caller,
    http_tool::HttpTarget,
    registered::RegisteredTool,
    run_labels::LabelGuard,
    sandbox::ModuleDigest,
    shell::ShellBackend,
    slots::CallSlot,
};

pub(crate) use external::{ExternalBackend, submitted_output};
pub(crate) use guest::GuestTool;
pub(crate) use http::{CONFIGURED_URL, HttpBackend};
pub(crate) use internal::InternalBackend;
pub(crate) use mcp::{McpBackend, SERVER_URL};
pub(crate) use native::NativeTool;

/// Runs tools of one kind. Each method's default suits a backend without the feature.
#[async_trait]
pub(crate) trait Backend: fmt::Debug + Send + Sync {
    /// The confinement of the tool.
    fn confinement(&self) -> Confinement;

    /// Prepares whatever all calls of the tool need, before the timeout of the call starts. Failures are
    /// ignored, because the attempt then fails in the same way and reports it. Default: nothing.
    ///
    /// # Cancellation
    /// If the future is dropped, the work that it started continues, for the next call.
    async fn prepare(&self, host: &Host) {
        let _ = host;
    }

    /// Makes one attempt at a call. Only the run step calls this method, up to three times per call. All
    /// attempts share one slot and one deadline.
    ///
    /// # Errors
    /// A failure that prevents the attempt. The outcome of an attempt that was made is in [`AttemptOutcome`].
    ///
    /// # Cancellation
    /// A dropped future stops the work that it started.
    async fn attempt(
        &self,
        attempt: CallAttempt<'_>,
        pending_record: &mut PendingRecord,
    ) -> Result<AttemptOutcome, ToolError>;

    /// Whether the tool runs unconfined, outside every sandbox. Approval questions show this.
    fn is_unconfined(&self) -> bool {
        false
    }

    /// Why calls cannot run in this process even if the policy allows them. `None` if they can.
    fn unavailable_reason(&self, host: &Host) -> Option<&str> {
        let _ = host;
        None
    }

    /// The grants whose writable mounts the call locks exclusively: its own, or those of its steps.
    fn exclusive_write_grants<'g>(
        &self,
        own: &'g Grant,
        steps: &'g [StepGrant],
        caller: &Caller,
    ) -> Vec<&'g Grant> {
        let _ = (own, steps, caller);
        Vec::new()
    }

    /// The module for which the call locks requests with effects exclusively, if its grant allows any.
    fn exclusive_request_module(&self, own: &Grant) -> Option<ModuleDigest> {
        let _ = own;
        None
    }

    /// Whether results have their own limit, in place of the limit of a guest's frame.
    fn bounds_results(&self) -> bool {
        false
    }

    /// Whether the tool can block its thread after its call has ended.
    fn may_block(&self) -> bool {
        false
    }

    /// Whether an interrupted call can be retried without a second effect: the retry continues the first
    /// call.
    fn may_resume(&self) -> bool {
        false
    }

    /// The module and declaration of a guest tool.
    fn guest(&self) -> Option<&GuestTool> {
        None
    }

    /// The request of an HTTP tool, or of a tool of an MCP server.
    fn http_target(&self) -> Option<&HttpTarget> {
        None
    }

    /// The subject of a call that the tool's configuration names, and no argument.
    ///
    /// # Errors
    /// The arguments do not fit the configuration.
    fn configured_subject(&self, args: &ToolArgs) -> Result<Option<RequestedSubject>, ToolError> {
        let _ = args;
        Ok(None)
    }

    /// The steps of an operation.
    fn steps(&self) -> &[Arc<RegisteredTool>] {
        &[]
    }

    /// The arguments by which the steps of an operation are judged, before anything runs. `None` if these are
    /// the operation's own arguments.
    ///
    /// # Errors
    /// The operation cannot derive its steps' arguments from these arguments.
    fn arguments_of_steps(&self, args: &ToolArgs) -> Result<Option<ToolArgs>, ToolError> {
        let _ = args;
        Ok(None)
    }

    /// The shell backend, if the tool runs commands.
    fn shell(&self) -> Option<&ShellBackend> {
        None
    }
}

/// The input of every attempt at a call.
#[derive(Clone, Copy)]
pub(crate) struct CallAttempt<'a> {
    pub(super) checked: &'a Checked,
    pub(super) grant: &'a Grant,
    pub(super) slot: &'a CallSlot,
    pub(super) time_limit: Duration,
    pub(super) deadline: Instant,
    pub(super) labels: &'a LabelGuard,
    /// The protected kinds that the guests of the call must not write, if any.
    pub(super) forbidden_kinds: Option<&'a Arc<ProtectedKinds>>,
    /// Whether an approver has approved the call, including the grants of its steps.
    pub(super) is_approved: bool,
    pub(super) caller: &'a Caller,
    pub(super) host: &'a Host,
}

/// The outcome of an attempt.
#[derive(Debug)]
pub(crate) struct AttemptOutcome {
    pub(super) result: Result<ToolOutput, ToolError>,
    /// Text for the model after the output. Truncation keeps it.
    pub(super) trailer: Option<String>,
    pub(super) usage: Option<ResourceUsage>,
    /// Whether a retry is harmless and may succeed.
    pub(super) may_retry: bool,
    /// Set if the result is submitted later, from outside. `result` is then an empty output.
    pub(super) pending: Option<PendingResult>,
}

/// A result that will be submitted later.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PendingResult {
    /// The id under which the result is submitted.
    pub(super) id: String,
    /// When the call expires, in milliseconds since the Unix epoch.
    pub(super) expires_at: i64,
}

impl AttemptOutcome {
    /// Returns a result without usage that is not retried.
    fn without_retry(result: Result<ToolOutput, ToolError>) -> Self {
        Self { result, trailer: None, usage: None, may_retry: false, pending: None }
    }
}

/// The resources that a call used, as far as the backend knows: the fields `cpu_us`, `peak_memory`,
/// `mounts_used`, `touched`, `touched_paths` and `connections` of the audit row.
#[derive(Debug)]
pub(crate) struct ResourceUsage {
    pub(super) cpu: Duration,
    pub(super) peak_memory_bytes: u64,
    pub(super) mounts_used: Vec<SharedText>,
    /// The operations of the call in each mount. `None` if they were not observed.
    pub(super) touched: Option<Vec<TouchedMount>>,
    /// The first guest paths that the call accessed.
    pub(super) touched_paths: Vec<SharedText>,
    /// The connections of a command.
    pub(super) connections: Vec<RecordedConnection>,
    /// The number of connections beyond the limit of the list.
    pub(super) connections_omitted: u64,
}

/// Returns the error of a tool that exceeds its time limit.
pub(crate) fn time_limit_error(limit: Duration) -> ToolError {
    ToolError::timeout(format!("the tool did not finish within {limit:?}"))
}
