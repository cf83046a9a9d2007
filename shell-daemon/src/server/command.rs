//! A client's command: how it runs on its session's thread, and the stream of its events.
//!
//! Output waits in a bounded channel (backpressure): a client that reads slowly slows the command down and
//! takes no memory.

use std::{
    pin::Pin,
    sync::{Arc, Mutex, PoisonError, Weak},
    task::{Context, Poll},
    time::{Duration, Instant},
};

use futures_util::Stream;
use tokio::{
    runtime::Handle,
    sync::{OwnedSemaphorePermit, mpsc, oneshot},
};
use tokio_util::sync::CancellationToken;
use tonic::Status;

use super::{
    connection::{ClientConnection, Id},
    connections::ConnectionReport,
    daemon::Daemon,
    forwarder::Forwarder,
    input::StdinSender,
    refusal::{self, RefusalCode},
    session_thread::SessionLife,
};
use crate::{
    BackgroundOutput, Cancellation, Canceller, CommandEnd, CommandRequest, Completion, Ending, Interruption,
    OutputChunk, OutputStream, ShellError, ShellSession, StateAfter,
};
use portcullis_shell_protocol as protocol;
use portcullis_shell_protocol::{ExecEvent, Exited, Output, Started, exec_event::Event, exited};

/// Cancels a command, from any thread.
#[derive(Debug)]
pub(super) struct CommandControl {
    canceller: Mutex<Option<Canceller>>,
    /// Wakes the session's thread where it waits for the client to take output.
    cancelled: CancellationToken,
    pub(super) input: StdinSender,
}

impl CommandControl {
    /// # Errors
    /// If there is no descriptor left.
    pub(super) fn new(input: StdinSender) -> Result<(Arc<Self>, Cancellation), Status> {
        let (cancellation, canceller) = Cancellation::new()
            .map_err(|error| RefusalCode::Limit.because(format!("no descriptor is left: {error}")))?;
        let control =
            Self { canceller: Mutex::new(Some(canceller)), cancelled: CancellationToken::new(), input };
        Ok((Arc::new(control), cancellation))
    }

    /// Kills the command with all its processes, now or as soon as it would start.
    pub(super) fn cancel(&self) {
        self.cancelled.cancel();
        drop(self.canceller.lock().unwrap_or_else(PoisonError::into_inner).take());
    }
}

/// A command for its session's thread.
pub(super) struct SessionCommand {
    pub(super) id: Id,
    pub(super) daemon: Arc<Daemon>,
    pub(super) request: CommandRequest,
    /// The position up to which the client has the output of background jobs.
    pub(super) background_from: u64,
    pub(super) control: Arc<CommandControl>,
    pub(super) outlet: EventOutlet,
    pub(super) permits: CommandPermits,
}

/// The resources that a command holds while it runs. They are released before its end is sent, since the
/// client may start the next command when it gets the end.
pub(super) struct CommandPermits {
    pub(super) id: Id,
    pub(super) connection: Weak<ClientConnection>,
    /// Permits: the session's turn, and one of the daemon's running commands.
    pub(super) _permits: [OwnedSemaphorePermit; 2],
}

impl Drop for CommandPermits {
    fn drop(&mut self) {
        if let Some(connection) = self.connection.upgrade() {
            connection.forget_command(self.id);
        }
    }
}

