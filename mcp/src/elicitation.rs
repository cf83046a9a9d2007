//! Asks a client one question, and withdraws the question when the caller stops waiting.

use std::time::Duration;

use rmcp::{
    RoleServer,
    model::{CancelledNotificationParam, ClientResult, RequestId, ServerRequest},
    service::{Peer, PeerRequestOptions, ServiceError},
};

use super::task;

/// Sends a request, and waits at most `time` for the answer.
///
/// # Errors
/// Errors of the transport, and the timeout. A timeout withdraws the question.
///
/// # Cancellation
/// Dropping the future withdraws the question.
pub(super) async fn ask(
    peer: &Peer<RoleServer>,
    request: ServerRequest,
    time: Duration,
) -> Result<ClientResult, ServiceError> {
    let pending = peer.send_cancellable_request(request, PeerRequestOptions::with_timeout(time)).await?;
    let mut withdrawal = QuestionWithdrawal { peer: peer.clone(), id: Some(pending.id.clone()) };
    let answer = pending.await_response().await;
    // The question was answered, or the timeout has withdrawn it.
    withdrawal.id = None;
    answer
}

/// Withdraws an open question on drop.
struct QuestionWithdrawal {
    peer: Peer<RoleServer>,
    id: Option<RequestId>,
}

impl Drop for QuestionWithdrawal {
    fn drop(&mut self) {
        let Some(id) = self.id.take() else { return };
        let peer = self.peer.clone();
        // Outside a runtime, for example at the end of the process, nothing can be sent.
        if tokio::runtime::Handle::try_current().is_err() {
            return;
        }
        let reason = "the question was withdrawn".to_owned();
        let withdrawn = CancelledNotificationParam::new(Some(id), Some(reason));
        // The task ends when the notification is sent, or with the connection.
        drop(task::spawn_detached(async move {
            let _ = peer.notify_cancelled(withdrawn).await;
        }));
    }
}
