//! The behaviour of every store, as functions over [`RunStore`] or [`GatewayStore`](portcullis_store::GatewayStore).
//! Each database runs all of them, each in an empty store.

pub(crate) mod approvals;
pub(crate) mod builders;
pub(crate) mod calls;
pub(crate) mod changes;
pub(crate) mod events;
pub(crate) mod inbox;
pub(crate) mod leases;
pub(crate) mod limits;
pub(crate) mod notes;
pub(crate) mod participants;
pub(crate) mod retention;
pub(crate) mod runs;
pub(crate) mod space_limits;
pub(crate) mod space_messages;
pub(crate) mod spaces;
pub(crate) mod started_calls;
pub(crate) mod steps;
pub(crate) mod tokens;

use portcullis_store::ExternalCallStatus;
use portcullis_store::{
    CommitStep, Json, LeaseGuard, NewExternalCall, NewRun, RunStatus, RunStore, StepRecord,
};

/// Calls a macro with every case.
macro_rules! foreach_case {
    ($call:ident) => {
        $call! {
            runs::a_run_is_kept_and_read,
            runs::an_id_is_taken_once,
            runs::runs_are_listed_in_pages,
            runs::listings_are_filtered,
            runs::a_person_asks_once_that_a_run_end,
            leases::one_owner_has_the_lease,
            leases::a_lease_ends,
            leases::a_lease_is_renewed_but_not_moved_back,
            leases::a_run_that_has_ended_is_opened_again,
            steps::a_step_is_written_as_a_whole,
            steps::a_step_needs_version_and_lease,
            steps::the_last_step_ends_the_run,
            steps::pages_of_messages_end_at_their_bytes,
            started_calls::a_resumed_run_knows_what_has_finished,
            started_calls::started_calls_need_the_lease,
            calls::a_waiting_call_is_resolved_inline,
            calls::a_late_result_goes_to_the_inbox,
            calls::a_call_is_closed_once,
            calls::calls_expire,
            calls::calls_are_listed,
            approvals::a_question_is_answered_once,
            approvals::an_answer_names_the_hash,
            approvals::questions_expire_and_are_listed,
            inbox::entries_are_read_in_order_until_consumed,
            inbox::a_full_inbox_refuses_and_loses_nothing,
            retention::ended_runs_are_removed_with_all_they_have,
            retention::a_run_with_an_open_call_stays,
            limits::values_over_a_limit_are_refused,
            limits::names_are_checked,
            limits::the_number_of_open_calls_is_bounded,
            inbox::inboxes_with_entries_are_found_by_their_prefix,
            inbox::a_run_begins_with_entries_that_no_other_has,
            runs::open_runs_of_an_agent_are_listed,
            participants::a_participant_is_kept_changed_and_listed,
            participants::a_removed_participant_leaves_its_messages_alone,
            spaces::a_space_is_kept_and_listed,
            spaces::members_come_and_go,
            spaces::a_removed_space_is_not_found_and_is_swept,
            space_messages::a_message_is_posted_read_and_changed,
            space_messages::of_two_updates_of_one_status_one_wins,
            space_messages::calls_are_listed_with_their_messages,
            space_messages::a_page_of_calls_ends_after_the_bytes_of_their_messages,
            space_messages::messages_are_listed_newest_first,
            space_messages::a_search_finds_words_in_any_case,
            space_messages::a_changed_text_is_found_by_its_new_words,
            events::events_are_read_by_topic_in_order,
            events::old_events_are_removed_and_the_gap_is_known,
            notes::notes_are_set_replaced_listed_and_removed,
            notes::due_plans_go_to_inboxes_once,
            notes::a_full_inbox_misses_a_plan_and_stops_no_other,
            tokens::a_token_is_found_by_its_hash,
            changes::changes_are_written_together_or_not_at_all,
            changes::later_changes_know_what_became_of_earlier_ones,
            changes::every_change_says_what_it_became,
            changes::a_result_and_its_changes_are_one,
            changes::a_full_inbox_takes_back_result_and_changes,
            space_limits::values_of_a_gateway_are_bounded,
            space_limits::the_numbers_of_rows_are_bounded,
            space_limits::functions_that_make_functions_end,
        }
    };
}
pub(crate) use foreach_case;

/// The owner of the leases of most tests.
pub(crate) const OWNER: &str = "process 1";

/// A time at which the leases of most tests are valid.
pub(crate) const NOW: i64 = 1_000;

/// When these leases expire.
pub(crate) const UNTIL: i64 = 1_000_000;

pub(crate) fn json(text: &str) -> Json {
    Json::from_text(text).expect("JSON")
}

pub(crate) fn guard(run: &str) -> LeaseGuard {
    LeaseGuard { run: run.to_owned(), owner: OWNER.to_owned(), now: NOW }
}

/// A run that the owner drives.
pub(crate) fn new_run(id: &str) -> NewRun {
    NewRun {
        id: id.to_owned(),
        agent: "agent".to_owned(),
        workspace: "/work".to_owned(),
        created: NOW,
        state: json("{}"),
        labels: Vec::new(),
        messages: Vec::new(),
        lease: Some((OWNER.to_owned(), UNTIL)),
        consumed_inbox: None,
    }
}

pub(crate) async fn add_run(store: &dyn RunStore, id: &str) {
    store.create_run(new_run(id)).await.expect("a new run");
}

/// A step without messages.
pub(crate) fn commit(run: &str, version: i64) -> CommitStep {
    CommitStep {
        guard: guard(run),
        version,
        state: json("{\"next\":\"call_model\"}"),
        status: RunStatus::Running,
        labels: Vec::new(),
        messages: Vec::new(),
        step: StepRecord { kind: "step".to_owned(), started_at: 1, finished: 2, summary: "done".to_owned() },
        finished_calls: Vec::new(),
        consumed_inbox: None,
    }
}

pub(crate) fn new_call(id: &str, status: ExternalCallStatus) -> NewExternalCall {
    NewExternalCall {
        id: id.to_owned(),
        tool: "confirmAction".to_owned(),
        arguments: json("{\"title\":\"t\"}"),
        inbox: "agent".to_owned(),
        status,
        expires: None,
    }
}
