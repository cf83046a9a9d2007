//! The calls of the protocol, each in the order of its checks and steps.

use std::{sync::Arc, time::Duration};

use tonic::{Request, Response, Status};

use super::{
    command::{self, CommandControl, CommandPermits, ExecStream, SessionCommand},
    config::SidecarMount,
    connection::{ConnectionHandle, RandomId},
    creation::{self, CheckedRequest},
    health,
    input::{MoreInput, StdinSender},
    refusal::{self, RefusalCode},
    session_thread::{self, HeldSession, SessionContext, SessionProperties, StartedSession},
    sidecar::{SidecarServer, take_permit},
};
use portcullis_undo::{CallIdentity, ChangeRecorder, MountRoot, UndoStore};
use rustix::fs::{Mode, OFlags};

use crate::CommandRequest;
use portcullis_shell_protocol::{
    CancelRequest, CancelResponse, CreateSessionRequest, CreateSessionResponse, ExecRequest, HealthRequest,
    HealthResponse, KillSessionRequest, KillSessionResponse, ListSessionsRequest, ListSessionsResponse,
    Session, VERSION, WriteStdinRequest, WriteStdinResponse, shell_server::Shell,
};

/// The calls of one connection.
#[derive(Clone, Debug)]
pub(super) struct ShellCalls(pub(super) Arc<SidecarServer>);

#[tonic::async_trait]
impl Shell for ShellCalls {
    type ExecStream = ExecStream;

    async fn health(&self, request: Request<HealthRequest>) -> Result<Response<HealthResponse>, Status> {
        let sidecar = &self.0;
        sidecar.require_running()?;
        let environment = request.into_inner().environment;
        let posture = health::prove(sidecar, environment).await.map_err(|unproven| unproven.status())?;
        Ok(Response::new(HealthResponse {
            version: VERSION.to_owned(),
            posture: Some(posture),
            mounts: creation::mount_messages(&sidecar.config.mounts),
            limits: Some(creation::configured_limits(sidecar)),
        }))
    }

    async fn create_session(
        &self,
        request: Request<CreateSessionRequest>,
    ) -> Result<Response<CreateSessionResponse>, Status> {
        let sidecar = &self.0;
        let client = ConnectionHandle::from_request(&request)?;
        let connection = client.connection();
        sidecar.require_running()?;
        let mut checked = creation::check_request(sidecar, request.get_ref())?;
        let network = checked.open_network(sidecar, connection.share_of(&request.get_ref().owner)).await;
        let CheckedRequest { spec, mounts, limits, mount_paths, .. } = checked;
        let id = RandomId::random()?;
        let context = SessionContext {
            id,
            connection: Arc::downgrade(connection),
            idle_timeout: sidecar.config.session.idle_timeout,
            shell: sidecar.shell.clone(),
            _permits: [
                take_permit(&connection.session_permits, "sessions of one connection")?,
                take_permit(&sidecar.sessions, "sessions")?,
            ],
        };
        let (work_sender, startup_receiver) = session_thread::start(spec, network, context)
            .map_err(|error| RefusalCode::Start.status(format!("cannot start a thread: {error}")))?;
        let thread_ended = || RefusalCode::Start.status("the session's thread ended");
        let StartedSession { posture, has_own_tree } = startup_receiver
            .await
            .map_err(|_gone| thread_ended())?
            .map_err(|error| refusal::start_failure(&error))?;
        let properties = SessionProperties { posture: posture.clone(), limits, mount_paths, has_own_tree };
        connection.add_session(id, HeldSession::new(work_sender, properties));
        tracing::info!(session = %id, posture = posture.summary, "started a session");
        Ok(Response::new(CreateSessionResponse {
            session_id: id.to_string(),
            posture: Some(posture),
            mounts,
            limits: Some(limits),
        }))
    }

