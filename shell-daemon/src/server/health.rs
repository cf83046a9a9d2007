//! The health check: starts a session and runs a command in it.

use std::{collections::HashMap, sync::Arc, time::Instant};

use tokio::{runtime::Handle, sync::oneshot};
use tonic::Status;

use super::{
    creation,
    daemon::Daemon,
    refusal::{self, RefusalCode},
    report::report,
    session_thread::SessionForwarding,
};
use crate::{ShellError, ShellSession};
use portcullis_shell_protocol::{CreateSessionRequest, PostureReport};

/// The reason why no session can be had here.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProofError {
    /// A session could not be started.
    #[error("no session can be started")]
    NotStarted {
        /// The failure of the attempt.
        #[source]
        source: ShellError,
    },
    /// A session could not even be tried.
    #[error("{problem}")]
    Unusable {
        /// The missing part.
        problem: String,
    },
}

/// The last answer about a daemon's health.
#[derive(Debug)]
pub(super) struct ProvenPosture {
    when: Instant,
    environment: HashMap<String, String>,
    posture: PostureReport,
}

impl ProofError {
    pub(super) fn status(&self) -> Status {
        match self {
            Self::NotStarted { source } => refusal::not_started(source),
            Self::Unusable { problem } => RefusalCode::Start.because(problem.as_str()),
        }
    }
}

/// Proves that sessions with these variables work: starts one, tests its shell and ends it, or returns the
/// answer of a short while ago. One session is started at a time, however many callers ask.
///
/// # Cancellation
/// The session that is being started is still ended.
pub(super) async fn prove(
    daemon: &Arc<Daemon>,
    environment: HashMap<String, String>,
) -> Result<PostureReport, ProofError> {
    let mut last = Arc::clone(&daemon.health).lock_owned().await;
    if let Some(last) = &*last
        && last.when.elapsed() < daemon.config.service.health_cache
        && last.environment == environment
    {
        return Ok(last.posture.clone());
    }
    let unusable = |problem: String| ProofError::Unusable { problem };
    let everything = CreateSessionRequest { environment: environment.clone(), ..creation::request_for_all() };
    let mut checked = creation::check_request(daemon, &everything)
        .map_err(|status| unusable(status.message().to_owned()))?;
    let network = checked.open_network(daemon).await;
    let runtime = Handle::current();
    let (reply, result) = oneshot::channel();
    let prove = move || {
        let mut session = ShellSession::start(&checked.spec)?;
        session.prove_shell()?;
        let network = SessionForwarding::start(&runtime, &mut session, network);
        let posture = report(&session, network.as_ref());
        drop(network);
        session.end()?;
        Ok(posture)
    };
    let work = move || {
        let proven = prove();
        if let Ok(posture) = &proven {
            *last = Some(ProvenPosture { when: Instant::now(), environment, posture: posture.clone() });
        }
        // The thread holds the lock, not the caller: a dropped call does not let a second session start
        // beside this one.
        drop(last);
        // An error is ignored: the caller may be gone.
        let _ = reply.send(proven);
    };
    std::thread::Builder::new()
        .name("shell-health".to_owned())
        .spawn(work)
        .map_err(|error| unusable(format!("no thread can be started: {error}")))?;
    result
        .await
        .map_err(|_gone| unusable("the thread ended".to_owned()))?
        .map_err(|source| ProofError::NotStarted { source })
}
