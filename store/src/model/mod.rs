//! What a store keeps, as values: one file for each kind of row. Times are milliseconds since the Unix epoch.

mod approval;
mod call;
mod effect;
mod inbox;
mod page;
mod run;
mod status;
mod step;

pub use approval::{Approval, ApprovalFilter, ApprovalStatus, Decision, NewApproval, Verdict};
pub use call::{CallFilter, CallStatus, NewCall, PendingCall, Resolution, TimeOut};
pub use effect::{Effect, EffectBegin, EffectEnd, FinishedEffect, NewEffect};
pub use inbox::{InboxEntry, NewInboxEntry, TOOL_RESULT};
pub use page::{Page, PageRequest};
pub use run::{LeaseGuard, NewRun, Run, RunFilter, RunLease, RunStatus, RunSummary};
pub(crate) use status::UnknownStatus;
pub use step::{CommitStep, Step, StepRecord, StoredMessage};
