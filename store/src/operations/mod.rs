//! What each method of the store does, in statements that both databases understand.

mod approvals;
mod calls;
mod effects;
mod inbox;
mod leases;
mod pages;
mod runs;
mod steps;
mod sweep;

pub(crate) use approvals::{add_approval, approval, approvals, decide_approval, expire_approvals};
pub(crate) use calls::{add_call, call, calls, cancel_call, expire_calls, resolve_call, time_out_call};
pub(crate) use effects::{begin_effect, effects, finish_effect};
pub(crate) use inbox::{consume_inbox, inbox, push_inbox};
pub(crate) use leases::{acquire_lease, release_lease, renew_lease, reopen_run};
pub(crate) use runs::{create_run, request_cancel, run, runs};
pub(crate) use steps::{commit_step, messages, steps};
pub(crate) use sweep::{ping, remove_ended_before};
