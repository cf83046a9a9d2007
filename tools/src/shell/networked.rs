//! The sessions that have a network, and how those of a run are ended.
//!
//! A session keeps its network between commands, and so do jobs that a command leaves behind. When the run
//! reads something that a flow rule keeps from the network, no later judgement would stop these jobs. So the
//! session is ended before the run gets any of the content.

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

/// The time that the sidecar may take to end sessions with a network. It first kills the running command,
/// which takes some milliseconds, and more than a second only on a busy machine.
const END_TIME: Duration = Duration::from_secs(10);

/// A session with a network. Clones refer to the same session.
#[derive(Debug, Clone)]
pub(crate) struct NetworkedSession {
    pub(super) owner: Owner,
    pub(super) id: Arc<str>,
    pub(super) client: SidecarClient,
    /// The runtime that drives the connection to its sidecar.
    pub(super) runtime: Handle,
    /// Whether the session was ended because of its run's reads.
    withdrawn: Arc<AtomicBool>,
}

impl NetworkedSession {
    pub(super) fn new(owner: Owner, id: &str, client: SidecarClient) -> Self {
        let runtime = Handle::current();
        Self { owner, id: id.into(), client, runtime, withdrawn: Arc::default() }
    }

    /// Whether the session was ended, or is about to be, because of its run's reads.
    pub(super) fn is_withdrawn(&self) -> bool {
        self.withdrawn.load(Ordering::Acquire)
    }

    /// Ends the session with all its processes. Returns once no byte passes any more.
    async fn end(&self) -> Result<(), SidecarError> {
        self.withdrawn.store(true, Ordering::Release);
        let request = KillSessionRequest { session_id: self.id.to_string() };
        let mut client = self.client.clone();
        match timeout(END_TIME, client.kill_session(request)).await {
            Ok(Ok(_killed)) => Ok(()),
            Ok(Err(status)) => {
                let error = SidecarError::refused(status);
                // The session has ended already.
                if error.is_not_found() { Ok(()) } else { Err(error) }
            }
            Err(_elapsed) => Err(SidecarError::Answer { problem: "it does not end a session" }),
        }
    }
}

/// The sessions with a network, of all runs. A session leaves the list when it is known to have ended.
#[derive(Debug, Default)]
pub(crate) struct NetworkedSessions(Vec<NetworkedSession>);

impl NetworkedSessions {
    pub(crate) fn add(&mut self, session: NetworkedSession) {
        self.0.push(session);
    }

    pub(crate) fn take_over(&mut self, others: Self) {
        self.0.extend(others.0);
    }

    pub(crate) fn remove(&mut self, id: &str) {
        self.0.retain(|session| *session.id != *id);
    }

    /// The listed sessions of a run.
    pub(crate) fn of(&self, owner: &Owner) -> Vec<NetworkedSession> {
        self.0.iter().filter(|session| session.owner == *owner).cloned().collect()
    }
}

/// Ends sessions. Returns once none of them has a network any more.
///
/// # Errors
/// The reason why one of them may still have it.
pub(crate) async fn end_all(sessions: Vec<NetworkedSession>) -> Result<(), SidecarError> {
    let ends = sessions.iter().map(NetworkedSession::end);
    join_all(ends).await.into_iter().collect()
}

/// Ends sessions like [`end_all`], from a thread that may block, and at most until this moment.
///
/// # Errors
/// See [`end_all`].
pub(crate) fn end_all_blocking(
    sessions: Vec<NetworkedSession>,
    deadline: Instant,
) -> Result<(), SidecarError> {
    let Some(runtime) = sessions.first().map(|session| session.runtime.clone()) else { return Ok(()) };
    let (told, ended) = mpsc::sync_channel(1);
    spawn::detached(&runtime, async move {
        // The waiter may have given up.
        let _gone = told.send(end_all(sessions).await);
    });
    ended
        .recv_timeout(deadline.saturating_duration_since(Instant::now()))
        .unwrap_or(Err(SidecarError::Answer { problem: "it does not end a session in time" }))
}
