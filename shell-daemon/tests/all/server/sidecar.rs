//! Sidecars for tests, and clients for them.

use std::{
    fs::Permissions,
    io::{self, Write as _},
    os::{
        fd::OwnedFd,
        unix::{fs::PermissionsExt as _, net::UnixStream as StdUnixStream},
    },
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::Duration,
};

use hyper_util::rt::TokioIo;
use portcullis_policy::{CommandRules, VariableName};
use portcullis_shell_daemon::{
    EMBEDDED_ENTRY, EmbeddedSetup, PostureChoice, ServiceLimits, SessionConfig, SessionToolchain,
    SidecarMount, SidecarServerConfig,
};
use portcullis_shell_protocol::{
    CODE_KEY, CreateSessionRequest, ExecEvent, ExecRequest, Exited, Stream, VERSION, VERSION_KEY,
    exec_event::Event, exited::Ending, shell_client::ShellClient,
};
use portcullis_testing::kernel_environment::KernelEnvironment;
use portcullis_types::{Access, ShellPosture};
use rustix::process::{Pid, Signal};
use tokio::net::UnixStream;
use tonic::{
    Request, Status, Streaming,
    metadata::MetadataValue,
    service::{Interceptor, interceptor::InterceptedService},
    transport::{Channel, Endpoint},
};

use crate::fixture::Fixture;

pub(crate) const TOKEN: &str = "0123456789abcdef0123456789abcdef";

pub(crate) type Shell = ShellClient<InterceptedService<Channel, Credentials>>;

/// The metadata that a client sends with each call.
#[derive(Clone, Debug)]
pub(crate) struct Credentials {
    pub(crate) token: Option<String>,
    pub(crate) version: Option<String>,
}

impl Credentials {
    pub(crate) fn good() -> Self {
        Self { token: Some(TOKEN.to_owned()), version: Some(VERSION.to_owned()) }
    }
}

impl Interceptor for Credentials {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        let metadata = request.metadata_mut();
        if let Some(token) = &self.token {
            metadata.insert("authorization", MetadataValue::try_from(format!("Bearer {token}")).unwrap());
        }
        if let Some(version) = &self.version {
            metadata.insert(VERSION_KEY, MetadataValue::try_from(version).unwrap());
        }
        Ok(request)
    }
}

/// A sidecar's configuration. The mounts `shared` and `tmp` are writable, and `read` is readable.
pub(crate) fn config(fixture: &Fixture) -> SidecarServerConfig {
    let mount = |name: &str, access| SidecarMount {
        name: name.to_owned(),
        folder: name.to_owned(),
        access,
        has_undo: false,
    };
    SidecarServerConfig {
        state: fixture.path("state"),
        workspace: fixture.path(""),
        mounts: vec![
            mount("shared", Access::Write),
            mount("tmp", Access::Write),
            mount("read", Access::Read),
        ],
        home: "shared".to_owned(),
        private: vec![fixture.path("vault")],
        posture: PostureChoice::AtLeast(ShellPosture::Contained),
        toolchain: SessionToolchain::default(),
        environment: [VariableName::parse("ALLOWED").unwrap()].into(),
        commands: CommandRules::default(),
        protected: vec![".git/hooks".to_owned()],
        hidden: Vec::new(),
        network: None,
        session: SessionConfig::default(),
        service: ServiceLimits::default(),
    }
}

/// An embedded sidecar, which is killed when this is dropped.
pub(crate) struct Embedded {
    pub(crate) child: Child,
}

