//! A session of the sidecar on its own thread, because using a session blocks.
//!
//! The thread ends with the session. The session ends at the first of these events: its last handle is dropped, a
//! call ends it, its idle timeout passes, or a fatal error occurs.

use std::{
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering},
        mpsc::{self, RecvTimeoutError},
    },
    thread,
    time::{Duration, Instant},
};

use parking_lot::{Mutex, MutexGuard};
use tokio::{
    runtime::Handle,
    sync::{OwnedSemaphorePermit, Semaphore, oneshot},
};

use super::{
    command::{CommandControl, SessionCommand},
    connection::{ClientConnection, RandomId},
    creation::{MountRealPath, SessionAccess, SessionNetworkError},
    forwarder::Forwarder,
    report::report,
};
use portcullis_shell_protocol::{PostureReport, SessionLimits};

use crate::{SessionSpec, ShellError, ShellSession};

/// A handle to a started session. Dropping the last handle kills the session's command and ends the session.
#[derive(Debug)]
pub(super) struct HeldSession {
    request_sender: mpsc::Sender<SessionRequest>,
    /// A single permit: a session runs one command at a time.
    pub(super) command_permit: Arc<Semaphore>,
    pub(super) properties: SessionProperties,
    pub(super) created_at: Instant,
    last_used: Mutex<Instant>,
    last_command: Mutex<LastCommand>,
}

/// A session's last command, and whether the session is ending.
#[derive(Debug, Default)]
struct LastCommand {
    control: Weak<CommandControl>,
    is_ending: bool,
}

/// The properties of a session that a client is told. They never change.
#[derive(Clone, Debug)]
pub(super) struct SessionProperties {
    pub(super) posture: PostureReport,
    pub(super) limits: SessionLimits,
    pub(super) mount_paths: Vec<MountRealPath>,
    pub(super) has_own_tree: bool,
}

/// The properties that are known after a session has started.
#[derive(Debug)]
pub(super) struct StartedSession {
    pub(super) posture: PostureReport,
    /// Whether the session's mounts have the clients' paths instead of their real paths.
    pub(super) has_own_tree: bool,
}

enum SessionRequest {
    Run(Box<SessionCommand>),
    End(oneshot::Sender<Result<(), ShellError>>),
}

/// Whether a session is usable after a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SessionLife {
    Continues,
    Ended,
}

/// The data of a session's thread, apart from the session itself.
pub(super) struct SessionContext {
    pub(super) id: RandomId,
    pub(super) connection: Weak<ClientConnection>,
    pub(super) idle_timeout: Duration,
    pub(super) shell: ShellProof,
    /// Permits, released when no process of the session is left.
    pub(super) _permits: [OwnedSemaphorePermit; 2],
}

impl Drop for SessionContext {
    fn drop(&mut self) {
        // The connection must not list a session that is gone, even if the thread panicked.
        if let Some(connection) = self.connection.upgrade() {
            connection.forget_session(self.id);
        }
    }
}

/// The channel to a session's thread.
pub(super) struct SessionChannel(mpsc::Sender<SessionRequest>);

/// Starts a session on a new thread. Dropping the returned channel ends the session. Must be called within the runtime
/// that drives the session's connections.
pub(super) fn start(
    spec: SessionSpec,
    network: Option<Result<SessionAccess, SessionNetworkError>>,
    context: SessionContext,
) -> std::io::Result<(SessionChannel, oneshot::Receiver<Result<StartedSession, ShellError>>)> {
    let (work_sender, work) = mpsc::channel();
    let (startup_sender, startup_receiver) = oneshot::channel();
    let runtime = Handle::current();
    thread::Builder::new().name("shell-session".to_owned()).stack_size(STACK_BYTES).spawn(move || {
        match start_session(&spec, &context.shell) {
            Ok(mut session) => {
                let network = SessionForwarding::start(&runtime, &mut session, network);
                let has_own_tree = session.has_own_tree();
                let posture = report(&session, network.as_ref());
                // Sending fails if the call was dropped. The `SessionChannel` was then dropped too, so `run_session`
                // ends the session immediately.
                let _ = startup_sender.send(Ok(StartedSession { posture, has_own_tree }));
                let forwarder = network.and_then(|network| network.forwarder.ok());
                let (ended, reply) = run_session(session, forwarder, &work, &context);
                // Jobs that were sent to an ended session are dropped here without being run.
                drop(work);
                // Release the permits before the reply: the client may start another session when it receives it.
                drop(context);
                if let Some(reply) = reply {
                    // Sending fails only if the call that asked for the end was dropped.
                    let _ = reply.send(ended);
                }
            }
            Err(error) => {
                drop(context);
                let _ = startup_sender.send(Err(error));
            }
        }
    })?;
    Ok((SessionChannel(work_sender), startup_receiver))
}

/// The network of a started session: its forwarder, or the reason why the session has no network.
#[derive(Debug)]
pub(super) struct SessionForwarding {
    pub(super) hosts: Vec<String>,
    pub(super) forwarder: Result<Forwarder, SessionNetworkError>,
    /// The proven posture of the threads that connect.
    pub(super) summary: String,
}

