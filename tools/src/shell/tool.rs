//! `shell_exec`: its registration, and one call of it.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use portcullis_policy::{
    Denial, Grant, OutputBytes, ShellPolicy, Standing, ToolFacts, ToolOrigin,
};
use portcullis_types::{
    Access, ArgumentRole, FunctionDecl, GuestPath, JsonSchema, RoleKind, SafetyTier, ToolError, ToolName,
    ToolOutput, ToolPolicy, ToolUpdateFn,
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    backend::ShellBackend,
    connect::SidecarClient,
    failure::{SHELL_UNAVAILABLE, SidecarError, withdrawn},
    outcome::{CommandContext, outcome},
    output_forwarder::OutputForwarder,
    session::{CommandFailure, CommandResult, Session, SidecarCommand},
    sidecar::{SessionKey, SessionTerms, Sidecar, SidecarSessions},
};
use crate::{
    audit::RecordedConnection, call::Caller, registered::RegisteredTool, registry::RegistryError,
    run_labels::RunLabels,
};
use portcullis_shell_protocol::Connection;

/// The tool's name.
pub const SHELL_EXEC: &str = "shell_exec";

/// The tool that runs shell commands (specification 004, "BashTool Backends"). It cannot run anything by
/// itself: its backend runs commands, and a call reaches the backend only through the pipeline.
#[derive(Debug, Clone)]
pub struct BashTool {
    backend: ShellBackend,
}

/// The terms of one call.
pub(crate) struct ShellTerms<'a> {
    pub(crate) args: &'a Value,
    pub(crate) grant: &'a Grant,
    pub(crate) time_limit: Duration,
    pub(crate) deadline: Instant,
    pub(crate) caller: &'a Caller,
    /// Takes output as it arrives; none if the caller watches nothing.
    pub(crate) on_update: Option<ToolUpdateFn>,
    /// Where a session with a network is listed.
    pub(crate) labels: &'a Arc<RunLabels>,
    /// Judges the call once more, when it has its session: its run may have read on while it waited.
    pub(crate) judge_again: &'a (dyn Fn() -> Result<(), Denial> + Sync),
}

/// The outcome of a call.
pub(crate) struct ShellRun {
    pub(crate) result: Result<ToolOutput, ToolError>,
    /// Text after the output; it is kept when the output is cut.
    pub(crate) trailer: Option<String>,
    /// The denial of a command that was judged again and did not run.
    pub(crate) denial: Option<Denial>,
    /// One line about the confinement; none if the call did not reach a session.
    pub(crate) posture: Option<String>,
    pub(crate) cpu: Duration,
    pub(crate) peak_memory_bytes: u64,
    /// Whether no session was available, so that no command was sent.
    pub(crate) found_no_session: bool,
    /// Protected guest paths that the command made or changed.
    pub(crate) protected_paths: Vec<String>,
    /// Whether the check for protected paths covered everything.
    pub(crate) protected_complete: bool,
    /// The connections of the command, and of the session's jobs since the command before.
    pub(crate) connections: Vec<RecordedConnection>,
    /// How many connections are not in that list.
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
    /// A tool that runs commands on this backend.
    pub(crate) fn new(backend: ShellBackend) -> Self {
        Self { backend }
    }

    /// The backend that runs commands.
    #[must_use]
    pub fn backend(&self) -> &ShellBackend {
        &self.backend
    }

    /// The tool as a registered tool.
    pub(crate) fn register(self, shell: Option<&ShellPolicy>) -> Result<RegisteredTool, RegistryError> {
        let facts = ToolFacts {
            name: ToolName::parse(SHELL_EXEC).map_err(|source| RegistryError::Name { source })?,
            declared_tier: Some(SafetyTier::Privileged),
            declared_policy: ToolPolicy::Auto,
            declared_timeout: Some(shell.map_or(TIMEOUT, |shell| shell.timeout)),
            declared_max_output: None::<OutputBytes>,
            roles: vec![
                ArgumentRole { argument: "command".to_owned(), role: RoleKind::Command },
                ArgumentRole::path("workdir", Access::Read),
            ],
            origin: ToolOrigin::ShippedShell,
            standing: Standing::Unpinned,
        };
        RegisteredTool::shell(declaration(shell), "Run a shell command", facts, self)
    }

