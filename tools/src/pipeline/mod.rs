//! The way of a call: seven steps, each a function from the output of the one before to its own. Their
//! outputs can only be made by them, so a step that is left out does not compile.
//!
//! Two things are no step of their own. Hooks see what came of a run before it is shaped (`hooks.rs`), and arguments
//! that an approver changed start again at the check: step 4 calls steps 2 and 3 for them, at most eight times.
//!
//! Each step takes the output before, the [`Host`], the caller and the call's record. The last one consumes the record.

mod admit;
mod authorize;
mod backend;
mod bound;
mod call_log;
mod caller_deadline;
mod check;
mod heartbeat;
mod hooks;
mod host;
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
pub(crate) use hooks::after;
pub(crate) use host::Host;
pub(crate) use record::record;
pub(crate) use resolve::resolve;
pub(crate) use run::run;
pub(crate) use shape::shape;
