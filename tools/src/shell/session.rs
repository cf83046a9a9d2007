//! One session, and one command in it.

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

/// A session of a sidecar. Dropping it ends it, with all its processes, without waiting.
#[derive(Debug)]
pub(super) struct Session {
    id: String,
    /// The posture that it proved when it was created.
    posture: PostureReport,
    /// How far the output of its background jobs has been received.
    background_end: u64,
    /// The client that ends the session.
    client: SidecarClient,
    /// Its place among the sessions with a network, if it has one.
    networked: Option<NetworkedSession>,
    /// Where the sessions with a network are listed.
    labels: Arc<RunLabels>,
    /// The runtime that sends the end, wherever the session is dropped. If the runtime is gone, so is the
    /// connection.
    runtime: Handle,
}

/// A command to run in a session, with its limits.
#[derive(Debug)]
pub(super) struct SidecarCommand<'a> {
    pub(super) text: &'a str,
    pub(super) workdir: &'a str,
    pub(super) stdin: &'a str,
    /// The time after which the sidecar kills it.
    pub(super) time_limit: Duration,
    pub(super) max_output_bytes: u64,
}

/// The end of a command, with its output.
#[derive(Debug)]
pub(super) struct CommandResult {
    /// Both streams, in order of arrival.
    pub(super) merged: Vec<u8>,
    /// How many bytes of it are standard error.
    pub(super) stderr_bytes: u64,
    pub(super) exited: Exited,
}

/// The reason why the end of a command is unknown.
#[derive(Debug)]
pub(super) struct CommandFailure {
    pub(super) error: SidecarError,
    /// Whether the sidecar had reported its start.
    pub(super) had_begun: bool,
}

impl CommandFailure {
    /// Whether the session ends too: it is gone, or it is unknown what the command left behind in it.
    pub(super) fn ends_session(&self) -> bool {
        self.error.ends_session() || (self.had_begun && !self.error.keeps_session())
    }
}

