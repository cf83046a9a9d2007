//! Submits the result of a call, with retries.

use std::error::Error;

use tokio::time::sleep;

use crate::{
    Call, ClientError, Gateway, Submission,
    backoff::Backoff,
    tool::{ResultText, failure},
};

/// The maximum number of attempts to submit one result. With the backoff in between, they take at least a
/// minute and a half.
pub(super) const MAX_ATTEMPTS: usize = 8;

/// Submits a result. A submission is idempotent, so it is repeated if its response was lost. A result that
/// the gateway refuses is replaced by the reason, so that the agent does not wait in vain.
pub(super) async fn submit(
    gateway: &Gateway,
    call: &Call,
    result: &ResultText,
) -> Result<Submission, ClientError> {
    match attempt(gateway, call, result).await {
        Err(error) if is_about_the_result(&error) => {
            tracing::warn!(call = call.call_id, error = &error as &dyn Error, "a result cannot be submitted");
            attempt(gateway, call, &failure(&format!("the result cannot be submitted: {error}"))).await
        }
        outcome => outcome,
    }
}

async fn attempt(gateway: &Gateway, call: &Call, result: &ResultText) -> Result<Submission, ClientError> {
    let mut backoff = Backoff::default();
    let mut attempts = 1;
    loop {
        match gateway.submit(&call.run_id, &call.call_id, result).await {
            Err(error) if error.is_transient() && attempts < MAX_ATTEMPTS => {
                tracing::warn!(
                    call = call.call_id,
                    error = &error as &dyn Error,
                    "a result is submitted again"
                );
                sleep(backoff.next_delay()).await;
                attempts += 1;
            }
            outcome => return outcome,
        }
    }
}

/// Returns whether a different result of the same call could be submitted.
fn is_about_the_result(error: &ClientError) -> bool {
    matches!(error, ClientError::ResultTooLarge { .. } | ClientError::Refused { status: 400 | 413 | 422, .. })
}
