//! The requests that are being answered: two of one session with one id could not be told apart.

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

/// A request: its session and its id in that.
type Key = (HeaderValue, RequestId);

/// The requests that are being answered.
#[derive(Debug, Clone, Default)]
pub(super) struct Answering {
    keys: Arc<Mutex<HashSet<Key>>>,
    ended: Arc<Notify>,
}

/// One of them, until nobody deals with it any more: neither who runs it nor who reads its answer.
#[derive(Debug)]
pub(super) struct Answered {
    among: Answering,
    key: Key,
}

impl Answering {
    /// Takes a message of a session. There is nothing to be kept of one that is no request, or that makes a session.
    pub(super) fn begin(
        &self,
        session: Option<&HeaderValue>,
        message: &RxJsonRpcMessage<RoleServer>,
    ) -> Result<Option<Arc<Answered>>, Unreadable> {
        let (Some(session), JsonRpcMessage::Request(request)) = (session, message) else { return Ok(None) };
        let key = (session.clone(), request.id.clone());
        if self.lock().insert(key.clone()) {
            return Ok(Some(Arc::new(Answered { among: self.clone(), key })));
        }
        let error = ErrorData::invalid_request("a request with this id is not answered yet", None);
        Err(Unreadable { id: Some(key.1), error })
    }

    /// Waits until there is none.
    ///
    /// # Cancellation
    /// Safe.
    pub(super) async fn none(&self) {
        loop {
            // Listens before it looks, so that no end goes unheard.
            let ended = self.ended.notified();
            let mut ended = std::pin::pin!(ended);
            ended.as_mut().enable();
            if self.lock().is_empty() {
                return;
            }
            ended.await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashSet<Key>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Answered {
    fn drop(&mut self) {
        self.among.lock().remove(&self.key);
        self.among.ended.notify_waiters();
    }
}
