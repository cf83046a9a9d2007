//! One session of a sidecar, and one command in it.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use portcullis_types::CancellationToken;
use tokio::runtime::Handle;
use tonic::Streaming;

use super::{connect::SidecarClient, failure::SidecarError, networked::NetworkedSession};
use crate::{call::Owner, run_labels::RunLabels, spawn};
use portcullis_shell_protocol as protocol;
use portcullis_shell_protocol::{
    CancelRequest, ExecEvent, ExecRequest, Exited, KillSessionRequest, Output, PostureReport,
    exec_event::Event,
};

/// A session of a sidecar. Dropping it kills the session's processes, without waiting for them to exit.
#[derive(Debug)]
pub(super) struct SidecarSession {
    id: String,
    /// The posture that the session proved when it was created.
    posture: PostureReport,
    /// The offset up to which the output of the session's background jobs has been received, in bytes.
    background_end: u64,
    /// The client that ends the session.
    client: SidecarClient,
    /// The entry in the list of sessions with a network, if the session has one.
    networked: Option<NetworkedSession>,
    /// The labels of the runs, which also list the sessions with a network.
    labels: Arc<RunLabels>,
    /// The runtime that sends the request to end the session, whichever thread drops the session. If the
    /// runtime has shut down, so has the connection.
    runtime: Handle,
}

/// A command to run in a session, with its limits.
#[derive(Debug)]
pub(super) struct SidecarCommand<'a> {
    pub(super) text: &'a str,
    pub(super) workdir: &'a str,
    pub(super) stdin: &'a str,
    /// How long the command may run before the sidecar kills it.
    pub(super) time_limit: Duration,
    pub(super) max_output_bytes: u64,
    /// The call, its run and its agent, for the record of the command's changes.
    pub(super) call_id: &'a str,
    pub(super) run_id: &'a str,
    pub(super) agent_id: &'a str,
}

/// The end of a command, with its output.
#[derive(Debug)]
pub(super) struct CollectedCommand {
    /// Both streams, in order of arrival.
    pub(super) merged: Vec<u8>,
    /// The number of bytes of standard error in the whole output, including the truncated part.
    pub(super) stderr_bytes: u64,
    pub(super) exited: Exited,
}

/// Why it is unknown how a command ended.
#[derive(Debug)]
pub(super) struct CommandFailure {
    pub(super) error: SidecarError,
    /// Whether the sidecar had reported the command's start.
    pub(super) had_begun: bool,
}

impl CommandFailure {
    /// Whether the session ends too: it is gone, or its state after the command is unknown.
    pub(super) fn ends_session(&self) -> bool {
        self.error.ends_session() || (self.had_begun && !self.error.keeps_session())
    }
}

impl SidecarSession {
    /// Must be called on the runtime that drives the connection. A session with a network is added to the
    /// list of such sessions.
    pub(super) fn new(
        id: String,
        owner: &Owner,
        posture: PostureReport,
        client: SidecarClient,
        labels: &Arc<RunLabels>,
    ) -> Self {
        let has_network = posture.network.as_ref().is_some_and(|network| network.absence.is_empty());
        let networked = has_network.then(|| NetworkedSession::new(owner.clone(), &id, client.clone()));
        if let Some(networked) = &networked {
            labels.add_networked_session(networked.clone());
        }
        let labels = Arc::clone(labels);
        Self { id, posture, background_end: 0, client, networked, labels, runtime: Handle::current() }
    }

    /// Whether the session was ended because its run has read data that a flow rule keeps from the network.
    pub(super) fn is_withdrawn(&self) -> bool {
        self.networked.as_ref().is_some_and(NetworkedSession::is_withdrawn)
    }

    pub(super) fn posture(&self) -> &PostureReport {
        &self.posture
    }

    /// Runs a command once, and forwards its output as it arrives. A cancelled command is killed, and this
    /// function waits for its end.
    ///
    /// # Cancellation
    /// A dropped future kills the command.
    pub(super) async fn run(
        &mut self,
        mut client: SidecarClient,
        command: &SidecarCommand<'_>,
        cancel: &CancellationToken,
        on_output: &mut (dyn FnMut(&[u8]) + Send),
    ) -> Result<CollectedCommand, CommandFailure> {
        let request = self.request(command);
        let not_begun = |error| CommandFailure { error, had_begun: false };
        let mut stream = begin(&mut client, request).await.map_err(not_begun)?;
        let mut collected = CollectedOutput::default();
        // A backstop for a sidecar that hangs. Normally the sidecar kills the command itself.
        let mut give_up_at =
            tokio::time::Instant::from_std(Instant::now() + command.time_limit + SIDECAR_KILL_TIMEOUT);
        let mut is_cancelled = false;
        loop {
            // `biased`: an event that has arrived takes precedence over cancellation and timeout.
            let event = tokio::select! {
                biased;
                event = stream.message() => event.map_err(|status| collected.failure(SidecarError::refused(status)))?,
                () = cancel.cancelled(), if !is_cancelled => {
                    is_cancelled = true;
                    // From here on the sidecar only has to kill the command.
                    give_up_at = tokio::time::Instant::now() + SIDECAR_KILL_TIMEOUT;
                    if let Some(command_id) = collected.command_id.clone() {
                        // Ignore the reply: the stream ends in any case.
                        let _ = client.cancel(CancelRequest { command_id }).await;
                        continue;
                    }
                    // The command has not started yet, so dropping the call is enough.
                    return Err(not_begun(SidecarError::Answer { problem: "the command was cancelled" }));
                }
                () = tokio::time::sleep_until(give_up_at) => {
                    return Err(collected.failure(SidecarError::Answer { problem: "it does not end the command" }));
                }
            };
            match event.and_then(|event| event.event) {
                Some(Event::Started(started)) => collected.command_id = Some(started.command_id),
                Some(Event::Output(output)) => on_output(collected.append(&output, command.max_output_bytes)),
                Some(Event::Exited(exited)) => {
                    self.note_background(&exited);
                    return Ok(CollectedCommand {
                        merged: collected.merged,
                        stderr_bytes: collected.stderr_bytes,
                        exited,
                    });
                }
                None => {
                    return Err(collected
                        .failure(SidecarError::Answer { problem: "it does not say how the command ended" }));
                }
            }
        }
    }

