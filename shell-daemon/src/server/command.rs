//! A client's command: its run on the session's thread, and the stream of its events.
//!
//! Output waits in a bounded channel (backpressure): a client that reads slowly slows the command down and does
//! not use more memory.

use std::{
    pin::Pin,
    sync::{Arc, Weak},
    task::{Context, Poll},
    time::{Duration, Instant},
};

use futures_util::Stream;
use parking_lot::Mutex;
use tokio::{
    runtime::Handle,
    sync::{OwnedSemaphorePermit, mpsc, oneshot},
};
use tokio_util::sync::CancellationToken;
use tonic::Status;

use super::{
    connection::{ClientConnection, RandomId},
    connections::ConnectionReport,
    forwarder::Forwarder,
    input::StdinSender,
    refusal::{self, RefusalCode},
    session_thread::SessionLife,
    sidecar::SidecarServer,
};
use crate::{
    BackgroundOutput, CancelReceiver, CancelSender, CommandEnd, CommandRequest, Completion, Ending,
    OutputChunk, OutputStream, ShellError, ShellSession,
};
use portcullis_shell_protocol as protocol;
use portcullis_shell_protocol::{ExecEvent, Exited, Output, Started, exec_event::Event, exited};
use portcullis_undo::ChangeRecorder;

/// Cancels a command from any thread.
#[derive(Debug)]
pub(super) struct CommandControl {
    canceller: Mutex<Option<CancelSender>>,
    /// Wakes the session's thread if it waits for the client to take output.
    cancelled: CancellationToken,
    pub(super) input: StdinSender,
}

impl CommandControl {
    /// # Errors
    /// `limit`, if no descriptor is left.
    pub(super) fn new(input: StdinSender) -> Result<(Arc<Self>, CancelReceiver), Status> {
        let (cancellation, canceller) = CancelReceiver::new()
            .map_err(|error| RefusalCode::Limit.status(format!("no descriptor is available: {error}")))?;
        let control =
            Self { canceller: Mutex::new(Some(canceller)), cancelled: CancellationToken::new(), input };
        Ok((Arc::new(control), cancellation))
    }

    /// Kills the command with all its processes: immediately if it runs, otherwise as soon as it would start.
    pub(super) fn cancel(&self) {
        self.cancelled.cancel();
        // Dropping the canceller cancels.
        drop(self.canceller.lock().take());
    }
}

/// A command that is passed to its session's thread.
pub(super) struct SessionCommand {
    pub(super) id: RandomId,
    pub(super) sidecar: Arc<SidecarServer>,
    pub(super) request: CommandRequest,
    /// Records the command's changes.
    pub(super) recorder: Option<ChangeRecorder>,
    /// The position up to which the client already has the output of background jobs.
    pub(super) background_from: u64,
    pub(super) control: Arc<CommandControl>,
    pub(super) outlet: CommandEventSender,
    pub(super) permits: CommandPermits,
}

/// The resources that a command holds while it runs. They are released before the command's end is sent, because
/// the client may start the next command when it receives the end.
pub(super) struct CommandPermits {
    pub(super) id: RandomId,
    pub(super) connection: Weak<ClientConnection>,
    /// Two permits: the session's turn, and one of the sidecar's permits for running commands.
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
    /// Runs the command. `forget` removes the session from its connection, and is called if the session ends with
    /// the command.
    pub(super) fn run(
        self,
        session: &mut ShellSession,
        forwarder: Option<&Forwarder>,
        forget: impl FnOnce(),
    ) -> SessionLife {
        let Self { id, sidecar, request, recorder, background_from, control, mut outlet, permits } = self;
        let judged = if control.cancelled.is_cancelled() {
            // The caller is gone or the session is about to end.
            Err(RefusalCode::SessionEnded.status("the command was cancelled before it began"))
        } else {
            sidecar.config.commands.judge(&request.command).map_err(|refusal| {
                tracing::info!(command = %id, %refusal, "refused a command");
                RefusalCode::CommandDenied.status(refusal.to_string())
            })
        };
        if let Err(status) = judged {
            drop(permits);
            outlet.refuse(status);
            return SessionLife::Continues;
        }
        if !outlet.accept(id) {
            return SessionLife::Continues;
        }
        let deadline = Instant::now() + request.timeout;
        session.keep_changes(recorder);
        let result = session.run(&request, &mut |chunk| outlet.deliver(chunk, deadline, &control.cancelled));
        session.keep_changes(None);
        let life = match &result {
            Ok(_) => SessionLife::Continues,
            Err(error) if session_survives(error) => SessionLife::Continues,
            Err(error) => {
                tracing::warn!(command = %id, error = portcullis_types::error_chain(error), "a session ended with its command");
                forget();
                SessionLife::Ended
            }
        };
        // Release the permits first: the client may start the next command when it receives the end.
        drop(permits);
        let connections = forwarder.map(|forwarder| forwarder.connections.report()).unwrap_or_default();
        outlet.end(&result, session.background_output(background_from), connections);
        life
    }
}

/// The sending end of a command's events.
pub(super) struct CommandEventSender {
    acceptance: Option<oneshot::Sender<Result<(), Status>>>,
    events: mpsc::Sender<Result<ExecEvent, Status>>,
    /// A reserved slot for the last event. The session's thread can send that event without waiting for the client.
    end_permit: mpsc::OwnedPermit<Result<ExecEvent, Status>>,
    runtime: Handle,
    delivered_bytes: u64,
    /// The client is gone or did not take output in time. No more output is sent to it.
    is_lost: bool,
}