    /// Runs one call's command.
    ///
    /// # Cancellation
    /// Dropping the future kills the command.
    pub(crate) async fn run(&self, terms: ShellTerms<'_>) -> ShellRun {
        match self.attempt(terms).await {
            Ok(run) => run,
            Err(error) => {
                let found_no_session = error.code() == SHELL_UNAVAILABLE;
                ShellRun { found_no_session, ..ShellRun::failed(error, None) }
            }
        }
    }

    async fn attempt(&self, terms: ShellTerms<'_>) -> Result<ShellRun, ToolError> {
        let input = ShellArguments::deserialize(terms.args)
            .map_err(|error| ToolError::invalid_arguments(error.to_string()))?;
        let shell = terms
            .grant
            .shell
            .as_ref()
            .ok_or_else(|| ToolError::internal("a command was granted no shell"))?;
        let (sidecar, unconfined) = self.sidecar()?;
        let time_limit = input.time_limit(terms.time_limit)?;
        let workdir = input.workdir()?;
        let deadline = terms.deadline.min(Instant::now() + time_limit);
        let key = SessionKey { owner: terms.caller.owner(), name: input.session.clone() };
        let session_terms = SessionTerms {
            shell,
            mounts: &terms.grant.mounts,
            environment: sidecar.environment().clone(),
            unconfined,
            labels: terms.labels,
        };
        let held =
            within(deadline, time_limit, terms.caller, LockedSession::take(sidecar, &key, &session_terms))
                .await??;
        let LockedSession { connected, mut place, is_new } = held;
        let Some(session) = &mut *place else {
            return Err(ToolError::internal("a session that was made is not there"));
        };
        // After the session is listed: a call that reads from now on ends it.
        if let Err(denial) = (terms.judge_again)() {
            return Ok(ShellRun { denial: Some(denial), ..ShellRun::failed(withdrawn(), None) });
        }
        let posture = session.posture().clone();
        let command = SidecarCommand {
            text: &input.command,
            workdir: &workdir,
            stdin: &input.stdin,
            // The wait for the session counts: the command gets the rest.
            time_limit: deadline.saturating_duration_since(Instant::now()),
            max_output_bytes: shell.output.0,
        };
        let ran = run_and_pass_on(session, connected.client(), &command, &terms).await;
        let is_withdrawn = session.is_withdrawn();
        match ran {
            Ok(ran) => {
                let context = CommandContext {
                    session: &input.session,
                    is_new,
                    posture: &posture,
                    unconfined,
                    time_limit,
                    processes: shell.processes,
                    memory: shell.memory,
                };
                let run = ShellRun::ended(ran, &context, terms.on_update.as_ref());
                if !is_withdrawn {
                    return Ok(run);
                }
                *place = None;
                Ok(ShellRun { result: Err(withdrawn()), trailer: None, ..run })
            }
            Err(_lost) if is_withdrawn => {
                *place = None;
                Ok(ShellRun::failed(withdrawn(), Some(posture.summary)))
            }
            Err(lost) => {
                if lost.ends_session() {
                    // The next command gets a new session, and its result says so. Before the wait below,
                    // which may be cancelled.
                    *place = None;
                }
                let error = lost_for_model(lost, sidecar, &connected, terms.caller).await;
                Ok(ShellRun::failed(error, Some(posture.summary)))
            }
        }
    }