impl Drop for Embedded {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts a sidecar whose standard input is the other end of the returned stream.
#[expect(clippy::disallowed_methods, reason = "the sidecar is a program")]
pub(crate) fn start_embedded() -> (Embedded, StdUnixStream) {
    spawn_embedded(Command::new(env!("CARGO_BIN_EXE_portcullis-shelld")).arg(EMBEDDED_ENTRY))
}

/// Like [`start_embedded`], with a command that becomes the sidecar.
pub(crate) fn spawn_embedded(command: &mut Command) -> (Embedded, StdUnixStream) {
    let (client_end, sidecar_end) = StdUnixStream::pair().unwrap();
    let child = command.env_clear().stdin(Stdio::from(OwnedFd::from(sidecar_end))).spawn().unwrap();
    (Embedded { child }, client_end)
}

/// An embedded sidecar, and its one client.
pub(crate) async fn embedded(config: SidecarServerConfig) -> (Embedded, Shell) {
    let (sidecar, mut stream) = start_embedded();
    stream.write_all(setup_line(&config).as_bytes()).unwrap();
    (sidecar, client(stream, Credentials::good()).await)
}

/// The parent's first line.
pub(crate) fn setup_line(config: &SidecarServerConfig) -> String {
    let setup = EmbeddedSetup { token: TOKEN.to_owned(), config: config.clone() };
    format!("{}\n", serde_json::to_string(&setup).unwrap())
}

pub(crate) async fn client(stream: StdUnixStream, credentials: Credentials) -> Shell {
    ShellClient::with_interceptor(channel(stream).await.unwrap(), credentials)
}

/// Like [`client`], for a sidecar that may have hung up already.
pub(crate) async fn client_if_open(stream: StdUnixStream, credentials: Credentials) -> Option<Shell> {
    let channel = channel(stream).await.ok()?;
    Some(ShellClient::with_interceptor(channel, credentials))
}

/// A channel over one connection. When the connection closes, every call fails.
pub(crate) async fn channel(stream: StdUnixStream) -> Result<Channel, tonic::transport::Error> {
    stream.set_nonblocking(true).unwrap();
    let mut stream = Some(UnixStream::from_std(stream).unwrap());
    let connector = tower::service_fn(move |_| {
        let stream = stream.take();
        async move { stream.map(TokioIo::new).ok_or_else(|| io::Error::other("the connection is over")) }
    });
    Endpoint::from_static("http://shell").connect_with_connector(connector).await
}

/// A standalone sidecar, which is killed when this is dropped.
pub(crate) struct Standalone {
    pub(crate) child: Child,
    pub(crate) socket: PathBuf,
}

impl Drop for Standalone {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The command line of a standalone sidecar, with a token file and a path for the socket.
pub(crate) fn shelld(fixture: &Fixture) -> (Command, PathBuf) {
    shelld_with(fixture, "state")
}

/// Like [`shelld`], with another state folder.
#[expect(clippy::disallowed_methods, reason = "the sidecar is a program")]
pub(crate) fn shelld_with(fixture: &Fixture, state: &str) -> (Command, PathBuf) {
    let (token, run) = (fixture.path("token"), fixture.path("run"));
    std::fs::write(&token, format!("{TOKEN}\n")).unwrap();
    std::fs::set_permissions(&token, Permissions::from_mode(0o600)).unwrap();
    let socket = run.join("shell.sock");
    let mut command = Command::new(env!("CARGO_BIN_EXE_portcullis-shelld"));
    command.env_clear().arg("--socket").arg(&socket).arg("--token-file").arg(token);
    command.arg("--workspace").arg(fixture.path("")).arg("--state").arg(fixture.path(state));
    (command, socket)
}

/// Starts a standalone sidecar and waits until it accepts clients.
pub(crate) async fn standalone(fixture: &Fixture, extra_arguments: &[&str]) -> Standalone {
    standalone_in(fixture, extra_arguments, KernelEnvironment::Nothing).await
}

/// Like [`standalone`], inside an outer sandbox.
pub(crate) async fn standalone_in(
    fixture: &Fixture,
    extra_arguments: &[&str],
    outer: KernelEnvironment,
) -> Standalone {
    let (mut command, socket) = shelld(fixture);
    let child = outer.start(|| command.args(extra_arguments).spawn().unwrap());
    let mut sidecar = Standalone { child, socket };
    wait_until_async("the sidecar listens", || {
        assert_eq!(sidecar.child.try_wait().unwrap(), None, "the sidecar has ended");
        StdUnixStream::connect(&sidecar.socket).is_ok()
    })
    .await;
    sidecar
}

impl Standalone {
    pub(crate) fn connect(&self) -> StdUnixStream {
        StdUnixStream::connect(&self.socket).unwrap()
    }

    pub(crate) async fn client(&self) -> Shell {
        client(self.connect(), Credentials::good()).await
    }

    pub(crate) async fn client_as(&self, credentials: Credentials) -> Shell {
        client(self.connect(), credentials).await
    }