    async fn exec(&self, request: Request<ExecRequest>) -> Result<Response<ExecStream>, Status> {
        let sidecar = &self.0;
        let client = ConnectionHandle::from_request(&request)?;
        let connection = client.connection();
        sidecar.require_running()?;
        let request = request.into_inner();
        let (_, session) = connection.session(&request.session_id)?;
        let command_permit = Arc::clone(&session.command_permit).try_acquire_owned();
        let command_permit = command_permit
            .map_err(|_taken| RefusalCode::Busy.status("a command of this session is running"))?;
        let permit = take_permit(&sidecar.commands, "running commands")?;
        let background_from = request.background_from;
        let (input, reader) = if request.stdin_open {
            let (input, reader) = StdinSender::open()?;
            (input, Some(reader))
        } else {
            (StdinSender::without_input(), None)
        };
        let recorder = recorder(sidecar, &request)?;
        let (control, cancellation) = CommandControl::new(input)?;
        let id = RandomId::random()?;
        let max_timeout = sidecar.config.session.max_command_timeout;
        let limits = &session.properties.limits;
        let request = CommandRequest {
            workdir: creation::translate_workdir(
                &session.properties.mount_paths,
                session.properties.has_own_tree,
                &request.workdir,
            )?,
            command: creation::check_command_text(request.command)?,
            stdin: request.stdin,
            input: reader,
            timeout: match request.timeout_ms {
                0 => Duration::from_millis(limits.command_timeout_ms),
                requested => Duration::from_millis(requested).min(max_timeout),
            },
            max_processes: usize::try_from(limits.processes).unwrap_or(usize::MAX),
            max_output_bytes: match request.max_output_bytes {
                0 => limits.output_bytes,
                requested => requested.min(limits.output_bytes),
            },
            cancellation,
        };
        let (outlet, inlet) = command::channel(Arc::clone(&control))?;
        let permits =
            CommandPermits { id, connection: Arc::downgrade(connection), _permits: [command_permit, permit] };
        connection.add_command(id, Arc::clone(&control));
        // Ignore the result: a session that has ended drops the job, and `accepted` reports that to the caller.
        session.run(SessionCommand {
            id,
            sidecar: Arc::clone(sidecar),
            request,
            recorder,
            background_from,
            control,
            outlet,
            permits,
        });
        // Release the handle before the wait: a session ends when its last handle is dropped.
        drop(session);
        Ok(Response::new(inlet.accepted().await?))
    }

    async fn write_stdin(
        &self,
        request: Request<WriteStdinRequest>,
    ) -> Result<Response<WriteStdinResponse>, Status> {
        let client = ConnectionHandle::from_request(&request)?;
        let request = request.get_ref();
        let command = client.connection().command(&request.command_id)?;
        let after_input = if request.close { MoreInput::Ends } else { MoreInput::Follows };
        command.input.write(&request.bytes, after_input).await?;
        Ok(Response::new(WriteStdinResponse {}))
    }

    async fn cancel(&self, request: Request<CancelRequest>) -> Result<Response<CancelResponse>, Status> {
        let client = ConnectionHandle::from_request(&request)?;
        client.connection().command(&request.get_ref().command_id)?.cancel();
        Ok(Response::new(CancelResponse {}))
    }

    async fn kill_session(
        &self,
        request: Request<KillSessionRequest>,
    ) -> Result<Response<KillSessionResponse>, Status> {
        let client = ConnectionHandle::from_request(&request)?;
        let session = client.connection().take_session(&request.get_ref().session_id)?;
        session
            .end()
            .await
            .map_err(|error| RefusalCode::NotKilled.status(portcullis_types::error_chain(&error)))?;
        Ok(Response::new(KillSessionResponse {}))
    }

    async fn list_sessions(
        &self,
        request: Request<ListSessionsRequest>,
    ) -> Result<Response<ListSessionsResponse>, Status> {
        let client = ConnectionHandle::from_request(&request)?;
        let sessions = client.connection().sessions().into_iter().map(|(id, session)| Session {
            session_id: id.to_string(),
            posture: session.properties.posture.posture.clone(),
            age_ms: millis(session.created_at.elapsed()),
            idle_ms: if session.is_busy() { 0 } else { millis(session.last_used().elapsed()) },
            busy: session.is_busy(),
        });
        Ok(Response::new(ListSessionsResponse { sessions: sessions.collect() }))
    }
}

/// The recorder of a command's changes. `None` if no mount has undo, or the client asks for no record.
fn recorder(sidecar: &SidecarServer, request: &ExecRequest) -> Result<Option<ChangeRecorder>, Status> {
    let kept_mounts: Vec<&SidecarMount> =
        sidecar.config.mounts.iter().filter(|mount| mount.keeps_changes()).collect();
    if kept_mounts.is_empty() || request.call_id.is_empty() {
        return Ok(None);
    }
    let mut roots = Vec::with_capacity(kept_mounts.len());
    for mount in kept_mounts {
        let path = sidecar.mount_path(&mount.name)?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::open(&path, flags, Mode::empty()).map_err(|errno| {
            RefusalCode::Mounts.status(format!("cannot open the mount `{}`: {errno}", mount.name))
        })?;
        roots.push(MountRoot::new(&mount.name, Arc::new(directory)));
    }
    let identity = CallIdentity {
        call: request.call_id.clone(),
        run: request.run_id.clone(),
        agent: request.agent_id.clone(),
        tool: SHELL_TOOL.to_owned(),
    };
    Ok(Some(ChangeRecorder::new(UndoStore::new(&sidecar.config.state), identity, roots)))
}

/// The tool whose calls are commands, in records of changes.
const SHELL_TOOL: &str = "shell_exec";

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