/// The receiving end of a command's events: the result of the start, and the stream for the client.
pub(super) struct CommandEventReceiver {
    acceptance: oneshot::Receiver<Result<(), Status>>,
    stream: ExecStream,
}

/// Makes both ends of a command's events. Must be called within the runtime that drives the client's end.
///
/// # Errors
/// `failed` if the slot for the last event cannot be reserved. In practice a new channel has room.
pub(super) fn channel(
    control: Arc<CommandControl>,
) -> Result<(CommandEventSender, CommandEventReceiver), Status> {
    let (accept, accepted) = oneshot::channel();
    let (events, receiver) = mpsc::channel(MAX_WAITING_EVENTS);
    let end_permit = events
        .clone()
        .try_reserve_owned()
        .map_err(|error| RefusalCode::Failed.status(format!("reserve the command's end: {error}")))?;
    let runtime = Handle::current();
    let outlet = CommandEventSender {
        acceptance: Some(accept),
        events,
        end_permit,
        runtime,
        delivered_bytes: 0,
        is_lost: false,
    };
    let stream = ExecStream { events: receiver, control };
    Ok((outlet, CommandEventReceiver { acceptance: accepted, stream }))
}

impl CommandEventReceiver {
    /// Waits until the command is about to start.
    ///
    /// # Cancellation
    /// Dropping the future cancels the command.
    ///
    /// # Errors
    /// The reason why the command was not started.
    pub(super) async fn accepted(self) -> Result<ExecStream, Status> {
        match self.acceptance.await {
            Ok(Ok(())) => Ok(self.stream),
            Ok(Err(status)) => Err(status),
            // The session's thread ended without an answer.
            Err(_) => Err(RefusalCode::SessionEnded.status("the session has ended; the command was not run")),
        }
    }
}

impl CommandEventSender {
    fn refuse(mut self, status: Status) {
        if let Some(accepted) = self.acceptance.take() {
            // Sending fails only if the caller is gone.
            let _ = accepted.send(Err(status));
        }
    }

    /// Tells the client that the command starts. Returns `false` if the caller is gone.
    fn accept(&mut self, id: RandomId) -> bool {
        let started = event(Event::Started(Started { command_id: id.to_string() }));
        self.events.try_send(started).is_ok()
            && self.acceptance.take().is_some_and(|accepted| accepted.send(Ok(())).is_ok())
    }

    /// Sends output. Waits for room in the channel, at most until the command is cancelled or its deadline
    /// passes.
    fn deliver(&mut self, chunk: OutputChunk<'_>, deadline: Instant, cancelled: &CancellationToken) {
        let stream = match chunk.stream {
            OutputStream::Stdout => protocol::Stream::Stdout,
            OutputStream::Stderr => protocol::Stream::Stderr,
        };
        for bytes in chunk.bytes.chunks(MAX_EVENT_BYTES) {
            if self.is_lost {
                return;
            }
            let output = event(Event::Output(Output { stream: stream.into(), bytes: bytes.to_vec() }));
            let sent = match self.events.try_send(output) {
                Ok(()) => true,
                Err(mpsc::error::TrySendError::Closed(_)) => false,
                Err(mpsc::error::TrySendError::Full(output)) => self.runtime.block_on(async {
                    tokio::select! {
                        // A cancelled command must not send, even if the channel has room again.
                        biased;
                        () = cancelled.cancelled() => false,
                        sent = self.events.send(output) => sent.is_ok(),
                        () = tokio::time::sleep_until(deadline.into()) => false,
                    }
                }),
            };
            if sent {
                self.delivered_bytes += bytes.len() as u64;
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
        let end_event = match result {
            Ok(end) => event(Event::Exited(exited(end, self.delivered_bytes, background, connections))),
            Err(error) => Err(refusal::run_failure(error)),
        };
        drop(self.end_permit.send(end_event));
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

#[expect(clippy::unnecessary_wraps, reason = "the channel carries `Result<ExecEvent, Status>`")]
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
        Completion::Finished => "",
        Completion::Interrupted(interruption) => interruption.as_str(),
    };
    Exited {
        ending: Some(ending),
        duration_us: micros(end.duration),
        cpu_us: micros(end.cpu),
        peak_memory_bytes: end.peak_memory_bytes,
        output_bytes: end.output_bytes,
        // The client has less than the command wrote if a bound has cut the output.
        truncated: delivered < end.output_bytes,
        interruption: interruption.to_owned(),
        state: end.state.as_str().to_owned(),
        jobs_left: end.jobs_left,
        protected_paths: end.protected.changed_paths.clone(),
        protected_complete: end.protected.complete,
        background: background.bytes,
        background_dropped: background.dropped_bytes,
        background_end: background.end,
        background_killed: background
            .killed
            .into_iter()
            .map(|interruption| interruption.as_str().to_owned())
            .collect(),
        connections: connections.connections,
        connections_omitted: connections.omitted_connections,
    }
}

/// Whether a session is still usable after an error.
fn session_survives(error: &ShellError) -> bool {
    matches!(
        error,
        ShellError::CommandUnusable { .. }
            | ShellError::WorkdirUnusable { .. }
            | ShellError::TooManyBackgroundCommands { .. }
            | ShellError::NotStarted { .. }
    )
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// The maximum number of events that wait for a client, including the first and the last, and of output bytes in one
/// event. Their product bounds the sidecar's memory for a client that does not read.
const MAX_WAITING_EVENTS: usize = 8;
const MAX_EVENT_BYTES: usize = 128 << 10;
