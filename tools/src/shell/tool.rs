//! `shell_exec`: its registration, and one call of it.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use portcullis_policy::{Denial, Grant, OutputBytes, PinStatus, ShellPolicy, ToolDescriptor, ToolOrigin};
use portcullis_types::{
    Access, ArgumentRole, GuestPath, RoleKind, SafetyTier, ToolError, ToolErrorCode, ToolErrorKind,
    ToolOutput, ToolPolicy, ToolUpdateFn,
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    backend::ShellBackend,
    connect::SidecarClient,
    declaration::declaration,
    failure::{SidecarError, withdrawn_error},
    outcome::{CommandContext, outcome},
    output_forwarder::OutputForwarder,
    session::{CollectedCommand, CommandFailure, SidecarCommand, SidecarSession},
    sidecar::{ConnectedSidecar, SessionKey, SessionSettings, Sidecar},
};
use crate::{
    audit::RecordedConnection,
    call::Caller,
    registered::{RegisteredTool, parse_name},
    registry::RegistryError,
    run_labels::RunLabels,
};
use portcullis_shell_protocol::Connection;

/// The name by which models and policies call [`BashTool`].
pub const SHELL_EXEC: &str = "shell_exec";

/// The tool that runs shell commands. It runs nothing itself: its backend does, and a call reaches the
/// backend only through the pipeline.
#[derive(Debug, Clone)]
pub struct BashTool {
    backend: ShellBackend,
}

/// The input of one call.
pub(crate) struct ShellCallContext<'a> {
    pub(crate) call_id: &'a str,
    pub(crate) args: &'a Value,
    pub(crate) grant: &'a Grant,
    /// Whether to record changes in a mount of the grant.
    pub(crate) has_undo: bool,
    pub(crate) time_limit: Duration,
    pub(crate) deadline: Instant,
    pub(crate) caller: &'a Caller,
    /// Receives output as it arrives. `None` if the caller has no listener.
    pub(crate) on_update: Option<ToolUpdateFn>,
    /// The labels of the runs, which also list the sessions with a network.
    pub(crate) labels: &'a Arc<RunLabels>,
    /// Judges the call again once it has its session: its run may have read more data meanwhile.
    pub(crate) judge_again: &'a (dyn Fn() -> Result<(), Denial> + Sync),
}

/// The outcome of a call.
pub(crate) struct ShellRun {
    pub(crate) result: Result<ToolOutput, ToolError>,
    /// Text after the output. Truncation keeps it.
    pub(crate) trailer: Option<String>,
    /// The denial, if the command was denied when it was judged again.
    pub(crate) denial: Option<Denial>,
    /// One line about the confinement. `None` if the call did not reach a session.
    pub(crate) posture: Option<String>,
    pub(crate) cpu: Duration,
    pub(crate) peak_memory_bytes: u64,
    /// Whether no command was sent because no session was available.
    pub(crate) found_no_session: bool,
    /// Protected guest paths that the command created or changed.
    pub(crate) protected_paths: Vec<String>,
    /// Whether the check for protected paths covered everything.
    pub(crate) protected_complete: bool,
    /// The connections of the command, and of the session's jobs since the previous command.
    pub(crate) connections: Vec<RecordedConnection>,
    /// The number of connections beyond the limit of the list.
    pub(crate) connections_omitted: u64,
}

/// The arguments, already checked against the schema.
#[derive(Deserialize)]
struct ShellArguments {
    command: String,
    timeout: Option<u64>,
    #[serde(default = "default_session")]
    session: String,
    #[serde(default)]
    workdir: String,
    #[serde(default)]
    stdin: String,
}

fn default_session() -> String {
    "default".to_owned()
}

impl BashTool {
    /// Creates a tool that runs commands on this backend.
    pub(crate) fn new(backend: ShellBackend) -> Self {
        Self { backend }
    }

    /// The backend that runs commands.
    #[must_use]
    pub fn backend(&self) -> &ShellBackend {
        &self.backend
    }

    /// Turns the tool into a registered tool.
    pub(crate) fn register(self, shell: Option<&ShellPolicy>) -> Result<RegisteredTool, RegistryError> {
        let descriptor = ToolDescriptor {
            name: parse_name(SHELL_EXEC, SHELL_EXEC)?,
            declared_tier: Some(SafetyTier::Privileged),
            declared_policy: ToolPolicy::Auto,
            declared_timeout: Some(shell.map_or(TIMEOUT, |shell| shell.timeout)),
            declared_max_output: None::<OutputBytes>,
            roles: vec![
                ArgumentRole { argument: "command".to_owned(), role: RoleKind::Command },
                ArgumentRole::path("workdir", Access::Read),
            ],
            origin: ToolOrigin::ShippedShell,
            pin_status: PinStatus::Unpinned,
        };
        RegisteredTool::shell(declaration(shell), "Run a shell command", descriptor, self)
    }

