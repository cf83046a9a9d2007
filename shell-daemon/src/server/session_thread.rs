//! A session of the daemon on its own thread, since using it blocks.
//!
//! The thread ends with the session. The session ends with the first of: the drop of its last handle, a call
//! that ends it, its idle timeout, or a fatal error.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
        mpsc::{self, RecvTimeoutError},
    },
    thread,
    time::{Duration, Instant},
};

use tokio::{
    runtime::Handle,
    sync::{OwnedSemaphorePermit, Semaphore, oneshot},
};

use super::{
    command::{CommandControl, SessionCommand},
    connection::{ClientConnection, Id},
    creation::{MountPath, SessionAccess},
    forwarder::Forwarder,
    report::report,
};
use portcullis_shell_protocol::PostureReport;

use crate::{SessionSpec, ShellError, ShellSession};

/// A started session. Dropping the last handle kills its command and ends it.
#[derive(Debug)]
pub(super) struct HeldSession {
    work: mpsc::Sender<SessionWork>,
    /// One permit: a session runs one command at a time.
    pub(super) turn: Arc<Semaphore>,
    pub(super) info: SessionFacts,
    pub(super) since: Instant,
    last_used: Mutex<Instant>,
    running: Mutex<LastCommand>,
}

/// The last command, and whether the session is ending.
#[derive(Debug, Default)]
struct LastCommand {
    control: Weak<CommandControl>,
    is_ending: bool,
}

/// The constant facts about a session.
#[derive(Clone, Debug)]
pub(super) struct SessionFacts {
    pub(super) posture: PostureReport,
    pub(super) limits: portcullis_shell_protocol::SessionLimits,
    pub(super) places: Vec<MountPath>,
    pub(super) has_own_tree: bool,
}

/// The facts that are known once a session has started.
#[derive(Debug)]
pub(super) struct StartedSession {
    pub(super) posture: PostureReport,
    /// Its mounts have the clients' names, and not their real paths.
    pub(super) has_own_tree: bool,
}

enum SessionWork {
    Run(Box<SessionCommand>),
    End(oneshot::Sender<Result<(), ShellError>>),
}

/// Whether a session is usable after a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SessionLife {
    GoesOn,
    Over,
}

/// The data of a session's thread besides the session.
pub(super) struct SessionContext {
    pub(super) id: Id,
    pub(super) connection: Weak<ClientConnection>,
    pub(super) idle_timeout: Duration,
    pub(super) shell: ShellProof,
    /// Permits, released when no process of the session is left.
    pub(super) _permits: [OwnedSemaphorePermit; 2],
}

impl Drop for SessionContext {
    fn drop(&mut self) {
        // However the thread ends, the connection must not list a session that is gone.
        if let Some(connection) = self.connection.upgrade() {
            connection.forget_session(self.id);
        }
    }
}

/// The channel to a session's thread.
pub(super) struct SessionChannel(mpsc::Sender<SessionWork>);

/// Starts a session on a new thread. Dropping the returned line ends it. Must be called within the runtime that drives
/// the session's connections.
pub(super) fn start(
    spec: SessionSpec,
    network: Option<Result<SessionAccess, String>>,
    keeping: SessionContext,
) -> std::io::Result<(SessionChannel, oneshot::Receiver<Result<StartedSession, ShellError>>)> {
    let (line, work) = mpsc::channel();
    let (started, starting) = oneshot::channel();
    let runtime = Handle::current();
    thread::Builder::new().name("shell-session".to_owned()).stack_size(STACK_BYTES).spawn(move || {
        match begin(&spec, &keeping.shell) {
            Ok(mut session) => {
                let network = SessionForwarding::start(&runtime, &mut session, network);
                // Fails if the call was dropped. Its `SessionChannel` is gone then too, so `keep` ends the
                // session at once.
                let has_own_tree = session.has_own_tree();
                let posture = report(&session, network.as_ref());
                let _ = started.send(Ok(StartedSession { posture, has_own_tree }));
                let forwarder = network.and_then(|network| network.forwarder.ok());
                let (ended, reply) = keep(session, forwarder, &work, &keeping);
                // Jobs that were sent to an ended session are dropped here; they were not run.
                drop(work);
                // Release the permits before the reply, since the client may then start another session.
                drop(keeping);
                if let Some(reply) = reply {
                    let _ = reply.send(ended);
                }
            }
            Err(error) => {
                drop(keeping);
                let _ = started.send(Err(error));
            }
        }
    })?;
    Ok((SessionChannel(line), starting))
}

/// The network of a started session: its forwarder, or the reason why it has none.
#[derive(Debug)]
pub(super) struct SessionForwarding {
    pub(super) hosts: Vec<String>,
    pub(super) forwarder: Result<Forwarder, String>,
    /// The proven posture of the threads that connect.
    pub(super) summary: String,
}