    /// The sidecar that runs the commands, and whether it runs them unconfined.
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

/// Runs the command and passes its output on while it arrives.
async fn run_and_pass_on(
    session: &mut Session,
    client: SidecarClient,
    command: &SidecarCommand<'_>,
    terms: &ShellTerms<'_>,
) -> Result<CommandResult, CommandFailure> {
    let mut forwarder = OutputForwarder::to(terms.on_update.clone());
    let ran = session.run(client, command, &terms.caller.cancel, &mut |bytes| forwarder.take(bytes)).await;
    forwarder.end();
    ran
}

/// The model's error for a command whose end is unknown.
async fn lost_for_model(
    lost: CommandFailure,
    sidecar: &Sidecar,
    connected: &Arc<SidecarSessions>,
    caller: &Caller,
) -> ToolError {
    let CommandFailure { error, had_begun } = lost;
    let error = sidecar.failed(connected, error).await;
    tracing::warn!(error = &error as &dyn std::error::Error, had_begun, "the end of a command is unknown");
    if caller.cancel.is_cancelled() {
        ToolError::cancelled("the command was cancelled and killed")
    } else {
        error.for_model(had_begun)
    }
}

impl ShellArguments {
    /// The working directory as the policy judged it: a relative path starts at `/shared`.
    fn workdir(&self) -> Result<String, ToolError> {
        if self.workdir.is_empty() {
            return Ok(String::new());
        }
        let path = GuestPath::parse(&self.workdir)
            .map_err(|error| ToolError::invalid_arguments(format!("field 'workdir': {error}")))?;
        Ok(path.as_str().to_owned())
    }

