//! The deadline of the caller's turn. No step waits past it, and no work starts after it.

use std::{
    future::{self, Future},
    time::Instant,
};

use portcullis_types::ToolError;

use crate::call::{Caller, cancelled_before_run_error};

/// Waits for a future until the caller's turn ends or the caller cancels.
///
/// # Cancellation
/// Dropping the returned future drops the inner future.
pub(super) async fn within_deadline<T>(
    caller: &Caller,
    future: impl Future<Output = T>,
) -> Result<T, ToolError> {
    // `biased`: if the result and the end of the turn are ready at once, the end wins.
    tokio::select! {
        biased;
        error = wait_until_over(caller) => Err(error),
        output = future => Ok(output),
    }
}

/// Waits until the caller cancels or its turn ends.
pub(super) async fn wait_until_over(caller: &Caller) -> ToolError {
    let turn_end = async {
        match caller.turn_deadline {
            Some(deadline) => tokio::time::sleep_until(deadline.into()).await,
            None => future::pending().await,
        }
    };
    tokio::select! {
        // `biased`: report a cancellation as such, even if the turn ends at the same time.
        biased;
        () = caller.cancel.cancelled() => cancelled_before_run_error(),
        () = turn_end => turn_over_error(),
    }
}

/// Fails if the caller has cancelled or its turn has ended.
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