impl Session {
    /// Call it on the runtime that drives the connection. A session with a network is listed from now on.
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
            labels.add_networked(networked.clone());
        }
        let labels = Arc::clone(labels);
        Self { id, posture, background_end: 0, client, networked, labels, runtime: Handle::current() }
    }

    /// Whether the session was ended because its run has read what a flow rule keeps from the network.
    pub(super) fn is_withdrawn(&self) -> bool {
        self.networked.as_ref().is_some_and(NetworkedSession::is_withdrawn)
    }

    pub(super) fn posture(&self) -> &PostureReport {
        &self.posture
    }

    /// Runs a command once, and passes its output on as it arrives. A cancelled command is killed, and its
    /// end is awaited.
    ///
    /// # Cancellation
    /// Dropping the future kills the command.
    pub(super) async fn run(
        &mut self,
        mut client: SidecarClient,
        command: &SidecarCommand<'_>,
        cancel: &CancellationToken,
        on_output: &mut (dyn FnMut(&[u8]) + Send),
    ) -> Result<CommandResult, CommandFailure> {
        let request = self.request(command);
        let before = |error| CommandFailure { error, had_begun: false };
        let mut stream = begin(&mut client, request).await.map_err(before)?;
        let mut ran = Collected::default();
        // A backstop: the sidecar ends the command by itself unless it hangs.
        let mut patience =
            tokio::time::Instant::from_std(Instant::now() + command.time_limit + SIDECAR_KILL_TIME);
        let mut is_cancelled = false;
        loop {
            // `biased`: an event that has arrived wins over cancellation and time-out.
            let event = tokio::select! {
                biased;
                event = stream.message() => event.map_err(|status| ran.lost(SidecarError::refused(status)))?,
                () = cancel.cancelled(), if !is_cancelled => {
                    is_cancelled = true;
                    patience = tokio::time::Instant::now() + SIDECAR_KILL_TIME;
                    if let Some(command_id) = ran.command_id.clone() {
                        // The reply is not needed: the stream ends.
                        let _ = client.cancel(CancelRequest { command_id }).await;
                        continue;
                    }
                    // Not started yet: dropping the call is enough.
                    return Err(before(SidecarError::Answer { problem: "the command was cancelled" }));
                }
                () = tokio::time::sleep_until(patience) => {
                    return Err(ran.lost(SidecarError::Answer { problem: "it does not end the command" }));
                }
            };
            match event.and_then(|event| event.event) {
                Some(Event::Started(started)) => ran.command_id = Some(started.command_id),
                Some(Event::Output(output)) => on_output(ran.keep(&output, command.max_output_bytes)),
                Some(Event::Exited(exited)) => {
                    self.note_background(&exited);
                    return Ok(CommandResult { merged: ran.merged, stderr_bytes: ran.stderr_bytes, exited });
                }
                None => {
                    return Err(
                        ran.lost(SidecarError::Answer { problem: "it does not say how the command ended" })
                    );
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
            // At least 1: a limit of 0 would be the daemon's own.
            timeout_ms: u64::try_from(command.time_limit.as_millis()).unwrap_or(u64::MAX).max(1),
            max_output_bytes: command.max_output_bytes,
            background_from: self.background_end,
        }
    }

    /// Notes how far the output of background jobs has been received.
    fn note_background(&mut self, exited: &Exited) {
        // Only of a command that was not killed: that error has no room for the jobs' output, so the next
        // result contains it.
        if exited.interruption.is_empty() {
            self.background_end = exited.background_end;
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let (mut client, session_id) = (self.client.clone(), std::mem::take(&mut self.id));
        let (labels, is_networked) = (Arc::clone(&self.labels), self.networked.is_some());
        spawn::detached(&self.runtime, async move {
            // A session that has already ended is not found, which is fine.
            let _ = client.kill_session(KillSessionRequest { session_id: session_id.clone() }).await;
            // Not before: until then it may have its network.
            if is_networked {
                labels.forget_networked(&session_id);
            }
        });
    }
}

/// Sends the command. A session whose last caller went away is busy until that caller's command is dead. A
/// refused command was not started, so asking again runs nothing twice.
async fn begin(
    client: &mut SidecarClient,
    request: ExecRequest,
) -> Result<Streaming<ExecEvent>, SidecarError> {
    let patience = Instant::now() + SIDECAR_KILL_TIME;
    loop {
        match client.exec(request.clone()).await.map_err(SidecarError::refused) {
            Ok(stream) => return Ok(stream.into_inner()),
            Err(error) if error.is_busy() && Instant::now() < patience => {
                tokio::time::sleep(BUSY_PAUSE).await;
            }
            Err(error) => return Err(error),
        }
    }
}

/// The output received so far.
#[derive(Debug, Default)]
struct Collected {
    command_id: Option<String>,
    merged: Vec<u8>,
    stderr_bytes: u64,
}

impl Collected {
    /// Keeps a piece of output, up to `most` bytes of output in all, and returns what it kept.
    fn keep<'o>(&mut self, output: &'o Output, most: u64) -> &'o [u8] {
        if output.stream() == protocol::Stream::Stderr {
            self.stderr_bytes += output.bytes.len() as u64;
        }
        // A backstop: the sidecar applies the limit by itself.
        let room = usize::try_from(most).unwrap_or(usize::MAX).saturating_sub(self.merged.len());
        let kept = &output.bytes[..output.bytes.len().min(room)];
        self.merged.extend_from_slice(kept);
        kept
    }

    fn lost(&self, error: SidecarError) -> CommandFailure {
        CommandFailure { error, had_begun: self.command_id.is_some() }
    }
}

/// The pause between two attempts to use a busy session.
const BUSY_PAUSE: Duration = Duration::from_millis(5);

/// How long a sidecar may take to kill a command and, if that fails, its session. Usually some milliseconds;
/// more than a second only on a busy machine. The sidecar gives up each part after 10 s.
const SIDECAR_KILL_TIME: Duration = Duration::from_secs(40);
