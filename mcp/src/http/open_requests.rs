//! [`OpenRequests`]: the requests in flight over HTTP. A session must not use one id for two open requests.
//! `unanswered_ids.rs` does the same for the single client on standard streams.

use std::{collections::HashSet, sync::Arc};

use http::HeaderValue;
use parking_lot::{Mutex, MutexGuard};
use rmcp::{
    RoleServer,
    model::{ErrorData, JsonRpcMessage, RequestId},
    service::RxJsonRpcMessage,
};
use tokio::sync::Notify;

use crate::wire::Unreadable;

/// The key of a request: its session and its id.
type RequestKey = (HeaderValue, RequestId);

/// The set of requests in flight.
#[derive(Debug, Clone, Default)]
pub(super) struct OpenRequests {
    keys: Arc<Mutex<HashSet<RequestKey>>>,
    ended: Arc<Notify>,
}

/// A request in flight. The call and the response's body each hold a reference. The id is free when both are
/// dropped.
#[derive(Debug)]
pub(super) struct OpenRequest {
    open_requests: OpenRequests,
    key: RequestKey,
}

impl OpenRequests {
    /// Registers a message of a session. Returns `None` for a message that is not a request or that has no
    /// session.
    pub(super) fn begin(
        &self,
        session: Option<&HeaderValue>,
        message: &RxJsonRpcMessage<RoleServer>,
    ) -> Result<Option<Arc<OpenRequest>>, Unreadable> {
        let (Some(session), JsonRpcMessage::Request(request)) = (session, message) else { return Ok(None) };
        let key = (session.clone(), request.id.clone());
        if self.lock().insert(key.clone()) {
            return Ok(Some(Arc::new(OpenRequest { open_requests: self.clone(), key })));
        }
        let error = ErrorData::invalid_request("a request with this id is not answered yet", None);
        Err(Unreadable { id: Some(key.1), error })
    }

    /// Waits until the set is empty.
    ///
    /// # Cancellation
    /// Dropping the future has no effect.
    pub(super) async fn wait_until_empty(&self) {
        loop {
            // Register as a waiter before the check, so that a notification in between is not missed.
            let request_ended = self.ended.notified();
            let mut request_ended = std::pin::pin!(request_ended);
            request_ended.as_mut().enable();
            if self.lock().is_empty() {
                return;
            }
            request_ended.await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashSet<RequestKey>> {
        self.keys.lock()
    }
}

impl Drop for OpenRequest {
    fn drop(&mut self) {
        self.open_requests.lock().remove(&self.key);
        // Notify after the removal, so that a woken waiter sees it.
        self.open_requests.ended.notify_waiters();
    }
}
