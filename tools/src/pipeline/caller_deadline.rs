//! The caller's turn: no step waits for others past its end, and no work starts after it.

use std::{
    future::{self, Future},
    time::Instant,
};

use portcullis_types::ToolError;

use crate::call::Caller;

/// Waits for a future until the caller's turn ends or the caller gives up.
///
/// # Cancellation
/// Dropping it drops the inner future.
pub(super) async fn within_deadline<T>(
    caller: &Caller,
    wait: impl Future<Output = T>,
) -> Result<T, ToolError> {
    // `biased`: when result and end of the turn are ready together, the end wins.
    tokio::select! {
        biased;
        error = over(caller) => Err(error),
        done = wait => Ok(done),
    }
}

/// Waits until the caller gives up, or the caller's turn is over.
pub(super) async fn over(caller: &Caller) -> ToolError {
    let turn = async {
        match caller.turn_deadline {
            Some(turn) => tokio::time::sleep_until(turn.into()).await,
            None => future::pending().await,
        }
    };
    tokio::select! {
        biased;
        () = caller.cancel.cancelled() => given_up(),
        () = turn => turn_over(),
    }
}

/// Fails if the caller has given up or its turn is over.
pub(super) fn ensure_not_over(caller: &Caller) -> Result<(), ToolError> {
    if caller.cancel.is_cancelled() {
        return Err(given_up());
    }
    match caller.turn_deadline {
        Some(turn) if turn <= Instant::now() => Err(turn_over()),
        _ => Ok(()),
    }
}

fn given_up() -> ToolError {
    ToolError::cancelled("the call was cancelled before it ran")
}

fn turn_over() -> ToolError {
    ToolError::timeout("the caller's turn ended before the call could run")
}
