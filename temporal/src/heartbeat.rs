//! Heartbeats of an activity. They tell the server that the worker is alive, and the worker that the activity
//! was cancelled.

use std::{pin::pin, time::Duration};

use portcullis_types::CancellationToken;
use temporalio_sdk::activities::ActivityContext;

/// After this time without a heartbeat the server considers the worker dead.
pub(crate) const HEARTBEAT_TIMEOUT: Duration = Duration::from_secs(5);

/// How often a heartbeat is recorded. The SDK sends at most one in each 80 % of the timeout.
const INTERVAL: Duration = Duration::from_secs(1);

/// Does the work of an activity, and records heartbeats. `cancel` is cancelled with the activity, and the
/// work then ends gracefully.
pub(crate) async fn with_heartbeats<T>(
    context: &ActivityContext,
    cancel: &CancellationToken,
    work: impl Future<Output = T>,
) -> T {
    let mut work = pin!(work);
    let mut interval = tokio::time::interval(INTERVAL);
    loop {
        tokio::select! {
            // `biased`: finished work counts, even if the activity is cancelled at the same moment.
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