    /// Runs one call's command.
    ///
    /// # Cancellation
    /// Dropping the future kills the command.
    pub(crate) async fn run(&self, call: ShellCallContext<'_>) -> ShellRun {
        match self.attempt(call).await {
            Ok(run) => run,
            Err(NotRun { error, found_no_session }) => {
                ShellRun { found_no_session, ..ShellRun::failed(error, None) }
            }
        }
    }

    async fn attempt(&self, call: ShellCallContext<'_>) -> Result<ShellRun, NotRun> {
        let input = ShellArguments::deserialize(call.args)
            .map_err(|error| ToolError::invalid_arguments(error.to_string()))?;
        let shell =
            call.grant.shell.as_ref().ok_or_else(|| ToolError::internal("a command was granted no shell"))?;
        let (sidecar, unconfined) = self.sidecar()?;
        if call.has_undo && !sidecar.keeps_changes() {
            return Err(ToolError::unavailable(
                "a mount has undo, and a sidecar that this program did not start keeps no changes",
            )
            .with_code(ToolErrorCode::UndoUnavailable)
            .into());
        }
        let time_limit = input.time_limit(call.time_limit)?;
        let workdir = input.workdir()?;
        let deadline = call.deadline.min(Instant::now() + time_limit);
        let key = SessionKey {
            owner: call.caller.owner(),
            name: input.session.clone(),
            is_unasked: !call.grant.unasked.is_empty(),
        };
        let settings = SessionSettings {
            shell,
            mounts: &call.grant.mounts,
            environment: sidecar.environment().clone(),
            unconfined,
            labels: call.labels,
        };
        // The call holds the session's lock from here on, so commands of one session never overlap.
        let locked_session =
            wait_within(deadline, time_limit, call.caller, LockedSession::take(sidecar, &key, &settings))
                .await??;
        let LockedSession { connection, mut slot, is_new } = locked_session;
        let Some(session) = &mut *slot else {
            return Err(ToolError::internal("a session that was created does not exist").into());
        };
        // Judge after the session has been listed: a call that reads data after this point ends the session.
        if let Err(denial) = (call.judge_again)() {
            return Ok(ShellRun { denial: Some(denial), ..ShellRun::failed(withdrawn_error(), None) });
        }
        let posture = session.posture().clone();
        let command = SidecarCommand {
            text: &input.command,
            workdir: &workdir,
            stdin: &input.stdin,
            // The wait for the session counts towards the timeout, so the command gets the remaining time.
            time_limit: deadline.saturating_duration_since(Instant::now()),
            max_output_bytes: shell.output.0,
            call_id: call.call_id,
            run_id: &call.caller.run_id,
            agent_id: &call.caller.agent_id,
        };
        // A cancelled command is killed here, and its end is awaited.
        let command_outcome = run_and_forward_output(session, connection.client(), &command, &call).await;
        // A flow rule can end the session during the command. Then withhold the output.
        let is_withdrawn = session.is_withdrawn();
        match command_outcome {
            Ok(command_result) => {
                let context = CommandContext {
                    session: &input.session,
                    is_new,
                    posture: &posture,
                    unconfined,
                    time_limit,
                    processes: shell.processes,
                    memory: shell.memory,
                };
                let run = ShellRun::ended(command_result, &context, call.on_update.as_ref());
                if !is_withdrawn {
                    return Ok(run);
                }
                *slot = None;
                Ok(ShellRun { result: Err(withdrawn_error()), trailer: None, ..run })
            }
            Err(_lost) if is_withdrawn => {
                *slot = None;
                Ok(ShellRun::failed(withdrawn_error(), Some(posture.summary)))
            }
            Err(failure) => {
                if failure.ends_session() {
                    // The next command gets a new session, and its result says so. Do this before the wait
                    // below, which may be cancelled.
                    *slot = None;
                }
                let error = lost_for_model(failure, sidecar, &connection, call.caller).await;
                Ok(ShellRun::failed(error, Some(posture.summary)))
            }
        }
    }

