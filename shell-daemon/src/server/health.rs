//! The health check: starts a session and runs a command in it.

use std::{collections::HashMap, sync::Arc, time::Instant};

use portcullis_egress::TunnelShare;
use tokio::{runtime::Handle, sync::oneshot};
use tonic::Status;

use super::{
    creation,
    refusal::{self, RefusalCode},
    report::report,
    session_thread::SessionForwarding,
    sidecar::SidecarServer,
};
use crate::{ShellError, ShellSession};
use portcullis_shell_protocol::{CreateSessionRequest, PostureReport};

/// The reason why this sidecar cannot provide a session.
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
    /// The start of a session could not be attempted.
    #[error("{problem}")]
    Unusable {
        /// The obstacle, as a separate sentence.
        problem: String,
    },
}

/// The result of the last health check.
#[derive(Debug)]
pub(super) struct ProvenPosture {
    when: Instant,
    environment: HashMap<String, String>,
    posture: PostureReport,
}

impl ProofError {
    pub(super) fn status(&self) -> Status {
        match self {
            Self::NotStarted { source } => refusal::start_failure(source),
            Self::Unusable { problem } => RefusalCode::Start.status(problem.as_str()),
        }
    }
}

/// Proves that sessions with these variables work: starts a session, tests its shell and ends it. A recent result for
/// the same variables is reused. Only one session is started at a time, regardless of the number of callers.
///
/// # Cancellation
/// The check continues on its thread, and ends its session.
pub(super) async fn prove(
    sidecar: &Arc<SidecarServer>,
    environment: HashMap<String, String>,
) -> Result<PostureReport, ProofError> {
    let mut cached = Arc::clone(&sidecar.health).lock_owned().await;
    if let Some(cached) = &*cached
        && cached.when.elapsed() < sidecar.config.service.health_cache
        && cached.environment == environment
    {
        return Ok(cached.posture.clone());
    }
    let unusable = |problem: String| ProofError::Unusable { problem };
    let full_request =
        CreateSessionRequest { environment: environment.clone(), ..creation::request_for_all() };
    let mut checked = creation::check_request(sidecar, &full_request)
        .map_err(|status| unusable(status.message().to_owned()))?;
    let network = checked.open_network(sidecar, TunnelShare::default()).await;
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
            *cached = Some(ProvenPosture { when: Instant::now(), environment, posture: posture.clone() });
        }
        // The thread holds the lock, not the caller, so that a dropped call cannot let a second session start beside
        // this one.
        drop(cached);
        // Ignore the result: the caller may be gone.
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