    /// The time limit of the command: the one it asks for, if that is granted.
    fn time_limit(&self, granted: Duration) -> Result<Duration, ToolError> {
        let Some(requested) = self.timeout.map(Duration::from_secs) else { return Ok(granted) };
        // One second of tolerance: the deadline began to run a moment ago.
        if requested > granted + Duration::from_secs(1) {
            return Err(ToolError::invalid_arguments(format!(
                "field 'timeout': at most {} seconds are granted",
                granted.as_secs_f64().ceil()
            )));
        }
        Ok(requested.min(granted))
    }
}

/// A session that only this call uses now.
struct LockedSession {
    connected: Arc<SidecarSessions>,
    place: tokio::sync::OwnedMutexGuard<Option<Session>>,
    is_new: bool,
}

impl LockedSession {
    /// Waits for the session's last command, or makes the session.
    async fn take(sidecar: &Sidecar, key: &SessionKey, terms: &SessionTerms<'_>) -> Result<Self, ToolError> {
        let failed = |error: SidecarError| {
            tracing::warn!(error = &error as &dyn std::error::Error, "there is no session");
            error.for_model(false)
        };
        let connected = sidecar.connected().await.map_err(failed)?;
        let full = |error: ToolError| {
            let names = connected.names_of(&key.owner).join(", ");
            error.with_hint(format!("use one of these sessions: {names}"))
        };
        let Some(place) = connected.place(key) else {
            return Err(full(ToolError::resource_limit("the limit of shell sessions is reached")));
        };
        let mut place = place.lock_owned().await;
        // Ended while its run read on. The result of its next command says that it is new.
        if place.as_ref().is_some_and(Session::is_withdrawn) {
            *place = None;
        }
        let is_new = place.is_none();
        if is_new {
            match connected.create(&key.owner, terms).await {
                Ok(session) => {
                    sidecar.serves();
                    *place = Some(session);
                }
                Err(error) => {
                    drop(place);
                    connected.forget_empty(&key.owner);
                    let error = failed(sidecar.failed(&connected, error).await);
                    return Err(if error.code() == "resource_limit" { full(error) } else { error });
                }
            }
        }
        Ok(Self { connected, place, is_new })
    }
}

/// Waits until the call's deadline or cancellation.
async fn within<T>(
    deadline: Instant,
    time_limit: Duration,
    caller: &Caller,
    wait: impl Future<Output = T>,
) -> Result<T, ToolError> {
    tokio::select! {
        biased;
        done = wait => Ok(done),
        () = caller.cancel.cancelled() => Err(ToolError::cancelled("the command was cancelled before it ran")),
        () = tokio::time::sleep_until(deadline.into()) => Err(ToolError::timeout(format!(
            "the shell was not ready within {time_limit:?}; the command did not run"
        ))),
    }
}

impl ShellRun {
    /// The run of a command whose end is known. The caller gets the output of background jobs as an update:
    /// it was not streamed.
    fn ended(ran: CommandResult, context: &CommandContext<'_>, on_update: Option<&ToolUpdateFn>) -> Self {
        let exited = &ran.exited;
        let (cpu, peak_memory_bytes) = (Duration::from_micros(exited.cpu_us), exited.peak_memory_bytes);
        let protected_paths = exited.protected_paths.clone();
        let protected_complete = exited.protected_complete;
        let connections = exited.connections.iter().map(recorded).collect();
        let connections_omitted = exited.connections_omitted;
        let outcome = outcome(ran, context);
        if let (Some(to), Some(jobs)) = (on_update, outcome.jobs) {
            to(ToolOutput::text(jobs).with_details(json!({ "stream": "background" })));
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
            // Such a run has no finished command to check.
            protected_complete: true,
            connections: Vec::new(),
            connections_omitted: 0,
        }
    }
}

fn recorded(connection: &Connection) -> RecordedConnection {
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

fn declaration(shell: Option<&ShellPolicy>) -> FunctionDecl {
    let network = network(shell);
    FunctionDecl {
        name: SHELL_EXEC.to_owned(),
        description: Some(format!(
            "Runs a command with bash in a confined session and returns what it wrote, both streams in order of arrival, then `[exit code: N]` where that is not 0. Working directory, variables, functions and options carry over to the next command of the same session. {network} Files are in `/shared` (the working directory at first) and `/tmp`, or below `$PORTCULLIS_SHARED` and `$PORTCULLIS_TMP` where these names are not there. A command that takes too long is killed with all that it has started; the session lives on. What background jobs (`command &`) write after their command has ended comes with the result of the session's next command, such as `sleep 1`; `wait` does not wait for them."
        )),
        parameters: JsonSchema::new(json!({
            "type": "object",
            "properties": {
                "command": { "type": "string", "minLength": 1, "description": "The command, as it would be typed: `cargo test 2>&1 | tail -20`." },
                "timeout": { "type": "integer", "minimum": 1, "description": "After how many seconds it is killed; as long as the policy allows if left out." },
                "session": {
                    "type": "string",
                    "pattern": "^[A-Za-z0-9_-]{1,64}$",
                    "default": "default",
                    "description": "The session to run in; a new name begins a new one.",
                },
                "workdir": { "type": "string", "description": "Where to run it, such as `/shared/src`; relative paths start at `/shared`. Where the session's last command left if left out." },
                "stdin": { "type": "string", "description": "What the command reads from its standard input; nothing if left out." },
            },
            "required": ["command"],
            "additionalProperties": false,
        })),
    }
}

/// The sentence about the network.
fn network(shell: Option<&ShellPolicy>) -> String {
    let hosts = shell.map(|shell| &shell.hosts).filter(|hosts| !hosts.is_empty());
    let Some(hosts) = hosts else { return "There is no network.".to_owned() };
    let listed: Vec<String> = hosts.iter().take(MAX_LISTED).map(|rule| format!("`{rule}`")).collect();
    let more = if hosts.len() > MAX_LISTED { ", …" } else { "" };
    format!(
        "The network reaches these hosts and nothing else: {}{more}, by HTTPS through the proxy that the environment names; git, curl, cargo, pip and npm find it by themselves.",
        listed.join(", ")
    )
}

/// The hosts that the description lists.
const MAX_LISTED: usize = 20;

/// The time limit of a command if the policy has no shell section.
const TIMEOUT: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn output_is_handed_on_as_it_comes_and_no_character_is_torn() {
        let heard = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&heard);
        let mut forwarder = OutputForwarder::to(Some(Arc::new(move |partial: ToolOutput| {
            sink.lock().expect("not poisoned").push(partial.joined_text());
        })));
        let text = "aä€😀".as_bytes();
        for byte in text {
            forwarder.take(&[*byte]);
        }
        forwarder.take(b"\xf0\x9f");
        forwarder.end();
        assert_eq!(heard.lock().expect("not poisoned").concat(), "aä€😀\u{fffd}");
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