    /// Returns the sidecar that runs the commands, and whether it runs them unconfined.
    fn sidecar(&self) -> Result<(&Sidecar, bool), ToolError> {
        match &self.backend {
            ShellBackend::Session(sidecar) => Ok((sidecar, false)),
            ShellBackend::Host(sidecar) => {
                tracing::warn!("a command runs on the host, unconfined");
                Ok((sidecar, true))
            }
            ShellBackend::Disabled { reason } => {
                Err(SidecarError::Disabled { reason: reason.clone() }.for_model(false))
            }
        }
    }
}

/// Runs the command, and forwards its output as it arrives.
async fn run_and_forward_output(
    session: &mut SidecarSession,
    client: SidecarClient,
    command: &SidecarCommand<'_>,
    call: &ShellCallContext<'_>,
) -> Result<CollectedCommand, CommandFailure> {
    let mut forwarder = OutputForwarder::new(call.on_update.clone());
    let command_outcome =
        session.run(client, command, &call.caller.cancel, &mut |bytes| forwarder.take(bytes)).await;
    forwarder.end();
    command_outcome
}

/// Returns the error for the model if it is unknown how a command ended.
async fn lost_for_model(
    failure: CommandFailure,
    sidecar: &Sidecar,
    connection: &Arc<ConnectedSidecar>,
    caller: &Caller,
) -> ToolError {
    let CommandFailure { error, had_begun } = failure;
    let error = sidecar.record_failure(connection, error).await;
    tracing::warn!(error = &error as &dyn std::error::Error, had_begun, "the end of a command is unknown");
    if caller.cancel.is_cancelled() {
        ToolError::cancelled("the command was cancelled and killed")
    } else {
        error.for_model(had_begun)
    }
}

impl ShellArguments {
    /// Returns the working directory, in the form that the policy judged.
    fn workdir(&self) -> Result<String, ToolError> {
        if self.workdir.is_empty() {
            return Ok(String::new());
        }
        let path = GuestPath::parse(&self.workdir)
            .map_err(|error| ToolError::invalid_arguments(format!("field 'workdir': {error}")))?;
        Ok(path.as_str().to_owned())
    }

    /// Returns the timeout of the command: the requested one, if the grant allows it.
    fn time_limit(&self, granted_time: Duration) -> Result<Duration, ToolError> {
        let Some(requested) = self.timeout.map(Duration::from_secs) else { return Ok(granted_time) };
        // Allow one second more, because the deadline started slightly earlier.
        if requested > granted_time + Duration::from_secs(1) {
            return Err(ToolError::invalid_arguments(format!(
                "field 'timeout': at most {} seconds are granted",
                granted_time.as_secs_f64().ceil()
            )));
        }
        Ok(requested.min(granted_time))
    }
}

/// Why no command was sent.
struct NotRun {
    error: ToolError,
    /// Whether no session was available.
    found_no_session: bool,
}

impl From<ToolError> for NotRun {
    fn from(error: ToolError) -> Self {
        Self { error, found_no_session: false }
    }
}

/// A session that only this call uses at present.
struct LockedSession {
    connection: Arc<ConnectedSidecar>,
    slot: tokio::sync::OwnedMutexGuard<Option<SidecarSession>>,
    is_new: bool,
}

impl LockedSession {
    /// Waits for the session's last command to end, or creates the session.
    async fn take(
        sidecar: &Sidecar,
        key: &SessionKey,
        settings: &SessionSettings<'_>,
    ) -> Result<Self, NotRun> {
        let no_session = |error: SidecarError| {
            tracing::warn!(error = &error as &dyn std::error::Error, "there is no session");
            NotRun { error: error.for_model(false), found_no_session: error.may_recover() }
        };
        let connection = sidecar.connect_if_needed().await.map_err(no_session)?;
        let with_session_names = |error: ToolError| {
            let names = connection.names_of(&key.owner).join(", ");
            error.with_hint(format!("use one of these sessions: {names}"))
        };
        let Some(slot) = connection.slot_of(key) else {
            let error = ToolError::resource_limit("the limit of shell sessions is reached");
            return Err(with_session_names(error).into());
        };
        let mut slot = slot.lock_owned().await;
        // The session was ended because its run has read more data. The result of the next command says that
        // its session is new.
        if slot.as_ref().is_some_and(SidecarSession::is_withdrawn) {
            *slot = None;
        }
        let is_new = slot.is_none();
        if is_new {
            match connection.create(&key.owner, settings).await {
                Ok(session) => {
                    sidecar.mark_serving();
                    *slot = Some(session);
                }
                Err(error) => {
                    // Release the slot first: `forget_empty` keeps slots that a call holds.
                    drop(slot);
                    connection.forget_empty(&key.owner);
                    let NotRun { error, found_no_session } =
                        no_session(sidecar.record_failure(&connection, error).await);
                    let error = match error.kind() {
                        ToolErrorKind::ResourceLimit => with_session_names(error),
                        _ => error,
                    };
                    return Err(NotRun { error, found_no_session });
                }
            }
        }
        Ok(Self { connection, slot, is_new })
    }
}