impl SessionForwarding {
    /// Starts the forwarder on the session's listener; `None` if the session was to get no network.
    pub(super) fn start(
        runtime: &Handle,
        session: &mut ShellSession,
        network: Option<Result<SessionAccess, String>>,
    ) -> Option<Self> {
        let SessionAccess { client, judge, hosts } = match network? {
            Ok(network) => network,
            Err(reason) => {
                return Some(Self { hosts: Vec::new(), forwarder: Err(reason), summary: String::new() });
            }
        };
        let summary = client.egress.posture().summary().to_owned();
        let forwarder = match session.take_listener() {
            Some(listener) => Forwarder::start(runtime, listener, client, judge)
                .map_err(|error| format!("the session's listener cannot be used ({error})")),
            None => Err(session.network_absence().unwrap_or("the session made no listener").to_owned()),
        };
        Some(Self { hosts, forwarder, summary })
    }
}

/// Starts a session. The daemon's first one also proves that bash works, so that no client's command has to
/// find that out. Later ones skip this: each command detects a shell that does not start.
fn begin(spec: &SessionSpec, shell: &ShellProof) -> Result<ShellSession, ShellError> {
    let mut session = ShellSession::start(spec)?;
    if !shell.0.load(Ordering::Acquire) {
        session.prove_shell()?;
        shell.0.store(true, Ordering::Release);
    }
    Ok(session)
}

/// Whether a session of this daemon has proved that bash works.
#[derive(Clone, Debug, Default)]
pub(super) struct ShellProof(Arc<AtomicBool>);

/// The result of ending a session, and the sender to reply to if a call asked for it.
type EndResult = (Result<(), ShellError>, Option<oneshot::Sender<Result<(), ShellError>>>);

fn keep(
    mut session: ShellSession,
    forwarder: Option<Forwarder>,
    work: &mpsc::Receiver<SessionWork>,
    keeping: &SessionContext,
) -> EndResult {
    let forget = || {
        if let Some(connection) = keeping.connection.upgrade() {
            connection.forget_session(keeping.id);
        }
    };
    let reply = loop {
        match work.recv_timeout(keeping.idle_timeout) {
            Ok(SessionWork::Run(job)) => {
                if job.run(&mut session, forwarder.as_ref(), forget) == SessionLife::Over {
                    break None;
                }
            }
            Ok(SessionWork::End(reply)) => break Some(reply),
            Err(RecvTimeoutError::Timeout) => {
                forget();
                tracing::info!(session = %keeping.id, "ended a session that was idle too long");
                break None;
            }
            Err(RecvTimeoutError::Disconnected) => break None,
        }
    };
    // Before the processes: no byte passes that a command sends as it is killed.
    drop(forwarder);
    let ended = session.end();
    if let Err(error) = &ended {
        tracing::error!(session = %keeping.id, %error, "a session left processes behind");
    }
    (ended, reply)
}

impl HeldSession {
    pub(super) fn new(line: SessionChannel, info: SessionFacts) -> Self {
        let now = Instant::now();
        Self {
            work: line.0,
            turn: Arc::new(Semaphore::new(1)),
            info,
            since: now,
            last_used: Mutex::new(now),
            running: Mutex::default(),
        }
    }

    /// Hands a job to the session's thread; `false` if that has ended.
    pub(super) fn run(&self, job: SessionCommand) -> bool {
        {
            let mut running = self.lock();
            if running.is_ending {
                // It would delay the end.
                job.control.cancel();
            }
            running.control = Arc::downgrade(&job.control);
        }
        self.touch();
        self.work.send(SessionWork::Run(Box::new(job))).is_ok()
    }

    /// Kills the running command, ends the session and waits for that. A session that has ended already is no
    /// error.
    pub(super) async fn end(&self) -> Result<(), ShellError> {
        self.cancel();
        let (reply, ended) = oneshot::channel();
        if self.work.send(SessionWork::End(reply)).is_err() {
            return Ok(());
        }
        ended.await.unwrap_or(Ok(()))
    }

    pub(super) fn is_busy(&self) -> bool {
        self.turn.available_permits() == 0
    }

    /// The time of its last use.
    pub(super) fn last_used(&self) -> Instant {
        *self.last_used.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn touch(&self) {
        *self.last_used.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    /// Kills the running command and every later one.
    fn cancel(&self) {
        let mut running = self.lock();
        running.is_ending = true;
        if let Some(control) = running.control.upgrade() {
            control.cancel();
        }
    }

    fn lock(&self) -> MutexGuard<'_, LastCommand> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for HeldSession {
    fn drop(&mut self) {
        self.cancel();
    }
}

/// Parsing a command for the rules recurses as deep as the command nests.
const STACK_BYTES: usize = 8 << 20;
