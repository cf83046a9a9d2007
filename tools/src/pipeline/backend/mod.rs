//! Backends, which run tools: one file per kind, behind one trait. A new kind of tool is a file here and a
//! [`ToolOrigin`](portcullis_policy::ToolOrigin).
//!
//! | file | runs |
//! |---|---|
//! | `native.rs` | a tool of this process, on a thread that may block |
//! | `guest.rs` | a module's tool, on a confined thread |
//! | `guest_requests.rs` | the requests of a module's tool, while it runs |
//! | `egress.rs` | a request, on a thread of the host's HTTP client |
//! | `shell.rs` | a command, in the sidecar |
//! | `operation.rs` | the steps of an operation |
//! | `reports.rs` | progress and partial results, on their way to the caller |

mod egress;
mod guest;
mod guest_requests;
mod native;
mod operation;
mod reports;
mod shell;

use std::{
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};

use portcullis_policy::{Grant, ProtectedKinds};
use portcullis_types::{ToolArgs, ToolError, ToolOutput, async_trait};

use super::{Host, PendingRecord, check::Checked};
use crate::{
    approval::StepGrant,
    audit::{Confinement, RecordedConnection, Text},
    call::Caller,
    registered::RegisteredTool,
    run_labels::RunningCallLabels,
    shell::ShellBackend,
    slots::CallSlot,
};

pub(crate) use guest::GuestTool;
pub(crate) use native::NativeTool;

/// Runs tools of one kind. The provided methods suit a backend without the feature in question.
#[async_trait]
pub(crate) trait Backend: fmt::Debug + Send + Sync {
    /// The confinement of the tool.
    fn confinement(&self) -> Confinement;

    /// Makes one attempt at a call. Only the run step calls this, up to three times per call, in one slot and
    /// under one deadline.
    ///
    /// # Errors
    /// A failure that prevents the attempt. The outcome of an attempt is in [`AttemptOutcome`].
    ///
    /// # Cancellation
    /// Dropping the future stops the work that it has begun.
    async fn attempt(
        &self,
        attempt: CallAttempt<'_>,
        pending: &mut PendingRecord,
    ) -> Result<AttemptOutcome, ToolError>;

    /// Whether the tool runs outside every sandbox. The approver's question says so.
    fn is_unconfined(&self) -> bool {
        false
    }

    /// The reason why no call can run in this process, even if the policy allows it. `None` if calls can run.
    fn unavailable_reason(&self, host: &Host) -> Option<&str> {
        let _ = host;
        None
    }

    /// The grants in whose writable mounts the call must be the only writer: its own, or those of its steps.
    fn writes_alone<'g>(&self, own: &'g Grant, steps: &'g [StepGrant], caller: &Caller) -> Vec<&'g Grant> {
        let _ = (own, steps, caller);
        Vec::new()
    }

    /// Whether results have their own limit, in place of the limit of a guest's frame.
    fn bounds_results(&self) -> bool {
        false
    }

    /// Whether the tool may block its thread after its call has ended.
    fn may_block(&self) -> bool {
        false
    }

    /// The module and declaration of a guest tool.
    fn guest(&self) -> Option<&GuestTool> {
        None
    }

    /// The steps of an operation.
    fn steps(&self) -> &[Arc<RegisteredTool>] {
        &[]
    }

    /// The arguments by which an operation's steps are judged before anything runs. `None` for the
    /// operation's own arguments.
    ///
    /// # Errors
    /// Arguments from which no steps follow.
    fn arguments_of_steps(&self, args: &ToolArgs) -> Result<Option<ToolArgs>, ToolError> {
        let _ = args;
        Ok(None)
    }

    /// The shell backend, if the tool runs commands.
    fn shell(&self) -> Option<&ShellBackend> {
        None
    }
}

/// The inputs of every attempt at a call.
#[derive(Clone, Copy)]
pub(crate) struct CallAttempt<'a> {
    pub(super) checked: &'a Checked,
    pub(super) grant: &'a Grant,
    pub(super) slot: &'a CallSlot,
    pub(super) time_limit: Duration,
    pub(super) deadline: Instant,
    pub(super) labels: &'a RunningCallLabels,
    /// The protected kinds, if a guest of the call must not write any.
    pub(super) withheld: Option<&'a Arc<ProtectedKinds>>,
    /// Whether an approver has approved of the call, its steps' grants in view.
    pub(super) is_approved: bool,
    pub(super) caller: &'a Caller,
    pub(super) host: &'a Host,
}

/// The outcome of an attempt.
#[derive(Debug)]
pub(crate) struct AttemptOutcome {
    pub(super) result: Result<ToolOutput, ToolError>,
    /// Text for the model after the output; it is kept when the output is cut.
    pub(super) trailer: Option<String>,
    pub(super) usage: Option<ResourceUsage>,
    /// Whether another attempt is harmless and may succeed.
    pub(super) may_retry: bool,
}

impl AttemptOutcome {
    /// A result without usage and without another attempt.
    fn once(result: Result<ToolOutput, ToolError>) -> Self {
        Self { result, trailer: None, usage: None, may_retry: false }
    }
}

/// The resources that a call used, as far as the backend knows them. A field of the audit row that is
/// measured comes from here.
#[derive(Debug)]
pub(crate) struct ResourceUsage {
    pub(super) cpu: Duration,
    pub(super) peak_memory_bytes: u64,
    pub(super) mounts_used: Vec<Text>,
    /// The connections of a command.
    pub(super) connections: Vec<RecordedConnection>,
    /// The number of connections that the list omits.
    pub(super) connections_omitted: u64,
}

/// The caller's error when a tool exceeds its time limit.
pub(crate) fn overdue(limit: Duration) -> ToolError {
    ToolError::timeout(format!("the tool did not finish within {limit:?}"))
}
