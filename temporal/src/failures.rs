//! The failures that are retried, and the delays. Temporal shows the type of a failure, and the retry policy depends
//! on it.
//!
//! A failed call is not a failed activity: the call's error is the result that the model reads. An activity
//! fails if its step was not taken. Another attempt, possibly on another worker, then takes the step.

use std::time::Duration;

use portcullis_agent::{AgentEnd, ProviderErrorKind};
use portcullis_runs::{RunError, store::StoreError};
use portcullis_types::error_chain;
use temporalio_common::error::ApplicationFailure;
use temporalio_sdk::activities::ActivityError;

/// The maximum number of attempts at a step before the run ends as it would in a single process.
pub(crate) const MAX_MODEL_ATTEMPTS: u32 = 5;

/// The maximum number of times that a call is offered to workers without its tool.
pub(crate) const MAX_PLACE_ATTEMPTS: u32 = 5;

/// The pause before the next attempt after the provider has refused because of too many requests.
const RATE_LIMITED_PAUSE: Duration = Duration::from_secs(15);

/// The pause before the next attempt while another process drives the run.
const LEASED_PAUSE: Duration = Duration::from_secs(2);

/// Returns whether another attempt at the step may end differently.
pub(crate) fn may_ask_again(end: &AgentEnd) -> bool {
    let kind = match end {
        AgentEnd::Provider { kind, .. } => kind,
        // The store could not be read, or a part has failed.
        AgentEnd::Internal { .. } => return true,
        _ => return false,
    };
    match kind {
        ProviderErrorKind::Transport
        | ProviderErrorKind::RateLimited
        | ProviderErrorKind::Server
        | ProviderErrorKind::Incomplete => true,
        ProviderErrorKind::Configuration
        | ProviderErrorKind::Unauthorized
        | ProviderErrorKind::Rejected
        | ProviderErrorKind::Malformed
        | ProviderErrorKind::Cancelled => false,
        // Do not retry kinds of newer versions until a retry is known to help.
        _ => false,
    }
}

/// Returns the failure of a step that is retried.
pub(crate) fn retried_step_failure(end: &AgentEnd) -> ActivityError {
    match end {
        AgentEnd::Provider { kind, message } => {
            // The message may quote the request, so it stays in the worker's log.
            tracing::warn!(%kind, message, "the model has not answered");
            let delay = (*kind == ProviderErrorKind::RateLimited).then_some(RATE_LIMITED_PAUSE);
            failure(format!("model_{kind}"), "the model has not answered".to_owned(), Retry::After(delay))
        }
        AgentEnd::Internal { message } => {
            tracing::warn!(message, "a step has failed");
            failure("internal".to_owned(), "the step has failed".to_owned(), Retry::After(None))
        }
        // Only a cancelled step remains, which this worker has abandoned.
        _ => interrupted(),
    }
}

/// Returns the failure of an activity that this worker abandons.
pub(crate) fn interrupted() -> ActivityError {
    let message = "the worker gave the activity up before it had an effect".to_owned();
    failure("interrupted".to_owned(), message, Retry::After(None))
}

/// Returns the failure of a call whose tool this worker does not have.
pub(crate) fn no_tool(tool: &str, queue: &str, attempt: u32) -> ActivityError {
    let message = format!(
        "no worker of the task queue `{queue}` that was tried has the tool `{tool}`: place it with \
         --place {tool}=QUEUE, or start a worker that has it"
    );
    failure(
        "no_tool".to_owned(),
        message,
        if attempt < MAX_PLACE_ATTEMPTS { Retry::After(None) } else { Retry::Never },
    )
}

/// Returns the failure of an input that no attempt can use.
pub(crate) fn bad_input(message: String) -> ActivityError {
    failure("bad_input".to_owned(), message, Retry::Never)
}

/// Returns the failure of a step whose run cannot be driven, now or ever.
pub(crate) fn run_error(error: &RunError) -> ActivityError {
    let message = error_chain(error);
    match error {
        RunError::Store(StoreError::Leased { .. }) => {
            failure("leased".to_owned(), message, Retry::After(Some(LEASED_PAUSE)))
        }
        RunError::NotStored { .. } => failure("not_kept".to_owned(), message, Retry::After(None)),
        RunError::Store(StoreError::NotFound { .. }) => {
            failure("not_found".to_owned(), message, Retry::Never)
        }
        RunError::Store(
            StoreError::ApprovalClosed { .. }
            | StoreError::OtherHash { .. }
            | StoreError::Name { .. }
            | StoreError::Nul { .. },
        ) => failure("refused".to_owned(), message, Retry::Never),
        RunError::Store(StoreError::Limit(_)) => failure("limit".to_owned(), message, Retry::Never),
        RunError::Store(_) => failure("store".to_owned(), message, Retry::After(None)),
        RunError::OtherWorkspace { .. } => failure("other_workspace".to_owned(), message, Retry::Never),
        RunError::InvalidId { .. } => bad_input(message),
        // Another worker may have a newer version.
        RunError::NewerFormat { .. } => failure("newer".to_owned(), message, Retry::After(None)),
        _ => failure("run".to_owned(), message, Retry::Never),
    }
}

/// Whether another attempt follows.
enum Retry {
    Never,
    /// After this time, or after the time of the activity's retry policy.
    After(Option<Duration>),
}

fn failure(kind: String, message: String, retry: Retry) -> ActivityError {
    let builder = ApplicationFailure::builder(message).type_name(kind);
    ActivityError::application(match retry {
        Retry::Never => builder.non_retryable(true).build(),
        Retry::After(delay) => builder.maybe_next_retry_delay(delay).build(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(error: ActivityError) -> (String, bool, Option<Duration>) {
        let ActivityError::Application(failure) = error else { panic!("{error:?}") };
        let kind = failure.type_name().expect("a type").to_owned();
        (kind, failure.is_non_retryable(), failure.next_retry_delay())
    }

    #[test]
    fn failures_are_tried_again_by_their_kind() {
        let leased = StoreError::Leased { run: "r".to_owned(), owner: "o".to_owned(), until: 0 };
        assert_eq!(parts(run_error(&leased.into())), ("leased".to_owned(), false, Some(LEASED_PAUSE)));
        let other = StoreError::OtherHash { id: "a".to_owned() };
        assert_eq!(parts(run_error(&other.into())), ("refused".to_owned(), true, None));
        assert_eq!(parts(run_error(&StoreError::Closed.into())), ("store".to_owned(), false, None));
        assert_eq!(parts(no_tool("t", "q", 1)), ("no_tool".to_owned(), false, None));
        assert_eq!(parts(no_tool("t", "q", MAX_PLACE_ATTEMPTS)), ("no_tool".to_owned(), true, None));
    }

    #[test]
    fn a_model_is_asked_again_only_where_that_may_help() {
        let end = |kind| AgentEnd::Provider { kind, message: "m".to_owned() };
        for kind in [ProviderErrorKind::Transport, ProviderErrorKind::RateLimited, ProviderErrorKind::Server]
        {
            assert!(may_ask_again(&end(kind)), "{kind}");
        }
        for kind in
            [ProviderErrorKind::Unauthorized, ProviderErrorKind::Rejected, ProviderErrorKind::Malformed]
        {
            assert!(!may_ask_again(&end(kind)), "{kind}");
        }
        assert!(!may_ask_again(&AgentEnd::Cancelled));
        let (kind, never, delay) = parts(retried_step_failure(&end(ProviderErrorKind::RateLimited)));
        assert_eq!((&*kind, never, delay), ("model_rate_limited", false, Some(RATE_LIMITED_PAUSE)));
    }
}
