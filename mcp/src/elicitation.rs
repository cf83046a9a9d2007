//! Questions to a client: one that nobody waits for any more is taken back.

use std::time::Duration;

use rmcp::{
    RoleServer,
    model::{CancelledNotificationParam, ClientResult, RequestId, ServerRequest},
    service::{Peer, PeerRequestOptions, ServiceError},
};

use super::task;

/// Asks, and waits this long for the answer.
///
/// # Errors
/// What the transport says, and that no answer came in time; then the question was taken back.
///
/// # Cancellation
/// Dropping the future takes the question back.
pub(super) async fn ask(
    peer: &Peer<RoleServer>,
    request: ServerRequest,
    time: Duration,
) -> Result<ClientResult, ServiceError> {
    let asked = peer.send_cancellable_request(request, PeerRequestOptions::with_timeout(time)).await?;
    let mut withdrawal = Withdrawal { peer: peer.clone(), id: Some(asked.id.clone()) };
    let answer = asked.await_response().await;
    // Answered, or withdrawn by the time-out.
    withdrawal.id = None;
    answer
}

/// Takes a question back that nobody waits for any more.
struct Withdrawal {
    peer: Peer<RoleServer>,
    id: Option<RequestId>,
}

impl Drop for Withdrawal {
    fn drop(&mut self) {
        let Some(id) = self.id.take() else { return };
        let peer = self.peer.clone();
        if tokio::runtime::Handle::try_current().is_err() {
            return;
        }
        let reason = "nobody waits for the answer any more".to_owned();
        let withdrawn = CancelledNotificationParam::new(Some(id), Some(reason));
        // It ends when it is sent, or with the connection.
        drop(task::detached(async move {
            let _ = peer.notify_cancelled(withdrawn).await;
        }));
    }
}