    /// Tells the sidecar to stop.
    pub(crate) fn terminate(&self) {
        signal(&self.child, Signal::TERM);
    }
}

pub(crate) fn signal(child: &Child, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    rustix::process::kill_process(pid, signal).unwrap();
}

pub(crate) fn children(process: u32) -> Vec<u32> {
    let tasks = std::fs::read_dir(format!("/proc/{process}/task")).unwrap().flatten();
    let children = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
    children
        .flat_map(|line| line.split_whitespace().map(|pid| pid.parse().unwrap()).collect::<Vec<_>>())
        .collect()
}

/// One line of `/proc/PID/status`, in KiB.
pub(crate) fn memory_kib(child: &Child, line: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let line = status.lines().find_map(|found| found.strip_prefix(line)).unwrap();
    line.trim_matches(|sign: char| !sign.is_ascii_digit()).parse().unwrap()
}

/// A request for all mounts of the sidecar.
pub(crate) fn everything() -> CreateSessionRequest {
    CreateSessionRequest { all_mounts: true, ..CreateSessionRequest::default() }
}

/// Starts a session with all mounts of the sidecar.
pub(crate) async fn session(shell: &mut Shell) -> String {
    shell.create_session(everything()).await.unwrap().into_inner().session_id
}

pub(crate) fn exec(session: &str, command: &str) -> ExecRequest {
    ExecRequest { session_id: session.to_owned(), command: command.to_owned(), ..ExecRequest::default() }
}

/// Like [`exec`], with a timeout.
pub(crate) fn exec_within(limit: Duration, session: &str, command: &str) -> ExecRequest {
    ExecRequest { timeout_ms: u64::try_from(limit.as_millis()).unwrap(), ..exec(session, command) }
}

#[derive(Debug)]
pub(crate) struct CommandResult {
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) exited: Exited,
}

/// Runs a command to its end.
pub(crate) async fn run(shell: &mut Shell, request: ExecRequest) -> Result<CommandResult, Status> {
    let (_, stream) = begin(shell, request).await?;
    finish(stream).await
}

/// The output of a command that must succeed.
pub(crate) async fn output(shell: &mut Shell, session: &str, command: &str) -> String {
    let result =
        run(shell, exec(session, command)).await.unwrap_or_else(|error| panic!("{command}: {error:?}"));
    assert_eq!(result.exited.ending, Some(Ending::Code(0)), "{command}: {result:?}");
    result.stdout
}

/// Starts a command, and returns its id and its events.
pub(crate) async fn begin(
    shell: &mut Shell,
    request: ExecRequest,
) -> Result<(String, Streaming<ExecEvent>), Status> {
    let mut stream = shell.exec(request).await?.into_inner();
    let Some(ExecEvent { event: Some(Event::Started(started)) }) = stream.message().await? else {
        panic!("the first event is not the start")
    };
    assert_eq!(started.command_id.len(), 32);
    Ok((started.command_id, stream))
}

/// Reads the remaining events of a command.
pub(crate) async fn finish(mut stream: Streaming<ExecEvent>) -> Result<CommandResult, Status> {
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    loop {
        let event = stream.message().await?.expect("no end before `exited`").event.unwrap();
        match event {
            Event::Output(output) if output.stream() == Stream::Stdout => stdout.extend(output.bytes),
            Event::Output(output) if output.stream() == Stream::Stderr => stderr.extend(output.bytes),
            Event::Exited(exited) => {
                assert!(stream.message().await?.is_none(), "something after the end");
                let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
                return Ok(CommandResult { stdout: text(stdout), stderr: text(stderr), exited });
            }
            Event::Started(_) | Event::Output(_) => panic!("{event:?} is out of place"),
        }
    }
}

/// The code of an error.
pub(crate) fn code(status: &Status) -> &str {
    status.metadata().get(CODE_KEY).map_or("", |code| code.to_str().unwrap())
}

/// Waits, without blocking the client, for a condition that must become true within forty seconds. Commands that must
/// be killed sleep for longer, and a command's timeout is longer.
#[track_caller]
pub(crate) fn wait_until_async(what: &str, mut condition: impl FnMut() -> bool) -> impl Future<Output = ()> {
    let what = what.to_owned();
    async move {
        let wait = async {
            while !condition() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        assert!(tokio::time::timeout(Duration::from_secs(40), wait).await.is_ok(), "{what}");
    }
}
