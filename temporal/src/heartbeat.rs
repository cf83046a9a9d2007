//! Heartbeats of an activity: they tell the server that the worker lives, and the worker that the activity is
//! cancelled.

use std::{pin::pin, time::Duration};

use portcullis_types::CancellationToken;
use temporalio_sdk::activities::ActivityContext;

/// The time without a heartbeat after which the server takes the worker for dead.
pub(crate) const HEARTBEAT_TIMEOUT: Duration = Duration::from_secs(5);

/// The interval at which a heartbeat is recorded. The SDK sends at most one in each 80 % of the timeout.
const INTERVAL: Duration = Duration::from_secs(1);

/// Does the work of an activity with heartbeats. `cancel` is cancelled with the activity, and the work then ends in
/// order.
pub(crate) async fn with_heartbeats<T>(
    context: &ActivityContext,
    cancel: &CancellationToken,
    work: impl Future<Output = T>,
) -> T {
    let mut work = pin!(work);
    let mut interval = tokio::time::interval(INTERVAL);
    loop {
        tokio::select! {
            biased;
            done = &mut work => return done,
            // Without the guard, this branch would stay ready and the loop would never sleep.
            () = context.cancelled(), if !cancel.is_cancelled() => cancel.cancel(),
            _ = interval.tick() => {
                if let Err(error) = context.record_heartbeat(()).await {
                    tracing::warn!(error = &error as &dyn std::error::Error, "a heartbeat is not recorded");
                }
            }
        }
    }
}
