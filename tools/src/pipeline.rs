//! The pipeline of a call: seven steps, each a function from the previous step's output to its own. Code
//! outside this module cannot construct a step's output, and inside it only the step itself does.
//!
//! Two things are not steps. Hooks see the outcome of a run before it is shaped (`hooks.rs`). If an approver
//! changes the arguments, step 4 runs steps 2 and 3 again, a bounded number of times.
//!
//! Each step takes the previous step's output, the [`Host`], the caller and the call's pending record. The
//! last step consumes the record.

mod admit;
mod authorize;
mod backend;
mod bound;
mod caller_deadline;
mod check;
mod explain;
mod flow;
mod heartbeat;
mod hooks;
mod host;
mod judge;
mod late_result;
mod path_target;
mod pending_record;
mod record;
mod resolve;
mod run;
mod shape;

pub(crate) use admit::admit;
pub(crate) use authorize::authorize;
pub(crate) use backend::{
    Backend, CONFIGURED_URL, ExternalBackend, GuestTool, HttpBackend, InternalBackend, McpBackend,
    NativeTool, SERVER_URL, time_limit_error,
};
pub(crate) use bound::format_with_commas;
pub(crate) use check::check;
pub(crate) use explain::verdict_by_names;
pub use explain::{
    Counterexample, Coverage, ExpectationKind, ExpectationReport, ExpectationResult, ExplainRequest,
    ExplainedTool, Explainer, Explanation, FailedExpectations, FlowStep, JudgedCall, LocatedRule, MountGrant,
    ReachSource, RecordedDecision, RecordedExplanation, RowError, ToolGrants, UncoveredGrant, explain_row,
};
pub(crate) use hooks::run_after_hooks;
pub(crate) use host::Host;
pub use late_result::LateResult;
pub(crate) use late_result::take as take_late_result;
pub(crate) use pending_record::PendingRecord;
pub(crate) use record::record;
pub(crate) use resolve::resolve;
pub(crate) use run::run;
pub(crate) use shape::shape;
