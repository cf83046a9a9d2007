//! The way of a call: seven steps, each a function from the output of the one before to its own. Their
//! outputs can only be made by them, so a step that is left out does not compile.

mod admit;
mod attempt;
mod authorize;
mod bound;
mod call_log;
mod caller_deadline;
mod check;
mod heartbeat;
mod hooks;
mod record;
mod resolve;
mod run;
mod shape;

pub(crate) use admit::admit;
pub(crate) use attempt::overdue;
pub(crate) use authorize::authorize;
pub(crate) use bound::with_commas;
pub(crate) use call_log::PendingRecord;
pub(crate) use check::check;
pub(crate) use hooks::after;
pub(crate) use record::record;
pub(crate) use resolve::resolve;
pub(crate) use run::run;
pub(crate) use shape::shape;
