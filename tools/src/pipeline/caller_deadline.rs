//! The end of the caller's turn. No step waits past this time, and no work starts after it.

use std::{
    future::{self, Future},
    time::Instant,
};

use portcullis_types::ToolError;

use crate::call::{Caller, cancelled_before_run_error};

/// Waits for a future until the caller's turn ends or the caller gives up.
///
/// # Cancellation
/// Dropping the returned future drops the inner future.
pub(super) async fn within_deadline<T>(
    caller: &Caller,
    future: impl Future<Output = T>,
) -> Result<T, ToolError> {
    // `biased`: if the result and the end of the turn are ready together, the end wins.
    tokio::select! {
        biased;
        error = wait_until_over(caller) => Err(error),
        output = future => Ok(output),
    }
}

/// Waits until the caller gives up, or the caller's turn has ended.
pub(super) async fn wait_until_over(caller: &Caller) -> ToolError {
    let turn_end = async {
        match caller.turn_deadline {
            Some(deadline) => tokio::time::sleep_until(deadline.into()).await,
            None => future::pending().await,
        }
    };
    tokio::select! {
        // `biased`: a cancellation is reported as such, even when the turn ends at the same time.
        biased;
        () = caller.cancel.cancelled() => cancelled_before_run_error(),
        () = turn_end => turn_over_error(),
    }
}

/// Fails if the caller has given up or its turn has ended.
pub(super) fn ensure_not_over(caller: &Caller) -> Result<(), ToolError> {
    if caller.cancel.is_cancelled() {
        return Err(cancelled_before_run_error());
    }
    match caller.turn_deadline {
        Some(deadline) if deadline <= Instant::now() => Err(turn_over_error()),
        _ => Ok(()),
    }
}

fn turn_over_error() -> ToolError {
    ToolError::timeout("the caller's turn ended before the call could run")
}
