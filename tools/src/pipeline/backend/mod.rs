//! What runs a tool: one file a kind, behind one trait. A new kind of tool is a file here and a
//! [`ToolOrigin`](portcullis_policy::ToolOrigin).
//!
//! | file | what it runs |
//! |---|---|
//! | `native.rs` | a tool of this process, on a thread that may block |
//! | `guest.rs` | a module's tool, on a confined thread |
//! | `shell.rs` | a command, at the sidecar |
//! | `operation.rs` | the steps of an operation |
//! | `reports.rs` | progress and partial results, on their way to the caller |

mod guest;
mod native;
mod operation;
mod reports;
mod shell;

use std::{
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};

use portcullis_policy::Grant;
use portcullis_types::{ToolError, ToolOutput, async_trait};

use super::{Host, PendingRecord, check::Checked};
use crate::{
    approval::StepGrant,
    audit::{Confinement, Text},
    call::Caller,
    registered::RegisteredTool,
    shell::ShellBackend,
    slots::CallSlot,
};

pub(crate) use guest::GuestTool;
pub(crate) use native::NativeTool;

/// What runs a tool. The provided methods are the answers of a backend that has nothing of what they ask for.
#[async_trait]
pub(crate) trait Backend: fmt::Debug + Send + Sync {
    /// What confines the tool.
    fn confinement(&self) -> Confinement;

    /// Tries a call once. Called by the run step alone, up to three times for a call, within one slot and one deadline.
    ///
    /// # Errors
    /// What keeps the call from being tried; what came of a try is in [`Tried`].
    ///
    /// # Cancellation
    /// Dropping the future stops what it has begun.
    async fn attempt(&self, attempt: Attempt<'_>, pending: &mut PendingRecord) -> Result<Tried, ToolError>;

    /// Whether no sandbox holds the tool. An approver is told.
    fn is_unconfined(&self) -> bool {
        false
    }

    /// Why no call can run in this process, whatever the policy says; none where one can.
    fn absence(&self, host: &Host) -> Option<&str> {
        let _ = host;
        None
    }

    /// The grants of whose writable mounts a call must be the only writer: its own, or those of its steps.
    fn writes_alone<'g>(&self, own: &'g Grant, steps: &'g [StepGrant], caller: &Caller) -> Vec<&'g Grant> {
        let _ = (own, steps, caller);
        Vec::new()
    }

    /// Whether results have a limit of their own in place of that of a guest's frame.
    fn bounds_results(&self) -> bool {
        false
    }

    /// Whether the tool may block its thread after its call has ended.
    fn may_block(&self) -> bool {
        false
    }

    /// The tool of a module.
    fn guest(&self) -> Option<&GuestTool> {
        None
    }

    /// The steps that a call is made of.
    fn steps(&self) -> &[Arc<RegisteredTool>] {
        &[]
    }

    /// Where commands run.
    fn shell(&self) -> Option<&ShellBackend> {
        None
    }
}

/// What every try of a call has.
#[derive(Clone, Copy)]
pub(crate) struct Attempt<'a> {
    pub(super) checked: &'a Checked,
    pub(super) grant: &'a Grant,
    pub(super) slot: &'a CallSlot,
    pub(super) time_limit: Duration,
    pub(super) deadline: Instant,
    pub(super) caller: &'a Caller,
    pub(super) host: &'a Host,
}

/// What came of a try.
#[derive(Debug)]
pub(crate) struct Tried {
    pub(super) result: Result<ToolOutput, ToolError>,
    /// What a model reads after the text, whatever is cut from that.
    pub(super) trailer: Option<String>,
    pub(super) usage: Option<Usage>,
    /// Whether another try can do no harm, and may go better.
    pub(super) may_try_again: bool,
}

impl Tried {
    /// A result that has no usage, and is not tried again.
    fn once(result: Result<ToolOutput, ToolError>) -> Self {
        Self { result, trailer: None, usage: None, may_try_again: false }
    }
}

/// What a call used, as far as its backend is told.
#[derive(Debug)]
pub(crate) struct Usage {
    pub(super) cpu: Duration,
    pub(super) peak_memory_bytes: u64,
    pub(super) mounts_used: Vec<Text>,
}

/// What a caller learns of a tool whose time is up.
pub(crate) fn overdue(limit: Duration) -> ToolError {
    ToolError::timeout(format!("the tool did not finish within {limit:?}"))
}