impl SessionCommand {
    /// Runs the command, once. `forget` removes the session from its connection, in case it ends with the
    /// command.
    pub(super) fn run(
        self,
        session: &mut ShellSession,
        forwarder: Option<&Forwarder>,
        forget: impl FnOnce(),
    ) -> SessionLife {
        let Self { id, daemon, request, background_from, control, mut outlet, permits } = self;
        let judged = if control.cancelled.is_cancelled() {
            // The caller is gone, or the session is about to end.
            Err(RefusalCode::SessionEnded.because("the command was cancelled before it began"))
        } else {
            daemon.config.commands.judge(&request.command).map_err(|refusal| {
                tracing::info!(command = %id, %refusal, "refused a command");
                RefusalCode::CommandDenied.because(refusal.to_string())
            })
        };
        if let Err(status) = judged {
            drop(permits);
            outlet.refuse(status);
            return SessionLife::GoesOn;
        }
        if !outlet.accept(id) {
            return SessionLife::GoesOn;
        }
        let deadline = Instant::now() + request.timeout;
        let result = session.run(&request, &mut |chunk| outlet.deliver(chunk, deadline, &control.cancelled));
        let life = match &result {
            Ok(_) => SessionLife::GoesOn,
            Err(error) if session_survives(error) => SessionLife::GoesOn,
            Err(error) => {
                tracing::warn!(command = %id, error = portcullis_types::chain(error), "a session ended with its command");
                forget();
                SessionLife::Over
            }
        };
        drop(permits);
        let connections = forwarder.map(|forwarder| forwarder.connections.report()).unwrap_or_default();
        outlet.end(&result, session.background_output(background_from), connections);
        life
    }
}

/// The sending end of a command's events.
pub(super) struct EventOutlet {
    accepted: Option<oneshot::Sender<Result<(), Status>>>,
    events: mpsc::Sender<Result<ExecEvent, Status>>,
    /// A reserved slot for the last event, so that a session never waits for a client that does not read.
    last: mpsc::OwnedPermit<Result<ExecEvent, Status>>,
    runtime: Handle,
    delivered: u64,
    /// The client takes no more output, or did not take it in time.
    is_lost: bool,
}

/// The receiving end: the result of the start, and the stream for the answer.
pub(super) struct EventInlet {
    accepted: oneshot::Receiver<Result<(), Status>>,
    stream: ExecStream,
}

/// Makes both ends of a command's events. Must be called within the runtime that drives the client's end.
///
/// # Errors
/// None in practice: a new channel has room for the last event.
pub(super) fn channel(control: Arc<CommandControl>) -> Result<(EventOutlet, EventInlet), Status> {
    let (accept, accepted) = oneshot::channel();
    let (events, receiver) = mpsc::channel(EVENTS);
    let last = events
        .clone()
        .try_reserve_owned()
        .map_err(|error| RefusalCode::Failed.because(format!("reserve the command's end: {error}")))?;
    let runtime = Handle::current();
    let outlet = EventOutlet { accepted: Some(accept), events, last, runtime, delivered: 0, is_lost: false };
    let stream = ExecStream { events: receiver, control };
    Ok((outlet, EventInlet { accepted, stream }))
}

impl EventInlet {
    /// Waits until the command is about to start.
    ///
    /// # Cancellation
    /// Cancels the command.
    ///
    /// # Errors
    /// The reason why it was not started.
    pub(super) async fn accepted(self) -> Result<ExecStream, Status> {
        match self.accepted.await {
            Ok(Ok(())) => Ok(self.stream),
            Ok(Err(status)) => Err(status),
            // The session's thread has ended without an answer.
            Err(_) => {
                Err(RefusalCode::SessionEnded.because("the session has ended; the command was not run"))
            }
        }
    }
}

impl EventOutlet {
    fn refuse(mut self, status: Status) {
        if let Some(accepted) = self.accepted.take() {
            let _ = accepted.send(Err(status));
        }
    }

    /// Sends that the command begins; `false` if the caller is gone.
    fn accept(&mut self, id: Id) -> bool {
        let started = event(Event::Started(Started { command_id: id.to_string() }));
        self.events.try_send(started).is_ok()
            && self.accepted.take().is_some_and(|accepted| accepted.send(Ok(())).is_ok())
    }