/// Waits for a future until the deadline passes or the call is cancelled.
async fn wait_within<T>(
    deadline: Instant,
    time_limit: Duration,
    caller: &Caller,
    future: impl Future<Output = T>,
) -> Result<T, ToolError> {
    // `biased`: a session that is ready takes precedence over cancellation and deadline.
    tokio::select! {
        biased;
        output = future => Ok(output),
        () = caller.cancel.cancelled() => Err(ToolError::cancelled("the command was cancelled before it ran")),
        () = tokio::time::sleep_until(deadline.into()) => Err(ToolError::timeout(format!(
            "the shell was not ready within {time_limit:?}; the command did not run"
        ))),
    }
}

impl ShellRun {
    /// Returns the outcome of a command that ended. The caller gets the output of background jobs as an
    /// update, because it was not streamed.
    fn ended(
        command_result: CollectedCommand,
        context: &CommandContext<'_>,
        on_update: Option<&ToolUpdateFn>,
    ) -> Self {
        let exited = &command_result.exited;
        let (cpu, peak_memory_bytes) = (Duration::from_micros(exited.cpu_us), exited.peak_memory_bytes);
        let protected_paths = exited.protected_paths.clone();
        let protected_complete = exited.protected_complete;
        let connections = exited.connections.iter().map(record_connection).collect();
        let connections_omitted = exited.connections_omitted;
        let outcome = outcome(command_result, context);
        if let (Some(listener), Some(jobs)) = (on_update, outcome.jobs) {
            listener(ToolOutput::text(jobs).with_details(json!({ "stream": "background" })));
        }
        Self {
            result: outcome.result,
            trailer: outcome.trailer,
            denial: None,
            posture: Some(context.posture.summary.clone()),
            cpu,
            peak_memory_bytes,
            found_no_session: false,
            protected_paths,
            protected_complete,
            connections,
            connections_omitted,
        }
    }

    fn failed(error: ToolError, posture: Option<String>) -> Self {
        Self {
            result: Err(error),
            trailer: None,
            denial: None,
            posture,
            cpu: Duration::ZERO,
            peak_memory_bytes: 0,
            found_no_session: false,
            protected_paths: Vec::new(),
            // No command finished, so there is nothing to check.
            protected_complete: true,
            connections: Vec::new(),
            connections_omitted: 0,
        }
    }
}

fn record_connection(connection: &Connection) -> RecordedConnection {
    let text = |text: &str| (!text.is_empty()).then(|| text.into());
    RecordedConnection {
        host: text(&connection.host),
        port: u16::try_from(connection.port).ok().filter(|port| *port != 0),
        address: text(&connection.address),
        count: connection.count,
        sent: connection.sent,
        received: connection.received,
        end: connection.end.as_str().into(),
    }
}

/// The timeout of a command if the policy has no shell section.
const TIMEOUT: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn output_is_streamed_and_no_character_is_split() {
        let updates = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&updates);
        let mut forwarder = OutputForwarder::new(Some(Arc::new(move |partial: ToolOutput| {
            sink.lock().expect("not poisoned").push(partial.joined_text());
        })));
        let text = "aä€😀".as_bytes();
        for byte in text {
            forwarder.take(&[*byte]);
        }
        forwarder.take(b"\xf0\x9f");
        forwarder.end();
        assert_eq!(updates.lock().expect("not poisoned").concat(), "aä€😀\u{fffd}");
    }

    #[test]
    fn a_command_is_not_given_more_time_than_is_granted() {
        let input = |timeout| ShellArguments {
            command: String::new(),
            timeout,
            session: default_session(),
            workdir: String::new(),
            stdin: String::new(),
        };
        let granted = Duration::from_secs(60);
        assert_eq!(input(None).time_limit(granted).expect("granted"), granted);
        assert_eq!(input(Some(5)).time_limit(granted).expect("granted"), Duration::from_secs(5));
        let error = input(Some(600)).time_limit(granted).expect_err("too long");
        assert_eq!(error.message(), "field 'timeout': at most 60 seconds are granted");
    }
}