impl SessionForwarding {
    /// Starts the forwarder on the session's listener. `None` if the session should have no network.
    pub(super) fn start(
        runtime: &Handle,
        session: &mut ShellSession,
        network: Option<Result<SessionAccess, SessionNetworkError>>,
    ) -> Option<Self> {
        let SessionAccess { client, judge, tunnel_share: share, hosts } = match network? {
            Ok(network) => network,
            Err(error) => {
                return Some(Self { hosts: Vec::new(), forwarder: Err(error), summary: String::new() });
            }
        };
        let summary = client.egress.posture().summary().to_owned();
        let forwarder = match session.take_listener() {
            Some(listener) => Forwarder::start(runtime, listener, client, judge, share)
                .map_err(SessionNetworkError::Listener),
            None => Err(match session.network_absence() {
                Some(reason) => SessionNetworkError::Session(reason.to_owned()),
                None => SessionNetworkError::NoListener,
            }),
        };
        Some(Self { hosts, forwarder, summary })
    }
}

/// Starts a session. The sidecar's first session also proves that bash works, before a client runs a command. Later
/// sessions skip this proof: each command detects a shell that does not start.
fn start_session(spec: &SessionSpec, shell: &ShellProof) -> Result<ShellSession, ShellError> {
    let mut session = ShellSession::start(spec)?;
    if !shell.0.load(Ordering::Acquire) {
        session.prove_shell()?;
        shell.0.store(true, Ordering::Release);
    }
    Ok(session)
}

/// Whether a session of this sidecar has proved that bash works.
#[derive(Clone, Debug, Default)]
pub(super) struct ShellProof(Arc<AtomicBool>);

/// The result of ending a session, and the sender for the reply if a call asked for the end.
type EndResult = (Result<(), ShellError>, Option<oneshot::Sender<Result<(), ShellError>>>);

fn run_session(
    mut session: ShellSession,
    forwarder: Option<Forwarder>,
    work: &mpsc::Receiver<SessionRequest>,
    context: &SessionContext,
) -> EndResult {
    let forget = || {
        if let Some(connection) = context.connection.upgrade() {
            connection.forget_session(context.id);
        }
    };
    let reply = loop {
        match work.recv_timeout(context.idle_timeout) {
            Ok(SessionRequest::Run(job)) => {
                if job.run(&mut session, forwarder.as_ref(), forget) == SessionLife::Ended {
                    break None;
                }
            }
            Ok(SessionRequest::End(reply)) => break Some(reply),
            Err(RecvTimeoutError::Timeout) => {
                // Forget the session before it ends, so that no further call finds it.
                forget();
                tracing::info!(session = %context.id, "ended a session that was idle too long");
                break None;
            }
            Err(RecvTimeoutError::Disconnected) => break None,
        }
    };
    // The forwarder ends before the processes: bytes that a command sends while it is killed go nowhere.
    drop(forwarder);
    let end_result = session.end();
    if let Err(error) = &end_result {
        tracing::error!(session = %context.id, %error, "a session left processes behind");
    }
    (end_result, reply)
}

impl HeldSession {
    pub(super) fn new(work_sender: SessionChannel, properties: SessionProperties) -> Self {
        let now = Instant::now();
        Self {
            request_sender: work_sender.0,
            command_permit: Arc::new(Semaphore::new(1)),
            properties,
            created_at: now,
            last_used: Mutex::new(now),
            last_command: Mutex::default(),
        }
    }

    /// Hands a job to the session's thread. Returns `false` if the thread has ended.
    pub(super) fn run(&self, job: SessionCommand) -> bool {
        {
            let mut running = self.lock();
            if running.is_ending {
                // The command would delay the session's end.
                job.control.cancel();
            }
            running.control = Arc::downgrade(&job.control);
        }
        self.touch();
        self.request_sender.send(SessionRequest::Run(Box::new(job))).is_ok()
    }

    /// Kills the running command, ends the session and waits until it has ended. If the session has already ended,
    /// this returns `Ok`.
    pub(super) async fn end(&self) -> Result<(), ShellError> {
        self.cancel();
        let (reply, ended) = oneshot::channel();
        if self.request_sender.send(SessionRequest::End(reply)).is_err() {
            return Ok(());
        }
        ended.await.unwrap_or(Ok(()))
    }

    pub(super) fn is_busy(&self) -> bool {
        self.command_permit.available_permits() == 0
    }

    /// The time of the session's last use.
    pub(super) fn last_used(&self) -> Instant {
        *self.last_used.lock()
    }

    fn touch(&self) {
        *self.last_used.lock() = Instant::now();
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
        self.last_command.lock()
    }
}

impl Drop for HeldSession {
    fn drop(&mut self) {
        self.cancel();
    }
}

/// The stack of a session's thread. Parsing a command for the rules recurses as deep as the command nests.
const STACK_BYTES: usize = 8 << 20;
