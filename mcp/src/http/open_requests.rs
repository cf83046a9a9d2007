//! [`OpenRequests`]: the requests being answered over HTTP, since a session must not use one id for two of them at
//! once. For the one client on standard streams `unanswered_ids.rs` does the same.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use http::HeaderValue;
use rmcp::{
    RoleServer,
    model::{ErrorData, JsonRpcMessage, RequestId},
    service::RxJsonRpcMessage,
};
use tokio::sync::Notify;

use crate::wire::Unreadable;

/// A request: its session and its id.
type RequestKey = (HeaderValue, RequestId);

/// The set of requests being answered.
#[derive(Debug, Clone, Default)]
pub(super) struct OpenRequests {
    keys: Arc<Mutex<HashSet<RequestKey>>>,
    ended: Arc<Notify>,
}

/// A request being answered. Its id is free when the last holder, the call or the answer's body, drops this.
#[derive(Debug)]
pub(super) struct OpenRequest {
    among: OpenRequests,
    key: RequestKey,
}

impl OpenRequests {
    /// Registers a message of a session. Returns none for a message that is not a request or that has no
    /// session.
    pub(super) fn begin(
        &self,
        session: Option<&HeaderValue>,
        message: &RxJsonRpcMessage<RoleServer>,
    ) -> Result<Option<Arc<OpenRequest>>, Unreadable> {
        let (Some(session), JsonRpcMessage::Request(request)) = (session, message) else { return Ok(None) };
        let key = (session.clone(), request.id.clone());
        if self.lock().insert(key.clone()) {
            return Ok(Some(Arc::new(OpenRequest { among: self.clone(), key })));
        }
        let error = ErrorData::invalid_request("a request with this id is not answered yet", None);
        Err(Unreadable { id: Some(key.1), error })
    }

    /// Waits until the set is empty.
    ///
    /// # Cancellation
    /// Safe.
    pub(super) async fn until_empty(&self) {
        loop {
            // Register before the check, so that an end in between is not missed.
            let ended = self.ended.notified();
            let mut ended = std::pin::pin!(ended);
            ended.as_mut().enable();
            if self.lock().is_empty() {
                return;
            }
            ended.await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashSet<RequestKey>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for OpenRequest {
    fn drop(&mut self) {
        self.among.lock().remove(&self.key);
        // After the removal, so that a woken waiter sees it.
        self.among.ended.notify_waiters();
    }
}
