//! Implements the methods of the store with SQL that both databases understand.

mod apply;
mod approvals;
mod events;
mod external_calls;
mod inbox;
mod leases;
mod members;
mod notes;
mod pages;
mod participants;
#[cfg(test)]
mod query_plans;
mod runs;
mod space_messages;
mod spaces;
mod started_calls;
mod steps;
mod sweep;
mod tokens;
mod words;

pub(crate) use apply::{apply, resolve_external_call_with};
pub(crate) use approvals::{add_approval, answer_approval, approval, approvals, expire_approvals};
pub(crate) use events::{append_event, event_bounds, events, remove_events_before};
pub(crate) use external_calls::{
    add_external_call, cancel_external_call, expire_external_calls, external_call, external_calls,
    resolve_external_call, shown_calls, time_out_external_call,
};
pub(crate) use inbox::{consume_inbox, inbox, inboxes_with_entries, push_inbox};
pub(crate) use leases::{acquire_lease, release_lease, renew_lease, reopen_run};
pub(crate) use members::{add_member, is_member, members, remove_member, share_space};
pub(crate) use notes::{notes, remove_notes, set_notes, take_due_plans};
pub(crate) use participants::{
    create_participant, participant, participants, remove_participant, update_participant,
};
pub(crate) use runs::{create_run, request_cancel, run, runs};
pub(crate) use space_messages::{call_message, space_message, space_messages};
pub(crate) use spaces::{create_space, remove_space, space, spaces, sweep_spaces};
pub(crate) use started_calls::{finish_call, start_call, started_calls};
pub(crate) use steps::{commit_step, messages, steps};
pub(crate) use sweep::{ping, remove_ended_before};
pub(crate) use tokens::{add_token, find_token, remove_token, remove_tokens_of, tokens};
