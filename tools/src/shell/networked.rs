//! Tracks the sessions that have a network, and ends the sessions of a run.
//!
//! A session keeps its network between commands, and so do the jobs that a command leaves in the background.
//! Once the run reads data that a flow rule keeps from the network, no later check would stop these jobs. The
//! session is therefore ended before the run gets any of the data.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    time::{Duration, Instant},
};

use futures_util::future::join_all;
use tokio::{runtime::Handle, time::timeout};

use super::{connect::SidecarClient, failure::SidecarError};
use crate::{call::Owner, spawn};
use portcullis_shell_protocol::KillSessionRequest;

/// How long the sidecar may take to end sessions with a network: 10 s. It first kills the running command,
/// which takes a few milliseconds, and more than a second only on a busy machine.
const END_TIMEOUT: Duration = Duration::from_secs(10);

/// A session with a network. Clones refer to the same session.
#[derive(Debug, Clone)]
pub(crate) struct NetworkedSession {
    pub(super) owner: Owner,
    pub(super) id: Arc<str>,
    pub(super) client: SidecarClient,
    /// The runtime that drives the connection to its sidecar.
    pub(super) runtime: Handle,
    /// Whether the session was ended because of the data that its run reads.
    withdrawn: Arc<AtomicBool>,
}

impl NetworkedSession {
    pub(super) fn new(owner: Owner, id: &str, client: SidecarClient) -> Self {
        let runtime = Handle::current();
        Self { owner, id: id.into(), client, runtime, withdrawn: Arc::default() }
    }

    /// Whether the session was ended, or is about to be, because of the data that its run reads.
    pub(super) fn is_withdrawn(&self) -> bool {
        self.withdrawn.load(Ordering::Acquire)
    }

    /// Ends the session with all its processes. Once this returns, the session can send no more bytes.
    async fn end(&self) -> Result<(), SidecarError> {
        // Set this before the kill, so that the killed command reports this reason.
        self.withdrawn.store(true, Ordering::Release);
        let request = KillSessionRequest { session_id: self.id.to_string() };
        let mut client = self.client.clone();
        match timeout(END_TIMEOUT, client.kill_session(request)).await {
            Ok(Ok(_killed)) => Ok(()),
            Ok(Err(status)) => {
                let error = SidecarError::refused(status);
                // The session has already ended.
                if error.is_not_found() { Ok(()) } else { Err(error) }
            }
            Err(_elapsed) => Err(SidecarError::Answer { problem: "it does not end a session" }),
        }
    }
}

/// The sessions with a network, of all runs. A session stays in the list until it is known to have ended.
#[derive(Debug, Default)]
pub(crate) struct NetworkedSessions(Vec<NetworkedSession>);

impl NetworkedSessions {
    pub(crate) fn add(&mut self, session: NetworkedSession) {
        self.0.push(session);
    }

    pub(crate) fn take_over(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    pub(crate) fn remove(&mut self, id: &str) {
        self.0.retain(|session| *session.id != *id);
    }

    /// Returns the listed sessions of a run.
    pub(crate) fn owned_by(&self, owner: &Owner) -> Vec<NetworkedSession> {
        self.0.iter().filter(|session| session.owner == *owner).cloned().collect()
    }
}

/// Ends sessions. Returns once all of them have lost their network.
///
/// # Errors
/// The reason, if one of the sessions may still have a network.
pub(crate) async fn end_all(sessions: Vec<NetworkedSession>) -> Result<(), SidecarError> {
    let end_requests = sessions.iter().map(NetworkedSession::end);
    join_all(end_requests).await.into_iter().collect()
}

/// Does the same as [`end_all`], blocking the thread until `deadline` at most.
///
/// # Errors
/// As in [`end_all`].
pub(crate) fn end_all_blocking(
    sessions: Vec<NetworkedSession>,
    deadline: Instant,
) -> Result<(), SidecarError> {
    let Some(runtime) = sessions.first().map(|session| session.runtime.clone()) else { return Ok(()) };
    let (result_sender, result_receiver) = mpsc::sync_channel(1);
    spawn::spawn_detached(&runtime, async move {
        // The send fails if the waiter has timed out, which is fine.
        let _ignored = result_sender.send(end_all(sessions).await);
    });
    result_receiver
        .recv_timeout(deadline.saturating_duration_since(Instant::now()))
        .unwrap_or(Err(SidecarError::Answer { problem: "it does not end a session in time" }))
}
