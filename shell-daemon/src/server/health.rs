//! Whether a session can be had, found out by starting one and running a command in it.

use std::{collections::HashMap, sync::Arc, time::Instant};

use tokio::sync::oneshot;
use tonic::Status;

use super::{
    creation,
    daemon::Daemon,
    refusal::{self, Refusal},
    report::report,
};
use crate::{
    ShellError, ShellSession,
    protocol::{CreateSessionRequest, PostureReport},
};

/// Why there are no sessions here.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Unproven {
    /// None could be started.
    #[error("no session can be started")]
    NotStarted {
        /// The cause.
        #[source]
        source: ShellError,
    },
    /// There is nothing to start it with.
    #[error("{problem}")]
    Unusable {
        /// What is missing.
        problem: String,
    },
}

/// The last answer about a daemon's health.
#[derive(Debug)]
pub(super) struct Proven {
    when: Instant,
    environment: HashMap<String, String>,
    posture: PostureReport,
}

impl Unproven {
    pub(super) fn status(&self) -> Status {
        match self {
            Self::NotStarted { source } => refusal::not_started(source),
            Self::Unusable { problem } => Refusal::Start.because(problem.as_str()),
        }
    }
}

/// What a session with these variables that was started for the answer has proven, or one that was a short while ago.
/// However many ask, one is started at a time.
///
/// # Cancellation
/// The session that is being started is ended all the same.
pub(super) async fn prove(
    daemon: &Arc<Daemon>,
    environment: HashMap<String, String>,
) -> Result<PostureReport, Unproven> {
    let mut last = Arc::clone(&daemon.health).lock_owned().await;
    if let Some(last) = &*last
        && last.when.elapsed() < daemon.config.service.health_cache
        && last.environment == environment
    {
        return Ok(last.posture.clone());
    }
    let unusable = |problem: String| Unproven::Unusable { problem };
    let everything = CreateSessionRequest { environment: environment.clone(), ..creation::everything() };
    let asked =
        creation::understand(daemon, &everything).map_err(|status| unusable(status.message().to_owned()))?;
    let (reply, result) = oneshot::channel();
    let prove = move || {
        let mut session = ShellSession::start(&asked.spec)?;
        session.prove_shell()?;
        let posture = report(&session);
        session.end()?;
        Ok(posture)
    };
    let work = move || {
        let proven = prove();
        if let Ok(posture) = &proven {
            *last = Some(Proven { when: Instant::now(), environment, posture: posture.clone() });
        }
        // The thread has the lock, and not whoever waits: a call that is dropped makes no room for another.
        drop(last);
        // Nobody may be there to hear it.
        let _ = reply.send(proven);
    };
    std::thread::Builder::new()
        .name("shell-health".to_owned())
        .spawn(work)
        .map_err(|error| unusable(format!("no thread can be started: {error}")))?;
    result
        .await
        .map_err(|_gone| unusable("the thread ended".to_owned()))?
        .map_err(|source| Unproven::NotStarted { source })
}
