//! The pipeline of a call: seven steps, each a function from the previous step's output to its own. Outside
//! of this module nothing can construct a step's output, and in it only the step does.
//!
//! Two things are not steps. Hooks see the outcome of a run before it is shaped (`hooks.rs`). Arguments that
//! an approver changed go back to the check: step 4 calls steps 2 and 3 for them, at most eight times.
//!
//! Each step takes the previous output, the [`Host`], the caller and the call's pending record. The last one
//! consumes the record.

mod admit;
mod authorize;
mod backend;
mod bound;
mod call_log;
mod caller_deadline;
mod check;
mod flow;
mod heartbeat;
mod hooks;
mod host;
mod path_target;
mod record;
mod resolve;
mod run;
mod shape;

pub(crate) use admit::admit;
pub(crate) use authorize::authorize;
pub(crate) use backend::{Backend, GuestTool, NativeTool, overdue};
pub(crate) use bound::with_commas;
pub(crate) use call_log::PendingRecord;
pub(crate) use check::check;
pub(crate) use hooks::run_after_hooks;
pub(crate) use host::Host;
pub(crate) use record::record;
pub(crate) use resolve::resolve;
pub(crate) use run::run;
pub(crate) use shape::shape;