    fn request(&self, command: &SidecarCommand<'_>) -> ExecRequest {
        ExecRequest {
            session_id: self.id.clone(),
            command: command.text.to_owned(),
            workdir: command.workdir.to_owned(),
            stdin: command.stdin.as_bytes().to_vec(),
            stdin_open: false,
            // At least 1, because 0 would select the sidecar's own limit.
            timeout_ms: u64::try_from(command.time_limit.as_millis()).unwrap_or(u64::MAX).max(1),
            max_output_bytes: command.max_output_bytes,
            background_from: self.background_end,
            call_id: command.call_id.to_owned(),
            run_id: command.run_id.to_owned(),
            agent_id: command.agent_id.to_owned(),
        }
    }

    /// Records how much of the output of background jobs has been received.
    fn note_background(&mut self, exited: &Exited) {
        // Not for a killed command: its error has no room for the jobs' output, so the next
        // result must contain it.
        if exited.interruption.is_empty() {
            self.background_end = exited.background_end;
        }
    }
}

impl Drop for SidecarSession {
    fn drop(&mut self) {
        let (mut client, session_id) = (self.client.clone(), std::mem::take(&mut self.id));
        let (labels, is_networked) = (Arc::clone(&self.labels), self.networked.is_some());
        spawn::spawn_detached(&self.runtime, async move {
            // If the session has already ended, it is not found, so ignore an error.
            let _ = client.kill_session(KillSessionRequest { session_id: session_id.clone() }).await;
            // Only after the kill, because until then the session may still have its network.
            if is_networked {
                labels.remove_networked_session(&session_id);
            }
        });
    }
}

/// Sends the command. If the session's last caller left, the session is busy until that caller's command is
/// dead. Retrying is safe, because a refused command was not started.
async fn begin(
    client: &mut SidecarClient,
    request: ExecRequest,
) -> Result<Streaming<ExecEvent>, SidecarError> {
    let give_up_at = Instant::now() + SIDECAR_KILL_TIMEOUT;
    loop {
        match client.exec(request.clone()).await.map_err(SidecarError::refused) {
            Ok(stream) => return Ok(stream.into_inner()),
            Err(error) if error.is_busy() && Instant::now() < give_up_at => {
                tokio::time::sleep(BUSY_PAUSE).await;
            }
            Err(error) => return Err(error),
        }
    }
}

/// The output received so far.
#[derive(Debug, Default)]
struct CollectedOutput {
    command_id: Option<String>,
    merged: Vec<u8>,
    stderr_bytes: u64,
}

impl CollectedOutput {
    /// Appends output, up to `max_bytes` bytes in total, and returns the part that was kept.
    fn append<'o>(&mut self, output: &'o Output, max_bytes: u64) -> &'o [u8] {
        if output.stream() == protocol::Stream::Stderr {
            self.stderr_bytes += output.bytes.len() as u64;
        }
        // A backstop: the sidecar enforces the limit itself.
        let free_bytes = usize::try_from(max_bytes).unwrap_or(usize::MAX).saturating_sub(self.merged.len());
        let retained = &output.bytes[..output.bytes.len().min(free_bytes)];
        self.merged.extend_from_slice(retained);
        retained
    }

    fn failure(&self, error: SidecarError) -> CommandFailure {
        CommandFailure { error, had_begun: self.command_id.is_some() }
    }
}

/// The delay between two attempts to use a busy session.
const BUSY_PAUSE: Duration = Duration::from_millis(5);

/// How long a sidecar may take to kill a command and, if that fails, its session: 40 s. This usually
/// takes a few milliseconds, and more than a second only on a busy machine. The sidecar gives up on
/// each part after 10 s.
const SIDECAR_KILL_TIMEOUT: Duration = Duration::from_secs(40);