    /// Sends output. Waits for room in the channel, at most until the command is cancelled or its deadline
    /// passes.
    fn deliver(&mut self, chunk: OutputChunk<'_>, deadline: Instant, cancelled: &CancellationToken) {
        let stream = match chunk.stream {
            OutputStream::Stdout => protocol::Stream::Stdout,
            OutputStream::Stderr => protocol::Stream::Stderr,
        };
        for bytes in chunk.bytes.chunks(EVENT_BYTES) {
            if self.is_lost {
                return;
            }
            let output = event(Event::Output(Output { stream: stream.into(), bytes: bytes.to_vec() }));
            let sent = match self.events.try_send(output) {
                Ok(()) => true,
                Err(mpsc::error::TrySendError::Closed(_)) => false,
                Err(mpsc::error::TrySendError::Full(output)) => self.runtime.block_on(async {
                    tokio::select! {
                        biased;
                        () = cancelled.cancelled() => false,
                        sent = self.events.send(output) => sent.is_ok(),
                        () = tokio::time::sleep_until(deadline.into()) => false,
                    }
                }),
            };
            if sent {
                self.delivered += bytes.len() as u64;
            } else {
                self.is_lost = true;
            }
        }
    }

    fn end(
        self,
        result: &Result<CommandEnd, ShellError>,
        background: BackgroundOutput,
        connections: ConnectionReport,
    ) {
        let last = match result {
            Ok(end) => event(Event::Exited(exited(end, self.delivered, background, connections))),
            Err(error) => Err(refusal::not_run(error)),
        };
        drop(self.last.send(last));
    }
}

/// The stream of a command's events. Dropping it kills the command.
#[derive(Debug)]
pub(super) struct ExecStream {
    events: mpsc::Receiver<Result<ExecEvent, Status>>,
    control: Arc<CommandControl>,
}

impl Stream for ExecStream {
    type Item = Result<ExecEvent, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.events.poll_recv(context)
    }
}

impl Drop for ExecStream {
    fn drop(&mut self) {
        self.control.cancel();
    }
}

#[expect(clippy::unnecessary_wraps, reason = "what a stream of events is made of")]
fn event(event: Event) -> Result<ExecEvent, Status> {
    Ok(ExecEvent { event: Some(event) })
}

fn exited(
    end: &CommandEnd,
    delivered: u64,
    background: BackgroundOutput,
    connections: ConnectionReport,
) -> Exited {
    let ending = match end.ending {
        Ending::Code(code) => exited::Ending::Code(code),
        Ending::Signal(signal) => exited::Ending::Signal(signal),
    };
    let interruption = match end.completion {
        Completion::Whole => "",
        Completion::Interrupted(interruption) => word(interruption),
    };
    let state = match end.state {
        StateAfter::Saved => "carried",
        StateAfter::KeptAfterKill => "killed",
        StateAfter::KeptTooLarge => "too_large",
        StateAfter::KeptNotWritten => "not_written",
    };
    Exited {
        ending: Some(ending),
        duration_us: micros(end.duration),
        cpu_us: micros(end.cpu),
        peak_memory_bytes: end.peak_memory_bytes,
        output_bytes: end.output_bytes,
        truncated: delivered < end.output_bytes,
        interruption: interruption.to_owned(),
        state: state.to_owned(),
        jobs_left: end.jobs_left,
        protected_paths: end.protected.created.clone(),
        protected_complete: end.protected.complete,
        background: background.bytes,
        background_dropped: background.dropped,
        background_end: background.end,
        background_killed: background.killed.into_iter().map(|why| word(why).to_owned()).collect(),
        connections: connections.connections,
        connections_omitted: connections.omitted,
    }
}

fn word(interruption: Interruption) -> &'static str {
    match interruption {
        Interruption::Timeout => "timeout",
        Interruption::Cancelled => "cancelled",
        Interruption::Processes => "processes",
        Interruption::Memory => "memory",
        Interruption::Hidden => "hidden",
    }
}

/// Whether a session is still usable after an error.
fn session_survives(error: &ShellError) -> bool {
    matches!(
        error,
        ShellError::CommandUnusable { .. }
            | ShellError::TooManyBackgroundCommands { .. }
            | ShellError::NotStarted { .. }
    )
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// The events that wait for a client, the first and the last included, and the output bytes of one event.
/// Together they bound the memory that a client that does not read costs the daemon.
const EVENTS: usize = 8;
const EVENT_BYTES: usize = 128 << 10;
