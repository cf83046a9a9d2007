//! The calls of the protocol, each in the order of its checks and steps.

use std::{sync::Arc, time::Duration};

use tonic::{Request, Response, Status};

use super::{
    command::{self, CommandControl, CommandPermits, ExecStream, SessionCommand},
    connection::{ConnectionHandle, Id},
    creation::{self, CheckedRequest},
    daemon::{Daemon, take_permit},
    health,
    input::{AfterInput, StdinSender},
    refusal::{self, RefusalCode},
    session_thread::{self, HeldSession, SessionContext, SessionFacts, StartedSession},
};
use crate::CommandRequest;
use portcullis_shell_protocol::{
    CancelRequest, CancelResponse, CreateSessionRequest, CreateSessionResponse, ExecRequest, HealthRequest,
    HealthResponse, KillSessionRequest, KillSessionResponse, ListSessionsRequest, ListSessionsResponse,
    Session, VERSION, WriteStdinRequest, WriteStdinResponse, shell_server::Shell,
};

/// The calls of one connection.
#[derive(Clone, Debug)]
pub(super) struct ShellCalls(pub(super) Arc<Daemon>);

#[tonic::async_trait]
impl Shell for ShellCalls {
    type ExecStream = ExecStream;

    async fn health(&self, request: Request<HealthRequest>) -> Result<Response<HealthResponse>, Status> {
        let daemon = &self.0;
        daemon.require_running()?;
        let environment = request.into_inner().environment;
        let posture = health::prove(daemon, environment).await.map_err(|unproven| unproven.status())?;
        Ok(Response::new(HealthResponse {
            version: VERSION.to_owned(),
            posture: Some(posture),
            mounts: creation::messages(&daemon.config.mounts),
            limits: Some(creation::own_limits(daemon)),
        }))
    }

    async fn create_session(
        &self,
        request: Request<CreateSessionRequest>,
    ) -> Result<Response<CreateSessionResponse>, Status> {
        let daemon = &self.0;
        let client = ConnectionHandle::of(&request)?;
        let connection = client.connection();
        daemon.require_running()?;
        let mut checked = creation::check_request(daemon, request.get_ref())?;
        let network = checked.open_network(daemon).await;
        let CheckedRequest { spec, mounts, limits, places, .. } = checked;
        let id = Id::random()?;
        let keeping = SessionContext {
            id,
            connection: Arc::downgrade(connection),
            idle_timeout: daemon.config.session.idle_timeout,
            shell: daemon.shell.clone(),
            _permits: [
                take_permit(&connection.session_permits, "sessions of one connection")?,
                take_permit(&daemon.sessions, "sessions")?,
            ],
        };
        let (line, starting) = session_thread::start(spec, network, keeping)
            .map_err(|error| RefusalCode::Start.because(format!("start a thread: {error}")))?;
        let gone = || RefusalCode::Start.because("the session's thread ended");
        let StartedSession { posture, has_own_tree } =
            starting.await.map_err(|_gone| gone())?.map_err(|error| refusal::not_started(&error))?;
        let info = SessionFacts { posture: posture.clone(), limits, places, has_own_tree };
        connection.add_session(id, HeldSession::new(line, info));
        tracing::info!(session = %id, posture = posture.summary, "started a session");
        Ok(Response::new(CreateSessionResponse {
            session_id: id.to_string(),
            posture: Some(posture),
            mounts,
            limits: Some(limits),
        }))
    }

    async fn exec(&self, request: Request<ExecRequest>) -> Result<Response<ExecStream>, Status> {
        let daemon = &self.0;
        let client = ConnectionHandle::of(&request)?;
        let connection = client.connection();
        daemon.require_running()?;
        let request = request.into_inner();
        let (_, session) = connection.session(&request.session_id)?;
        let turn = Arc::clone(&session.turn).try_acquire_owned();
        let turn =
            turn.map_err(|_taken| RefusalCode::Busy.because("a command of this session is running"))?;
        let permit = take_permit(&daemon.commands, "running commands")?;
        let background_from = request.background_from;
        let (input, reader) = if request.stdin_open {
            let (input, reader) = StdinSender::open()?;
            (input, Some(reader))
        } else {
            (StdinSender::none(), None)
        };
        let (control, cancellation) = CommandControl::new(input)?;
        let id = Id::random()?;
        let most = daemon.config.session.max_command_timeout;
        let limits = &session.info.limits;
        let request = CommandRequest {
            workdir: creation::workdir(&session.info.places, session.info.has_own_tree, &request.workdir)?,
            command: creation::command(request.command)?,
            stdin: request.stdin,
            input: reader,
            timeout: match request.timeout_ms {
                0 => Duration::from_millis(limits.command_timeout_ms),
                requested => Duration::from_millis(requested).min(most),
            },
            max_processes: usize::try_from(limits.processes).unwrap_or(usize::MAX),
            max_output_bytes: match request.max_output_bytes {
                0 => limits.output_bytes,
                requested => requested.min(limits.output_bytes),
            },
            cancellation,
        };
        let (outlet, inlet) = command::channel(Arc::clone(&control))?;
        let permits = CommandPermits { id, connection: Arc::downgrade(connection), _permits: [turn, permit] };
        connection.add_command(id, Arc::clone(&control));
        // A job that the session does not take is dropped, and `accepted` reports that to the caller.
        session.run(SessionCommand {
            id,
            daemon: Arc::clone(daemon),
            request,
            background_from,
            control,
            outlet,
            permits,
        });
        drop(session);
        Ok(Response::new(inlet.accepted().await?))
    }

    async fn write_stdin(
        &self,
        request: Request<WriteStdinRequest>,
    ) -> Result<Response<WriteStdinResponse>, Status> {
        let client = ConnectionHandle::of(&request)?;
        let request = request.get_ref();
        let command = client.connection().command(&request.command_id)?;
        let then = if request.close { AfterInput::Close } else { AfterInput::StayOpen };
        command.input.write(&request.bytes, then).await?;
        Ok(Response::new(WriteStdinResponse {}))
    }

    async fn cancel(&self, request: Request<CancelRequest>) -> Result<Response<CancelResponse>, Status> {
        let client = ConnectionHandle::of(&request)?;
        client.connection().command(&request.get_ref().command_id)?.cancel();
        Ok(Response::new(CancelResponse {}))
    }

    async fn kill_session(
        &self,
        request: Request<KillSessionRequest>,
    ) -> Result<Response<KillSessionResponse>, Status> {
        let client = ConnectionHandle::of(&request)?;
        let session = client.connection().take_session(&request.get_ref().session_id)?;
        session
            .end()
            .await
            .map_err(|error| RefusalCode::NotKilled.because(portcullis_types::chain(&error)))?;
        Ok(Response::new(KillSessionResponse {}))
    }

    async fn list_sessions(
        &self,
        request: Request<ListSessionsRequest>,
    ) -> Result<Response<ListSessionsResponse>, Status> {
        let client = ConnectionHandle::of(&request)?;
        let sessions = client.connection().sessions().into_iter().map(|(id, session)| Session {
            session_id: id.to_string(),
            posture: session.info.posture.posture.clone(),
            age_ms: millis(session.since.elapsed()),
            idle_ms: if session.is_busy() { 0 } else { millis(session.last_used().elapsed()) },
            busy: session.is_busy(),
        });
        Ok(Response::new(ListSessionsResponse { sessions: sessions.collect() }))
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
