//! One session, and one command in it.

use std::time::{Duration, Instant};

use portcullis_types::CancellationToken;
use tokio::runtime::Handle;
use tonic::Streaming;

use super::{
    connect::Client,
    failure::SidecarError,
    protocol::{
        self, CancelRequest, ExecEvent, ExecRequest, Exited, KillSessionRequest, PostureReport,
        exec_event::Event,
    },
};
use crate::spawn;

/// A session of a sidecar. Dropping it ends it, with all its processes; nobody waits for that.
#[derive(Debug)]
pub(super) struct Session {
    id: String,
    /// What it has proven, when it was made.
    posture: PostureReport,
    /// Up to where this has what its background jobs wrote.
    background_end: u64,
    /// To end it by.
    client: Client,
    /// What drives the word to end it, wherever it is dropped. One that is gone has taken the connection along.
    runtime: Handle,
}

/// One command.
#[derive(Debug)]
pub(super) struct Command<'a> {
    pub(super) text: &'a str,
    pub(super) workdir: &'a str,
    pub(super) stdin: &'a str,
    /// When the sidecar kills it.
    pub(super) time_limit: Duration,
    pub(super) max_output_bytes: u64,
}

/// How a command ended, with what it wrote.
#[derive(Debug)]
pub(super) struct Ran {
    /// Both streams, in order of arrival.
    pub(super) merged: Vec<u8>,
    /// How much of it is standard error.
    pub(super) stderr_bytes: u64,
    pub(super) exited: Exited,
}

/// Why a command has no end to tell.
#[derive(Debug)]
pub(super) struct Lost {
    pub(super) error: SidecarError,
    /// The sidecar had said that it runs.
    pub(super) had_begun: bool,
}

impl Session {
    /// To be called on the runtime that drives the connection.
    pub(super) fn new(id: String, posture: PostureReport, client: Client) -> Self {
        Self { id, posture, background_end: 0, client, runtime: Handle::current() }
    }

    pub(super) fn posture(&self) -> &PostureReport {
        &self.posture
    }

    /// Runs a command, once, and hands on what it writes as it comes. A cancelled one is killed, and its end
    /// waited for.
    ///
    /// # Cancellation
    /// Dropping the future kills the command.
    pub(super) async fn run(
        &mut self,
        mut client: Client,
        command: &Command<'_>,
        cancel: &CancellationToken,
        on_output: &mut (dyn FnMut(&[u8]) + Send),
    ) -> Result<Ran, Lost> {
        let request = ExecRequest {
            session_id: self.id.clone(),
            command: command.text.to_owned(),
            workdir: command.workdir.to_owned(),
            stdin: command.stdin.as_bytes().to_vec(),
            stdin_open: false,
            timeout_ms: u64::try_from(command.time_limit.as_millis()).unwrap_or(u64::MAX).max(1),
            max_output_bytes: command.max_output_bytes,
            background_from: self.background_end,
        };
        let before = |error| Lost { error, had_begun: false };
        let mut stream = begin(&mut client, request).await.map_err(before)?;
        let mut ran = Collected::default();
        // The sidecar ends the command by itself; this is for one that no longer does anything.
        let mut patience = tokio::time::Instant::from_std(Instant::now() + command.time_limit + KILL_TIME);
        let mut is_cancelled = false;
        loop {
            let event = tokio::select! {
                biased;
                event = stream.message() => event.map_err(|status| ran.lost(SidecarError::refused(status)))?,
                () = cancel.cancelled(), if !is_cancelled => {
                    is_cancelled = true;
                    patience = tokio::time::Instant::now() + KILL_TIME;
                    if let Some(command_id) = ran.command_id.clone() {
                        // What it answers shows in the stream's end.
                        let _ = client.cancel(CancelRequest { command_id }).await;
                        continue;
                    }
                    // Not even begun: dropping the call is enough.
                    return Err(before(SidecarError::Answer { problem: "the command was cancelled" }));
                }
                () = tokio::time::sleep_until(patience) => {
                    return Err(ran.lost(SidecarError::Answer { problem: "it does not end the command" }));
                }
            };
            match event.and_then(|event| event.event) {
                Some(Event::Started(started)) => ran.command_id = Some(started.command_id),
                Some(Event::Output(output)) => {
                    if output.stream() == protocol::Stream::Stderr {
                        ran.stderr_bytes += output.bytes.len() as u64;
                    }
                    // The sidecar keeps the limit; this is for one that does not.
                    let room = usize::try_from(command.max_output_bytes)
                        .unwrap_or(usize::MAX)
                        .saturating_sub(ran.merged.len());
                    let bytes = &output.bytes[..output.bytes.len().min(room)];
                    ran.merged.extend_from_slice(bytes);
                    on_output(bytes);
                }
                Some(Event::Exited(exited)) => {
                    if exited.interruption.is_empty() {
                        // The error of a command that was killed has no room for it: the next answer has.
                        self.background_end = exited.background_end;
                    }
                    return Ok(Ran { merged: ran.merged, stderr_bytes: ran.stderr_bytes, exited });
                }
                None => {
                    return Err(
                        ran.lost(SidecarError::Answer { problem: "it does not say how the command ended" })
                    );
                }
            }
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let (mut client, session_id) = (self.client.clone(), std::mem::take(&mut self.id));
        spawn::detached(&self.runtime, async move {
            // One that is over already is not found.
            let _ = client.kill_session(KillSessionRequest { session_id }).await;
        });
    }
}

/// Asks for the command. A session whose last caller went away is busy until what that had begun is dead; a
/// command that is refused has not been started, so asking again runs nothing twice.
async fn begin(client: &mut Client, request: ExecRequest) -> Result<Streaming<ExecEvent>, SidecarError> {
    let patience = Instant::now() + KILL_TIME;
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

/// What has come so far.
#[derive(Debug, Default)]
struct Collected {
    command_id: Option<String>,
    merged: Vec<u8>,
    stderr_bytes: u64,
}

impl Collected {
    fn lost(&self, error: SidecarError) -> Lost {
        Lost { error, had_begun: self.command_id.is_some() }
    }
}

/// Between two questions whether a session is free.
const BUSY_PAUSE: Duration = Duration::from_millis(5);

/// How long a sidecar may take to kill a command, and its session where that fails: some milliseconds as a rule, and
/// more than a second only where the machine has much else to do. It gives each part of that up after 10 s.
const KILL_TIME: Duration = Duration::from_secs(40);
